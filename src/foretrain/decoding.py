"""Requests as plain data: every option is declared once, on a dataclass field, and one decoder reads it.

    @dataclass(frozen=True, kw_only=True)
    class Request:
        batch: int | None = option(whole_number(at_least=1), "Samples per device and step.")

`decode` builds such a dataclass from a mapping: command-line options, a YAML file, Python keywords or a JSON
body. Values may be typed (`32`) or text (`"32"`, `"12h30m"`). Unknown keys, wrong types, units and choices
are errors that name the field, the value and what would work; fields stand in backticks, so that a front end
may spell them its own way (`global_batch` is `--global-batch` on the command line).
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, field, fields, replace
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, cast

from foretrain.errors import InvalidData, InvalidRequest, MissingData, UnknownName, nearest
from foretrain.units import UnitError, parse_bandwidth, parse_count, parse_duration, parse_money

T = TypeVar("T")

_OPTION = "option"


class Unreadable(ValueError):
    """A value that an option does not take, with the reason where there is more to say than what it takes."""


@dataclass(frozen=True, slots=True)
class OptionKind:
    """What values an option takes.

    `read` turns a value into the field's type and raises `Unreadable` for any other; `wanted` completes "it
    must be ..." where that error has no text; `python` is the type that Python callers may pass. `many`
    options may be repeated and take lists. `beside` makes a value of a file relative to the folder of that
    file. A number in a file `needs_unit` as one on a command line does; from Python it is in foretrain's own
    unit (seconds).
    """

    metavar: str
    wanted: str
    read: Callable[[Any], Any]
    python: str = "str"
    many: bool = False
    is_switch: bool = False
    choices: tuple[str, ...] = ()
    beside: Callable[[Any, Path], Any] | None = None
    needs_unit: bool = False


@dataclass(frozen=True, slots=True)
class Option:
    """An option as declared on a field. `help` may be a function where the text must be looked up.

    `panel` is the heading it stands under in a help text; `positional` options need no name on a command
    line; `flags` are other spellings there, without dashes (`prefetch/no-overlap`); `complete` names what
    shells complete it from.
    """

    name: str
    kind: OptionKind
    help: str | Callable[[], str]
    panel: str
    default: Any
    is_required: bool
    positional: bool
    flags: tuple[str, ...]
    metavar: str
    complete: str

    @property
    def text(self) -> str:
        """The help text."""
        return self.help if isinstance(self.help, str) else self.help()

    @property
    def python(self) -> str:
        """The type that Python callers may pass."""
        may_be_none = self.default is None and not self.is_required
        return f"{self.kind.python} | None" if may_be_none else self.kind.python


def option(
    kind: OptionKind,
    help: str | Callable[[], str],  # noqa: A002 - the usual name
    *,
    default: Any = None,
    required: bool = False,
    panel: str = "",
    positional: bool = False,
    flags: Sequence[str] = (),
    metavar: str = "",
    complete: str = "",
) -> Any:
    """A dataclass field that is an option; None is its default unless it is required."""
    declared = {
        "kind": kind, "help": help, "panel": panel, "positional": positional, "flags": tuple(flags),
        "metavar": metavar or kind.metavar, "complete": complete,
    }  # fmt: skip
    return field(default=MISSING if required else default, metadata={_OPTION: declared})


def options(cls: Any) -> tuple[Option, ...]:
    """The options of a request class: those of its bases in the order these are listed, then its own."""
    return _options(cls)


@cache
def _options(cls: Any) -> tuple[Option, ...]:
    declared = {each.name: each for each in fields(cls) if _OPTION in each.metadata}
    return tuple(_option(declared[name]) for name in dict.fromkeys(_order(cls)) if name in declared)


def _order(cls: type[Any]) -> Iterator[str]:
    for base in cls.__bases__:
        yield from _order(base)
    yield from vars(cls).get("__annotations__", ())


def _option(declared: Field[Any]) -> Option:
    return Option(
        name=declared.name,
        default=None if declared.default is MISSING else declared.default,
        is_required=declared.default is MISSING,
        **declared.metadata[_OPTION],
    )


LARGEST = 10**15
"""No count of samples, steps or bytes is larger; sizes of tensors beyond it overflow."""


def whole_number(at_least: int | None = None, at_most: int = LARGEST) -> OptionKind:
    """An int; also text, and a float without fraction (`1e6`)."""

    def read(value: Any) -> int:
        if isinstance(value, str):
            value = _number(value)
        if isinstance(value, bool) or not isinstance(value, int | float) or value != math.floor(value):
            raise Unreadable
        if at_least is not None and value < at_least:
            raise Unreadable
        if value > at_most:
            raise Unreadable(f"{value} is too large; it must be a whole number of at most {at_most:,}")
        return int(value)

    return OptionKind("INT", f"a whole number{_bound(at_least)}", read, "int")


def number(
    at_least: float | None = None, above: float | None = None, at_most: float | None = None
) -> OptionKind:
    """A finite float; also text."""
    wanted = f"a number{_bound(at_least)}" + ("" if above is None else f" above {above:g}")
    wanted += "" if at_most is None else f" and at most {at_most:g}"

    def read(value: Any) -> float:
        if isinstance(value, str):
            value = _number(value)
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise Unreadable
        too_small = (at_least is not None and value < at_least) or (above is not None and value <= above)
        if too_small or (at_most is not None and value > at_most):
            raise Unreadable
        return float(value)

    return OptionKind("NUMBER", wanted, read, "float")


def _bound(at_least: float | None) -> str:
    return "" if at_least is None else f" of at least {at_least:g}"


def _number(text: str) -> float | int:
    try:
        return int(text)
    except ValueError:
        return float(text)


def _quantity(metavar: str, wanted: str, parse: Callable[[str], float]) -> OptionKind:
    def read(value: Any) -> float:
        if isinstance(value, str):
            if value.lstrip().startswith("-"):
                raise Unreadable(f"{value!r} is negative; it must be {wanted}")
            return parse(value)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise Unreadable
        if not (math.isfinite(value) and value >= 0):
            raise Unreadable(f"{value!r} is out of range; it must be {wanted}")
        return float(value)

    return OptionKind(metavar, wanted, read, "float | str")


def _with_unit(text: str) -> float:
    """Seconds in `12h30m`; a number without a unit might be seconds as well as days, so it is refused."""
    number = text.strip()
    if re.fullmatch(r"[\d.,_]+(e[+-]?\d+)?", number, re.IGNORECASE) and number.strip("0.,_"):
        raise Unreadable(
            f"{number!r} has no unit; write {number}s, {number}min, {number}h, {number}d or {number}y"
        )
    return parse_duration(text)


DURATION = replace(
    _quantity("DURATION", "a duration with its unit, such as 90s, 12h30m or 1.5d", _with_unit),
    needs_unit=True,
)
SECONDS = _quantity("SECONDS", "seconds, or a duration such as 90s, 12h30m or 1.5d", parse_duration)
MONEY = _quantity("USD", "an amount of money such as 200usd, $1,500 or 8k$", parse_money)
COUNT = _quantity("COUNT", "a count such as 15T, 300B, 100M or 1e9", parse_count)
BANDWIDTH = _quantity("RATE", "a bandwidth such as 100Gbit/s or 900GB/s", parse_bandwidth)


def _read_text(value: Any) -> str:
    if not isinstance(value, str):
        raise Unreadable
    return value


def _read_path(value: Any) -> Path:
    if not isinstance(value, str | Path):
        raise Unreadable
    return Path(value).expanduser()


def _read_switch(value: Any) -> bool:
    if not isinstance(value, bool):
        raise Unreadable
    return value


TEXT = OptionKind("TEXT", "text", _read_text)
SWITCH = OptionKind("", "true or false", _read_switch, "bool", is_switch=True)
FILE = OptionKind(
    "FILE", "the path of a file", _read_path, "str | Path", beside=lambda path, folder: folder / path
)


def choice(*allowed: str) -> OptionKind:
    """One of a few words."""

    def read(value: Any) -> str:
        if value not in allowed:
            raise Unreadable
        return str(value)

    words = ", ".join(f'"{word}"' for word in allowed)
    return OptionKind("NAME", f"one of {', '.join(allowed)}", read, f"Literal[{words}]", choices=allowed)


def texts(wanted: str = "names, as a list or comma-separated", *, by_comma: bool = True) -> OptionKind:
    """Several words: a list, or text that may hold several with commas between them."""

    def read(value: Any) -> tuple[str, ...]:
        items = [value] if isinstance(value, str) else value
        if not isinstance(items, list | tuple) or not all(isinstance(item, str) for item in items):
            raise Unreadable
        return tuple(part for item in items for part in (_parts(item) if by_comma else (item,)))

    return OptionKind("NAMES", wanted, read, "str | Sequence[str]", many=True)


def _parts(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def whole_numbers() -> OptionKind:
    """Whole numbers above 0: `32,64,96`, or `32..8192` by doubling; also an int or a list of them."""

    def read(value: Any) -> tuple[int, ...]:
        items = value if isinstance(value, list | tuple) else [value]
        numbers = [each for item in items for each in _counted(item)]
        return tuple(dict.fromkeys(numbers))

    python = "int | str | Sequence[int | str]"
    return OptionKind(
        "NUMBERS", "whole numbers above 0, as 2,4,6 or 2..64 (by doubling)", read, python, many=True
    )


def _counted(item: Any) -> list[int]:
    if isinstance(item, int) and not isinstance(item, bool) and item > 0:
        return [item]
    if not isinstance(item, str):
        raise Unreadable
    counts: list[int] = []
    for part in _parts(item):
        first, dots, last = part.partition("..")
        if not first.isdecimal() or (dots and not last.isdecimal()) or int(first) < 1:
            raise Unreadable
        count = int(first)
        if dots and int(last) < count:
            raise Unreadable(f"{part} ends before it begins; write {last}..{first}")
        counts.append(count)
        while dots and 2 * count <= int(last):
            count *= 2
            counts.append(count)
    return counts


def records(cls: type[T], form: str) -> OptionKind:
    """A list of entries, each a mapping that `cls` describes; `form` shows one."""

    def read(value: Any) -> tuple[T, ...]:
        if not isinstance(value, list) or not value:
            raise Unreadable
        return tuple(_record(cls, entry, f"entry {place}", form) for place, entry in enumerate(value, 1))

    return OptionKind("LIST", f"a list of at least one entry, e.g. {form}", read, many=True)


def _record(cls: type[T], entry: Any, place: str, form: str) -> T:
    if not isinstance(entry, Mapping):
        raise Unreadable(f"{place}: {entry!r} is not of the form {form}")
    try:
        return decode(cls, {str(key): value for key, value in entry.items()})
    except InvalidRequest as reason:
        raise Unreadable(f"{place}: {reason}") from reason


def decode(
    cls: type[T],
    mapping: Mapping[str, Any],
    file: Path | None = None,
    refuse: Callable[[str], str] = lambda _: "",
) -> T:
    """The request that `mapping` describes; `file` is where it was read from, if from a file."""
    return build(cls, values(cls, mapping, file, refuse), file)


def values(
    cls: type[Any],
    mapping: Mapping[str, Any],
    file: Path | None = None,
    refuse: Callable[[str], str] = lambda _: "",
) -> dict[str, Any]:
    """The checked values of the keys given; None counts as not given.

    `refuse` may know why a key that `cls` has not is refused, in place of suggesting near ones.
    """
    known = {each.name: each for each in options(cls)}
    for key in mapping:
        if key not in known:
            raise error(_unknown(str(key), tuple(known), refuse), file)
    return {key: _value(known[key], value, file) for key, value in mapping.items() if value is not None}


def build(cls: type[T], checked: Mapping[str, Any], file: Path | None = None) -> T:
    """The request of checked values; a required one that is missing is an error."""
    for each in options(cls):
        if each.is_required and each.name not in checked:
            raise error(f"`{each.name}` is required: {each.text}", file)
    return cls(**checked)


def part(cls: type[T], request: Any, **other: Any) -> T:
    """The options of `cls` that `request` has, as a noun of their own; `other` values take precedence.

    A request is composed of the nouns of the core by inheritance, so it may stand for each of them. Where one
    is kept or compared, it must not bring along the rest of the request.
    """
    shared = {
        each.name: getattr(request, each.name)
        for each in fields(cast(Any, cls))
        if hasattr(request, each.name)
    }
    return cls(**{**shared, **other})


def error(message: str, file: Path | None) -> InvalidRequest:
    """The error of a request, or of the file it was read from."""
    return InvalidRequest(message) if file is None else InvalidData(str(file), message)


def _unknown(key: str, known: tuple[str, ...], refuse: Callable[[str], str]) -> str:
    reason = refuse(key)
    if reason:
        return reason
    near = nearest(key.replace("-", "_"), known)
    hint = f"did you mean {' or '.join(near)}?" if near else f"known are {', '.join(known)}"
    return f"no field {key!r}; {hint}"


def _value(declared: Option, value: Any, file: Path | None) -> Any:
    kind = declared.kind
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if kind.needs_unit and file is not None and is_number:
        value = str(value)
    if isinstance(value, str) and not value.strip() and kind.read is _read_text and not declared.positional:
        raise error(_complaint(declared, value, "is empty; give a value or leave it out"), file)
    try:
        read = kind.read(value)
    except (Unreadable, UnitError, UnknownName) as reason:
        raise error(_complaint(declared, value, str(reason)), file) from reason
    except (ValueError, OverflowError) as reason:  # as `float` raises them
        raise error(_complaint(declared, value), file) from reason
    return read if file is None or kind.beside is None else kind.beside(read, file.parent)


def _complaint(declared: Option, value: Any, why: str = "") -> str:
    if why:
        return f"`{declared.name}`: {why}"
    message = f"`{declared.name}` is {value!r}; it must be {declared.kind.wanted}"
    near = nearest(value, declared.kind.choices) if isinstance(value, str) and declared.kind.choices else ()
    return f"{message}; did you mean {' or '.join(near)}?" if near else message


def read_mapping(path: Path, what: str, example: str) -> dict[str, Any]:
    """The `key: value` lines of a YAML file; `what` it is and a minimal `example` are for errors."""
    if not path.is_file():
        problem = "is a folder" if path.is_dir() else "does not exist"
        raise MissingData(f"the {what} {str(path)!r} {problem}; minimal example: `{example}`")
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as reason:
        raise InvalidData(str(path), f"is not text: {reason}") from reason
    return parse_mapping(text, path, example)


def _yaml_problem(reason: Exception) -> str:
    """What is wrong and where, on one line."""
    mark, problem = getattr(reason, "problem_mark", None), getattr(reason, "problem", None)
    if mark is None or not problem:
        return " ".join(str(reason).split())
    return f"line {mark.line + 1}, column {mark.column + 1}: {problem}"


def parse_mapping(text: str, path: Path, example: str) -> dict[str, Any]:
    """The same from the text of the file."""
    import yaml

    try:
        content = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError) as reason:
        problem = f"is not YAML: {_yaml_problem(reason)}; the least is `{example}`"
        raise InvalidData(str(path), problem) from reason
    if not isinstance(content, Mapping):
        raise InvalidData(str(path), f"is not a list of `key: value` lines; the least is `{example}`")
    return {
        "on" if key is True else str(key): value for key, value in content.items()
    }  # YAML 1.1: on is true
