"""Pipeline schedules: orders written out by hand, published bubbles, and a plain event loop as the judge."""

from __future__ import annotations

import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foretrain.errors import InvalidRequest, UnknownName
from foretrain.prediction.strategies.pipeline.schedules import (
    PipelineSchedule,
    Slot,
    bubble_share,
    dependencies,
    even_pipeline_seconds,
    peak_in_flight,
    pipeline_seconds,
    schedule,
)
from foretrain.workloads.graph import Phase


def spelled(order: tuple[Slot, ...]) -> str:
    return " ".join(f"{slot.phase[0]}{slot.micro_batch}{'abc'[slot.chunk]}" for slot in order)


def test_gpipe_runs_everything_forward_first() -> None:
    assert [spelled(row) for row in schedule("gpipe", 2, 3)] == ["f0a f1a f2a b0a b1a b2a"] * 2


def test_1f1b_of_three_stages_and_four_micro_batches() -> None:
    assert [spelled(row) for row in schedule("1f1b", 3, 4)] == [
        "f0a f1a f2a b0a f3a b1a b2a b3a",
        "f0a f1a b0a f2a b1a f3a b2a b3a",
        "f0a b0a f1a b1a f2a b2a f3a b3a",
    ]


def test_interleaved_of_two_stages_two_chunks_and_four_micro_batches() -> None:
    """Figure 4 of Narayanan et al. in small: chunk b's backward comes before chunk a's."""
    assert [spelled(row) for row in schedule("interleaved", 2, 4, 2)] == [
        "f0a f1a f0b f1b f2a b0b f3a b1b f2b b0a f3b b1a b2b b3b b2a b3a",
        "f0a f1a f0b b0b f1b b1b f2a b0a f3a b1a f2b b2b f3b b3b b2a b3a",
    ]


def test_a_pipeline_small_enough_to_draw() -> None:
    """Stages of 1 s and 2 s forward, the same backward, 10 s between them, one micro-batch: 1+10+2+2+10+1."""
    run = pipeline_seconds([1, 2], [1, 2], [10], schedule("1f1b", 2, 1))
    assert run.seconds == 26
    assert run.starts.tolist() == [[0, 25], [11, 13]]
    assert run.ends.tolist() == [[1, 26], [13, 15]]
    assert run.idle.tolist() == [24, 22]


@pytest.mark.parametrize(
    ("name", "chunks", "expected"),
    [("gpipe", 1, (8, 8, 8, 8)), ("1f1b", 1, (4, 3, 2, 1)), ("interleaved", 2, (11, 9, 7, 5))],
)
def test_activations_in_flight(name: str, chunks: int, expected: tuple[int, ...]) -> None:
    assert peak_in_flight(schedule(name, 4, 8, chunks)) == expected


@pytest.mark.parametrize(
    ("name", "chunks"),
    [("gpipe", 1), ("1f1b", 1), ("interleaved", 1), ("interleaved", 2), ("interleaved", 3)],
)
@pytest.mark.parametrize(("stages", "micro_batches"), [(1, 1), (2, 2), (4, 4), (4, 16), (8, 24)])
def test_even_stages_have_the_published_bubble(
    name: str, chunks: int, stages: int, micro_batches: int
) -> None:
    run = pipeline_seconds(1.0, 2.0, 0.0, schedule(name, stages, micro_batches, chunks))
    assert run.seconds == even_pipeline_seconds(1.0, 2.0, stages, micro_batches, chunks)
    share = bubble_share(stages, micro_batches, chunks)
    assert run.idle == pytest.approx(share * run.seconds)


