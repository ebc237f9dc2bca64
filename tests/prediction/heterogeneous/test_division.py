"""Batches with which unequal devices finish together: two by hand, limits, and all divisions tried."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foretrain.prediction.heterogeneous.division import Worker, balance_batches


def affine(fixed_seconds: float, seconds_per_sample: float) -> Callable[[int], float]:
    return lambda batch: fixed_seconds + seconds_per_sample * batch


FAST = Worker(affine(0.0, 0.001), 10_000)
SLOW = Worker(affine(0.0, 0.020), 10_000)


def test_a_slow_node_takes_one_of_21_samples() -> None:
    assert balance_batches(210, [FAST, SLOW]) == (200, 10)


def test_whole_samples_go_where_they_cost_least() -> None:
    """22 samples: 21 ms with one slow sample; two of them take 40."""
    assert balance_batches(22, [FAST, SLOW]) == (21, 1)


def test_memory_forces_samples_onto_the_slow_node() -> None:
    assert balance_batches(210, [Worker(FAST.seconds_at, 150), SLOW]) == (150, 60)


def test_limits_that_forbid_a_division() -> None:
    assert balance_batches(8, [Worker(affine(0, 1), 8, 6), Worker(affine(0, 2), 8, 6)]) is None
    assert balance_batches(100, [Worker(affine(0, 1), 30), Worker(affine(0, 1), 40)]) is None


def test_equal_workers_share_evenly() -> None:
    batches = balance_batches(30, [Worker(affine(0.1, 0.01), 100)] * 4)
    assert batches is not None and sorted(batches) == [7, 7, 8, 8]


def test_flat_step_times_and_large_batches_are_quick() -> None:
    """Below saturation a step takes the same for any batch; a million samples are not handed out singly."""
    asked: list[int] = []

    def saturating(batch: int) -> float:
        asked.append(batch)
        return max(1.0, batch / 1000)

    batches = balance_batches(1_000_000, [Worker(saturating, 10**6), Worker(saturating, 10**6)])
    assert batches is not None and max(batches) == pytest.approx(500_000)
    assert len(asked) < 400


def brute_force(batch: int, workers: list[Worker]) -> float | None:
    every = product(*(range(w.min_batch, w.largest_batch + 1) for w in workers))
    return min(
        (
            max(w.seconds_at(b) for w, b in zip(workers, batches, strict=True))
            for batches in every
            if sum(batches) == batch
        ),
        default=None,
    )


@settings(max_examples=200)
@given(data=st.data())
def test_no_division_is_faster(data: st.DataObject) -> None:
    workers = []
    for _ in range(data.draw(st.integers(1, 3))):
        steps = data.draw(st.lists(st.integers(0, 9), min_size=11, max_size=11))
        times = tuple(float(sum(steps[: batch + 1])) for batch in range(11))
        least = data.draw(st.integers(1, 5))
        workers.append(Worker(times.__getitem__, data.draw(st.integers(least, 10)), least))
    batch = data.draw(st.integers(1, 24))
    batches, best = balance_batches(batch, workers), brute_force(batch, workers)
    if batches is None or best is None:
        assert batches is None and best is None
        return
    assert max(w.seconds_at(b) for w, b in zip(workers, batches, strict=True)) == pytest.approx(best)
    assert sum(batches) == batch
    for worker, given_batch in zip(workers, batches, strict=True):
        assert worker.min_batch <= given_batch <= worker.largest_batch
