"""One JSON encoding for every front end."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from enum import StrEnum
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretrain.encoding import encode, to_json
from foretrain.estimates import Estimate, Part


class Colour(StrEnum):
    RED = "red"


@dataclass(frozen=True)
class Inner:
    day: date
    colour: Colour


@dataclass(frozen=True)
class Outer:
    inner: Inner
    numbers: tuple[float, ...]
    by_name: Mapping[str, Inner | None]


def test_dataclasses_enums_dates_and_tuples_become_plain_json() -> None:
    inner = Inner(date(2026, 8, 22), Colour.RED)
    assert json.loads(to_json(Outer(inner, (1.5, 2), {"one": inner, "none": None}))) == {
        "inner": {"day": "2026-08-22", "colour": "red"},
        "numbers": [1.5, 2],
        "by_name": {"one": {"day": "2026-08-22", "colour": "red"}, "none": None},
    }


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_json_cannot_say_is_null(value: float) -> None:
    assert to_json({"value": value}) == '{\n  "value": null\n}'


def test_text_stays_readable() -> None:
    assert to_json("Δ = 2 µs") == '"Δ = 2 µs"'


def test_the_core_nouns_encode_with_their_field_names() -> None:
    encoded = encode(Estimate("s", (Part("compute", 2.0, "model", above=1.0),)))
    assert encoded["unit"] == "s"
    assert encoded["parts"][0] == {
        "name": "compute", "value": 2.0, "source": "model", "below": 0.0, "above": 1.0, "hidden": False,
    }  # fmt: skip


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


@given(PLAIN)
def test_plain_values_survive_the_round_trip(value: Any) -> None:
    assert json.loads(to_json(value)) == value
