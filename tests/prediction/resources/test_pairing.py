"""Two jobs on one device: jobs without gaps halve each other, complementary ones do not disturb."""

import numpy as np
import pytest

from foretrain.prediction.resources.bursts import Signal, constant, stack_spans
from foretrain.prediction.resources.pairing import pairing
from foretrain.prediction.resources.worker_cycle import WorkerCycle
from foretrain.store.runs import Resource


def cycle(period: float, gpu: Signal, transmit: Signal | None = None) -> WorkerCycle:
    signals = {Resource.GPU: gpu}
    if transmit is not None:
        signals[Resource.TRANSMIT] = transmit
    return WorkerCycle(period, signals, "")


def test_two_jobs_without_gaps_take_turns() -> None:
    busy = cycle(1.0, constant(1.0, 1.0))
    pair = pairing(busy, busy)
    assert pair.slowdowns == pytest.approx((2.0, 2.0), rel=1e-6)
    assert pair.combined_speed == pytest.approx(1.0)
    assert pair.busiest is Resource.GPU
    assert pair.busiest_share == pytest.approx(2.0)


def test_bursts_cost_nothing_in_the_gaps_of_the_other() -> None:
    """Bursts of half a cycle: together from the start they take twice as long; 0.4 apart they share 0.1."""
    half = cycle(1.0, stack_spans([(0.0, 0.5, 0.5)], 1.0))
    pair = pairing(half, half)
    assert pair.most == pytest.approx((1.5, 1.5), rel=0.01)
    assert pair.least == pytest.approx((1.1, 1.1), rel=0.01)
    apart = cycle(1.0, stack_spans([(0.5, 1.0, 0.5)], 1.0))
    assert pairing(half, apart).least == pytest.approx((1.0, 1.0), rel=0.01)


def test_a_job_that_needs_at_most_half_gets_all_it_needs() -> None:
    light, heavy = cycle(1.0, constant(0.25, 1.0)), cycle(1.0, constant(1.0, 1.0))
    assert pairing(light, heavy).slowdowns == pytest.approx((1.0, 4 / 3), rel=1e-6)


def test_the_link_is_shared_too() -> None:
    job = cycle(1.0, constant(0.1, 1.0), constant(60.0, 1.0))
    assert pairing(job, job, {Resource.TRANSMIT: 100.0}).slowdowns == pytest.approx((1.2, 1.2), rel=1e-6)
    assert pairing(job, job, {Resource.TRANSMIT: 200.0}).slowdowns == pytest.approx((1.0, 1.0), rel=1e-6)


def test_no_job_gets_faster_by_sharing() -> None:
    random = np.random.default_rng(3)
    for _ in range(5):
        jobs = [
            cycle(float(period), stack_spans([(0.0, period * share, period * share)], float(period)))
            for period, share in zip(random.uniform(0.2, 2.0, 2), random.uniform(0.1, 1.0, 2), strict=True)
        ]
        slowdowns = pairing(jobs[0], jobs[1]).slowdowns
        assert min(slowdowns) >= 1 - 1e-9
        assert max(slowdowns) <= 2 + 1e-9
