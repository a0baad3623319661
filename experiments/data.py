"""The paper's data sets, read and checked: MNIST, articles of Wikipedia, ratings of MovieLens 100K.

They lie where the benchmarks find theirs: in the folder FREEZETHAW_DATA, or in ../shared/data beside the project.
"""

from __future__ import annotations

import gzip
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
from benchmarks.tables import data_folder

VALIDATION_IMAGES = 10_000  # the last of MNIST's 60,000 images for training
VALIDATION_SHARE = 0.1  # of articles and of ratings
SPLIT_SEED = 2014  # one split for all runs: their losses are to be compared
USERS, ITEMS = 943, 1682
ARTICLES, VOCABULARY = 142_856, 7_702

SOURCES = {
    "mnist": "the four gzipped idx files of LeCun, Cortes and Burges (yann.lecun.com/exdb/mnist, or any mirror) in "
    "the folder mnist/",
    "wikipedia_bow": "wikipedia_bow/wikipedia_bow.npz: word counts of articles as a CSR matrix, arrays data, indices, "
    "indptr and shape, over the vocabulary of blei-lab/onlineldavb",
    "movielens100k": "u.data of ml-100k.zip (grouplens.org/datasets/movielens/100k; it may not be passed on) as "
    "movielens100k/ratings.npz with arrays user and item, from 0, and rating, from 1 to 5",
}


class DataError(Exception):
    """A data set is missing, damaged or not of the expected shape; the message says where to get it."""


@dataclass(frozen=True)
class Images:
    """MNIST's images for training, the last of them held out: pixels from 0 to 255, labels from 0 to 9."""

    pixels: np.ndarray  # (N, 784) uint8
    labels: np.ndarray  # (N,) int64
    held_out_pixels: np.ndarray
    held_out_labels: np.ndarray


@dataclass(frozen=True)
class Articles:
    """Word counts of articles, one after the other: those of article i lie from starts[i] to starts[i + 1]."""

    counts: np.ndarray  # (entries,) float32
    words: np.ndarray  # (entries,) int32
    starts: np.ndarray  # (articles + 1,) int64
    vocabulary: int

    def __len__(self) -> int:
        return len(self.starts) - 1

    @property
    def lengths(self) -> np.ndarray:
        """How many different words each article has."""
        return np.diff(self.starts)

    def part(self, first: int, last: int) -> Articles:
        """Articles from `first` to before `last`."""
        low, high = self.starts[first], self.starts[last]
        return Articles(
            self.counts[low:high], self.words[low:high], self.starts[first : last + 1] - low, self.vocabulary
        )

    def every_other_word(self, odd: bool) -> Articles:
        """The even or the odd of each article's different words, so that one half can be predicted from the other."""
        place = np.arange(len(self.words)) - np.repeat(self.starts[:-1], self.lengths)
        kept = place % 2 == int(odd)
        starts = np.concatenate([[0], np.cumsum(kept)])[self.starts]
        return Articles(self.counts[kept], self.words[kept], starts, self.vocabulary)


@dataclass(frozen=True)
class Ratings:
    """Who rated what how."""

    user: np.ndarray  # (N,) int64
    item: np.ndarray
    rating: np.ndarray  # (N,) float64

    def __len__(self) -> int:
        return len(self.rating)

    def rows(self, which: np.ndarray) -> Ratings:
        """Some of them."""
        return Ratings(self.user[which], self.item[which], self.rating[which])


def images() -> Images:
    """MNIST: 50,000 images to train on, 10,000 held out."""
    return _images(folder())


def articles() -> tuple[Articles, Articles]:
    """Wikipedia: articles to train on, and the 10 % held out. The rows of the file are shuffled already."""
    return _articles(folder())


def ratings() -> tuple[Ratings, Ratings]:
    """MovieLens 100K: ratings to train on, and the 10 % held out."""
    return _ratings(folder())


def folder() -> Path:
    """Where the data are; raises DataError where there is no such folder."""
    found = data_folder()
    if found is None:
        wanted = "\n  ".join(SOURCES.values())
        raise DataError(f"there is no folder of data: set FREEZETHAW_DATA to one that holds\n  {wanted}")
    return found


@cache
def _images(home: Path) -> Images:
    pixels = _idx(home / "mnist" / "train-images-idx3-ubyte.gz", (60_000, 28, 28)).reshape(60_000, 784)
    labels = _idx(home / "mnist" / "train-labels-idx1-ubyte.gz", (60_000,)).astype(np.int64)
    if labels.max() > 9:
        raise _wrong(home / "mnist" / "train-labels-idx1-ubyte.gz", f"a label {labels.max()}", "labels from 0 to 9")
    n = len(pixels) - VALIDATION_IMAGES
    return Images(pixels[:n], labels[:n], pixels[n:], labels[n:])


