"""Leaving groups out, and intervals from what was left out."""

from __future__ import annotations

import math

import numpy as np
import pytest
from validation.report import Case
from validation.splitting import intervals, leave_out, worst

from foretrain.prediction.operators.pricing import Flags, Floats


def test_a_group_is_predicted_by_the_others_only() -> None:
    values = np.array([1.0, 2.0, 30.0])

    def mean_of_others(others: Flags, group: str) -> Floats:
        assert group in ("a", "b")
        return np.full(3, values[others].mean())

    assert leave_out(["a", "a", "b"], 3, mean_of_others).tolist() == [30.0, 30.0, 1.5]


def test_an_interval_is_the_other_groups_scatter_widened() -> None:
    """Two other groups: √1.5 times the quantiles of their logarithms, which here are ± log 2."""
    groups = ["a", "b", "b", "c", "c"]
    measured = np.array([10.0, 2.0, 0.5, 2.0, 0.5])
    found = intervals(groups, measured, np.ones(5))
    wide = 2 ** math.sqrt(1.5)
    assert found[0].p90 == pytest.approx(wide)
    assert found[0].p10 == pytest.approx(1 / wide)


def test_an_interval_looks_at_cases_of_the_same_kind_only() -> None:
    groups, kinds = ["a", "b", "b", "a", "b"], ["x", "x", "x", "y", "y"]
    found = intervals(groups, np.array([1.0, 2.0, 2.0, 1.0, 1.0]), np.ones(5), kinds)
    assert found[0].p90 == pytest.approx(2 ** math.sqrt(2))
    assert (found[3].p10, found[3].p90) == (1.0, 1.0)


def test_the_worst_comes_first() -> None:
    cases = [Case(name, "", 1.0, {"m": value}) for name, value in (("near", 1.1), ("far", 0.4))]
    assert worst(cases, "m", lambda _: "why") == "far -60% (why); near +10% (why)"
