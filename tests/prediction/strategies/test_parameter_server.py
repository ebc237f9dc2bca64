"""Parameter servers: the synchronous formula and Dutta's by hand, then event-by-event simulations."""

from __future__ import annotations

import heapq

import numpy as np
import pytest

from foretrain.errors import InvalidRequest
from foretrain.prediction.stragglers import Distribution, WorkerTimes
from foretrain.prediction.strategies.parameter_server import (
    Server,
    closed_network_rate,
    ps_update,
    server_on_link,
    synchronous_seconds,
)
from foretrain.prediction.strategies.strategy import Variant

EXPONENTIAL = WorkerTimes(2.0, 1.0, Distribution.SHIFTED_EXPONENTIAL)
SHIFTED = WorkerTimes(2.0, 0.5, Distribution.SHIFTED_EXPONENTIAL)
LOG_NORMAL = WorkerTimes(2.0, 0.3)
NORMAL = WorkerTimes(2.0, 0.2, Distribution.NORMAL)


def test_a_synchronous_step_by_hand() -> None:
    """60 samples on 3 workers: 20 · 0.1 + 1 of the slowest, 2 · 50 MB over a tenth of 1 GB/s split by 3,
    0.05 to aggregate, 0.01 overhead."""
    seconds = synchronous_seconds(60, [0.05, 0.1, 0.05], [1, 1, 1], 50e6, 1e9, 3, 0.05, 0.01)
    assert seconds == pytest.approx(3 + 0.3 + 0.05 + 0.01)


def test_equal_steady_workers_give_the_synchronous_step() -> None:
    server = server_on_link(50e6, 1e9, servers=2, aggregation_seconds=0.05, overhead_seconds=0.01)
    update = ps_update(Variant.SYNC, 4, 0, WorkerTimes(3.0), server)
    assert update.seconds_per_update == pytest.approx(
        synchronous_seconds(4, [2.0] * 4, [1.0] * 4, 50e6, 1e9, 2, 0.05, 0.01)
    )
    assert update.gradients_per_update == 4
    assert update.expected_staleness == 0


@pytest.mark.parametrize(
    ("variant", "k", "seconds", "staleness"),
    [
        (Variant.SYNC, 0, 2 * (1 + 1 / 2 + 1 / 3 + 1 / 4), 0),
        (Variant.K_SYNC, 2, 2 * (1 / 4 + 1 / 3), 0),
        (Variant.K_BATCH_SYNC, 2, 2 * 2 / 4, 0),
        (Variant.ASYNC, 0, 2 / 4, 3),
        (Variant.K_ASYNC, 2, 2 * (1 / 4 + 1 / 3), 1),
        (Variant.K_BATCH_ASYNC, 2, 2 * 2 / 4, 1.5),
    ],
)
def test_exponential_workers_as_published(variant: Variant, k: int, seconds: float, staleness: float) -> None:
    """Dutta et al., four workers of mean 2."""
    update = ps_update(variant, 4, k, EXPONENTIAL)
    assert update.seconds_per_update == pytest.approx(seconds)
    assert update.expected_staleness == staleness
    assert update.gradients_per_second == pytest.approx(update.gradients_per_update / seconds)


@pytest.mark.parametrize("times", [SHIFTED, LOG_NORMAL, NORMAL])
@pytest.mark.parametrize("server", [Server(), Server(0.05, 0.02, 0.01)])
def test_the_variants_meet_at_their_ends(times: WorkerTimes, server: Server) -> None:
    def seconds(variant: Variant, k: int) -> float:
        return ps_update(variant, 6, k, times, server).seconds_per_update

    assert seconds(Variant.K_SYNC, 6) == seconds(Variant.SYNC, 0)
    assert seconds(Variant.K_ASYNC, 6) == seconds(Variant.SYNC, 0)
    assert seconds(Variant.K_ASYNC, 1) == seconds(Variant.ASYNC, 0)
    assert seconds(Variant.K_BATCH_ASYNC, 1) == seconds(Variant.ASYNC, 0)
    assert seconds(Variant.K_BATCH_SYNC, 1) == pytest.approx(seconds(Variant.K_SYNC, 1), rel=2e-3)


@pytest.mark.parametrize("times", [SHIFTED, LOG_NORMAL, NORMAL])
def test_less_waiting_is_faster(times: WorkerTimes) -> None:
    """Dutta's order: K-batch-async <= K-batch-sync <= K-sync, and K-async between the first and the last."""
    for k in (2, 4, 5):
        free, pooled, first, going_on = (
            ps_update(variant, 6, k, times).seconds_per_update
            for variant in (Variant.K_BATCH_ASYNC, Variant.K_BATCH_SYNC, Variant.K_SYNC, Variant.K_ASYNC)
        )
        assert free <= pooled <= first * 1.001
        assert free <= going_on <= first * 1.001


