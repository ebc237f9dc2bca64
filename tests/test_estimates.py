"""Estimates: parts sum to the total, shared sources err together, others independently."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretrain.estimates import Estimate, Part, Quantiles, longest, sequence


def seconds(*parts: Part) -> Estimate:
    return Estimate("s", parts)


def test_parts_sum_to_the_total() -> None:
    assert seconds(Part("gemm", 3, "a"), Part("softmax", 0.5, "b")).value == 3.5


def test_one_source_errs_together() -> None:
    estimate = seconds(Part("gemm", 10, "gemm fit", 3, 4), Part("linear", 10, "gemm fit", 3, 4))
    assert estimate.quantiles == Quantiles(14, 20, 28)


def test_two_sources_err_independently() -> None:
    estimate = seconds(Part("gemm", 10, "gemm fit", 3, 3), Part("copy", 10, "copy fit", 4, 4))
    assert estimate.quantiles == Quantiles(15, 20, 25)  # 3-4-5


def test_hidden_parts_stand_beside_the_sum() -> None:
    estimate = seconds(Part("compute", 2, "a"), Part("all-reduce", 1, "b", hidden=True))
    assert estimate.value == 2
    assert [part.name for part in estimate.hidden] == ["all-reduce"]
    assert estimate.sources == ("a",)


def test_scaling_scales_every_part() -> None:
    estimate = seconds(Part("step", 2, "a", 1, 1)).scale(3)
    assert estimate.quantiles == Quantiles(3, 6, 9)


def test_the_longest_counts_and_the_rest_is_hidden() -> None:
    overlapped = longest(seconds(Part("compute", 5, "a")), seconds(Part("network", 3, "b")))
    assert overlapped.value == 5
    assert [part.name for part in overlapped.hidden] == ["network"]


def test_overlap_takes_the_largest_of_each_percentile() -> None:
    sure = seconds(Part("compute", 10, "a", below=8, above=1))
    unsure = seconds(Part("network", 9, "b", below=1, above=6))
    assert longest(sure, unsure).quantiles == Quantiles(8, 10, 15)


def test_different_units_do_not_add() -> None:
    with pytest.raises(ValueError, match="different units: B, s"):
        seconds(Part("step", 1, "a")) + Estimate("B", (Part("weights", 1, "a"),))


@pytest.mark.parametrize(
    ("value", "below", "above"), [(-1, 0, 0), (math.nan, 0, 0), (1, 2, 0), (1, -1, 0), (1, 0, math.inf)]
)
def test_impossible_parts_are_refused(value: float, below: float, above: float) -> None:
    with pytest.raises(ValueError, match="part 'x'"):
        Part("x", value, "a", below, above)


def test_quantiles_must_be_in_order() -> None:
    with pytest.raises(ValueError, match="out of order"):
        Quantiles(2, 1, 3)


@st.composite
def a_part(draw: st.DrawFn) -> Part:
    value = draw(st.floats(0, 1e6))
    return Part(
        name=draw(st.sampled_from(["gemm", "conv", "copy"])),
        value=value,
        source=draw(st.sampled_from(["a", "b", "c"])),
        below=draw(st.floats(0, 1)) * value,
        above=draw(st.floats(0, 1e6)),
        hidden=draw(st.booleans()),
    )


estimates = st.lists(a_part(), min_size=1, max_size=6).map(lambda parts: Estimate("s", tuple(parts)))


@given(estimates)
def test_quantiles_are_ordered_and_never_negative(estimate: Estimate) -> None:
    quantiles = estimate.quantiles
    assert 0 <= quantiles.p10 <= quantiles.p50 <= quantiles.p90


@given(estimates, estimates)
def test_adding_conserves_the_total_and_narrows_no_side_below_its_parts(a: Estimate, b: Estimate) -> None:
    both = a + b
    assert both.value == pytest.approx(a.value + b.value)
    spread = both.quantiles.p90 - both.value
    assert spread <= (a.quantiles.p90 - a.value) + (b.quantiles.p90 - b.value) + 1e-6 * max(1, spread)
    assert spread >= max(a.quantiles.p90 - a.value, b.quantiles.p90 - b.value) - 1e-6 * max(1, spread)


@given(estimates, estimates)
def test_the_order_of_a_sequence_does_not_matter(a: Estimate, b: Estimate) -> None:
    there, back = sequence([a, b]).quantiles, sequence([b, a]).quantiles
    assert there.p50 == pytest.approx(back.p50)
    assert there.p90 == pytest.approx(back.p90)


@given(estimates, estimates)
def test_overlap_is_never_shorter_than_either_nor_longer_than_both(a: Estimate, b: Estimate) -> None:
    overlapped = longest(a, b)
    together = overlapped.quantiles
    for alone in (a.quantiles, b.quantiles):
        assert together.p50 >= alone.p50
        assert together.p90 >= alone.p90 - 1e-6 * max(1, alone.p90)
        assert together.p10 >= alone.p10 - 1e-6 * max(1, alone.p50)
    assert overlapped.value <= a.value + b.value + 1e-9
    assert len(overlapped.parts) >= len(a.parts) + len(b.parts)


@given(estimates, st.floats(0, 1e3))
def test_scaling_is_linear(estimate: Estimate, factor: float) -> None:
    assert estimate.scale(factor).value == pytest.approx(estimate.value * factor)
