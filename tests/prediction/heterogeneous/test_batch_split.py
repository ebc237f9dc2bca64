"""Uneven splits: two nodes by hand, limits, verdicts, and all splits tried."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foretrain.answers import Infeasible
from foretrain.errors import InvalidRequest
from foretrain.prediction.heterogeneous.batch_split import Affine, Split, Worker, no_sync, split_batch

FAST = Worker("fast", Affine(0.0, 0.001), 10_000)
SLOW = Worker("slow", Affine(0.0, 0.020), 10_000)


def split_of(answer: Split | Infeasible) -> Split:
    assert isinstance(answer, Split), answer
    return answer


def test_a_slow_node_takes_one_of_21_samples() -> None:
    split = split_of(split_batch(210, [FAST, SLOW]))
    assert split.batches == (200, 10)
    assert split.seconds == pytest.approx(0.2)
    assert split.excluded == ()
    assert (
        split.verdict == "slow helps: with 10 of 210 samples it shortens a step from 210 ms to 200 ms (4.8%)"
    )


def test_whole_samples_go_where_they_cost_least() -> None:
    """22 samples: 21 ms with one slow sample; none or two of them take 22 and 40."""
    assert split_of(split_batch(22, [FAST, SLOW])).batches == (21, 1)


def test_synchronising_can_cost_more_than_the_slow_node_brings() -> None:
    split = split_of(split_batch(210, [FAST, SLOW], lambda workers: 0.05 * (workers - 1)))
    assert split.batches == (210, 0)
    assert split.excluded == ("slow",)
    assert split.verdict == "slow does not help: a step takes 250 ms with all workers, 210 ms without"


def test_below_its_least_useful_batch_the_slow_node_is_left_out() -> None:
    """32 samples take it 640 ms, while the fast one is done with all in 210."""
    split = split_of(split_batch(210, [FAST, Worker("slow", SLOW.seconds_at, 10_000, min_batch=32)]))
    assert split.excluded == ("slow",)
    assert split.seconds == pytest.approx(0.21)


def test_least_batches_larger_than_the_whole_leave_workers_out() -> None:
    split = split_of(split_batch(8, [Worker("a", Affine(0, 1), 8, 6), Worker("b", Affine(0, 2), 8, 6)]))
    assert split.batches == (8, 0)
    assert "exceed 8 samples" in split.verdict


def test_memory_forces_samples_onto_the_slow_node() -> None:
    split = split_of(split_batch(210, [Worker("fast", FAST.seconds_at, 150), SLOW]))
    assert split.batches == (150, 60)
    assert split.seconds == pytest.approx(1.2)
    assert split.verdict.endswith("without it the others cannot hold the batch")


def test_a_batch_that_fits_nowhere_is_infeasible() -> None:
    answer = split_batch(100, [Worker("a", Affine(0, 1), 30), Worker("b", Affine(0, 1), 40)])
    assert isinstance(answer, Infeasible)
    assert "at most 70" in str(answer)
    answer = split_batch(3, [Worker("a", Affine(0, 1), 30, 4)])
    assert isinstance(answer, Infeasible)
    assert "4 or more" in str(answer)
    answer = split_batch(5, [Worker("a", Affine(0, 1), 4, 4), Worker("b", Affine(0, 1), 4, 4)])
    assert isinstance(answer, Infeasible)
    assert "another global batch" in str(answer)


def test_equal_workers_share_evenly() -> None:
    pace = Affine(0.1, 0.01)
    split = split_of(split_batch(30, [Worker(f"gpu{index}", pace, 100) for index in range(4)]))
    assert sorted(split.batches) == [7, 7, 8, 8]


def test_flat_step_times_and_large_batches_are_quick() -> None:
    """Below saturation a step takes the same for any batch; a million samples are not handed out singly."""
    asked: list[int] = []

    def saturating(batch: int) -> float:
        asked.append(batch)
        return max(1.0, batch / 1000)

    split = split_of(split_batch(1_000_000, [Worker("a", saturating, 10**6), Worker("b", saturating, 10**6)]))
    assert split.seconds == pytest.approx(500)
    assert len(asked) < 400


def test_many_kinds_are_dropped_slowest_first() -> None:
    workers = [Worker(f"w{index}", Affine(0.0, 1.0 + index), 1000) for index in range(14)]
    split = split_of(split_batch(1000, workers, lambda count: 20.0 * count))
    assert 1 < len(split.excluded) < 13
    assert split.excluded == tuple(f"w{index}" for index in range(14 - len(split.excluded), 14))


def test_invalid_limits_are_refused() -> None:
    with pytest.raises(InvalidRequest):
        split_batch(0, [FAST])
    with pytest.raises(InvalidRequest, match="min_batch must be between 1 and largest_batch 2, got 3"):
        split_batch(4, [Worker("a", Affine(0, 1), 2, 3)])


def brute_force(batch: int, workers: list[Worker], sync: Callable[[int], float]) -> float | None:
    best: float | None = None
    for batches in product(*([0, *range(w.min_batch, w.largest_batch + 1)] for w in workers)):
        if sum(batches) == batch:
            computing = max(w.seconds_at(b) for w, b in zip(workers, batches, strict=True) if b)
            seconds = computing + sync(sum(b > 0 for b in batches))
            best = seconds if best is None else min(best, seconds)
    return best


@settings(max_examples=200, deadline=None)
@given(data=st.data())
def test_no_split_is_faster(data: st.DataObject) -> None:
    workers = []
    for index in range(data.draw(st.integers(1, 3))):
        steps = data.draw(st.lists(st.integers(0, 9), min_size=11, max_size=11))
        times = tuple(float(sum(steps[: batch + 1])) for batch in range(11))
        least = data.draw(st.integers(1, 5))
        largest = data.draw(st.integers(least, 10))
        workers.append(Worker(f"w{index}", times.__getitem__, largest, least))
    cost = data.draw(st.sampled_from([0.0, 1.0, 6.0]))
    sync = no_sync if cost == 0 else lambda count: cost * (count - 1)
    batch = data.draw(st.integers(1, 24))
    best = brute_force(batch, workers, sync)
    answer = split_batch(batch, workers, sync)
    if best is None:
        assert isinstance(answer, Infeasible)
        return
    split = split_of(answer)
    assert split.seconds == pytest.approx(best)
    assert sum(split.batches) == batch
    for worker, given_batch in zip(workers, split.batches, strict=True):
        assert given_batch == 0 or worker.min_batch <= given_batch <= worker.largest_batch