@cache
def _articles(home: Path) -> tuple[Articles, Articles]:
    file = home / "wikipedia_bow" / "wikipedia_bow.npz"
    found = _arrays(file, ("data", "indices", "indptr", "shape"))
    shape = tuple(int(n) for n in found["shape"])
    counts, words, starts = found["data"], found["indices"], found["indptr"].astype(np.int64)
    if shape != (ARTICLES, VOCABULARY) or starts.shape != (ARTICLES + 1,):
        raise _wrong(file, f"a matrix of shape {shape}", f"{ARTICLES} articles of {VOCABULARY} words")
    if starts[0] != 0 or np.diff(starts).min() < 1 or not len(counts) == len(words) == starts[-1]:
        raise _wrong(file, "rows that do not fit its entries", "a CSR matrix without empty rows")
    if words.max() >= VOCABULARY or counts.min() < 1:
        raise _wrong(file, "words outside the vocabulary, or counts below 1", "positive counts of its words")
    everything = Articles(counts.astype(np.float32), words.astype(np.int32), starts, VOCABULARY)
    n = len(everything) - int(VALIDATION_SHARE * len(everything))
    return everything.part(0, n), everything.part(n, len(everything))


@cache
def _ratings(home: Path) -> tuple[Ratings, Ratings]:
    file = home / "movielens100k" / "ratings.npz"
    found = _arrays(file, ("user", "item", "rating"))
    user, item = found["user"].astype(np.int64), found["item"].astype(np.int64)
    rating = found["rating"].astype(np.float64)
    if not user.shape == item.shape == rating.shape == (100_000,):
        raise _wrong(file, f"arrays of shapes {user.shape}, {item.shape}, {rating.shape}", "100,000 ratings")
    if user.min() < 0 or user.max() >= USERS or item.min() < 0 or item.max() >= ITEMS:
        raise _wrong(file, "users or items out of range", f"users from 0 to {USERS - 1}, items from 0 to {ITEMS - 1}")
    if rating.min() < 1 or rating.max() > 5:
        raise _wrong(file, f"ratings from {rating.min():g} to {rating.max():g}", "ratings from 1 to 5")
    everything = Ratings(user, item, rating)
    order = np.random.default_rng(SPLIT_SEED).permutation(len(everything))
    n = len(everything) - int(VALIDATION_SHARE * len(everything))
    return everything.rows(order[:n]), everything.rows(order[n:])


def _idx(file: Path, shape: tuple[int, ...]) -> np.ndarray:
    """One of MNIST's files: a magic number 8 (bytes) and the number of dimensions, their sizes, then the bytes."""
    try:
        content = gzip.decompress(file.read_bytes())
    except (OSError, EOFError, zlib.error) as error:
        raise _unreadable(file, error) from error
    header = 4 * (1 + len(shape))
    magic = np.frombuffer(content[:header].ljust(header, b"\0"), dtype=">i4")
    if magic[0] != 0x800 + len(shape) or tuple(magic[1:]) != shape or len(content) != header + np.prod(shape):
        raise _wrong(file, f"a header {magic.tolist()} and {len(content)} bytes", f"bytes of shape {shape}")
    return np.frombuffer(content, dtype=np.uint8, offset=header).reshape(shape)


def _arrays(file: Path, names: Sequence[str]) -> Mapping[str, np.ndarray]:
    try:
        with file.open("rb") as stream, np.load(stream, allow_pickle=False) as found:
            missing = [name for name in names if name not in found]
            if missing:
                raise _wrong(file, f"no array {' and no array '.join(missing)}", f"arrays {', '.join(names)}")
            return {name: found[name] for name in names}
    except (OSError, EOFError, ValueError, zipfile.BadZipFile, zlib.error) as error:
        raise _unreadable(file, error) from error


def _unreadable(file: Path, error: Exception) -> DataError:
    what = "is missing" if isinstance(error, FileNotFoundError) else f"is damaged ({error})"
    return DataError(f"{_short(file)} {what}. Expected: {SOURCES[file.parent.name]}. {_where()}")


def _wrong(file: Path, found: str, expected: str) -> DataError:
    return DataError(
        f"{_short(file)} is not what is expected: it has {found}; expected are {expected}. "
        f"Get {SOURCES[file.parent.name]}. {_where()}"
    )


def _short(file: Path) -> str:
    return f"{file.parent.name}/{file.name}"


def _where() -> str:
    return "Data are looked for in the folder FREEZETHAW_DATA, else in ../shared/data beside the project"
