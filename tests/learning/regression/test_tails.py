"""Tails of F and t, against tables and scipy."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foretrain.learning.regression.tails import f_tail, t_quantile


@pytest.mark.parametrize(("f", "between", "within"), [(161.448, 1, 1), (4.9646, 1, 10), (2.7109, 5, 20)])
def test_the_table_of_five_percent(f: float, between: int, within: int) -> None:
    assert f_tail(f, between, within) == pytest.approx(0.05, abs=1e-5)


@pytest.mark.parametrize(("freedom", "value"), [(1, 3.0777), (2, 1.8856), (10, 1.3722), (1000, 1.2824)])
def test_the_table_of_t_at_ninety_percent(freedom: int, value: float) -> None:
    assert t_quantile(0.9, freedom) == pytest.approx(value, abs=1e-4)


def test_the_ends() -> None:
    assert f_tail(0.0, 1, 5) == 1.0
    assert f_tail(math.inf, 1, 5) == 0.0
    assert t_quantile(0.5, 3) == pytest.approx(0, abs=1e-9)
    with pytest.raises(ValueError, match=r"0\.2"):
        t_quantile(0.2, 3)


@settings(deadline=None)
@given(st.floats(1e-3, 1e4), st.integers(1, 30), st.integers(1, 500))
def test_agrees_with_scipy(f: float, between: int, within: int) -> None:
    stats = pytest.importorskip("scipy.stats")
    assert f_tail(f, between, within) == pytest.approx(stats.f.sf(f, between, within), rel=1e-6, abs=1e-12)
