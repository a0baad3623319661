"""To TensorBoard: an event file for each run. Neither TensorBoard nor TensorFlow is needed to write them.

What an event file is, `freezethaw.doors.tensorboard` says, which reads them. A record's checksum is a CRC-32C, rotated
and shifted by a constant.
"""

from __future__ import annotations

import json
import os
import struct
import time
from pathlib import Path

from freezethaw.plain import plain
from freezethaw.records import Notice

CASTAGNOLI = 0x82F63B78  # the polynomial of CRC-32C, bits reversed
SHIFT = 0xA282EAD8


class TensorBoardLog:
    """A callback of `ft.tune`: the losses of each run go to `folder`/run-N, with its configuration as config.json."""

    def __init__(self, folder: Path | str, metric: str = "loss") -> None:
        self._folder, self._metric = Path(folder), metric
        self._files: dict[int, Path] = {}  # of the runs that this process has told of

    def __call__(self, notice: Notice) -> None:
        """Log what happened."""
        if notice.run is None or notice.kind != "epoch" or notice.loss is None:
            return
        if notice.run not in self._files:
            self._files[notice.run] = self._begun(notice)
        with self._files[notice.run].open("ab") as file:
            file.write(_record(_event(notice.epoch, summary=(self._metric, notice.loss))))

    def _begun(self, notice: Notice) -> Path:
        """A new file, beside those of earlier calls: TensorBoard shows them as one curve."""
        home = self._folder / f"run-{notice.run}"
        home.mkdir(parents=True, exist_ok=True)
        (home / "config.json").write_text(json.dumps(plain(dict(notice.config or {})), indent=1), encoding="utf-8")
        file = home / f"events.out.tfevents.{time.time_ns():020d}.freezethaw.{os.getpid()}"
        file.write_bytes(_record(_event(0, version=b"brain.Event:2")))
        return file


def _event(step: int, version: bytes = b"", summary: tuple[str, float] | None = None) -> bytes:
    """The fields of an `Event`: wall time (1), step (2), version (3) and summary (5)."""
    fields = struct.pack("<Bd", 1 << 3 | 1, time.time()) + bytes([2 << 3]) + _varint(step)
    if version:
        fields += _part(3, version)
    if summary is not None:
        value = _part(1, summary[0].encode()) + struct.pack("<Bf", 2 << 3 | 5, summary[1])
        fields += _part(5, _part(1, value))
    return fields


def _record(data: bytes) -> bytes:
    length = struct.pack("<Q", len(data))
    return length + _checksum(length) + data + _checksum(data)


def _checksum(data: bytes) -> bytes:
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _TABLE[(crc ^ byte) & 0xFF] ^ crc >> 8
    crc ^= 0xFFFFFFFF
    return struct.pack("<I", ((crc >> 15 | crc << 17) + SHIFT) & 0xFFFFFFFF)


def _part(number: int, content: bytes) -> bytes:
    return bytes([number << 3 | 2]) + _varint(len(content)) + content


def _varint(number: int) -> bytes:
    found = bytearray()
    while number > 127:
        found.append(number & 127 | 128)
        number >>= 7
    return bytes([*found, number])


def _table() -> list[int]:
    """The remainder of each byte."""
    found = []
    for crc in range(256):
        for _ in range(8):
            crc = crc >> 1 ^ (CASTAGNOLI if crc & 1 else 0)
        found.append(crc)
    return found


_TABLE = _table()
