"""Golden numbers: the requests, how an answer is reduced to numbers, and how two answers are compared.

An answer is the JSON of one command line. `flatten` reduces it to `path -> value`: numbers, booleans and some
enumerations. Texts are dropped, and lists and mappings of named parts are stored as sorted numbers without
their names, so that a renamed part changes nothing. Entries of a list share one path: `plans[].usd.p50` holds
the median cost of every plan in order.
"""

from __future__ import annotations

import contextlib
import io
import json
import math
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from foretrain.serving.cli import main

FOLDER = Path(__file__).parent
INPUTS = FOLDER / "inputs"
RECORDED = FOLDER / "recorded"

RELATIVE_TOLERANCE = 1e-6
ABSOLUTE_TOLERANCE = 1e-12
SIGNIFICANT_DIGITS = 14

Scalar = bool | int | float | str | None
Value = Scalar | list[Scalar]
Numbers = dict[str, Value]

ENUMERATIONS = frozenset(
    "algorithm attention axes best_value cheapest device direction family fastest form generation hardware "
    "instance kind knowledge layout machine metric optimizer placement precision provider region "
    "strategy tier unit vendor verb".split()
)
"""The keys whose texts are recorded. All other texts are prose or names, and may be reworded."""

UNORDERED_LISTS = frozenset("exchanges excluded hidden_parts parts uncertainty".split())
"""Lists of named parts: each column is sorted in descending order."""

UNNAMED_MAPPINGS = frozenset("bytes_by_kind neighbours network parameters weights".split())
"""Mappings whose keys are names of parts: the values are sorted in descending order."""

ECHOED = frozenset({"log"})
"""The input, printed again."""

ADVICE = (
    "bottleneck.advice",
    "memory.advice",
    "parallelism.families",
    "parallelism.fitting",
    "parallelism.runners_up",
    "parallelism.scaling",
    "parallelism.searched",
)
"""What other configurations would do. It is recorded and reported in a section of its own."""


@dataclass(frozen=True)
class Request:
    """A command line with a name; `group` names the file its numbers are recorded in."""

    group: str
    name: str
    command: str

    @property
    def arguments(self) -> tuple[str, ...]:
        """The command line as `main` takes it."""
        return (*shlex.split(self.command), "--json")


@dataclass(frozen=True)
class Answer:
    """The exit code of a request and its numbers."""

    exit_code: int
    numbers: Numbers = field(default_factory=dict)
    advice: Numbers = field(default_factory=dict)

    @classmethod
    def of(cls, exit_code: int, numbers: Numbers) -> Answer:
        """All numbers of a request, the advice apart."""
        advice = {key: value for key, value in numbers.items() if key.startswith(ADVICE)}
        return cls(exit_code, {key: numbers[key] for key in numbers if key not in advice}, advice)

    def sections(self) -> dict[str, Numbers]:
        """The numbers by section."""
        return {"numbers": self.numbers, "advice": self.advice}


@dataclass(frozen=True)
class Difference:
    """A key whose golden value and present value differ; `relative` is infinite unless both are numbers."""

    section: str
    key: str
    golden: str
    now: str
    relative: float

    def __str__(self) -> str:
        size = f", relative difference {self.relative:.3g}" if math.isfinite(self.relative) else ""
        return f"{self.key}: golden {self.golden}, now {self.now}{size}"


def requests() -> tuple[Request, ...]:
    """All requests in the order of the file."""
    groups: Mapping[str, Mapping[str, str]] = yaml.safe_load((FOLDER / "requests.yaml").read_text("utf-8"))
    listed = tuple(
        Request(group, name, " ".join(command.split()))
        for group, commands in groups.items()
        for name, command in commands.items()
    )
    names = [request.name for request in listed]
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise ValueError(f"requests.yaml uses these names more than once: {', '.join(repeated)}")
    return listed


def answer(request: Request) -> Answer:
    """Run a request in this process and reduce its answer to numbers."""
    exit_code, text = printed_json(request)
    return Answer.of(exit_code, flatten(json.loads(text)) if text else {})


def printed_json(request: Request) -> tuple[int, str]:
    """The exit code of a request, and what it prints in the folder of its input files."""
    printed, complaint = io.StringIO(), io.StringIO()
    exit_code: object = 0
    with (
        contextlib.chdir(INPUTS),
        contextlib.redirect_stdout(printed),
        contextlib.redirect_stderr(complaint),
    ):
        try:
            main(request.arguments)
        except SystemExit as leaving:
            exit_code = leaving.code
    assert isinstance(exit_code, int), f"{request.name}: exit code {exit_code!r}"
    text = printed.getvalue()
    if not exit_code and not text:
        raise AssertionError(f"{request.name} printed nothing: {complaint.getvalue()}")
    return exit_code, text


def flatten(answer: object) -> Numbers:
    """The numbers, booleans and enumerations of a JSON value by path."""
    columns: dict[str, list[Scalar]] = {}
    for path, value in _leaves(answer, "", ""):
        columns.setdefault(path, []).append(value)
    numbers: Numbers = {}
    for path, values in sorted(columns.items()):
        if all(value is None for value in values) or _is_unused_option(path, values):
            continue
        if "[]" not in path:
            (numbers[path],) = values
        elif _is_unordered(path):
            kept = [value for value in values if not _is_negligible(value)]
            if kept:
                numbers[path] = sorted(kept, key=_descending)
        else:
            numbers[path] = values
    return numbers


