"""Fits of a CPU's times recover what the times were made of."""

from __future__ import annotations

import numpy as np
import pytest

from foretrain.errors import BackendFailed, InvalidRequest
from foretrain.learning.user_calibration.from_benchmarks import (
    TimedWork,
    calibrate,
    check_believable,
    left_out_seconds,
    relative_fit,
)
from foretrain.workloads.ops import Direction, Kind, Work

CACHE = 2.0**22


def streamed(elements: int) -> TimedWork:
    """2 us a call, 0.1 ns a byte within the cache, 0.4 ns beyond it."""
    size = 4.0 * elements
    work = Work(
        Kind.ELEMENTWISE, Direction.FORWARD, {"elements": elements}, "float32", float(elements), size, size
    )
    seconds = 2e-6 + 1e-10 * min(2 * size, CACHE) + 4e-10 * max(0.0, 2 * size - CACHE)
    return TimedWork(work, seconds)


def multiplied(m: int, n: int, k: int) -> TimedWork:
    """5 us a call, 50 GFLOP/s, 1 ns an element of the result."""
    dims = {"batch": 1, "m": m, "n": n, "k": k}
    work = Work(Kind.LINEAR, Direction.FORWARD, dims, "float32", 2.0 * m * n * k, 1.0, 1.0)
    return TimedWork(work, 5e-6 + work.flop / 5e10 + 1e-9 * m * n)


STREAMS = [streamed(2**power) for power in range(6, 23)]
PRODUCTS = [multiplied(m, n, k) for m in (8, 64, 512) for n in (32, 256) for k in (16, 128, 1024)]


def test_coefficients_are_exact_where_the_times_are_and_never_negative() -> None:
    columns = np.array([[1.0, 1.0], [1.0, 2.0], [1.0, 3.0]])
    assert relative_fit(columns, np.array([3.0, 5.0, 7.0])) == pytest.approx([1.0, 2.0])
    constant, slope = relative_fit(columns, np.array([7.0, 5.0, 3.0])).tolist()
    assert 3.0 <= constant <= 7.0
    assert slope == 0.0


def test_a_relative_fit_is_not_moved_by_one_wild_time() -> None:
    columns = np.stack((np.ones(9), np.arange(1.0, 10.0) ** 3), axis=1)
    times = columns @ np.array([0.5, 2.0])
    times[4] *= 20
    assert relative_fit(columns, times) == pytest.approx([0.5, 2.0], rel=0.01)


def test_the_parameters_the_times_were_made_of_are_found_again() -> None:
    found = calibrate([*STREAMS, *PRODUCTS], "here", threads=2)
    linear, stream = (found.families[name].seconds_per for name in ("linear forward", "elementwise forward"))
    assert found.cache_bytes == CACHE
    assert linear["call"] == pytest.approx(5e-6, rel=0.02)
    assert linear["FLOP"] == pytest.approx(1 / 5e10, rel=0.02)
    assert linear["m x n"] == pytest.approx(1e-9, rel=0.05)
    assert stream["call"] == pytest.approx(2e-6, rel=0.05)
    assert found.families["linear forward"].mean_absolute_error < 0.01


def test_peaks_are_the_best_any_operator_reached() -> None:
    found = calibrate([*STREAMS, *PRODUCTS], "here", threads=2)
    assert found.flop_per_second == max(item.work.flop / item.seconds for item in PRODUCTS)
    assert found.threads == 2


def test_caches_cannot_be_fitted_without_streams() -> None:
    with pytest.raises(InvalidRequest, match="elementwise"):
        calibrate(PRODUCTS, "here", threads=1)


def test_an_operator_unlike_all_others_is_predicted_to_take_some_time() -> None:
    """Left out, the third has a term that no other has: its fit says 0, of which there is no logarithm."""
    columns, times = np.array([[1.0, 0.0], [2.0, 0.0], [0.0, 1.0]]), np.array([1.0, 2.0, 5.0])
    predicted = left_out_seconds(columns, times, np.array([1.0, 5.0]))
    assert predicted == pytest.approx([1.0, 2.0, 0.1])


def test_times_of_a_busy_machine_end_in_no_overflow_and_are_not_kept() -> None:
    random = np.random.default_rng(0)
    disturbed = [
        TimedWork(item.work, item.seconds * float(np.exp(random.normal(0, 3))))
        for item in [*STREAMS, *PRODUCTS]
    ]
    with pytest.raises(BackendFailed, match=r"was not kept.*stop it, or measure longer"):
        check_believable(calibrate(disturbed, "here", threads=2), disturbed)


def test_times_of_a_quiet_machine_are_believed() -> None:
    timed = [*STREAMS, *PRODUCTS]
    check_believable(calibrate(timed, "here", threads=2), timed)
