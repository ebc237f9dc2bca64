"""The monitor behind the callbacks, with a clock that is set by hand."""

import pytest

from foretrain.measuring.watching.monitor import TrainingMonitor


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def monitor(clock: Clock, shown: list[str], **options: float | None) -> TrainingMonitor:
    given = {"predicted_seconds": None, "usd_per_hour": None, **options}
    return TrainingMonitor(every_seconds=10.0, show=shown.append, clock=clock, **given)


def test_time_left_and_bill_follow_from_the_median_step() -> None:
    clock, shown = Clock(), []  # type: tuple[Clock, list[str]]
    watched = monitor(clock, shown, predicted_seconds=1.6, usd_per_hour=36.0)
    watched.start(100)
    for seconds in (50.0, 5.0, 2.0, 2.0, 9.0, 2.0):  # two steps of warm-up, a disturbed one
        clock.now += seconds
        watched.step()
    state = watched.state
    assert (state.steps, state.step_seconds, state.seconds_left) == (6, 2.0, 188.0)
    assert state.measured_over_predicted == pytest.approx(1.25)
    assert state.usd_so_far == pytest.approx(0.70)
    assert state.usd_in_total == pytest.approx(2.58)
    assert str(state) == (
        "foretrain: step 6/100, measured 2.00 s, predicted 1.60 s (measured / predicted = 1.25), "
        "3m 08s left, $0.70 of $2.58 spent"
    )


def test_it_reports_now_and_then_and_at_the_end() -> None:
    clock, shown = Clock(), []  # type: tuple[Clock, list[str]]
    watched = monitor(clock, shown)
    watched.start(None)
    for _ in range(25):
        clock.now += 1.0
        watched.step()
    watched.finish()
    assert shown == [
        "foretrain: step 10, measured 1.00 s",
        "foretrain: step 20, measured 1.00 s",
        "foretrain: step 25, measured 1.00 s",
    ]


def test_workers_other_than_the_first_are_quiet() -> None:
    clock, shown = Clock(), []  # type: tuple[Clock, list[str]]
    watched = monitor(clock, shown)
    watched.start(10, is_quiet=True)
    clock.now = 60.0
    watched.step()
    watched.finish()
    assert shown == []
    assert watched.state.steps == 1
