"""Data that are missing, damaged or of the wrong shape: the message says what was expected and where to get it."""

from __future__ import annotations

import gzip

import numpy as np
import pytest

from experiments import data


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("FREEZETHAW_DATA", str(tmp_path))
    for name in data.SOURCES:
        (tmp_path / name).mkdir()
    return tmp_path


LOADERS = {"mnist": data.images, "wikipedia_bow": data.articles, "movielens100k": data.ratings}
FILES = {
    "mnist": "train-images-idx3-ubyte.gz",
    "wikipedia_bow": "wikipedia_bow.npz",
    "movielens100k": "ratings.npz",
}


@pytest.mark.parametrize("name", LOADERS)
def test_missing_data_are_named_with_their_source(home, name):
    with pytest.raises(data.DataError, match=rf"{name}/{FILES[name]} is missing\. Expected: .*FREEZETHAW_DATA"):
        LOADERS[name]()


@pytest.mark.parametrize("name", LOADERS)
@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 no archive", b"\x1f\x8b no gzip either"])
def test_damaged_data_are_named_with_their_source(home, name, content):
    (home / name / FILES[name]).write_bytes(content)
    with pytest.raises(data.DataError, match=rf"{name}/{FILES[name]} is (damaged|not what is expected).*FREEZETHAW"):
        LOADERS[name]()


def test_a_cut_gzip_file_is_damaged(home):
    whole = gzip.compress(bytes(1000))
    (home / "mnist" / FILES["mnist"]).write_bytes(whole[: len(whole) // 2])
    with pytest.raises(data.DataError, match="damaged"):
        data.images()


def test_images_of_another_shape_are_refused(home):
    header = np.array([0x803, 10, 28, 28], dtype=">i4").tobytes()
    (home / "mnist" / FILES["mnist"]).write_bytes(gzip.compress(header + bytes(10 * 784)))
    with pytest.raises(data.DataError, match=r"expected are bytes of shape \(60000, 28, 28\)"):
        data.images()


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"user": np.zeros(10, int)}, "100,000 ratings"),
        ({"user": np.full(100_000, 943)}, "users from 0 to 942"),
        ({"rating": np.zeros(100_000)}, "ratings from 1 to 5"),
        ({"rating": None}, "no array rating"),
    ],
)
def test_ratings_that_are_none_are_refused(home, changed, message):
    arrays = {"user": np.zeros(100_000, int), "item": np.zeros(100_000, int), "rating": np.ones(100_000)} | changed
    kept = {name: array for name, array in arrays.items() if array is not None}
    np.savez(home / "movielens100k" / FILES["movielens100k"], **kept)
    with pytest.raises(data.DataError, match=message):
        data.ratings()


def test_articles_of_another_vocabulary_are_refused(home):
    np.savez(
        home / "wikipedia_bow" / FILES["wikipedia_bow"],
        data=np.ones(3), indices=np.zeros(3, int), indptr=np.arange(4), shape=np.array([3, 10]),
    )  # fmt: skip
    with pytest.raises(data.DataError, match="142856 articles of 7702 words"):
        data.articles()


def test_no_folder_at_all(monkeypatch):
    monkeypatch.setattr(data, "data_folder", lambda: None)
    with pytest.raises(data.DataError, match=r"set FREEZETHAW_DATA(.|\n)*grouplens"):
        data.ratings()
