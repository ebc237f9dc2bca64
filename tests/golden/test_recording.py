"""What is recorded of an answer, and which differences are reported."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator

import pytest
from tests.golden.recording import (
    ADVICE,
    ECHOED,
    ENUMERATIONS,
    UNNAMED_MAPPINGS,
    UNORDERED_LISTS,
    Answer,
    Value,
    differences,
    flatten,
    printed_json,
    read_golden,
    report,
    requests,
)

PARTS = [{"name": "a", "seconds": 1}, {"name": "b", "seconds": 2}]
STEP = {"step": {"seconds": {"p50": 0.5}, "parts": PARTS}}


def test_parts_are_sorted_and_nameless() -> None:
    assert flatten(STEP) == {"step.seconds.p50": 0.5, "step.parts[].seconds": [2, 1]}


def test_a_part_of_nothing_is_dropped() -> None:
    assert flatten({"parts": [*PARTS, {"name": "c", "seconds": 3e-17}]}) == flatten({"parts": PARTS})


def test_texts_are_dropped_and_enumerations_kept() -> None:
    found = flatten({"knowledge": "measured", "verdict": "fast", "network": {"inside a node": "nvlink4"}})
    assert found == {"knowledge": "measured", "network[]": ["nvlink4"]}


def test_lists_keep_their_order_and_their_gaps() -> None:
    plans = [{"usd": 1.0, "region": "us"}, {"usd": None, "region": "eu"}, {"usd": 3.0, "region": "us"}]
    assert flatten({"plans": plans}) == {
        "plans[].usd": [1.0, None, 3.0],
        "plans[].region": ["us", "eu", "us"],
    }


def test_options_that_are_off_are_dropped() -> None:
    assert flatten({"workload": {"compile": False, "channels_last": True, "tokens": 0}}) == {
        "workload.channels_last": True,
        "workload.tokens": 0,
    }


@pytest.mark.parametrize(
    ("now", "line"),
    [
        ({"b": 1.0}, "a: golden 1.0, now missing"),
        ({"a": 1.0, "b": 1.0, "c": 2}, "c: golden missing, now 2"),
        ({"a": 1.1, "b": 1.0}, "a: golden 1.0, now 1.1, relative difference 0.0909"),
        ({"a": True, "b": 1.0}, "a: golden 1.0, now true"),
        ({"a": [1.0, 2.0], "b": 1.0}, "a: golden 1 values, now 2 values"),
    ],
)
def test_differences_name_the_key(now: dict[str, float], line: str) -> None:
    (found,) = differences(Answer(0, {"a": 1.0, "b": 1.0}), Answer(0, {**now}), 1e-6)
    assert str(found) == line


def test_the_tolerance_is_relative_with_an_absolute_floor() -> None:
    golden = Answer(0, {"large": 1e6, "small": 1e-13})
    assert not differences(golden, Answer(0, {"large": 1e6 + 0.9, "small": 2e-13}), 1e-6)
    (found,) = differences(golden, Answer(0, {"large": 1e6 + 1.1, "small": 2e-13}), 1e-6)
    assert found.key == "large"


def test_another_exit_code_is_a_difference() -> None:
    (found,) = differences(Answer(0), Answer(2), 1e-6)
    assert math.isinf(found.relative)


def test_advice_is_reported_apart() -> None:
    golden, now = Answer(0, {"a": 1.0}, {"gain": 1.0}), Answer(0, {"a": 1.1}, {"gain": 3.0})
    lines = report(differences(golden, now, 1e-6), 5)
    assert [lines[0], lines[2]] == ["numbers: 1 difference", "advice: 1 difference"]


def recorded_values() -> Iterator[tuple[str, Value]]:
    for group in {request.group for request in requests()}:
        for golden in read_golden(group).values():
            yield from (golden.numbers | golden.advice).items()


def test_every_listed_key_is_in_an_answer() -> None:
    paths = dict(recorded_values())
    names = {name for path in paths for name in path.split(".")}
    texts = {path.split(".")[-1].rstrip("[]") for path, value in recorded_values() if "str" in _types(value)}
    assert texts >= ENUMERATIONS
    assert names >= {f"{name}[]" for name in UNORDERED_LISTS | UNNAMED_MAPPINGS}
    assert [part for part in ADVICE if not any(path.startswith(part) for path in paths)] == []


def test_every_echoed_key_is_in_an_answer() -> None:
    converge = next(request for request in requests() if request.command.startswith("converge "))
    assert json.loads(printed_json(converge)[1]).keys() >= ECHOED


def _types(value: Value) -> set[str]:
    return {type(each).__name__ for each in (value if isinstance(value, list) else [value])}
