"""What is ahead of a run: time and money by hand, and the probability of a target by its log."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from foretrain.measuring.watching.outlook import RunOutlook, TargetMonitor, TrainingMonitor, WatchedTarget


def test_time_and_money_left_by_hand() -> None:
    ahead = RunOutlook.after(100, 400, 2.0, 250.0, usd_per_hour=36.0)
    assert ahead.seconds_left == 600
    assert ahead.usd_so_far == pytest.approx(2.5)
    assert ahead.usd_left == pytest.approx(6.0)


def test_nothing_is_left_after_the_last_step() -> None:
    assert RunOutlook.after(400, 400, None, 800.0, usd_per_hour=1.0).usd_left == 0
    assert RunOutlook.after(401, 400, 2.0, 800.0).seconds_left == 0


def test_what_is_not_known_stays_open() -> None:
    assert RunOutlook.after(10, None, 2.0, 20.0, usd_per_hour=1.0).seconds_left is None
    assert RunOutlook.after(10, 20, None, 20.0).seconds_left is None
    assert RunOutlook.after(10, 20, 1.0, 20.0).usd_left is None


def test_the_probability_of_a_target_by_the_log(tmp_path: Path) -> None:
    log = tmp_path / "log.csv"
    assert WatchedTarget(log, "loss=0.6", 200).probability() is None, "the log is not there yet"
    rows = [f"{step},{0.5 + 2.5 * math.exp(-step / 12) + 0.002 * (step % 3)}" for step in range(1, 31)]
    log.write_text("step,loss\n" + "\n".join(rows))
    near, far = (WatchedTarget(log, f"loss={value}", 200).probability() for value in (0.7, 0.01))
    assert near is not None
    assert far is not None
    assert near > 0.8 > 0.2 > far


def test_a_monitor_renews_it_beside_the_run(tmp_path: Path) -> None:
    log = tmp_path / "log.csv"
    log.write_text("step,loss\n" + "\n".join(f"{step},{1 + 10 / step}" for step in range(1, 40)))
    monitor = TargetMonitor(WatchedTarget(log, "loss=1.5", 100))
    assert monitor.latest() is None, "it is computed in a thread of its own"
    assert monitor.at_end() == monitor.latest() is not None
    assert TargetMonitor(None).at_end() is None


# ---- the monitor behind the callbacks, with a clock that is set by hand


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
