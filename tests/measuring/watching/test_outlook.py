"""What is ahead of a run: time and money by hand, and the probability of a target by its log."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from foretrain.measuring.watching.outlook import TargetMonitor, WatchedTarget, outlook


def test_time_and_money_left_by_hand() -> None:
    ahead = outlook(100, 400, 2.0, 250.0, usd_per_hour=36.0)
    assert ahead.seconds_left == 600
    assert ahead.usd_so_far == pytest.approx(2.5)
    assert ahead.usd_left == pytest.approx(6.0)


def test_nothing_is_left_after_the_last_step() -> None:
    assert outlook(400, 400, None, 800.0, usd_per_hour=1.0).usd_left == 0
    assert outlook(401, 400, 2.0, 800.0).seconds_left == 0


def test_what_is_not_known_stays_open() -> None:
    assert outlook(10, None, 2.0, 20.0, usd_per_hour=1.0).seconds_left is None
    assert outlook(10, 20, None, 20.0).seconds_left is None
    assert outlook(10, 20, 1.0, 20.0).usd_left is None


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
