"""Forms, against numbers worked out by hand."""

import math

import numpy as np
import pytest

from foretrain.errors import UnknownName
from foretrain.learning.scaling.configurations import (
    Columns,
    ScalingConfiguration,
    columns,
    parse_placement,
    reference_batch,
)
from foretrain.learning.scaling.forms import FORMS, LEVEL, Form, form, overlap_seconds

LOW, EVEN = -50.0, 0.0
"""Parameters: e^LOW is nothing; a share of e^EVEN is one half."""


def at(*places: str, batch: int = 32) -> Columns:
    return columns([ScalingConfiguration(parse_placement(place), batch) for place in places], 32)


def seconds(name: str, values: list[float], *places: str, batch: int = 32) -> list[float]:
    step_seconds = np.exp(form(name).log_seconds(np.array(values), at(*places, batch=batch)))
    return [float(value) for value in step_seconds]


def test_the_reference_batch_is_in_the_middle_of_ratios() -> None:
    places = [ScalingConfiguration(parse_placement("1"), batch) for batch in (4, 8, 64)]
    assert reference_batch(places) == 16


def test_overlap_is_a_sum_at_one_end_and_the_longer_at_the_other() -> None:
    three, four = np.array([3.0]), np.array([4.0])
    assert overlap_seconds(LOW, three, four) == pytest.approx(7)
    assert overlap_seconds(0.0, three, four) == pytest.approx(5)
    assert overlap_seconds(99.0, three, four) == pytest.approx(4, rel=0.01)


def test_physical_compute_is_fixed_and_per_sample() -> None:
    # level 2 s, half of it fixed: at twice the reference batch 1 + 1 x 2 s
    values = [math.log(2), EVEN, LOW, LOW, LOW, LOW, LOW, 0.0, 0.0, 0.0]
    assert seconds("physical", values, "1") == pytest.approx([2])
    assert seconds("physical", values, "1", "4", "4+4", batch=64) == pytest.approx([3, 3, 3])


def test_physical_rings() -> None:
    # compute 1 s, not overlapped; in a node 0.5 s x 2(g-1)/g, between nodes 1 s x 2(r-1)/r
    values = [0.0, EVEN, math.log(0.5), 0.0, LOW, LOW, LOW, 0.0, 0.0, 0.0]
    assert seconds("physical", values, "1", "2", "4", "1+1+1", "4+4") == pytest.approx(
        [1, 1.5, 1.75, 1 + 4 / 3, 1 + 7 / 4]
    )
    two = [*values[:-2], math.log(2), 0.0]
    assert seconds("physical", two, "1+1", "1+1+1") == pytest.approx([1 + 2, 1 + 4 / 3])
    card = [*values[:-1], 1.0]
    assert seconds("physical", card, "2+2+2", "1+1+1") == pytest.approx([1 + 2 * 5 / 3, 1 + 4 / 3])
    more = [*values[:-3], 1.0, 0.0, 0.0]
    assert seconds("physical", more, "1+1+1") == pytest.approx([1 + 3 * 4 / 3])


def test_physical_contention_and_waiting_have_bounds() -> None:
    values = [0.0, EVEN, LOW, LOW, LOW, 50.0, 50.0, 0.0, 0.0, 0.0]
    assert seconds("physical", values, "8", "1+1") == pytest.approx([8**0.6 * 8**0.2, 2**0.2])


def test_sanghvi() -> None:
    # 1 s x M/g over the reference + 0.1 s x g + 0.5 s
    values = [0.0, math.log(0.1), math.log(0.5)]
    assert seconds("sanghvi", values, "1", "4+4", batch=64) == pytest.approx([2.6, 3.3])


def test_optimus() -> None:
    # 1 + 0.5 + 0.1 w/p + 0.01 w + 0.001 p
    values = [0.0, math.log(0.5), math.log(0.1), math.log(0.01), math.log(0.001)]
    assert seconds("optimus", values, "4+4") == pytest.approx([1 + 0.5 + 0.4 + 0.08 + 0.002])


def test_pollux() -> None:
    # 1 + 0.5 of compute; sync 0.2 + 0.1 (r-2) in a node, 2 + 1 (r-2) between; in turn
    values = [0.0, math.log(0.5), math.log(0.2), math.log(0.1), math.log(2), 0.0, LOW]
    assert seconds("pollux", values, "1", "2", "4", "1+1", "2+2") == pytest.approx([1.5, 1.7, 1.9, 3.5, 5.5])


def test_ring() -> None:
    values = [0.0, LOW, math.log(0.5), math.log(2), LOW]
    assert seconds("ring", values, "1", "2", "2+2") == pytest.approx([1, 1.5, 4])


@pytest.mark.parametrize("of", FORMS.values(), ids=FORMS)
def test_every_form(of: Form) -> None:
    middle = np.array([parameter.mean for parameter in of.parameters])
    places = ("1", "2", "4", "8", "8+8", "8+8+8", "8+8+8+8")
    small, large = of.log_seconds(middle, at(*places)), of.log_seconds(middle, at(*places, batch=64))
    assert of.names[0] == LEVEL
    assert (large > small).all(), "a larger batch takes longer"
    assert (np.diff(small) > 0).all(), "more devices, of which each has the same batch, take longer"
    higher = middle.copy()
    higher[0] += 1
    assert of.log_seconds(higher, at(*places)) == pytest.approx(small + 1), "the level is a factor"


def test_an_unknown_form_is_refused() -> None:
    with pytest.raises(UnknownName, match="no form 'polux'; did you mean pollux"):
        form("polux")
