"""TensorBoard event files: scalars are read as learning curves, and a search is logged as scalars.

Neither TensorBoard nor TensorFlow is needed. An event file is a sequence of records: length (8 bytes), its checksum
(4), an `Event` as protocol buffer, its checksum (4). A checksum is a rotated and shifted CRC-32C. An `Event` has a step
(field 2) and a summary (5), whose values (1) have a tag (1) and a number: the simple value (2), or a tensor (8) with
one float (dtype 1 is 1; content 4 or float_val 5).
"""

from __future__ import annotations

import json
import os
import struct
import time
from collections.abc import Iterator
from pathlib import Path

from freezethaw.errors import CurveError
from freezethaw.integrations.curves import METRIC, Curve, curve_of, usual_distance
from freezethaw.plain import plain
from freezethaw.records import Notice

FLOAT = 1  # TensorFlow's DT_FLOAT
CASTAGNOLI = 0x82F63B78  # the polynomial of CRC-32C, bits reversed
CHECKSUM_SHIFT = 0xA282EAD8

Field = int | bytes


def read_tensorboard(folder: str | Path, metric: str | None = None) -> tuple[Curve, ...]:
    """Read the learning curves of a folder that has one folder of event files per run, named by its path.

    `metric` is the tag of the loss; by default a tag such as `loss` or `val/loss`. Configurations are not read: those
    of the curves are empty.
    """
    root = Path(folder)
    scalars: dict[str, dict[str, dict[float, float]]] = {}
    for file in sorted(root.rglob("*tfevents*")):
        run = file.parent.relative_to(root).as_posix()
        for tag, step, value in _scalars(file):  # the later of two values for one step counts
            scalars.setdefault(root.name if run == "." else run, {}).setdefault(tag, {})[float(step)] = value
    tags = list(dict.fromkeys(tag for of_run in scalars.values() for tag in of_run))
    if not tags:
        raise CurveError(f"there are no event files with scalars in {root}")
    wanted = metric or next((t for like in METRIC for t in tags if t.lower().replace("_", "") == like), None)
    if wanted not in tags:
        problem = "no tag looks like a loss; name one with metric" if metric is None else f"there is no tag {metric!r}"
        raise CurveError(f"{problem}; there are: {', '.join(tags)}")
    kept = {run: of_run[wanted] for run, of_run in scalars.items() if wanted in of_run}
    usual = usual_distance(kept.values())
    return tuple(curve_of(losses, {}, run, usual) for run, losses in kept.items())


def _scalars(file: Path) -> Iterator[tuple[str, int, float]]:
    """Tag, step and value in file order. An incomplete last record is ignored: the run is still being written."""
    data = file.read_bytes()
    at = 0
    while at + 12 <= len(data):
        (length,) = struct.unpack_from("<Q", data, at)
        record = data[at + 12 : at + 12 + length]
        if len(record) < length:
            return
        at += 12 + length + 4
        try:
            yield from _decode_event(record)
        except (IndexError, struct.error, UnicodeDecodeError):
            raise CurveError(f"{file} is not a TensorBoard event file") from None


def _decode_event(record: bytes) -> Iterator[tuple[str, int, float]]:
    step, summaries = 0, []
    for number, field in _decode_fields(record):
        if number == 2 and isinstance(field, int):
            step = field
        elif number == 5 and isinstance(field, bytes):
            summaries.append(field)
    for summary in summaries:
        for number, field in _decode_fields(summary):
            if number == 1 and isinstance(field, bytes):
                tag, value = _decode_value(field)
                if value is not None:
                    yield tag, step, value


def _decode_value(record: bytes) -> tuple[str, float | None]:
    tag, value = "", None
    for number, field in _decode_fields(record):
        if not isinstance(field, bytes):
            continue
        if number == 1:
            tag = field.decode()
        elif number == 2:
            (value,) = struct.unpack("<f", field)
        elif number == 8:
            value = _decode_tensor(field)
    return tag, value


