"""TensorBoard event files, read without TensorBoard: TFRecords of Event messages, scalars only.

A record is a little-endian uint64 length, a CRC of it, the bytes, a CRC of them. Of an Event only field 2
(step) and field 5 (summary) matter; of a summary's values field 1 (tag), 2 (simple_value) and 8 (tensor).
Reference: tensorflow/core/util/event.proto, tensorflow/core/framework/{summary,tensor}.proto.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

from foretrain.convergence.logs._base import Log, LogReader, log_of_rows, read_value
from foretrain.errors import InvalidData

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_FLOAT, _DOUBLE = 1, 2
Field = tuple[int, int | bytes]


class TensorBoard(LogReader):
    """A file of the kind events.out.tfevents.*; a last record cut short (a run still going) is left out."""

    name = "tensorboard"

    def suits(self, path: Path) -> bool:
        return "tfevents" in path.name

    def read(self, path: Path) -> Log:
        rows: dict[int, dict[str, float]] = {}
        for place, record in enumerate(_records(path.read_bytes(), path.name), start=1):
            try:
                step, scalars = _scalars(record)
            except (IndexError, struct.error, UnicodeDecodeError, ValueError):
                raise InvalidData(path.name, "not an Event message", place) from None
            if scalars:
                rows.setdefault(step, {"step": float(step)}).update(scalars)
        if not rows:
            raise InvalidData(path.name, "no scalars in this event file")
        return log_of_rows(path.name, rows.values())


def _records(data: bytes, file: str) -> Iterator[bytes]:
    position = 0
    while position + 12 <= len(data):
        (length,) = struct.unpack_from("<Q", data, position)
        end = position + 12 + length + 4
        if end > len(data):
            if position == 0:
                raise InvalidData(file, "not a TensorBoard event file: its first record does not end", 1)
            return
        yield data[position + 12 : end - 4]
        position = end


def _fields(data: bytes) -> Iterator[Field]:
    """Field number and raw value of each field of a protobuf message."""
    position = 0
    while position < len(data):
        key, position = _varint(data, position)
        kind = key & 7
        if kind == _VARINT:
            value, position = _varint(data, position)
            yield key >> 3, value
            continue
        if kind == _BYTES:
            size, position = _varint(data, position)
        elif kind in (_FIXED32, _FIXED64):
            size = 4 if kind == _FIXED32 else 8
        else:
            raise ValueError(f"wire type {kind}")
        if position + size > len(data):
            raise IndexError(position)
        yield key >> 3, data[position : position + size]
        position += size


def _varint(data: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7


def _scalars(event: bytes) -> tuple[int, dict[str, float]]:
    step, scalars = 0, {}
    for number, value in _fields(event):
        if number == 2 and isinstance(value, int):
            step = value
        elif number == 5 and isinstance(value, bytes):
            for inner, item in _fields(value):
                if inner == 1 and isinstance(item, bytes) and (scalar := _value(item)) is not None:
                    scalars[scalar[0]] = read_value(scalar[1])
    return step, scalars


def _value(item: bytes) -> tuple[str, float] | None:
    tag, scalar = "", None
    for number, value in _fields(item):
        if number == 1 and isinstance(value, bytes):
            tag = value.decode()
        elif number == 2 and isinstance(value, bytes) and len(value) == 4:
            scalar = float(struct.unpack("<f", value)[0])
        elif number == 8 and isinstance(value, bytes):
            scalar = _tensor(value)
    return None if scalar is None or not tag else (tag, scalar)


def _tensor(data: bytes) -> float | None:
    """The number in a tensor of one element, float or double."""
    kind, raw = _FLOAT, b""
    for number, value in _fields(data):
        if number == 1 and isinstance(value, int):
            kind = value
        elif number in (4, 5, 6) and isinstance(value, bytes):
            raw = value
    sizes = {_FLOAT: ("<f", 4), _DOUBLE: ("<d", 8)}
    if kind not in sizes or len(raw) != sizes[kind][1]:
        return None
    return float(struct.unpack(sizes[kind][0], raw)[0])
