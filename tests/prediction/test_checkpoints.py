"""Young's interval, Daly's time, and that the parts make it up."""

import math
import random

import pytest

from foretrain.errors import InvalidRequest
from foretrain.jobs.interruptions import interrupted, youngs_interval


def test_youngs_interval_by_hand() -> None:
    # 50 s to save, an interruption every 10,000 s: sqrt(2 x 50 x 10,000) = 1,000 s
    assert youngs_interval(50, 10_000) == 1000


def test_it_loses_less_than_its_neighbours() -> None:
    def loss(interval: float) -> float:
        return interrupted(1e6, 50, 300, 100_000, interval).overhead_seconds

    best = youngs_interval(50, 100_000)
    assert loss(best) < min(loss(0.7 * best), loss(1.4 * best))


def test_the_parts_make_up_dalys_time() -> None:
    work, save, restart, between, interval = 36_000.0, 60.0, 300.0, 7_200.0, 900.0
    found = interrupted(work, save, restart, between, interval)
    daly = between * math.exp(restart / between) * math.expm1((interval + save) / between) * work / interval
    assert work + found.overhead_seconds == pytest.approx(daly)
    assert found.checkpoints == 40
    assert found.saving_seconds == 2400


def test_rare_interruptions_lose_half_a_stretch_each() -> None:
    # 1e5 s of work, an interruption every 1e6 s: 0.1 of them, each losing half of 1,000 s and a restart
    found = interrupted(1e5, 0.0, 60, 1e6, 1000)
    assert found.interruptions == pytest.approx(0.1, rel=1e-3)
    assert found.rework_seconds == pytest.approx(0.1 * 500, rel=2e-3)
    assert found.restart_seconds == pytest.approx(0.1 * 60, rel=2e-3)


def test_it_is_what_happens_at_random() -> None:
    work, save, restart, between, interval = 20_000.0, 30.0, 120.0, 3_000.0, 500.0
    source = random.Random(7)

    def configuration(needed: float) -> float:
        """Time until a stretch (or a restart) goes through without an interruption."""
        spent = 0.0
        while (lasts := source.expovariate(1 / between)) < needed:
            spent += lasts + configuration(restart)
        return spent + needed

    runs = [sum(configuration(interval + save) for _ in range(40)) for _ in range(400)]
    expected = work + interrupted(work, save, restart, between, interval).overhead_seconds
    assert sum(runs) / len(runs) == pytest.approx(expected, rel=0.02)


def test_nothing_interrupts() -> None:
    found = interrupted(1000, 10, 60, math.inf, 250)
    assert (found.saving_seconds, found.rework_seconds, found.restart_seconds) == (40, 0, 0)


def test_short_work_is_saved_once_at_its_end() -> None:
    found = interrupted(100, 10, 60, math.inf, 250)
    assert (found.interval_seconds, found.checkpoints, found.saving_seconds) == (100, 1, 10)


def test_a_job_that_never_ends_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="never ends"):
        interrupted(1e6, 10, 60, 100, 1e6)
    with pytest.raises(InvalidRequest, match="more than 0"):
        interrupted(1e6, 10, 60, 100, 0)
    with pytest.raises(InvalidRequest, match="above 0"):
        youngs_interval(1, 0)