def judged(
    order: PipelineSchedule, forward: list[float], backward: list[float], transfer: list[float]
) -> float:
    """Time of the last slot, by repeating over `dependencies` until nothing is left to time.

    What a device sends one way goes one after the other.
    """
    needs = {(edge.after): edge for edge in dependencies(order)}
    sends = {edge.before: edge.boundary for edge in dependencies(order) if edge.boundary is not None}
    ended: dict[Slot, float] = {}
    arrived: dict[Slot, float] = {}
    sent: dict[tuple[int, Phase], float] = {}
    queues = [list(row) for row in order]
    free = [0.0] * order.stages
    while any(queues):
        for stage, queue in enumerate(queues):
            while queue:
                slot = queue[0]
                edge = needs.get(slot)
                if edge is not None and edge.before not in ended:
                    break
                ready = 0.0 if edge is None else arrived[edge.before]
                part = slot.chunk * order.stages + stage
                work = forward[part] if slot.phase is Phase.FORWARD else backward[part]
                free[stage] = ended[queue.pop(0)] = arrived[slot] = max(free[stage], ready) + work
                if slot in sends:
                    way = (stage, slot.phase)
                    arrived[slot] = max(ended[slot], sent.get(way, 0.0)) + transfer[sends[slot]]
                    sent[way] = arrived[slot]
    return max(ended.values())


def test_messages_one_way_queue() -> None:
    """2 stages of 1 s, 3 s between them, 3 micro-batches: the last arrives at 1 + 3 x 3, and so back."""
    run = pipeline_seconds(1.0, 1.0, 3.0, schedule("gpipe", 2, 3))
    assert run.seconds == (1 + 3 * 3 + 1) + 1 + 3 * 3 + 1


@settings(max_examples=60)
@given(data=st.data())
def test_uneven_pipelines_agree_with_a_plain_event_loop(data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(["gpipe", "1f1b", "interleaved"]))
    stages = data.draw(st.integers(1, 5))
    chunks = data.draw(st.integers(1, 3)) if name == "interleaved" else 1
    micro_batches = data.draw(st.integers(1, 4)) * (stages if name == "interleaved" else 1)
    times = st.floats(0, 10)
    parts = stages * chunks
    forward = data.draw(st.lists(times, min_size=parts, max_size=parts))
    backward = data.draw(st.lists(times, min_size=parts, max_size=parts))
    transfer = data.draw(st.lists(times, min_size=parts - 1, max_size=parts - 1))
    order = schedule(name, stages, micro_batches, chunks)
    run = pipeline_seconds(forward, backward, transfer, order)
    assert run.seconds == pytest.approx(judged(order, forward, backward, transfer))
    assert (run.idle > -1e-9).all()
    assert all(len(set(row)) == 2 * micro_batches * chunks for row in order)


def test_interleaving_without_a_multiple_names_the_nearest() -> None:
    with pytest.raises(InvalidRequest, match="a multiple of 4, the number of stages, got 10; use 8 or 12"):
        schedule("interleaved", 4, 10, 2)
    with pytest.raises(InvalidRequest, match="got 3; use 4, or schedule 1f1b"):
        schedule("interleaved", 4, 3, 2)


def test_invalid_requests_are_refused() -> None:
    with pytest.raises(UnknownName, match="1f1b"):
        schedule("1f1", 4, 8)
    with pytest.raises(InvalidRequest, match="interleaved"):
        schedule("1f1b", 4, 8, 2)
    with pytest.raises(InvalidRequest, match="forward times must have 4 entries"):
        pipeline_seconds([1, 1], 1, 0, schedule("1f1b", 4, 8))


def test_64_stages_and_512_micro_batches_are_timed_in_a_moment() -> None:
    rng = np.random.default_rng(0)
    order = schedule("1f1b", 64, 512)
    times = rng.uniform(1, 2, (3, 64))
    best = min(_seconds_of(times, order) for _ in range(3))
    assert best < 0.25, "about 0.03 s on an idle core; a loaded machine is given room"


def _seconds_of(times: np.ndarray, order: PipelineSchedule) -> float:
    began = time.process_time()
    pipeline_seconds(times[0], times[1], times[2, 1:], order)
    return time.process_time() - began