def _decode_tensor(record: bytes) -> float | None:
    """The value of a tensor with one float; None for images, texts and histograms."""
    fields = dict(_decode_fields(record))
    content = fields.get(4, fields.get(5))
    if fields.get(1) != FLOAT or not isinstance(content, bytes) or len(content) != 4:
        return None
    return float(struct.unpack("<f", content)[0])


def _decode_fields(record: bytes) -> Iterator[tuple[int, Field]]:
    """Field numbers of a protocol buffer with their contents: an integer or bytes."""
    at = 0
    while at < len(record):
        key, at = _decode_varint(record, at)
        match key & 7:
            case 0:
                number, at = _decode_varint(record, at)
                yield key >> 3, number
                continue
            case 1:
                length = 8
            case 2:
                length, at = _decode_varint(record, at)
            case 5:
                length = 4
            case _:
                raise IndexError
        if at + length > len(record):
            raise IndexError
        yield key >> 3, record[at : at + length]
        at += length


def _decode_varint(record: bytes, at: int) -> tuple[int, int]:
    """Decode a base-128 varint; return it with the position after it."""
    number = shift = 0
    while True:
        byte = record[at]
        number |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return number, at


class TensorBoardLog:
    """A callback for `ft.tune` that writes the losses of each run to `folder`/run-N, with config.json beside them."""

    def __init__(self, folder: Path | str, metric: str = "loss") -> None:
        self._folder, self._metric = Path(folder), metric
        self._files: dict[int, Path] = {}  # by run

    def __call__(self, notice: Notice) -> None:
        """Log one notice."""
        if notice.run is None or notice.kind != "epoch" or notice.loss is None:
            return
        if notice.run not in self._files:
            self._files[notice.run] = self._new_file(notice)
        with self._files[notice.run].open("ab") as file:
            file.write(_encode_record(_encode_event(notice.epoch, summary=(self._metric, notice.loss))))

    def _new_file(self, notice: Notice) -> Path:
        """Create an event file. TensorBoard shows it and those of earlier calls as one curve."""
        home = self._folder / f"run-{notice.run}"
        home.mkdir(parents=True, exist_ok=True)
        (home / "config.json").write_text(json.dumps(plain(dict(notice.config or {})), indent=1), encoding="utf-8")
        file = home / f"events.out.tfevents.{time.time_ns():020d}.freezethaw.{os.getpid()}"
        file.write_bytes(_encode_record(_encode_event(0, version=b"brain.Event:2")))
        return file


def _encode_event(step: int, version: bytes = b"", summary: tuple[str, float] | None = None) -> bytes:
    """Encode an `Event`: wall time (1), step (2), version (3) and summary (5)."""
    fields = struct.pack("<Bd", 1 << 3 | 1, time.time()) + bytes([2 << 3]) + _encode_varint(step)
    if version:
        fields += _encode_field(3, version)
    if summary is not None:
        value = _encode_field(1, summary[0].encode()) + struct.pack("<Bf", 2 << 3 | 5, summary[1])
        fields += _encode_field(5, _encode_field(1, value))
    return fields


def _encode_record(data: bytes) -> bytes:
    length = struct.pack("<Q", len(data))
    return length + _checksum(length) + data + _checksum(data)


def _checksum(data: bytes) -> bytes:
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _CRC_TABLE[(crc ^ byte) & 0xFF] ^ crc >> 8
    crc ^= 0xFFFFFFFF
    return struct.pack("<I", ((crc >> 15 | crc << 17) + CHECKSUM_SHIFT) & 0xFFFFFFFF)


def _encode_field(number: int, content: bytes) -> bytes:
    return bytes([number << 3 | 2]) + _encode_varint(len(content)) + content


def _encode_varint(number: int) -> bytes:
    found = bytearray()
    while number > 127:
        found.append(number & 127 | 128)
        number >>= 7
    return bytes([*found, number])


def _crc_table() -> list[int]:
    """The CRC-32C of each byte."""
    found = []
    for crc in range(256):
        for _ in range(8):
            crc = crc >> 1 ^ (CASTAGNOLI if crc & 1 else 0)
        found.append(crc)
    return found


_CRC_TABLE = _crc_table()
