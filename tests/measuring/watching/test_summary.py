"""The summary of step times, on numbers that can be checked by hand."""

import numpy as np
import pytest

from foretrain.measuring.watching.report import summarise, warm_up_steps
from foretrain.store.runs import WorkerSteps


def steps(*seconds: float, worker: int = 0, waiting: tuple[float, ...] = ()) -> WorkerSteps:
    times = np.array(seconds)
    return WorkerSteps(worker=worker, ends=times.cumsum(), seconds=times, input_seconds=np.array(waiting))


def test_no_steps_have_no_summary() -> None:
    assert summarise([], "hook") is None
    assert summarise([steps()], "hook") is None


def test_the_first_step_is_warm_up_and_the_median_is_of_the_rest() -> None:
    summary = summarise([steps(9.0, 1.0, 2.0, 3.0)], "hook")
    assert summary is not None
    assert (summary.seconds, summary.steps, summary.warm_up_steps, summary.source) == (2.0, 3, 1, "hook")
    assert summary.variation == pytest.approx((2 / 3) ** 0.5 / 2)
    assert (summary.p10_seconds, summary.p90_seconds) == pytest.approx((1.2, 2.8))


@pytest.mark.parametrize(
    ("seconds", "dropped"),
    [
        ([], 0),
        ([5.0], 0),
        ([5.0, 1.0], 0),
        ([5.0, 1.0, 1.0], 1),
        ([1.0] * 50, 5),
        ([1.0] * 500, 10),
        ([9.0, 9.0, 9.0, 1.0, 1.0, 1.0, 1.0, 1.0], 3),
        ([9.0, 9.0, 1.0, 9.0, 1.0, 1.0, 1.0, 1.0], 2),  # a slow step later on is no warm-up
        ([9.0] * 6 + [1.0] * 4, 5),  # at most half
    ],
)
def test_slow_first_steps_are_warm_up(seconds: list[float], dropped: int) -> None:
    assert warm_up_steps(np.array(seconds)) == dropped


def test_workers_are_pooled_and_a_single_step_is_kept() -> None:
    summary = summarise([steps(1.0, 1.0, 1.0, worker=0), steps(3.0, worker=1)], "hook")
    assert summary is not None
    assert (summary.seconds, summary.steps) == (1.0, 2)
    assert summary.p90_seconds == pytest.approx(2.6)


def test_the_input_share_is_of_steady_steps_where_it_is_known() -> None:
    known = summarise([steps(1.0, 2.0, 2.0, waiting=(1.0, 0.5, 0.5))], "hook")
    unknown = summarise([steps(1.0, 2.0, 2.0)], "hook")
    assert known is not None and unknown is not None
    assert known.input_share == pytest.approx(0.25)
    assert unknown.input_share is None


def test_constant_and_zero_times_do_not_divide_by_zero() -> None:
    summary = summarise([steps(0.0, 0.0, 0.0)], "hook")
    assert summary is not None
    assert summary.variation == 0.0
