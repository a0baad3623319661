"""From TensorBoard: the scalars of event files are curves. Neither TensorBoard nor TensorFlow is needed to read them.

An event file is a sequence of records: length (8 bytes), its checksum (4), an `Event` as protocol buffer, a checksum
(4). Of an `Event` we need the step (field 2) and its summary (5), whose values (1) have a tag (1) and a number: the
simple value (2), or a tensor (8) of one float (its dtype 1 is 1; content 4 or float_val 5).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

from freezethaw.doors.curves import METRIC, Curve, curve_of, usual_distance
from freezethaw.errors import CurveError

FLOAT = 1  # of TensorFlow's types

Field = int | bytes


def read_tensorboard(folder: str | Path, metric: str | None = None) -> tuple[Curve, ...]:
    """Curves from a folder with one folder of event files for each run, whose path is its name.

    `metric` is the tag of the loss; else one like `loss` or `val/loss`. Event files know no configurations that can be
    read without TensorBoard: those of the curves are empty.
    """
    root = Path(folder)
    scalars: dict[str, dict[str, dict[float, float]]] = {}
    for file in sorted(root.rglob("*tfevents*")):
        run = file.parent.relative_to(root).as_posix()
        for tag, step, value in _scalars(file):  # of two values for one step the later counts
            scalars.setdefault(root.name if run == "." else run, {}).setdefault(tag, {})[float(step)] = value
    tags = list(dict.fromkeys(tag for of_run in scalars.values() for tag in of_run))
    if not tags:
        raise CurveError(f"there are no event files with scalars in {root}")
    wanted = metric or next((t for like in METRIC for t in tags if t.lower().replace("_", "") == like), None)
    if wanted not in tags:
        said = "no tag looks like the loss; say which one it is with metric" if metric is None else f"no tag {metric!r}"
        raise CurveError(f"{said}; there are: {', '.join(tags)}")
    kept = {run: of_run[wanted] for run, of_run in scalars.items() if wanted in of_run}
    usual = usual_distance(kept.values())
    return tuple(curve_of(losses, {}, run, usual) for run, losses in kept.items())


def _scalars(file: Path) -> Iterator[tuple[str, int, float]]:
    """Tag, step and value, in the order written; a record that is not whole is the last, of a run under way."""
    data = file.read_bytes()
    at = 0
    while at + 12 <= len(data):
        (length,) = struct.unpack_from("<Q", data, at)
        record = data[at + 12 : at + 12 + length]
        if len(record) < length:
            return
        at += 12 + length + 4
        try:
            yield from _of_event(record)
        except (IndexError, struct.error, UnicodeDecodeError):
            raise CurveError(f"{file} is no event file of TensorBoard") from None


def _of_event(record: bytes) -> Iterator[tuple[str, int, float]]:
    step, summaries = 0, []
    for number, field in _fields(record):
        if number == 2 and isinstance(field, int):
            step = field
        elif number == 5 and isinstance(field, bytes):
            summaries.append(field)
    for summary in summaries:
        for number, field in _fields(summary):
            if number == 1 and isinstance(field, bytes):
                tag, value = _of_value(field)
                if value is not None:
                    yield tag, step, value


def _of_value(record: bytes) -> tuple[str, float | None]:
    tag, value = "", None
    for number, field in _fields(record):
        if not isinstance(field, bytes):
            continue
        if number == 1:
            tag = field.decode()
        elif number == 2:
            (value,) = struct.unpack("<f", field)
        elif number == 8:
            value = _of_tensor(field)
    return tag, value


def _of_tensor(record: bytes) -> float | None:
    """The number of a tensor that is one float; none for images, texts and histograms."""
    fields = dict(_fields(record))
    content = fields.get(4, fields.get(5))
    if fields.get(1) != FLOAT or not isinstance(content, bytes) or len(content) != 4:
        return None
    return float(struct.unpack("<f", content)[0])


def _fields(record: bytes) -> Iterator[tuple[int, Field]]:
    """Numbers and contents of a protocol buffer's fields: an integer, or bytes."""
    at = 0
    while at < len(record):
        key, at = _varint(record, at)
        match key & 7:
            case 0:
                number, at = _varint(record, at)
                yield key >> 3, number
                continue
            case 1:
                length = 8
            case 2:
                length, at = _varint(record, at)
            case 5:
                length = 4
            case _:
                raise IndexError
        if at + length > len(record):
            raise IndexError
        yield key >> 3, record[at : at + length]
        at += length


def _varint(record: bytes, at: int) -> tuple[int, int]:
    """Seven bits a byte, lowest first; the highest bit says that there are more."""
    number = shift = 0
    while True:
        byte = record[at]
        number |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return number, at
