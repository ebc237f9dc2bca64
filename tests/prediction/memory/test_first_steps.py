"""The first steps of real graphs: simulated as the plain allocator does it, event by event."""

from __future__ import annotations

import pytest
from tests.support.plain_allocator import simulate_plainly

from foretrain.prediction.memory import estimate
from foretrain.prediction.memory.allocator import (
    EMPTY_CACHE,
    FREE,
    RELEASE,
    Event,
    peak_requested_bytes,
    simulate_steps,
)
from foretrain.prediction.memory.first_steps import Timetable, exchange_steps, first_steps
from foretrain.prediction.memory.lifetimes import tensor_lifetimes
from foretrain.prediction.strategies.program import MemoryOptions
from foretrain.workloads.options import WorkloadRequest
from foretrain.workloads.workload import graph_of, workload_of

OPTIONS = (
    MemoryOptions(),
    MemoryOptions(tune_convolutions=True, prefetching_loaders=1),
    MemoryOptions(data_parallel=4, keep_gradients=True),
    MemoryOptions(data_parallel=4, zero_stage=3, keep_gradients=True, in_flight=2.5),
)


def events_of(table: Timetable) -> list[Event]:
    sizes = table.sizes.tolist()
    return [
        (0, RELEASE) if event == EMPTY_CACHE else (event, sizes[event]) if event >= 0 else (~event, FREE)
        for event in table.steps.events.tolist()
    ]


@pytest.mark.parametrize("model", ["resnet18", "bert-base"])
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_steps_of_real_graphs_take_what_they_take_event_by_event(model: str, options: MemoryOptions) -> None:
    """At two batch sizes, whose small tensors are the same; with all memory, and with a little less."""
    for batch in (8, 48):
        graph = graph_of(workload_of(WorkloadRequest(model, batch=batch, precision="fp16")))
        lifetimes = tensor_lifetimes(graph, options, 8 << 20)
        main, exchanges = first_steps(lifetimes, options), exchange_steps(lifetimes)
        footprint = simulate_steps(main.steps, main.sizes)
        assert footprint == simulate_plainly(events_of(main))
        assert simulate_steps(exchanges.steps, exchanges.sizes) == simulate_plainly(events_of(exchanges))
        for share in (0.99, 0.9):
            room = footprint.peak_reserved_bytes * share
            assert simulate_steps(main.steps, main.sizes, room) == simulate_plainly(events_of(main), room)


@pytest.mark.parametrize("model", ["resnet18", "bert-base", "gpt2", "mobilenet-v2"])
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_what_is_expected_to_fit_does(model: str, options: MemoryOptions) -> None:
    """The bounds that decide without a simulation: what tensors request never suffices with a byte less, and
    ample room always does."""
    for batch in (2, 7, 64):
        graph = graph_of(workload_of(WorkloadRequest(model, batch=batch, precision="fp16")))
        main = first_steps(tensor_lifetimes(graph, options, 8 << 20), options)
        requested = peak_requested_bytes(main.steps, main.sizes)
        assert simulate_steps(main.steps, main.sizes, requested - 1).failed_at is not None
        ample = estimate.FRAGMENTED * requested + estimate.SEGMENTS_BYTES
        assert simulate_steps(main.steps, main.sizes, ample).failed_at is None
