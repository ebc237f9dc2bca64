"""Data classes from the plain data of files: the inverse of `encoding`, for JSON that foretrain itself wrote.

`restore(Run, row)` reads a mapping into a class by the types of its fields. What does not fit raises
`Malformed`, a sentence with the place of the field, the value that is there, and what it must be:

    series[1].resource is 'soup'; it must be one of cpu, memory, ...

A file keeps what it can: nothing (`null`) in place of a number is NaN, as JSON has no NaN; a field that is
absent has its default; what a class does not know is left out, so that a newer file can be read. Requests of
users are read by `decoding`, which refuses unknown keys and knows units. Reasons for one decoder of our own:
`docs/adr/0027-typed-decoding.md`.
"""

from __future__ import annotations

import dataclasses
import json
import math
import types
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from foretrain.errors import InvalidData

T = TypeVar("T")
Read = Callable[[Any, str], Any]
_SHOWN = 60
"""Characters of a value in a message."""


class Malformed(ValueError):
    """A value that is not what its field takes; the message names the field."""


def restore(kind: type[T], plain: Any, what: str = "it") -> T:
    """The data class of plain data; `what` it is, for the message where it is no mapping."""
    if not isinstance(plain, Mapping):
        raise Malformed(f"{what} is {_shown(plain)}, not a mapping of fields")
    read = _reader(cast(Any, kind))
    restored: T = read(plain, "")
    return restored


