"""Figures of compared runs, checked by hand."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from tests.support.runs import HERE, plain_run, prediction_of, summary_of

from foretrain.errors import InvalidRequest
from foretrain.learning.validation import accuracy, compare_run, validation_of, why_not_comparable
from foretrain.store.runs import Run, Status


def run_of(measured: float, model: str = "lenet", device: str = "here") -> Run:
    return plain_run(
        summary=summary_of(measured), setting={"model": model}, environment=replace(HERE, device=device)
    )


def test_an_error_is_a_share_of_the_measured_time() -> None:
    comparison = compare_run(run_of(0.2), prediction_of(0.1))  # its interval is 0.08 to 0.13 s
    assert comparison.error == pytest.approx(-0.5)
    assert comparison.inside is False
    assert compare_run(run_of(0.1), prediction_of(0.1)).inside is True


def test_without_an_interval_nothing_is_covered() -> None:
    bare = replace(prediction_of(0.1), p10_seconds=math.nan)
    assert compare_run(run_of(0.1), bare).inside is None
    assert accuracy([compare_run(run_of(0.1), bare)]).coverage is None


def test_figures() -> None:
    errors = {1.0: 0.0, 1.25: -0.2, 0.8: 0.25, 0.5: 1.0}
    figures = accuracy([compare_run(run_of(measured), prediction_of(1.0)) for measured in errors])
    assert figures.runs == 4
    assert figures.mean == pytest.approx((0 + 0.2 + 0.25 + 1) / 4)
    assert figures.median == pytest.approx((0.2 + 0.25) / 2)
    assert figures.p90 == pytest.approx(0.25 + 0.7 * 0.75)
    assert figures.bias == pytest.approx((0 + 0.25) / 2)
    assert figures.coverage == 3 / 4  # the interval is 0.8 to 1.3 s


def test_groups_and_worst_cases() -> None:
    runs = [run_of(1.0, "a"), run_of(2.2, "b"), run_of(0.5, "b", "t4")]
    validation = validation_of((compare_run(run, prediction_of(1.0)) for run in runs), worst=2)
    assert validation is not None
    assert {name: each.runs for name, each in validation.by_model.items()} == {"a": 1, "b": 2}
    assert {name: each.runs for name, each in validation.by_device.items()} == {"here": 2, "t4": 1}
    assert [each.run for each in validation.worst] == [runs[1].id, runs[2].id]  # 2.2 times and 2 times


def test_nothing_to_compare() -> None:
    assert validation_of([]) is None


@pytest.mark.parametrize(
    ("run", "reason"),
    [
        (plain_run(status=Status.FAILED), "the run failed"),
        (plain_run(status=Status.OUT_OF_MEMORY), "out of memory"),
        (plain_run(summary=None), "no step times"),
        (run_of(math.nan), "step time is nan"),
    ],
)
def test_runs_that_cannot_be_compared(run: Run, reason: str) -> None:
    assert reason in why_not_comparable(run)
    with pytest.raises(InvalidRequest, match="cannot be compared"):
        compare_run(run, prediction_of(1.0))
