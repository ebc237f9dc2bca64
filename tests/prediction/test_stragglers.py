"""Order statistics and renewals: closed forms first, then sampling."""

from __future__ import annotations

import math

import numpy as np
import pytest

from foretrain.errors import InvalidRequest
from foretrain.prediction.stragglers import (
    Distribution,
    WorkerTimes,
    expected_completion,
    expected_maximum,
    expected_order_statistic,
    slowest_of,
)

NORMAL = WorkerTimes(10.0, 0.1, Distribution.NORMAL)
LOG_NORMAL = WorkerTimes(10.0, 0.5)
EXPONENTIAL = WorkerTimes(10.0, 1.0, Distribution.SHIFTED_EXPONENTIAL)
SHIFTED = WorkerTimes(10.0, 0.4, Distribution.SHIFTED_EXPONENTIAL)
ALL = [NORMAL, LOG_NORMAL, EXPONENTIAL, SHIFTED]


def test_the_larger_of_two_normals_is_one_over_root_pi_above() -> None:
    assert expected_order_statistic(NORMAL, 2, 2) == pytest.approx(10 + 1 / math.sqrt(math.pi), abs=1e-9)
    assert expected_order_statistic(NORMAL, 3, 3) == pytest.approx(10 + 1.5 / math.sqrt(math.pi), abs=1e-9)


def test_exponential_workers_follow_harmonic_numbers() -> None:
    assert expected_order_statistic(EXPONENTIAL, 3, 3) == pytest.approx(10 * (1 + 1 / 2 + 1 / 3))
    assert expected_order_statistic(EXPONENTIAL, 1, 4) == pytest.approx(10 / 4)
    assert expected_order_statistic(SHIFTED, 1, 4) == pytest.approx(6 + 4 / 4)


def test_the_larger_of_two_log_normals() -> None:
    """E max(X, Y) = 2 E[X] Φ(σ / √2)."""
    sigma = math.sqrt(math.log(1.25))
    expected = 20 * 0.5 * math.erfc(-sigma / 2)
    assert expected_maximum(10, 0.5, 2) == pytest.approx(expected, rel=1e-9)


def test_no_variation_means_no_waiting() -> None:
    assert expected_maximum(3.0, 0.0, 64) == 3.0
    assert expected_maximum(3.0, 0.4, 1) == pytest.approx(3.0, rel=1e-9)


@pytest.mark.parametrize("times", ALL)
@pytest.mark.parametrize("workers", [1, 2, 7, 64])
def test_order_statistics_share_out_the_mean(times: WorkerTimes, workers: int) -> None:
    each = [expected_order_statistic(times, k, workers) for k in range(1, workers + 1)]
    assert sum(each) / workers == pytest.approx(times.mean, rel=1e-7)
    assert each == sorted(each)


def test_many_workers_and_narrow_middles_are_still_exact() -> None:
    assert expected_order_statistic(NORMAL, 50_001, 100_001) == pytest.approx(10, abs=1e-6)
    seconds = [expected_maximum(1.0, 0.1, 10**power) for power in range(6)]
    assert seconds == sorted(seconds)
    assert seconds[-1] < 1.6


@pytest.mark.parametrize("times", ALL)
def test_quantiles_of_the_slowest_agree_with_sampling(times: WorkerTimes) -> None:
    drawn = times.draw(np.random.default_rng(0), (40_000, 16)).max(axis=1)
    slowest, p10, p90 = slowest_of(times, 16)
    assert slowest == pytest.approx(drawn.mean(), rel=0.01)
    assert (p10, p90) == pytest.approx(tuple(np.quantile(drawn, [0.1, 0.9])), rel=0.02)


def test_variations_beyond_the_range_of_a_shape_are_refused() -> None:
    with pytest.raises(InvalidRequest, match="log-normal"):
        WorkerTimes(1.0, 0.5, Distribution.NORMAL)
    with pytest.raises(InvalidRequest, match="mean > 0"):
        WorkerTimes(0.0)
    with pytest.raises(InvalidRequest, match=r"k must be between 1 and the number of workers \(4\)"):
        expected_order_statistic(NORMAL, 5, 4)


def test_pooled_renewals_in_closed_form() -> None:
    assert expected_completion(EXPONENTIAL, 6, 4) == pytest.approx(15)
    assert expected_completion(WorkerTimes(10.0), 6, 4) == 20
    assert expected_completion(LOG_NORMAL, 3, 1) == 30


@pytest.mark.parametrize("times", [NORMAL, LOG_NORMAL, SHIFTED])
def test_the_first_of_pooled_renewals_is_the_fastest_worker(times: WorkerTimes) -> None:
    assert expected_completion(times, 1, 5) == pytest.approx(expected_order_statistic(times, 1, 5), rel=1e-3)


def test_the_lattice_finds_the_closed_form_of_exponential_workers() -> None:
    nearly = WorkerTimes(10.0, 1 - 1e-9, Distribution.SHIFTED_EXPONENTIAL)
    assert expected_completion(nearly, 6, 4) == pytest.approx(15, rel=1e-3)


@pytest.mark.parametrize("times", [NORMAL, LOG_NORMAL, SHIFTED])
@pytest.mark.parametrize(("k", "workers"), [(4, 8), (8, 8), (20, 8), (3, 2)])
def test_pooled_renewals_agree_with_sampling(times: WorkerTimes, k: int, workers: int) -> None:
    drawn = times.draw(np.random.default_rng(1), (40_000, workers, k)).cumsum(axis=2).reshape(40_000, -1)
    kth = np.partition(drawn, k - 1, axis=1)[:, k - 1]
    assert expected_completion(times, k, workers) == pytest.approx(kth.mean(), rel=0.005)
