"""What would change the speed of a step: each change is evaluated, not guessed.

Improvements (precision, compilation, layout, attention, batch, input) are listed if they gain at least 2 %
and fit; what-ifs about devices and links are listed whatever they bring. TF32, compiling and CUDA graphs are
derived from the graph at hand, other batch sizes from its family; the others are traced once and cached.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache

from foretrain.errors import ForetrainError
from foretrain.facts.datasets import datasets, storages
from foretrain.facts.devices import device as known_device
from foretrain.facts.hardware import Hardware, nodes
from foretrain.prediction.advice.scaling_curve import ResizedStep, over
from foretrain.prediction.collectives.network import network_of, with_factor
from foretrain.prediction.options import STORAGES, InputOptions
from foretrain.prediction.scenario import Evaluation, StepContext, evaluate
from foretrain.workloads.executed import ExecutedGraph
from foretrain.workloads.workload import RECENT, executed_graph

MIN_GAIN = 1.02
"""Improvements below this are not listed."""
_NEARLY_ALL = 0.95
"""A batch is large enough if larger ones train at most this little faster."""
_MAX_DOUBLINGS = 10  # each doubling is evaluated in full
_MAX_LOADER_WORKERS = 64
_MAKERS_LINK = {"nvidia": "NVLink", "amd": "xGMI"}


@dataclass(frozen=True, slots=True)
class Advice:
    """A change and what it would bring: `gain` is samples per second with it, over those without it.

    `is_what_if` marks other hardware, listed whatever it brings. A change that only makes the step fit has no
    gain, since there is nothing to compare it with.
    """

    change: str
    gain: float | None
    step_seconds: float | None
    samples_per_second: float | None
    memory_bytes: float | None
    fits: bool
    is_what_if: bool = False


@dataclass(frozen=True)
class _Change:
    """A change as a function that evaluates the step with it."""

    name: str
    evaluate: Callable[[], Evaluation]
    is_what_if: bool = False


def advice(resized: ResizedStep, largest_batch: int) -> tuple[Advice, ...]:
    """The improvements worth making, most gain first, then the what-ifs."""
    now = resized.now
    tried = [_try_change(now, change) for change in _changes(resized, largest_batch)]
    listed = [each for each in tried if each is not None]
    improvements = [each for each in listed if not each.is_what_if]
    improvements.sort(key=lambda each: -(each.gain or 0))
    return (*improvements, *(each for each in listed if each.is_what_if))


def _try_change(now: Evaluation, change: _Change) -> Advice | None:
    """None where a change cannot be made, or is an improvement that does not fit or gains too little."""
    try:
        then = change.evaluate()
        gain = then.samples_per_second / now.samples_per_second
        if not change.is_what_if and (gain < MIN_GAIN or not then.memory.fits):
            return None
    except ForetrainError:  # a model without blocks, half of one device, a precision the device lacks
        return None
    memory = then.memory
    return Advice(
        change=change.name,
        gain=gain,
        step_seconds=then.seconds,
        samples_per_second=then.samples_per_second,
        memory_bytes=min(memory.bytes, memory.capacity_bytes) if memory.fits else memory.bytes,
        fits=memory.fits,
        is_what_if=change.is_what_if,
    )


def _changes(resized: ResizedStep, largest_batch: int) -> Iterator[_Change]:
    now = resized.now
    if now.input.seconds > now.step.seconds or not now.context.input.overlaps:
        yield from _of_input(now)
    yield from _of_precision(now)
    yield from _of_execution(now)
    yield from _of_batch(now, largest_batch)
    if now.configuration.layout.devices > 1:
        yield from _of_hardware(resized)


def _of_precision(now: Evaluation) -> Iterator[_Change]:
    precision, sheet = now.context.workload.options.precision, now.context.environment.device.sheet
    if precision == "fp32" and sheet.has("tf32_tensor_flop_per_second"):
        yield _Change("TF32", lambda: _run_with(now, precision="tf32"))
    if precision in ("fp32", "tf32"):
        half = next((name for name in ("bf16", "fp16") if sheet.has(f"{name}_tensor_flop_per_second")), None)
        if half is not None:
            yield _Change(f"mixed precision ({half})", lambda: _with_options(now, precision=half))


def _of_execution(now: Evaluation) -> Iterator[_Change]:
    options = now.context.workload.options
    if not options.compile:
        yield _Change("compile (torch.compile)", lambda: _run_with(now, compile=True))
    if now.step.run.waiting_seconds > 0 and not options.cuda_graphs:
        yield _Change("CUDA graphs", lambda: _run_with(now, cuda_graphs=True))
    if not options.channels_last and any(call.name == "aten.convolution" for call in now.graph.calls):
        yield _Change("channels-last layout", lambda: _with_options(now, channels_last=True))
    if options.attention == "eager":
        yield _Change("fused attention (sdpa)", lambda: _with_sdpa(now))


def _run_with(now: Evaluation, **options: object) -> Evaluation:
    """The graph at hand, run with other options."""
    return _with_graph(now, _executed_with(now.executed, tuple(options.items())))


@lru_cache(maxsize=RECENT)
def _executed_with(executed: ExecutedGraph, options: tuple[tuple[str, object], ...]) -> ExecutedGraph:
    """A graph run with other options: its kernels are fused once, for all devices and layouts."""
    return executed.with_options(**dict(options))


def _with_graph(now: Evaluation, executed: ExecutedGraph) -> Evaluation:
    return evaluate(now.context, now.configuration, executed)


def _with_options(now: Evaluation, **options: object) -> Evaluation:
    """The workload traced with other options."""
    workload = now.context.workload
    changed = replace(workload, options=replace(workload.options, **options))  # type: ignore[arg-type]
    return _with_graph(now, executed_graph(changed.at(batch=now.graph.batch)))


def _with_sdpa(now: Evaluation) -> Evaluation:
    workload = now.context.workload
    sizes = replace(workload.sizes, attention="sdpa", batch=now.graph.batch)
    changed = replace(workload, sizes=sizes, options=replace(workload.options, attention="sdpa"))
    return _with_graph(now, executed_graph(changed))


def _of_batch(now: Evaluation, largest_batch: int) -> Iterator[_Change]:
    """A larger batch: on one device the smallest that brings nearly all that larger ones bring.

    Many devices try twice the batch, at once and accumulated.
    """
    configuration, context = now.configuration, now.context
    if configuration.layout.devices > 1:
        double = replace(configuration, batch=2 * configuration.batch)
        accumulated = replace(double, micro_batches=2 * configuration.micro_batches)
        yield _Change("2x batch", lambda: evaluate(context, double))
        yield _Change("accumulate 2 batches", lambda: evaluate(context, accumulated))
        return
    larger: dict[int, Evaluation] = {}
    batch = 2 * configuration.batch
    while batch <= largest_batch and len(larger) < _MAX_DOUBLINGS:
        try:
            larger[batch] = evaluate(context, replace(configuration, batch=batch))
        except ForetrainError:  # a size the cost model cannot predict
            break
        batch *= 2
    if larger:
        speeds = {batch: each.samples_per_second for batch, each in larger.items()}
        enough = min(batch for batch in speeds if speeds[batch] >= _NEARLY_ALL * max(speeds.values()))
        yield _Change(f"batch {enough}", lambda: larger[enough])


def _of_input(now: Evaluation) -> Iterator[_Change]:
    options = now.context.input

    def fed(changed: InputOptions) -> Callable[[], Evaluation]:
        return lambda: evaluate(replace(now.context, input=changed), now.configuration, now.executed)

    if not options.prefetch:
        yield _Change("prefetching", fed(replace(options, prefetch=True)))
    if options.dataset is None or not datasets()[options.dataset].is_read:
        return
    fastest, current = storages()[STORAGES[0]], storages()[options.storage]
    if current.id != fastest.id:
        yield _Change(f"samples on {fastest.id}", fed(replace(options, storage=fastest.id)))
    enough = _loader_workers_needed(now)
    if enough > options.loader_workers:
        more = replace(options, loader_workers=enough, prefetch=True)
        yield _Change(f"{enough} loader workers", fed(more))
        if current.id != fastest.id:
            both = replace(more, storage=fastest.id)
            yield _Change(f"{enough} loader workers, samples on {fastest.id}", fed(both))


def _loader_workers_needed(now: Evaluation) -> int:
    """Loader workers with which decoding is no longer what the step waits for, within reason."""
    others = max(now.step.seconds, now.input.copying_seconds)
    one_worker = now.input.decoding_seconds * max(1, now.context.input.loader_workers)
    return min(_MAX_LOADER_WORKERS, math.ceil(one_worker / others)) if others else 0


def _of_hardware(resized: ResizedStep) -> Iterator[_Change]:
    devices = resized.now.context.hardware.devices
    yield _Change("2x GPUs", lambda: resized.on(2 * devices), is_what_if=True)
    yield _Change("half the GPUs", lambda: resized.on(devices // 2), is_what_if=True)
    yield from _of_links(resized.now)


def _of_links(now: Evaluation) -> Iterator[_Change]:
    context, configuration = now.context, now.configuration
    network = context.environment.network

    def joined(changed: StepContext) -> Callable[[], Evaluation]:
        return lambda: evaluate(changed, configuration, now.executed)

    if network.intra is not None and not network.intra.kind.joins_devices:
        link = fast_link(context.hardware)
        if link is not None:
            one_node = replace(context.hardware, node=None, nodes=1)
            inside = replace(network, intra=network_of(one_node, intra=link).intra)
            name = f"{_MAKERS_LINK[context.hardware.device.vendor]} ({link}) instead of {network.intra.name}"
            yield _Change(name, joined(over(context, inside)), is_what_if=True)
    if network.inter is not None:
        faster = over(context, with_factor(network, inter=2.0))
        yield _Change("2x network", joined(faster), is_what_if=True)
    elif network.intra is not None:
        faster = over(context, with_factor(network, intra=2.0))
        yield _Change("2x links", joined(faster), is_what_if=True)


def fast_link(hardware: Hardware) -> str | None:
    """The links between devices in machines with those of the same maker and generation.

    Where no machine has such devices, those of the slowest links of their maker.
    """
    own = hardware.device
    joined = [node for node in nodes().values() if node.intra.kind.joins_devices]
    of_maker = [node for node in joined if known_device(node.device).vendor == own.vendor]
    pool = [node for node in of_maker if known_device(node.device).generation == own.generation] or of_maker
    if not pool:
        return None
    oldest = min(pool, key=lambda node: (node.intra.nominal_bytes_per_second_per_direction, node.id))
    return f"{oldest.intra.id}:{int(oldest.sheet.number('intra_links_per_device'))}"
