"""What limits the speed of a step, and what would change it.

The limit, in this order: a step that does not fit is limited by memory; one that waits for its samples by
input. One device is limited by launches if its host launches slower than it computes. Many devices are
limited by what most of the step is spent on: computing ("GPU choke"), exposed communication ("network
choke"), or launches.

Each change is evaluated, not guessed. Improvements (precision, compilation, layout, attention, batch, input)
are listed if they gain at least 2 % and fit; what-ifs about devices and links are listed whatever they bring.
TF32, compiling and CUDA graphs are derived from the graph at hand, other batch sizes from its family; the
others are traced once and cached.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import lru_cache

from foretrain.errors import ForetrainError
from foretrain.facts.datasets import datasets, storages
from foretrain.facts.devices import device as known_device
from foretrain.facts.hardware import Hardware, nodes
from foretrain.prediction.advice.scaling_curve import ResizedStep, ScalingCurve, over
from foretrain.prediction.collectives.network import network_of, with_factor
from foretrain.prediction.cost_models import WAITING, Binding, binding
from foretrain.prediction.options import STORAGES, InputOptions
from foretrain.prediction.scenario import Evaluation, StepContext, evaluate
from foretrain.units import format_bytes
from foretrain.workloads.executed import ExecutedGraph
from foretrain.workloads.graph import Phase
from foretrain.workloads.workload import RECENT, executed_graph

_HELPS = 1.05
"""A change in devices that brings less than this does not help."""
_NEGLIGIBLE = 1e-6
"""Share of the step below which a wait for launches is rounding."""
MIN_GAIN = 1.02
"""Improvements below this are not listed."""
_NEARLY_ALL = 0.95
"""A batch is large enough if larger ones train at most this little faster."""
_MAX_DOUBLINGS = 10  # each doubling is evaluated in full
_MAX_LOADER_WORKERS = 64
_MAKERS_LINK = {"nvidia": "NVLink", "amd": "xGMI"}


class Limit(StrEnum):
    """What may limit a step."""

    GPU = "gpu"
    NETWORK = "network"
    INPUT = "input"
    LAUNCH = "launch"
    MEMORY = "memory"


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


@dataclass(frozen=True, slots=True)
class Bottleneck:
    """What limits a step, in a word and in a sentence, and what would change it, with its gain."""

    kind: Limit
    verdict: str
    advice: tuple[Advice, ...]


def find_bottleneck(
    now: Evaluation, advice: tuple[Advice, ...] = (), scaling: ScalingCurve | None = None
) -> Bottleneck:
    """What limits a step."""
    kind = _limit(now)
    sentence = _SENTENCES[kind](now)
    more = "" if kind is Limit.MEMORY else _describe_scaling(now, scaling)
    return Bottleneck(kind, f"{sentence}; {more}" if more else sentence, advice)


def _limit(now: Evaluation) -> Limit:
    run = now.step.run
    if not now.memory.fits:
        return Limit.MEMORY
    if now.input.seconds > now.step.seconds:
        return Limit.INPUT
    if now.configuration.layout.devices == 1:
        return Limit.LAUNCH if run.waiting_seconds > _NEGLIGIBLE * now.seconds else Limit.GPU
    spent = {
        Limit.GPU: run.computing_seconds,
        Limit.NETWORK: run.exposed_seconds,
        Limit.LAUNCH: run.waiting_seconds,
    }
    return max(spent, key=lambda limit: spent[limit])


def _describe_memory(now: Evaluation) -> str:
    needed, capacity = format_bytes(now.memory.bytes), format_bytes(now.memory.capacity_bytes)
    where = ""
    if now.configuration.layout.devices > 1:
        stages = len(now.step.run.stages)
        where = f" on the fullest device{f' of stage {now.fullest[0] + 1}' if stages > 1 else ''}"
    return f"the step needs {needed} of memory{where}, and the device has {capacity}"


def _describe_input(now: Evaluation) -> str:
    slowest = max(now.input.estimate.parts, key=lambda part: part.value).name
    ratio = now.input.seconds / now.step.seconds if now.step.seconds else float("inf")
    return f"devices wait for samples: {slowest} takes {ratio:.1f}x as long as training on them"


def _describe_launches(now: Evaluation) -> str:
    idle = now.step.run.waiting_seconds / now.seconds
    return f"launch-bound: the host launches kernels slower than the device runs them; it idles {idle:.0%}"


def _describe_network(now: Evaluation) -> str:
    longest = max(now.step.traffic, key=lambda each: each.seconds)
    share = now.step.run.exposed_seconds / now.seconds
    return (
        f"network choke: devices wait for communication {share:.0%} of the step, longest for {longest.name} "
        f"({format_bytes(longest.bytes)} over {longest.tier})"
    )


_BOUND_BY = {
    Binding.ARITHMETIC: "arithmetic throughput",
    Binding.BANDWIDTH: "memory bandwidth",
    Binding.SIZE: "start-up of kernels too small to fill it",
}


def _describe_device(now: Evaluation) -> str:
    """What takes most of the devices' time, and the largest single part."""
    run = now.step.run
    sentence, reason = "GPU choke", _describe_kernels(now)
    if now.configuration.layout.devices > 1:
        computing, waiting = run.computing_seconds / now.seconds, run.exposed_seconds / now.seconds
        sentence += f": devices compute {computing:.0%} of the step, wait for communication {waiting:.0%}"
        if run.bubble_seconds > 0:
            sentence += f", idle in the pipeline bubble {run.bubble_seconds / now.seconds:.0%}"
        return f"{sentence}; {reason}" if reason else sentence
    return f"{sentence}: {reason}" if reason else sentence