def _leaves(value: object, path: str, key: str) -> Iterator[tuple[str, Scalar]]:
    if isinstance(value, Mapping):
        for name, item in value.items():
            if name in ECHOED:
                continue
            inner = f"{path}.{name}" if path else str(name)
            if key in UNNAMED_MAPPINGS:
                yield from _leaves(item, f"{path}[]", f"{key}[]")
            else:
                yield from _leaves(item, inner, str(name))
    elif isinstance(value, list):
        for item in value:
            yield from _leaves(item, f"{path}[]", key)
    elif isinstance(value, str):
        if key in ENUMERATIONS or key == "network[]":
            yield path, value
    elif isinstance(value, float):
        yield path, float(f"{value:.{SIGNIFICANT_DIGITS}g}")
    elif value is None or isinstance(value, bool | int):
        yield path, value


def _is_unused_option(path: str, values: list[Scalar]) -> bool:
    """A switch of the workload that is off: new switches must not change what is recorded."""
    return path.startswith("workload.") and values[0] is False


def _is_unordered(path: str) -> bool:
    names = {name.removesuffix("[]") for name in path.split(".") if name.endswith("[]")}
    return bool(names & (UNORDERED_LISTS | UNNAMED_MAPPINGS))


def _is_negligible(value: Scalar) -> bool:
    """A part of nothing, or what rounding leaves of one: whether it is listed does not matter."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= ABSOLUTE_TOLERANCE


def _descending(value: Scalar) -> tuple[int, float, str]:
    if value is None:
        return 2, 0.0, ""
    return (1, 0.0, value) if isinstance(value, str) else (0, -float(value), "")


def differences(golden: Answer, now: Answer, relative_tolerance: float) -> list[Difference]:
    """Where two answers differ by more than the tolerance: `numbers` before `advice`, the largest first."""
    found: list[Difference] = []
    if golden.exit_code != now.exit_code:
        found.append(Difference("exit", "code", str(golden.exit_code), str(now.exit_code), math.inf))
    present = now.sections()
    for section, expected in golden.sections().items():
        here = _section_differences(section, expected, present[section], relative_tolerance)
        found += sorted(here, key=lambda difference: -difference.relative)
    return found


def report(found: Sequence[Difference], shown: int) -> list[str]:
    """The number of differences in each section, and the first of each."""
    lines = []
    for section in dict.fromkeys(difference.section for difference in found):
        here = [difference for difference in found if difference.section == section]
        lines.append(f"{section}: {len(here)} difference{'s' if len(here) > 1 else ''}")
        lines += [f"  {difference}" for difference in here[:shown]]
    return lines


def _section_differences(
    section: str, golden: Numbers, now: Numbers, relative_tolerance: float
) -> Iterator[Difference]:
    for key in sorted(golden.keys() | now.keys()):
        if key not in now:
            yield Difference(section, key, _short(golden[key]), "missing", math.inf)
        elif key not in golden:
            yield Difference(section, key, "missing", _short(now[key]), math.inf)
        else:
            before, after = _as_list(golden[key]), _as_list(now[key])
            if len(before) != len(after):
                lengths = f"{len(before)} values", f"{len(after)} values"
                yield Difference(section, key, *lengths, math.inf)
                continue
            for place, (old, new) in enumerate(zip(before, after, strict=True)):
                size = _relative_difference(old, new)
                if size > relative_tolerance:
                    where = f"{key} #{place}" if isinstance(golden[key], list) else key
                    yield Difference(section, where, _short(old), _short(new), size)


def _relative_difference(old: Scalar, new: Scalar) -> float:
    numeric = all(isinstance(value, int | float) and not isinstance(value, bool) for value in (old, new))
    if not numeric:
        return 0.0 if type(old) is type(new) and old == new else math.inf
    assert isinstance(old, int | float) and isinstance(new, int | float)
    difference = abs(old - new)
    return 0.0 if difference <= ABSOLUTE_TOLERANCE else difference / max(abs(old), abs(new))


def _as_list(value: Value) -> list[Scalar]:
    return value if isinstance(value, list) else [value]


def _short(value: Value) -> str:
    text = json.dumps(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def read_golden(group: str) -> dict[str, Answer]:
    """The recorded answers of a group; none if it was never recorded."""
    file = RECORDED / f"{group}.json"
    if not file.exists():
        return {}
    entries: dict[str, dict[str, Any]] = json.loads(file.read_text("utf-8"))
    return {
        name: Answer.of(entry["exit"], entry.get("numbers", {}) | entry.get("advice", {}))
        for name, entry in entries.items()
    }


def write_golden(group: str, answers: Mapping[str, Answer]) -> None:
    """Write the answers of a group, one key a line."""
    lines = []
    for name, recorded in answers.items():
        parts = [f'  "exit": {recorded.exit_code}']
        for section, numbers in recorded.sections().items():
            if numbers:
                rows = ",\n".join(
                    f"   {json.dumps(key)}: {_compact(numbers[key])}" for key in sorted(numbers)
                )
                parts.append(f"  {json.dumps(section)}: {{\n{rows}\n  }}")
        lines.append(f" {json.dumps(name)}: {{\n" + ",\n".join(parts) + "\n }")
    (RECORDED / f"{group}.json").write_text("{\n" + ",\n".join(lines) + "\n}\n", "utf-8")


def _compact(value: Value) -> str:
    return json.dumps(value, separators=(",", ":"))
