"""Rates of interruptions, Poisson counts, Young's interval, and the parts of Daly's time."""

import math
import random

import pytest

from foretrain.errors import InvalidRequest
from foretrain.facts.running import FAILURES, SPOT_INTERRUPTIONS, default
from foretrain.jobs.interruptions import (
    estimate_interruptions,
    interruptions,
    poisson_quantile,
    youngs_interval,
)


def test_a_rate_given_is_for_each_machine() -> None:
    found = interruptions(devices=16, machines=2, spot=True, given_per_day=0.5)
    assert found.per_day.p10 == found.per_day.p50 == found.per_day.p90 == 1.0
    assert found.between_seconds == 86400


def test_failures_count_devices_and_spot_counts_machines_on_top() -> None:
    failing, taken = default(FAILURES).quantiles.p50, default(SPOT_INTERRUPTIONS).quantiles.p50
    assert interruptions(16, 2, False, None).per_day.p50 == pytest.approx(16 * failing)
    assert interruptions(16, 2, True, None).per_day.p50 == pytest.approx(16 * failing + 2 * taken)


def test_never_and_nonsense() -> None:
    assert math.isinf(interruptions(1, 1, False, 0.0).between_seconds)
    with pytest.raises(InvalidRequest, match="at least 0"):
        interruptions(1, 1, True, -1)


def test_poisson_by_hand() -> None:
    # mean 1: P(0) = 0.368, P(<=1) = 0.736, P(<=2) = 0.920
    assert [poisson_quantile(1.0, share) for share in (0.1, 0.5, 0.9)] == [0, 1, 2]
    assert poisson_quantile(0.01, 0.9) == 0
    assert poisson_quantile(10_000, 0.9) == pytest.approx(10_000 + 128.2, abs=0.1)


def test_youngs_interval_by_hand() -> None:
    # 50 s to save, an interruption every 10,000 s: sqrt(2 x 50 x 10,000) = 1,000 s
    assert youngs_interval(50, 10_000) == 1000


def test_it_loses_less_than_its_neighbours() -> None:
    def loss(interval: float) -> float:
        return estimate_interruptions(1e6, 50, 300, 100_000, interval).overhead_seconds

    best = youngs_interval(50, 100_000)
    assert loss(best) < min(loss(0.7 * best), loss(1.4 * best))


def test_the_parts_make_up_dalys_time() -> None:
    work, save, restart, between, interval = 36_000.0, 60.0, 300.0, 7_200.0, 900.0
    found = estimate_interruptions(work, save, restart, between, interval)
    daly = between * math.exp(restart / between) * math.expm1((interval + save) / between) * work / interval
    assert work + found.overhead_seconds == pytest.approx(daly)
    assert found.checkpoints == 40
    assert found.saving_seconds == 2400


def test_rare_interruptions_lose_half_a_stretch_each() -> None:
    # 1e5 s of work, an interruption every 1e6 s: 0.1 of them, each losing half of 1,000 s and a restart
    found = estimate_interruptions(1e5, 0.0, 60, 1e6, 1000)
    assert found.interruptions == pytest.approx(0.1, rel=1e-3)
    assert found.rework_seconds == pytest.approx(0.1 * 500, rel=2e-3)
    assert found.restart_seconds == pytest.approx(0.1 * 60, rel=2e-3)


def test_it_is_what_happens_at_random() -> None:
    work, save, restart, between, interval = 20_000.0, 30.0, 120.0, 3_000.0, 500.0
    source = random.Random(7)

    def attempts(needed: float) -> float:
        """Time until a stretch (or a restart) goes through without an interruption."""
        spent = 0.0
        while (lasts := source.expovariate(1 / between)) < needed:
            spent += lasts + attempts(restart)
        return spent + needed

    runs = [sum(attempts(interval + save) for _ in range(40)) for _ in range(400)]
    expected = work + estimate_interruptions(work, save, restart, between, interval).overhead_seconds
    assert sum(runs) / len(runs) == pytest.approx(expected, rel=0.02)


def test_nothing_interrupts() -> None:
    found = estimate_interruptions(1000, 10, 60, math.inf, 250)
    assert (found.saving_seconds, found.rework_seconds, found.restart_seconds) == (40, 0, 0)


def test_short_work_is_saved_once_at_its_end() -> None:
    found = estimate_interruptions(100, 10, 60, math.inf, 250)
    assert (found.interval_seconds, found.checkpoints, found.saving_seconds) == (100, 1, 10)


def test_a_job_that_never_ends_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="never ends"):
        estimate_interruptions(1e6, 10, 60, 100, 1e6)
    with pytest.raises(InvalidRequest, match="more than 0"):
        estimate_interruptions(1e6, 10, 60, 100, 0)
    with pytest.raises(InvalidRequest, match="above 0"):
        youngs_interval(1, 0)
