"""What would make a step faster, each change computed by predicting the step with it.

TF32 and compiling are derived from the graph at hand, other batch sizes from its family; mixed precision,
another layout and fused attention are traced once, and then kept.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from foretrain.errors import ForetrainError
from foretrain.facts.datasets import datasets, storages
from foretrain.facts.devices import Device
from foretrain.prediction.cost_models.step_models import CostModel
from foretrain.prediction.memory.estimate import estimate_memory
from foretrain.prediction.memory.lifetimes import MemoryOptions
from foretrain.prediction.step.input_pipeline import STORAGE, InputOptions
from foretrain.prediction.step.timing import Timing, time_step
from foretrain.workloads.fusion import fuse
from foretrain.workloads.graph import Graph
from foretrain.workloads.workload import Workload, graph_at, graph_of

WORTH_SAYING = 1.02
"""Gains below this are within what nobody would notice."""
_MOST_WORKERS = 64
_MOST_DOUBLINGS = 10
_NEARLY_ALL = 0.95


@dataclass(frozen=True, slots=True)
class Advice:
    """A change and what it would bring: `gain` is samples per second with it, over those without it.

    A change that only makes the step fit has no gain, since there is nothing to compare it with.
    """

    change: str
    gain: float | None
    step_seconds: float | None
    samples_per_second: float | None
    memory_bytes: float | None
    fits: bool


@dataclass(frozen=True)
class Situation:
    """The step that is to be made faster, and how its time is told."""

    workload: Workload
    graph: Graph
    device: Device
    model: CostModel
    input: InputOptions
    memory: MemoryOptions
    largest_batch: int


@dataclass(frozen=True)
class _Change:
    """A change as a graph to be made, or other input."""

    name: str
    graph: Callable[[], Graph] | None = None
    input: InputOptions | None = None


def faster(at: Situation, now: Timing) -> tuple[Advice, ...]:
    """The changes worth making, most gain first; those that would not fit are left out."""
    speed = at.graph.samples / now.seconds
    found = (_tried(at, change, speed) for change in _changes(at, now))
    worth = [advice for advice in found if advice is not None]
    return tuple(sorted(worth, key=lambda advice: -(advice.gain or 0)))


def _tried(at: Situation, change: _Change, speed: float) -> Advice | None:
    """What a change brings; None if it cannot be made, does not fit or is not worth it."""
    try:
        graph = at.graph if change.graph is None else change.graph()
        timing = time_step(graph, at.device, at.model, change.input or at.input)
    except ForetrainError:  # a model without blocks, a type the device has no unit for
        return None
    samples_per_second = graph.samples / timing.seconds
    if samples_per_second < WORTH_SAYING * speed:
        return None
    needed = None
    if change.graph is not None:
        memory = estimate_memory(graph, at.device, at.memory)
        if not memory.fits:
            return None
        needed = min(memory.bytes, memory.capacity_bytes)  # what fits only by giving back cached memory
    return Advice(
        change.name, samples_per_second / speed, timing.seconds, samples_per_second, needed, fits=True
    )


def _changes(at: Situation, now: Timing) -> Iterator[_Change]:
    if now.input.seconds > now.computing.seconds or not at.input.overlaps:
        yield from _of_input(at.input, now)
    yield from _of_precision(at)
    options = at.workload.options
    if not options.compile:
        yield _Change("compile (torch.compile)", lambda: _compiled(at.graph))
    if now.computing.waiting_seconds > 0 and not options.cuda_graphs:
        yield _Change("CUDA graphs", lambda: _captured(at.graph))
    if _has(at.graph, "aten.convolution") and not options.channels_last:
        yield _Change("channels-last layout", lambda: _other(at, channels_last=True))
    if options.attention == "eager":
        yield _Change("fused attention (sdpa)", lambda: _other_attention(at))
    yield from _of_batch(at)


def _of_precision(at: Situation) -> Iterator[_Change]:
    precision, sheet = at.workload.options.precision, at.device.sheet
    if precision == "fp32" and sheet.has("tf32_tensor_flop_per_second"):
        yield _Change("TF32", lambda: _in_tf32(at.graph))
    if precision in ("fp32", "tf32"):
        half = next((name for name in ("bf16", "fp16") if sheet.has(f"{name}_tensor_flop_per_second")), None)
        if half is not None:
            yield _Change(f"mixed precision ({half})", lambda: _other(at, precision=half))


def _of_batch(at: Situation) -> Iterator[_Change]:
    """The smallest of twice, four times ... this batch that brings nearly all that larger ones bring."""
    speeds: dict[int, float] = {}
    batch = at.graph.batch * 2
    while batch <= at.largest_batch and len(speeds) < _MOST_DOUBLINGS:
        try:
            timing = time_step(graph_at(at.workload, batch), at.device, at.model, at.input)
        except ForetrainError:  # a size the model of steps knows nothing of
            break
        speeds[batch] = batch / timing.seconds
        batch *= 2
    if speeds:
        enough = min(batch for batch in speeds if speeds[batch] >= _NEARLY_ALL * max(speeds.values()))
        yield _Change(f"batch {enough}", lambda: graph_at(at.workload, enough))


def _of_input(options: InputOptions, now: Timing) -> Iterator[_Change]:
    if not options.prefetch:
        yield _Change("prefetching", input=replace(options, prefetch=True))
    if options.dataset is None or not datasets()[options.dataset].is_read:
        return
    fastest, chosen = storages()[STORAGE], storages()[options.storage]
    if chosen.id != fastest.id:
        yield _Change(f"samples on {fastest.id}", input=replace(options, storage=fastest.id))
    enough = _workers_needed(options, now)
    if enough > options.workers:
        yield _Change(f"{enough} loader workers", input=replace(options, workers=enough, prefetch=True))
        if chosen.id != fastest.id:
            both = replace(options, workers=enough, prefetch=True, storage=fastest.id)
            yield _Change(f"{enough} loader workers, samples on {fastest.id}", input=both)


def _workers_needed(options: InputOptions, now: Timing) -> int:
    """So many that decoding is no longer what the step waits for, within reason."""
    loading = now.input
    others = max(now.computing.seconds, loading.copying_seconds)
    one_worker = loading.decoding_seconds * max(1, options.workers)
    return min(_MOST_WORKERS, math.ceil(one_worker / others)) if others else 0


def _has(graph: Graph, operator: str) -> bool:
    return any(call.name == operator for call in graph.calls)


def _in_tf32(graph: Graph) -> Graph:
    return replace(graph, settings={**graph.settings, "precision": "tf32"})


def _captured(graph: Graph) -> Graph:
    return replace(graph, settings={**graph.settings, "cuda_graphs": True})


def _compiled(graph: Graph) -> Graph:
    return replace(fuse(graph), settings={**graph.settings, "compile": True})


def _other(at: Situation, **options: object) -> Graph:
    changed = replace(at.workload, options=replace(at.workload.options, **options))  # type: ignore[arg-type]
    return graph_of(changed.at(batch=at.graph.batch))


def _other_attention(at: Situation) -> Graph:
    sizes = replace(at.workload.sizes, attention="sdpa", batch=at.graph.batch)
    return graph_of(replace(at.workload, sizes=sizes, options=replace(at.workload.options, attention="sdpa")))
