"""Peak memory of one device: the lifetime of every buffer, simulated with PyTorch's caching allocator.

    memory = framework context + communicators + peak of the memory reserved by the caching allocator

The first steps of training are simulated; later ones repeat the last of them. In the first step there is no
optimizer state while activations are allocated and freed; the state is then allocated from cached memory, so
that the activations of the next step no longer fit the gaps. The parts of the estimate are those of the peak
of allocated memory; reserved memory beyond it is rounding and fragmentation.

Context, communicators and spread are measured (`facts/data/calibrations/memory.toml`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from statistics import geometric_mean
from typing import Any

import numpy as np

from foretrain.errors import InvalidData, InvalidRequest
from foretrain.estimates import Estimate, Part
from foretrain.facts.calibrations import calibration_content
from foretrain.facts.devices import Device
from foretrain.facts.frameworks import frameworks
from foretrain.facts.sheets import FactKind
from foretrain.prediction.collectives.network import Network
from foretrain.prediction.memory.allocator import (
    FREE,
    RELEASE,
    Event,
    Footprint,
    peak_requested_bytes,
    simulate,
)
from foretrain.prediction.memory.lifetimes import (
    Allocation,
    MemoryUse,
    TensorLifetimes,
    tensor_lifetimes,
    uses_convolutions,
)
from foretrain.prediction.strategies.layout import Layout
from foretrain.prediction.strategies.program import Axis, MemoryOptions, Program, group_along
from foretrain.prediction.strategies.strategy import active_strategies, is_single_process
from foretrain.probability import probability_within
from foretrain.workloads.graph import Graph

_FILE = "memory.toml"


@dataclass(frozen=True, slots=True)
class ContextSize:
    """Memory a process holds before its first tensor, on devices of one generation.

    `bytes` with the kernels of PyTorch and cuBLAS loaded; `convolution_bytes` are added by those of cuDNN.
    """

    bytes: float
    convolution_bytes: float
    kind: FactKind
    source: str


@dataclass(frozen=True, slots=True)
class CommunicatorSize:
    """Buffers of one NCCL communicator on a device: between two devices, and among more.

    Measured over links of `link_bytes_per_second` per device and direction.
    """

    pair_bytes: float
    group_bytes: float
    link_bytes_per_second: float
    source: str

    def bytes(self, members: int, link_bytes_per_second: float) -> float:
        """The buffers for `members` devices: as many channels, each with its buffers, as the links need."""
        if members < 2:
            return 0.0
        size = self.pair_bytes if members == 2 else self.group_bytes
        return size * link_bytes_per_second / self.link_bytes_per_second


@dataclass(frozen=True, slots=True)
class MemorySpread:
    """Measured over predicted: the 10th and 90th percentile, and the number of measurements.

    Geometric means of the quantiles of sources, each of which counts once: a run that is asked about is of a
    framework and a harness of its own.
    """

    p10: float
    p90: float
    source: str
    samples: int


@dataclass(frozen=True)
class MemoryCalibration:
    """The contents of the file. `contexts` is keyed by device generation; "any" applies to all others."""

    contexts: dict[str, ContextSize]
    cublas_bytes: dict[str, int]
    usable_share: float
    spread: MemorySpread
    communicator: CommunicatorSize

    def context(self, generation: str) -> ContextSize:
        """The context on devices of a generation, or the assumed one without measurements."""
        return self.contexts.get(generation, self.contexts["any"])

    def cublas_workspace_bytes(self, generation: str) -> int:
        """The default workspace of one cuBLAS handle in PyTorch."""
        return self.cublas_bytes.get(generation, self.cublas_bytes["any"])


@cache
def memory_calibration() -> MemoryCalibration:
    """The shipped calibration."""
    content = calibration_content(_FILE)
    try:
        return _parse(content)
    except (KeyError, TypeError, ValueError) as error:
        raise InvalidData(_FILE, f"incomplete or malformed: {error!r}") from error


def _parse(content: dict[str, Any]) -> MemoryCalibration:
    return MemoryCalibration(
        contexts={
            generation: ContextSize(
                bytes=entry["bytes"],
                convolution_bytes=entry["convolution_bytes"],
                kind=FactKind(entry["kind"]),
                source=entry["source"],
            )
            for generation, entry in content["context"].items()
        },
        cublas_bytes={generation: entry["bytes"] for generation, entry in content["cublas"].items()},
        usable_share=content["usable"]["share"],
        spread=spread_between(
            [(row["p10"], row["p90"], row["samples"]) for row in content["spread"]["sources"]],
            content["spread"]["source"],
        ),
        communicator=CommunicatorSize(
            content["communicator"]["pair_bytes"],
            content["communicator"]["group_bytes"],
            content["communicator"]["link_bytes_per_second"],
            content["communicator"]["source"],
        ),
    )


def spread_between(sources: Sequence[tuple[float, float, int]], source: str) -> MemorySpread:
    """The spread of a source never seen, from the quantiles and sample sizes of others."""
    low, high, samples = zip(*sources, strict=True)
    return MemorySpread(geometric_mean(low), geometric_mean(high), source, sum(samples))


STEPS = 3
"""Simulated steps: without optimizer state, with new state, steady."""

_RAW_SHARE = 4
"""Size of the 4-byte floats of a batch over that of the raw bytes that a loader copies."""


@dataclass(frozen=True)
class MemoryEstimate:
    """Peak bytes of the fullest device with their parts, its capacity, and whether the step fits.

    `allocated_bytes` is the peak size of tensors and workspaces, without context, cache and rounding. The
    step needs from `least_bytes`, with tensors packed without gaps, to `most_bytes`, with all that the
    allocator reserves where it has room; neither counts state that may be paged out.
    `paged_out_bytes` are of optimizer state that is paged out to the host when device memory is full.
    """

    estimate: Estimate
    capacity_bytes: float
    fits: bool
    allocated_bytes: int
    least_bytes: float
    most_bytes: float
    paged_out_bytes: float = 0.0

    @property
    def bytes(self) -> float:
        """The median."""
        return self.estimate.value


_NO_EXCHANGES = Footprint(0, 0, {})


@dataclass(frozen=True, eq=False)
class _Steps:
    """The first steps of training on one device, ready to be simulated.

    `outside_bytes` are held outside the allocator of the main stream: the context, communicators, what
    loaders keep, and what exchanges reserve. `capacity_bytes` is what a process can use of the device.
    """

    lifetimes: TensorLifetimes
    events: list[Event]
    part_of: list[MemoryUse]
    exchanged: Footprint
    loader_bytes: int
    context_bytes: float
    communicator_bytes: int
    capacity_bytes: float

    @property
    def outside_bytes(self) -> float:
        return self.context_bytes + self.communicator_bytes + self.exchanged.peak_reserved_bytes


def _steps(graph: Graph, device: Device, options: MemoryOptions, calibration: MemoryCalibration) -> _Steps:
    lifetimes = tensor_lifetimes(graph, options, calibration.cublas_workspace_bytes(device.generation))
    events, part_of = step_events(lifetimes, options)
    loader = _loader_bytes(lifetimes, options)
    return _Steps(
        lifetimes=lifetimes,
        events=events,
        part_of=part_of,
        exchanged=simulate(_communication_events(lifetimes)) if lifetimes.communication else _NO_EXCHANGES,
        loader_bytes=loader,
        context_bytes=context_bytes(graph, device, calibration) + loader,
        communicator_bytes=options.communicator_bytes if device.is_gpu else 0,
        capacity_bytes=device.memory_bytes * calibration.usable_share,
    )


def estimate_memory(
    graph: Graph,
    device: Device,
    options: MemoryOptions | None = None,
    calibration: MemoryCalibration | None = None,
) -> MemoryEstimate:
    """The memory that one device needs for the training step `graph`."""
    calibration = calibration or memory_calibration()
    steps = _steps(graph, device, options or MemoryOptions(), calibration)
    outside, capacity, exchanged = steps.outside_bytes, steps.capacity_bytes, steps.exchanged
    peak = simulate(steps.events)
    least, most = outside + peak.peak_allocated_bytes, outside + peak.peak_reserved_bytes
    fits = most <= capacity
    if not fits and peak_requested_bytes(steps.events) <= capacity - outside:
        tight = simulate(steps.events, capacity - outside)
        fits = tight.failed_at is None
        peak = tight if fits else peak
    sizes = dict.fromkeys(MemoryUse, 0.0)
    for key, size in peak.live_at_peak.items():
        sizes[steps.part_of[key]] += size
    for key, size in exchanged.live_at_peak.items():
        sizes[steps.lifetimes.communication[key].part] += size
    reserved = peak.peak_reserved_bytes + exchanged.peak_reserved_bytes
    sizes[MemoryUse.FRAGMENTATION] = reserved - sum(sizes.values())
    paged = steps.lifetimes.paged_bytes
    resident = min(float(paged), max(0.0, capacity - outside - peak.peak_reserved_bytes))
    sizes[MemoryUse.OPTIMIZER_STATE] += resident
    sizes[MemoryUse.COMMUNICATORS] = float(steps.communicator_bytes)
    return MemoryEstimate(
        _estimate(sizes, steps.loader_bytes, steps.context_bytes, calibration, device),
        capacity,
        fits,
        peak.peak_allocated_bytes + exchanged.peak_allocated_bytes,
        least,
        most,
        paged - resident,
    )


def fits_memory(graph: Graph, device: Device, options: MemoryOptions | None = None) -> bool:
    """Whether a step runs in the memory of a device: that of `estimate_memory`, in at most one simulation."""
    steps = _steps(graph, device, options or MemoryOptions(), memory_calibration())
    room = steps.capacity_bytes - steps.outside_bytes
    return peak_requested_bytes(steps.events) <= room and simulate(steps.events, room).failed_at is None


def out_of_memory_probability(
    estimate: MemoryEstimate, graph: Graph, device: Device, options: MemoryOptions | None = None
) -> float:
    """The probability that the step of an estimate runs out of the memory of a device.

    An allocator that is short of memory returns what it caches, so a step needs less than it would reserve:
    the least capacity in which its simulation succeeds. What it really needs is that, times the error of the
    estimate, whose quantiles are `calibration.Spread`. How well the allocator does with less is simulated
    only where it matters.
    """
    needed, capacity = estimate.most_bytes, estimate.capacity_bytes
    if capacity < estimate.least_bytes / _CERTAIN:
        needed = estimate.least_bytes
    elif capacity <= _CERTAIN * estimate.most_bytes:
        steps = _steps(graph, device, options or MemoryOptions(), memory_calibration())
        needed = _needed_bytes(steps, estimate.least_bytes, estimate.most_bytes)
    return chance_to_exceed(capacity, needed)


def chance_to_exceed(capacity_bytes: float, needed_bytes: float) -> float:
    """The probability that a step predicted to need some memory needs more than the capacity."""
    spread = memory_calibration().spread
    quantiles = (needed_bytes * spread.p10, needed_bytes, needed_bytes * spread.p90)
    return 1 - float(probability_within(*quantiles, capacity_bytes))


_CERTAIN = 1.5
"""Where capacity and needs differ by this factor, how well the allocator does with less does not matter."""
_BISECTIONS = 5  # each runs the allocator once: the bounds end 1/32 as far apart


def _needed_bytes(steps: _Steps, low: float, high: float) -> float:
    """The least memory of a device in which the steps run, by bisection between two bounds."""
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        runs = simulate(steps.events, middle - steps.outside_bytes).failed_at is None
        low, high = (low, middle) if runs else (middle, high)
    return high


def _communication_events(lifetimes: TensorLifetimes) -> list[Event]:
    """The allocations of a step on the streams of exchanges, by their index in `communication`.

    PyTorch's allocator returns a block to the stream it was allocated on, so that gathered parameters and
    activations do not fragment each other.
    """
    starts: dict[int, list[Event]] = {}
    ends: dict[int, list[Event]] = {}
    for key, allocation in enumerate(lifetimes.communication):
        starts.setdefault(allocation.start, []).append((key, allocation.bytes))
        ends.setdefault(allocation.end, []).append((key, FREE))
    calls = sorted({*starts, *ends})
    return [event for call in calls for event in (*starts.get(call, ()), *ends.get(call, ()))]


def live_bytes(graph: Graph, device: Device, options: MemoryOptions | None = None) -> float:
    """Context and peak of live tensors: fast, without the rounding and cache of the allocator."""
    options, calibration = options or MemoryOptions(), memory_calibration()
    lifetimes = tensor_lifetimes(graph, options, calibration.cublas_workspace_bytes(device.generation))
    lasting = (lifetimes.resident, lifetimes.state, lifetimes.inputs, lifetimes.handles)
    held = sum(allocation.bytes for allocations in lasting for allocation in allocations)
    change = np.zeros(lifetimes.calls + 3)
    passing = [*lifetimes.passing, *lifetimes.communication, *lifetimes.gradients]
    if options.keep_gradients:
        held += sum(
            allocation.bytes for allocation in lifetimes.gradients if allocation.end >= lifetimes.calls
        )
        passing = [
            allocation
            for allocation in passing
            if allocation.part is not MemoryUse.GRADIENTS or allocation.end < lifetimes.calls
        ]
    for allocation in passing:
        change[allocation.start + 1] += allocation.bytes
        change[min(allocation.end, lifetimes.calls) + 2] -= allocation.bytes
    return context_bytes(graph, device, calibration) + held + float(np.cumsum(change).max(initial=0.0))


def context_bytes(graph: Graph, device: Device, calibration: MemoryCalibration) -> float:
    """Memory of the process outside the allocator."""
    context = calibration.context(device.generation)
    return context.bytes + (context.convolution_bytes if uses_convolutions(graph) else 0.0)


def _estimate(
    sizes: dict[MemoryUse, float],
    loader: float,
    context: float,
    calibration: MemoryCalibration,
    device: Device,
) -> Estimate:
    sizes[MemoryUse.INPUTS] += loader
    sizes[MemoryUse.CONTEXT] = context - loader
    spread = calibration.spread
    source = calibration.context(device.generation).source
    return Estimate(
        "bytes",
        tuple(
            Part.within(part.value, size, source, spread.p10, spread.p90)
            for part, size in sizes.items()
            if size > 0
        ),
    )


def step_events(
    lifetimes: TensorLifetimes, options: MemoryOptions, steps: int = STEPS
) -> tuple[list[Event], list[MemoryUse]]:
    """The first steps of training as allocator events, and the part of each key."""
    schedule = _AllocationSchedule(lifetimes, options)
    events: list[Event] = [(key, allocation.bytes) for key, allocation in schedule.resident]
    for step in range(steps):
        events.extend(schedule.step(step))
    return events, schedule.part_of


class _AllocationSchedule:
    """The keys of all allocations, and the events of each step."""

    def __init__(self, lifetimes: TensorLifetimes, options: MemoryOptions) -> None:
        self._lifetimes = lifetimes
        self._loads = options.prefetching_loaders == 0
        self.part_of: list[MemoryUse] = []
        self.resident = self._keyed(lifetimes.resident)
        self._state = self._keyed(lifetimes.state)
        self._inputs = (self._keyed(lifetimes.inputs), self._keyed(lifetimes.inputs))
        self._handles = self._keyed(lifetimes.handles)
        passing, gradients = self._keyed(lifetimes.passing), self._keyed(lifetimes.gradients)
        lasting = [(key, allocation) for key, allocation in gradients if allocation.end >= lifetimes.calls]
        self._first = _Calls([*passing, *gradients], stay=lasting if options.keep_gradients else ())
        self._later = self._first
        if options.keep_gradients:  # new gradients are added to the kept ones and freed immediately
            added = tuple(allocation._replace(end=allocation.start + 1) for _, allocation in lasting)
            reduced = [(key, allocation) for key, allocation in gradients if allocation.end < lifetimes.calls]
            self._later = _Calls([*passing, *reduced, *self._keyed(added)])

    def _keyed(self, allocations: tuple[Allocation, ...]) -> list[tuple[int, Allocation]]:
        first = len(self.part_of)
        self.part_of.extend(allocation.part for allocation in allocations)
        return list(enumerate(allocations, start=first))

    def step(self, step: int) -> list[Event]:
        """The events of one step, the first being 0."""
        events: list[Event] = []
        if self._loads:
            events.extend((key, allocation.bytes) for key, allocation in self._inputs[step % 2])
            events.extend((key, FREE) for key, _ in self._inputs[(step + 1) % 2])
        calls = self._later if step else self._first
        once = {} if step else self._only_once()
        for call in range(self._lifetimes.calls + 1):
            for by_call in (once, calls.starts, calls.ends):
                if call in by_call:
                    events += by_call[call]
        return events

    def _only_once(self) -> dict[int, list[Event]]:
        """Events of the first step only, by the call they precede."""
        once: dict[int, list[Event]] = {}
        for key, allocation in self._handles:
            once.setdefault(allocation.start, []).append((key, allocation.bytes))
        state = [(key, allocation.bytes) for key, allocation in self._state]
        once.setdefault(self._lifetimes.optimizer_start, []).extend(state)
        for call in self._lifetimes.tuned:
            once.setdefault(call, []).append((0, RELEASE))
        return once


class _Calls:
    """Events by the call they precede (`starts`) or follow (`ends`); allocations in `stay` never end."""

    def __init__(
        self, allocations: Iterable[tuple[int, Allocation]], stay: Iterable[tuple[int, Allocation]] = ()
    ) -> None:
        self.starts: dict[int, list[Event]] = {}
        self.ends: dict[int, list[Event]] = {}
        staying = {key for key, _ in stay}
        for key, allocation in allocations:
            self.starts.setdefault(allocation.start, []).append((key, allocation.bytes))
            if key not in staying:
                self.ends.setdefault(allocation.end, []).append((key, FREE))


def _loader_bytes(lifetimes: TensorLifetimes, options: MemoryOptions) -> int:
    """Batches that loaders keep on separate streams, whose memory other streams cannot reuse.

    Three at a time - being copied, ready, in use - and the raw bytes.
    """
    if not options.prefetching_loaders:
        return 0
    batch = sum(allocation.bytes for allocation in lifetimes.inputs)
    alive = simulate([(0, batch), (1, batch), (2, batch // _RAW_SHARE), (3, batch)])
    return options.prefetching_loaders * alive.peak_reserved_bytes


def fullest_stage(
    stages: tuple[Program, ...],
    in_flight: tuple[float, ...],
    layout: Layout,
    device: Device,
    network: Network | None = None,
) -> tuple[int, MemoryEstimate]:
    """The stage whose devices need most memory, and what they need."""
    options = [
        memory_options(stage, held, layout, network) for stage, held in zip(stages, in_flight, strict=True)
    ]
    fullest = 0
    if len(stages) > 1:
        alive = [live_bytes(stage.graph, device, each) for stage, each in zip(stages, options, strict=True)]
        fullest = max(range(len(stages)), key=lambda stage: alive[stage])
    return fullest, estimate_memory(stages[fullest].graph, device, options[fullest])


def memory_options(
    stage: Program, in_flight: float, layout: Layout, network: Network | None = None
) -> MemoryOptions:
    """The memory options of a stage; with several micro-batches, gradients are kept between them."""
    options = MemoryOptions(
        keep_gradients=stage.micro_batches > 1,
        in_flight=in_flight,
        communicator_bytes=0 if network is None else communicator_bytes(stage.graph, layout, network),
    )
    for strategy in active_strategies(layout):
        options = strategy.memory(options, stage, layout)
    return options


def communicator_bytes(graph: Graph, layout: Layout, network: Network) -> int:
    """The buffers of NCCL on a device: a communicator of all devices, and as many for each axis as the
    framework makes.

    Data parallelism alone, sharded or not, uses the communicator of all devices.
    """
    degrees = {axis: degree for axis, degree in layout.degrees.items() if degree > 1}
    if not degrees or is_single_process(layout) or layout.servers is not None:
        return 0
    groups = [tuple(degrees)]
    if degrees.keys() - {Axis.DATA, Axis.SHARD}:
        each = frameworks()[graph.options.framework].communicators_per_axis
        groups += [(axis,) for axis in degrees] * each
    size = memory_calibration().communicator
    total = 0.0
    for axes in groups:
        group = group_along(axes, layout.degrees, network.devices_per_node)
        if group.nodes == 1 and network.intra is not None:
            total += size.bytes(group.size, network.intra.nominal_bytes_per_second)
        elif network.inter is not None:  # the devices of a node share its network cards
            rate = network.inter.nominal_bytes_per_second / network.devices_per_node
            total += size.bytes(group.size, rate)
    return round(total)


GraphAt = Callable[[int], Graph]
"""The graph of a step at a batch size."""

LARGEST = 1 << 20
"""The largest batch that is tried."""


def largest_batch(
    graph_at: GraphAt,
    device: Device,
    options: MemoryOptions | None = None,
    most: int = LARGEST,
    start: int = 1,
) -> int:
    """The largest batch per device that fits, by doubling and bisection; 0 if one sample does not fit.

    The search begins near `start`, because a model with batch norm may not take a batch of one, and tries
    powers of two from there, up or down: memory is not quite monotone in the batch, and a bisection between
    other batches would make the result depend on `start`.
    """
    if most < 1:
        raise InvalidRequest(f"the largest batch to try must be at least 1, got {most}")

    @cache
    def fits(batch: int) -> bool:
        return fits_memory(graph_at(batch), device, options)

    high = 1 << (min(start, most).bit_length() - 1)
    while high > 1 and not fits(high):
        high //= 2
    low = 0
    while high <= most and fits(high):
        low, high = high, high * 2
    high = min(high, most + 1)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low
