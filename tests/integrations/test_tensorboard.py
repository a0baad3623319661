"""Event files that tensorboardX wrote are read without any library."""

from __future__ import annotations

import shutil
import struct
from pathlib import Path

import pytest

import freezethaw as ft
from freezethaw.integrations import read_tensorboard

FILES = Path(__file__).parent / "files" / "tensorboard"  # written by tensorboardX 2.6; the host's name replaced


def test_files_that_tensorboardx_wrote():
    fast, slow = read_tensorboard(FILES)
    assert (fast.name, slow.name) == ("fast", "slow")
    assert fast.losses == pytest.approx([0.1 + 1 / epoch for epoch in range(1, 7)], rel=1e-6)
    assert slow.losses == pytest.approx([0.01 + 1 / epoch for epoch in range(1, 5)], rel=1e-6)
    assert read_tensorboard(FILES, metric="accuracy")[0].losses == pytest.approx([0.9] * 6)
    [alone] = read_tensorboard(FILES / "fast")
    assert (alone.name, alone.losses) == ("fast", fast.losses)
    assert len(ft.forecast([fast, slow], max_epochs=6)) == 2


def part(number, content):
    return bytes([number << 3 | 2, len(content)]) + content


def test_a_scalar_may_be_a_tensor(tmp_path):
    """As TensorFlow 2 writes it."""
    records = []
    for step in (1, 2):
        tensor = bytes([1 << 3, 1]) + part(4, struct.pack("<f", 0.5 * step))
        value = part(1, b"loss") + part(8, tensor)
        event = bytes([2 << 3, step]) + part(5, part(1, value))
        records.append(struct.pack("<QI", len(event), 0) + event + bytes(4))
    (tmp_path / "events.out.tfevents.1").write_bytes(b"".join(records))
    assert read_tensorboard(tmp_path)[0].losses == (0.5, 1.0)


def test_the_last_record_may_be_cut_off(tmp_path):
    [file] = (FILES / "fast").iterdir()
    (tmp_path / file.name).write_bytes(file.read_bytes()[:-70])
    assert len(read_tensorboard(tmp_path)[0].losses) == 5


def test_what_is_wrong_is_named(tmp_path):
    with pytest.raises(ft.CurveError, match="no tag 'f1'; there are: val/loss, accuracy"):
        read_tensorboard(FILES, metric="f1")
    with pytest.raises(ft.CurveError, match="no event files"):
        read_tensorboard(tmp_path)
    shutil.copy(__file__, tmp_path / "tfevents")
    with pytest.raises(ft.CurveError, match="no event files"):
        read_tensorboard(tmp_path)
    (tmp_path / "tfevents").write_bytes(struct.pack("<QI", 3, 0) + b"\xff\xff\xff" + bytes(4))
    with pytest.raises(ft.CurveError, match="is not a TensorBoard event file"):
        read_tensorboard(tmp_path)