def _describe_kernels(now: Evaluation) -> str:
    """What binds the operators, and the largest single part."""
    by_limit, phases = binding(now.step.priced), tuple(f"{phase} " for phase in Phase)
    parts = [
        part for part in now.step.estimate.visible if part.name != WAITING and part.name.startswith(phases)
    ]
    busy, total = sum(part.value for part in parts), sum(by_limit.values())
    if not parts or not busy or not total:
        return ""
    limit = max(by_limit, key=lambda each: by_limit[each])
    largest = max(parts, key=lambda part: part.value)
    device = now.context.hardware.device.kind.upper()
    reason = f"{device} {_BOUND_BY[limit]} ({by_limit[limit] / total:.0%} of {device} time)"
    return f"{reason}; largest part: {largest.name} ({largest.value / busy:.0%})"


_SENTENCES = {
    Limit.MEMORY: _describe_memory,
    Limit.INPUT: _describe_input,
    Limit.NETWORK: _describe_network,
    Limit.LAUNCH: _describe_launches,
    Limit.GPU: _describe_device,
}


def _describe_scaling(now: Evaluation, scaling: ScalingCurve | None) -> str:
    """What the curve says about adding devices."""
    if scaling is None:
        return ""
    devices = now.context.hardware.devices
    speeds = {point.devices: point.samples_per_second for point in scaling.points}
    here = speeds.get(devices, now.samples_per_second)
    best = scaling.best
    if best is not None and best < devices and speeds.get(best, here) > _HELPS * here:
        fewer = f"{best} GPU{' is' if best == 1 else 's are'}"
        return f"{fewer} {speeds[best] / here:.2f}x faster than {devices}"
    more = speeds.get(2 * devices)
    if more is None:
        return ""
    gain = f"twice the GPUs would be {more / here:.2f}x faster"
    return f"{gain}: do not add any" if more / here < _HELPS else gain


@dataclass(frozen=True)
class _Change:
    """A change as a function that evaluates the step with it."""

    name: str
    evaluate: Callable[[], Evaluation]
    is_what_if: bool = False


def list_advice(resized: ResizedStep, largest_batch: int) -> tuple[Advice, ...]:
    """The improvements worth making, most gain first, then the what-ifs."""
    now = resized.now
    tried = [_try_change(now, change) for change in _list_changes(resized, largest_batch)]
    listed = [each for each in tried if each is not None]
    improvements = [each for each in listed if not each.is_what_if]
    improvements.sort(key=lambda each: -(each.gain or 0))
    return (*improvements, *(each for each in listed if each.is_what_if))


def _try_change(now: Evaluation, change: _Change) -> Advice | None:
    """None where a change cannot be made, or is an improvement that does not fit or gains too little."""
    try:
        then = change.evaluate()
        gain = then.samples_per_second / now.samples_per_second
        # The gain first: memory is simulated, and most changes are out by their gain.
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


def _list_changes(resized: ResizedStep, largest_batch: int) -> Iterator[_Change]:
    now = resized.now
    # Where loading overlaps the step and is faster, a faster loader changes nothing.
    if now.input.seconds > now.step.seconds or not now.context.input.overlaps:
        yield from _change_input(now)
    yield from _change_precision(now)
    yield from _change_execution(now)
    yield from _change_batch(now, largest_batch)
    if now.configuration.layout.devices > 1:
        yield from _change_hardware(resized)


def _change_precision(now: Evaluation) -> Iterator[_Change]:
    precision, sheet = now.context.workload.options.precision, now.context.environment.device.sheet
    if precision == "fp32" and sheet.has("tf32_tensor_flop_per_second"):
        yield _Change("TF32", lambda: _run_with(now, precision="tf32"))
    if precision in ("fp32", "tf32"):
        half = next((name for name in ("bf16", "fp16") if sheet.has(f"{name}_tensor_flop_per_second")), None)
        if half is not None:
            yield _Change(f"mixed precision ({half})", lambda: _with_options(now, precision=half))


def _change_execution(now: Evaluation) -> Iterator[_Change]:
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


def _change_batch(now: Evaluation, largest_batch: int) -> Iterator[_Change]:
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


def _change_input(now: Evaluation) -> Iterator[_Change]:
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


def _change_hardware(resized: ResizedStep) -> Iterator[_Change]:
    devices = resized.now.context.hardware.devices
    yield _Change("2x GPUs", lambda: resized.on(2 * devices), is_what_if=True)
    yield _Change("half the GPUs", lambda: resized.on(devices // 2), is_what_if=True)
    yield from _change_links(resized.now)


def _change_links(now: Evaluation) -> Iterator[_Change]:
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