def simulated(
    variant: Variant, workers: int, k: int, times: WorkerTimes, updates: int
) -> tuple[float, float]:
    """Seconds per update and mean staleness of the asynchronous variants, one event after another."""
    generator = np.random.default_rng(5)
    draws = iter(times.draw(generator, (updates * k * 2 + workers,)).tolist())
    running = [(next(draws), worker, 0) for worker in range(workers)]
    heapq.heapify(running)
    version, staleness, pending, now = 0, 0, [], 0.0
    while version < updates:
        now, worker, read_at = heapq.heappop(running)
        pending.append((worker, read_at))
        full = len(pending) == k
        if full:
            staleness += sum(version - read for _, read in pending)
            version += 1
        if variant is Variant.K_BATCH_ASYNC:
            heapq.heappush(running, (now + next(draws), worker, version))
        elif full:
            for waiting, _ in pending:
                heapq.heappush(running, (now + next(draws), waiting, version))
        if full:
            pending = []
    return now / version, staleness / (version * k)


@pytest.mark.parametrize("times", [SHIFTED, LOG_NORMAL])
@pytest.mark.parametrize("variant", [Variant.K_ASYNC, Variant.K_BATCH_ASYNC])
@pytest.mark.parametrize("k", [1, 2, 3])
def test_asynchronous_variants_agree_with_events(times: WorkerTimes, variant: Variant, k: int) -> None:
    seconds, staleness = simulated(variant, 5, k, times, 20_000)
    update = ps_update(variant, 5, k, times)
    assert update.seconds_per_update == pytest.approx(seconds, rel=0.015)
    assert update.expected_staleness == pytest.approx(staleness, rel=0.01)
    assert update.standard_error < 0.005 * update.seconds_per_update


def shared_link_rate(workers: int, times: WorkerTimes, service: float, visits: int) -> float:
    """Visits per second when those at the server share it evenly, one event after another."""
    generator = np.random.default_rng(9)
    away = times.draw(generator, (workers,)).tolist()
    served: list[float] = []
    now, done = 0.0, 0
    while done < visits:
        until_back = min(away, default=float("inf"))
        until_served = min((left * len(served) for left in served), default=float("inf"))
        passed = min(until_back, until_served)
        now += passed
        away = [left - passed for left in away]
        served = [left - passed / len(served) for left in served]
        if until_back <= until_served:
            away.remove(min(away))
            served.append(service)
        else:
            served.remove(min(served))
            away.append(float(times.draw(generator, (1,))[0]))
            done += 1
    return done / now


@pytest.mark.parametrize("service", [0.05, 0.4, 1.0])
@pytest.mark.parametrize("times", [SHIFTED, LOG_NORMAL])
def test_sharing_the_servers_link_agrees_with_events(times: WorkerTimes, service: float) -> None:
    expected = shared_link_rate(4, times, service, 20_000)
    assert closed_network_rate(4, times.mean, service) == pytest.approx(expected, rel=0.02)


def test_a_saturated_server_sets_the_pace() -> None:
    update = ps_update(Variant.ASYNC, 64, 0, LOG_NORMAL, Server(message_seconds=0.5))
    assert update.seconds_per_update == pytest.approx(1.0, rel=1e-6)
    assert update.useful_share == pytest.approx(2 / 64)


def test_parts_and_shares_are_sensible() -> None:
    for variant in Variant:
        update = ps_update(variant, 4, 2, LOG_NORMAL, Server(0.05, 0.02, 0.01))
        assert update.waiting_seconds > 0
        assert update.exchange_seconds > 0
        assert 0 < update.useful_share < 1


def test_impossible_numbers_are_refused() -> None:
    with pytest.raises(InvalidRequest, match="at most 4"):
        ps_update(Variant.K_SYNC, 4, 5, LOG_NORMAL)
    with pytest.raises(InvalidRequest, match="at least 1"):
        ps_update(Variant.K_BATCH_ASYNC, 4, 0, LOG_NORMAL)
    assert ps_update(Variant.K_BATCH_ASYNC, 4, 9, LOG_NORMAL).gradients_per_update == 9
    with pytest.raises(InvalidRequest):
        server_on_link(1.0, 0.0)