def read_json_object(file: Path, what: str, remedy: str = "") -> dict[str, Any]:
    """The JSON object of a file; anything else raises `InvalidData`: that it is not `what`, and a remedy."""
    after = f"; {remedy}" if remedy else ""
    try:
        content = json.loads(file.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise InvalidData(str(file), f"is not {what}: {error}{after}") from error
    if not isinstance(content, dict):
        raise InvalidData(str(file), f"is not {what}: it holds no object, but {_shown(content)}{after}")
    return content


@cache
def _reader(hint: Any) -> Read:
    """What reads a value of a type: built once for each."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return _union(arguments)
    if hint in _SCALARS:
        return _SCALARS[hint]
    if isinstance(hint, type) and issubclass(hint, Enum):
        return _enum(hint)
    if dataclasses.is_dataclass(hint):
        return _fields_reader(hint)
    base = origin or hint
    if base is tuple and (len(arguments) != 2 or arguments[1] is not Ellipsis):
        return _fixed(arguments)
    if base in (tuple, list, frozenset):
        return _sequence(base, arguments[0] if arguments else Any)
    if isinstance(base, type) and issubclass(base, Mapping):
        return _mapping(arguments[1] if arguments else Any)
    if getattr(base, "__name__", "") == "ndarray":
        return _numbers
    raise TypeError(f"no reader of {hint}; files hold numbers, text, times, lists, mappings and data classes")


def _error(path: str, value: Any, wanted: str) -> Malformed:
    return Malformed(f"{path} is {_shown(value)}; it must be {wanted}")


def _shown(value: Any) -> str:
    text = repr(value)
    return "missing" if value is None else text if len(text) < _SHOWN else f"{text[: _SHOWN - 3]}..."


def _anything(value: Any, _: str) -> Any:
    return value


def _text(value: Any, path: str) -> str:
    if not isinstance(value, str):
        raise _error(path, value, "text")
    return value


def _whole(value: Any, path: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise _error(path, value, "a whole number")
    return value


def _number(value: Any, path: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float | None):
        raise _error(path, value, "a number")
    return math.nan if value is None else float(value)


def _truth(value: Any, path: str) -> bool:
    if not isinstance(value, bool):
        raise _error(path, value, "true or false")
    return value


def _time(value: Any, path: str) -> datetime:
    try:
        time = value if isinstance(value, datetime) else datetime.fromisoformat(value or "")
    except (TypeError, ValueError) as error:
        raise _error(path, value, "a time such as 2026-11-16T12:30:00+00:00") from error
    if time.utcoffset() is None:
        raise _error(path, value, "a time with its zone, such as 2026-11-16T12:30:00+00:00")
    return time.astimezone(UTC)


_SCALARS: dict[Any, Read] = {
    Any: _anything,
    object: _anything,
    str: _text,
    int: _whole,
    float: _number,
    bool: _truth,
    datetime: _time,
}


def _numbers(value: Any, path: str) -> Any:
    import numpy as np

    try:
        if not isinstance(value, list):
            raise TypeError
        return np.array([math.nan if each is None else each for each in value], dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise _error(path, value, "a list of numbers") from error


def _union(arguments: tuple[Any, ...]) -> Read:
    """Nothing where that is allowed, else the first type that fits; one that does not is the last's error."""
    readers = [_reader(each) for each in arguments if each is not type(None)]
    is_optional = type(None) in arguments

    def read(value: Any, path: str) -> Any:
        if value is None and is_optional:
            return None
        for reader in readers[:-1]:
            try:
                return reader(value, path)
            except Malformed:
                continue
        return readers[-1](value, path)

    return read


def _enum(kind: type[Enum]) -> Read:
    def read(value: Any, path: str) -> Enum:
        try:
            return kind(value)
        except ValueError as error:
            raise _error(path, value, f"one of {', '.join(str(each.value) for each in kind)}") from error

    return read


def _sequence(kind: type, of: Any) -> Read:
    reader = _reader(of)
    wanted = {str: "a list of words", float: "a list of numbers", int: "a list of whole numbers"}.get(
        of, "a list"
    )

    def read(value: Any, path: str) -> Any:
        if not isinstance(value, list | tuple):
            raise _error(path, value, wanted)
        return kind(reader(each, f"{path}[{place}]") for place, each in enumerate(value))

    return read


def _fixed(kinds: tuple[Any, ...]) -> Read:
    readers = [_reader(each) for each in kinds]

    def read(value: Any, path: str) -> tuple[Any, ...]:
        if not isinstance(value, list | tuple) or len(value) != len(readers):
            raise _error(path, value, f"a list of {len(readers)} values")
        pairs = zip(readers, value, strict=True)
        return tuple(reader(each, f"{path}[{place}]") for place, (reader, each) in enumerate(pairs))

    return read


def _mapping(of: Any) -> Read:
    reader = _reader(of)

    def read(value: Any, path: str) -> dict[str, Any]:
        if not isinstance(value, Mapping):
            raise _error(path, value, "a mapping")
        if reader is _anything:
            return dict(value)
        return {str(name): reader(each, f"{path}.{name}") for name, each in value.items()}

    return read


def _fields_reader(kind: Any) -> Read:
    """Of a data class, field by field; its own check of them (`ValueError`) is a message too."""
    fields = tuple(_fields(kind))

    def read(value: Any, path: str) -> Any:
        if not isinstance(value, Mapping):
            raise _error(path, value, "a mapping of fields")
        prefix = f"{path}." if path else ""
        values = {}
        for name, reader, has_default in fields:
            given = value.get(name)
            if given is None and has_default:
                continue
            if name not in value:
                reader = _required(reader)
            values[name] = reader(given, f"{prefix}{name}")
        try:
            return kind(**values)
        except Malformed:
            raise
        except ValueError as error:
            raise Malformed(f"{prefix}{error}") from error

    return read


def _fields(kind: Any) -> Iterator[tuple[str, Read, bool]]:
    hints = get_type_hints(kind)
    for field in dataclasses.fields(kind):
        has_default = (
            field.default is not dataclasses.MISSING or field.default_factory is not dataclasses.MISSING
        )
        yield field.name, _reader(hints[field.name]), has_default


def _required(reader: Read) -> Read:
    """A number may be nothing, which is NaN, but not be absent."""

    def read(value: Any, path: str) -> Any:
        if reader is _number:
            raise _error(path, value, "a number")
        return reader(value, path)

    return read
