"""Batch size and number of devices chosen together."""

from __future__ import annotations

import itertools

import pytest

from foretrain.convergence.batch_size import BatchSizeLaw, fit_batch_size_law
from foretrain.errors import InvalidRequest
from foretrain.planning.batch_and_devices import choose_batch_and_devices

SAMPLES = 100_000
DEVICES = (1, 2, 4, 8, 16)
BATCHES = (64, 128, 256, 512, 1024, 4096)


def line_law() -> BatchSizeLaw:
    """E = 10 (1 + B / 1000)."""
    sizes = (50, 500, 5000)
    return fit_batch_size_law(sizes, [10 * (1 + size / 1000) for size in sizes])


def seconds_at(devices: int, batch: int) -> float | None:
    """2 ms a sample on each device, 50 ms for all-reduce beyond one; 512 samples a device at most."""
    if batch > 512 * devices:
        return None
    return 0.01 + 0.002 * batch / devices + (0.05 if devices > 1 else 0.0)


def test_the_best_pair_is_that_of_brute_force() -> None:
    chosen = choose_batch_and_devices(line_law(), SAMPLES, seconds_at, DEVICES, BATCHES, 1.0)
    times = {
        (count, batch): 10 * (1 + batch / 1000) * SAMPLES / batch * step
        for count, batch in itertools.product(DEVICES, BATCHES)
        if (step := seconds_at(count, batch)) is not None
    }
    pair = min(times, key=lambda key: times[key])
    assert (chosen.best.devices, chosen.best.batch) == pair
    assert chosen.best.seconds.p50 == pytest.approx(times[pair])
    assert len(chosen.pairs) == len(times)
    for point in chosen.by_devices:
        assert point.seconds.p50 == pytest.approx(
            min(time for key, time in times.items() if key[0] == point.devices)
        )


def test_eight_times_the_devices_are_not_eight_times_the_progress() -> None:
    chosen = choose_batch_and_devices(line_law(), SAMPLES, seconds_at, (1, 8), BATCHES)
    assert 1 < chosen.speedup(chosen.by_devices[1]) < 8


def test_with_a_deadline_the_cheapest_in_time_counts() -> None:
    every = choose_batch_and_devices(line_law(), SAMPLES, seconds_at, DEVICES, BATCHES, 1.0)
    deadline = every.best.seconds.p50 * 2
    chosen = choose_batch_and_devices(line_law(), SAMPLES, seconds_at, DEVICES, BATCHES, 1.0, deadline)
    in_time = [pair for pair in every.pairs if pair.seconds.p50 <= deadline]
    assert chosen.best.usd == min(pair.usd for pair in in_time) < every.best.usd
    late = choose_batch_and_devices(line_law(), SAMPLES, seconds_at, DEVICES, BATCHES, 1.0, 1.0)
    assert late.best == every.best


def test_the_bill_by_hand() -> None:
    law = BatchSizeLaw((10.0, 20.0), (2.0, 2.0), 2.0, 0.0)
    chosen = choose_batch_and_devices(law, 1000, lambda *_: 18.0, (4,), (10,), 3.0)
    assert chosen.best.steps.p50 == 200
    assert chosen.best.seconds.p50 == 3600
    assert chosen.best.usd == pytest.approx(12.0)


def test_nothing_fits() -> None:
    with pytest.raises(InvalidRequest, match="none of 1 x 1 pairs"):
        choose_batch_and_devices(line_law(), SAMPLES, seconds_at, (1,), (4096,))


@pytest.mark.parametrize("step", [0.0, -1.0, float("nan")])
def test_a_step_that_takes_no_time_is_refused(step: float) -> None:
    with pytest.raises(InvalidRequest, match="above 0"):
        choose_batch_and_devices(line_law(), SAMPLES, lambda *_: step, (1,), (64,))


def test_empty_grids_are_refused() -> None:
    with pytest.raises(InvalidRequest, match="one or more"):
        choose_batch_and_devices(line_law(), SAMPLES, seconds_at, (), (64,))
