"""Where a curve flattens, and what a batch is worth in each stage."""

from __future__ import annotations

import math

import numpy as np
import pytest

from foretrain.errors import InvalidRequest
from foretrain.facts.providers import UNKNOWN_TERMS
from foretrain.jobs.epochs import progress_step_seconds, where_it_flattens
from foretrain.planning.two_phases.phases import PhasedJob, Runner, cheapest_in_phases


@pytest.mark.parametrize("sign", [1, -1])
def test_an_exponential_flattens_where_its_slope_is_the_average(sign: int) -> None:
    """e^-5x on [0, 1]: 5 e^-5x = 1 - e^-5 at x = 0.3232."""
    steps = np.linspace(0, 1, 10_001)
    found = where_it_flattens(steps, sign * np.exp(-5 * steps))
    assert found == pytest.approx(-math.log((1 - math.exp(-5)) / 5) / 5, abs=1e-4)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([3.0, 2.0, 1.0], "never flattens"),
        ([3.0, 2.9, 1.0], "never flattens"),
        ([3.0, 2.0, 3.0], "ends where it began"),
        ([3.0, math.nan, 1.0], "finite"),
        ([3.0, 1.0], "three or more"),
    ],
)
def test_curves_that_do_not_flatten_are_refused(values: list[float], message: str) -> None:
    with pytest.raises(InvalidRequest, match=message):
        where_it_flattens(range(len(values)), values)


def test_a_batch_by_hand() -> None:
    """Twice the reference at a critical batch of 100: (1 + 1/2) / (1 + 1) of the steps; of 0 all of them."""
    assert progress_step_seconds(4.0, 200, 100, (0, 100)) == (4.0, 3.0)
    assert progress_step_seconds(4.0, 100, 100, (0, 100, 1e6)) == (4.0, 4.0, 4.0)
    assert progress_step_seconds(4.0, 200, 100, (1e12,))[0] == pytest.approx(
        2.0
    )  # steps fall as the batch grows


def test_nonsense_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="reference_batch"):
        progress_step_seconds(1.0, 8, 0, (1,))
    with pytest.raises(InvalidRequest, match="critical"):
        progress_step_seconds(1.0, 8, 8, (-1,))


def test_a_large_batch_is_worth_its_machine_in_the_flat_tail_only() -> None:
    """A small machine at batch 100; one of 8 times the price takes batch 1,600 in 1.2 times the time."""
    critical = (50, 20_000)
    small = Runner("small", progress_step_seconds(1.0, 100, 100, critical), 1.0, UNKNOWN_TERMS)
    large = Runner("large", progress_step_seconds(1.2, 1600, 100, critical), 8.0, UNKNOWN_TERMS)
    plan = cheapest_in_phases(PhasedJob((4000, 6000), (small, large))).two_phase
    assert plan is not None
    assert [phase.runner.name for phase in plan.phases] == ["small", "large"]
    assert plan.phases[0].last_step == 4000
