"""The suites of convergence: nothing beyond the cut is used, and whole groups are left out."""

import math

import numpy as np
import pytest
from validation.batch_size_suite import CONSTANT, HERE, LINE, _leave_out
from validation.convergence_methods import CUTS, METHODS, baselines, reaching_case
from validation.convergence_runs import Run
from validation.dawnbench_suite import submitter

from foretrain.convergence.curves import MetricDirection, curve_of

SHARE = np.linspace(0.02, 1.0, 50)


def run(level: float, name: str) -> Run:
    values = 95 - level * (1 + 20 * SHARE) ** -0.7 + 3.0 * (SHARE > 0.6)
    curve = curve_of(SHARE * 100, values, "accuracy", MetricDirection.UP, name, name, planned_steps=100.0)
    return Run("task", curve, 94.0)


RUNS = [run(20 + index, f"who{index}_net") for index in range(8)]


@pytest.mark.parametrize("cut", CUTS)
def test_what_comes_after_the_cut_does_not_matter(cut: float) -> None:
    item, others = RUNS[3], [*RUNS[:3], *RUNS[4:]]
    case = reaching_case(item, others, cut)
    assert case is not None
    assert set(case.predicted) == set(METHODS)
    steps, values = item.curve.steps, item.curve.values
    later = (steps > cut * item.meets_at) & (steps < item.meets_at)
    changed = curve_of(
        steps, np.where(later, 0.0, values), "accuracy", MetricDirection.UP, item.curve.name,
        item.curve.group, planned_steps=100.0,
    )  # fmt: skip
    again = reaching_case(Run("task", changed, 94.0), others, cut)
    assert again is not None
    assert again.predicted == case.predicted
    assert again.interval == case.interval


def test_history_predicts_a_jump_that_curves_do_not() -> None:
    item = RUNS[3]
    case = reaching_case(item, [*RUNS[:3], *RUNS[4:]], 0.5)
    assert case is not None
    assert case.predicted[HERE] == pytest.approx(item.meets_at, rel=0.05)
    assert abs(case.predicted["Optimus"] / item.meets_at - 1) > 0.1


def test_baselines_by_hand() -> None:
    item, others = RUNS[0], RUNS[1:]
    predicted = baselines(item, item.curve.until(30.0), others)
    shares = sorted(other.meets_at / 100 for other in others)
    assert predicted["median of the others"] == pytest.approx(shares[3] * 100)
    assert predicted["0.9 of the plan"] == 90
    assert predicted["nearest run"] == RUNS[1].meets_at


def test_the_submitter_is_the_first_word() -> None:
    assert submitter(RUNS[0]) == "who0"
    assert math.isfinite(RUNS[0].meets_at)


def test_a_point_on_the_line_is_predicted_from_the_others() -> None:
    points = [(batch, 10 + 0.01 * batch) for batch in (100.0, 200.0, 400.0, 800.0)]
    cases = _leave_out("net", points)
    assert [case.predicted[LINE] for case in cases] == pytest.approx([e for _, e in points])
    assert [case.predicted[HERE] for case in cases] == pytest.approx([e for _, e in points])
    assert cases[0].predicted[CONSTANT] > points[0][1]
