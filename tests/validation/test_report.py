"""Error measures, by hand."""

from __future__ import annotations

import pytest
from validation.report import Case, SuiteReport, Verdicts, markdown, metrics, quantile

from foretrain.estimates import Quantiles

CASES = [
    Case("a", "x", 100.0, {"m": 110.0}, Quantiles(90.0, 110.0, 120.0)),
    Case("b", "x", 100.0, {"m": 80.0}, Quantiles(70.0, 80.0, 90.0)),
    Case("c", "y", 200.0, {"m": 210.0}, Quantiles(195.0, 210.0, 230.0)),
]


def test_errors_are_shares_of_what_was_measured() -> None:
    found = metrics(CASES, "m", with_interval=True)
    assert found.cases == 3
    assert found.mean == pytest.approx((0.10 + 0.20 + 0.05) / 3)
    assert found.median == pytest.approx(0.10)
    assert found.p90 == pytest.approx(0.10 + 0.8 * (0.20 - 0.10))
    assert found.bias == pytest.approx(0.05)
    assert found.coverage == pytest.approx(2 / 3)


def test_a_method_without_interval_has_no_coverage() -> None:
    assert metrics(CASES, "m").coverage is None


def test_quantiles_are_interpolated() -> None:
    assert quantile([3.0, 1.0, 2.0], 0.5) == 2.0
    assert quantile([1.0, 2.0], 0.1) == pytest.approx(1.1)
    assert quantile([5.0], 0.9) == 5.0


def test_the_table_has_a_row_for_each_method() -> None:
    report = SuiteReport(
        suite="memory",
        cases=tuple(CASES),
        metrics={"held out": {"m": metrics(CASES, "m", with_interval=True)}},
        verdicts={"fits": {"m": Verdicts(19, 20)}},
        notes=("fitted on nothing",),
    )
    table = markdown(report)
    assert "| m | 3 | 11.7% | 10.0% | 18.0% | +5.0% | 67% |" in table
    assert "| m | 19 | 20 | 95.0% |" in table
    assert table.endswith("- fitted on nothing\n")
