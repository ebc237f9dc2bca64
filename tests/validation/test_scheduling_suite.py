"""The figures of the scheduling suite from results that can be checked by hand."""

from __future__ import annotations

import pytest
from validation.report import Case
from validation.scheduling_suite import PACKED, PEERS, RULES, Result, report
from validation.scheduling_tiny import tiny_problems


def result(auto: float, peer: float, family: str = "low") -> Result:
    usd = {"auto": auto, "price": auto + 1, **dict.fromkeys(PEERS, peer)}
    return Result(family, 3, 0, 100.0, usd, dict.fromkeys(usd, 3), 30)


def test_costs_are_compared_with_the_bound_and_with_other_policies() -> None:
    results = [result(104.0, 1040.0), result(108.0, 216.0, "high")]
    tiny = [Case("tiny 0", "optimum", 10.0, {"auto": 9.5, "price": 10.1})]
    figures = report(results, [], tiny)
    assert figures.metrics["above the bound, low and mixed load"]["auto"].mean == pytest.approx(0.04)
    assert figures.metrics["above the bound, high, 3 nodes"]["auto"].mean == pytest.approx(0.08)
    for label, names in (("fifo, edf and priority", RULES), ("packed rules", PACKED)):
        share = figures.metrics[f"cost of auto as a share of {label}"]["auto"]
        assert share.cases == 2 * len(names)
        assert share.mean == pytest.approx((0.1 + 0.5) / 2)
    assert figures.metrics["above the optimum, tiny problems"]["auto"].mean == 0.0
    assert figures.notes[-1].startswith("low, mean of 1 problems: bound 100 USD; auto 104 USD, 10% late")


@pytest.mark.parametrize(("auto", "right"), [(100.0, 1), (101.0, 1), (101.1, 0)])
def test_a_policy_may_cost_one_per_cent_more_than_the_best_other(auto: float, right: int) -> None:
    verdicts = next(iter(report([result(auto, 100.0)], [], []).verdicts.values()))
    assert (verdicts["auto"].right, verdicts["auto"].total) == (right, 1)


def test_tiny_problems_are_tiny() -> None:
    assert all(len(problem.jobs) == 3 and problem.fleet.nodes <= 2 for problem in tiny_problems())
