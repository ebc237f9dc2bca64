"""Peak memory of one device: the lifetime of every buffer, simulated with PyTorch's caching allocator.

    memory = framework context + communicators + peak of the memory reserved by the caching allocator

The first steps of training are simulated (`first_steps`); later ones repeat the last of them. The parts of
the estimate are those of the peak of allocated memory; reserved memory beyond it is rounding and
fragmentation.

Context, communicators and spread are measured (`facts/data/calibrations/memory.toml`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from statistics import geometric_mean
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foretrain.errors import InvalidData, InvalidRequest
from foretrain.estimates import Estimate, Part, probability_within
from foretrain.facts.calibrations import calibration_content
from foretrain.facts.devices import Device
from foretrain.facts.frameworks import frameworks
from foretrain.facts.sheets import FactKind
from foretrain.prediction.collectives.network import Network
from foretrain.prediction.memory.allocator import (
    Footprint,
    peak_requested_bytes,
    simulate,
    simulate_steps,
)
from foretrain.prediction.memory.first_steps import Timetable, exchange_steps, first_steps
from foretrain.prediction.memory.lifetimes import (
    MemoryUse,
    TensorLifetimes,
    tensor_lifetimes,
    uses_convolutions,
)
from foretrain.prediction.strategies.program import Axis, MemoryOptions, Program, group_along
from foretrain.prediction.strategies.strategy import Layout, active_strategies, is_single_process
from foretrain.workloads.graph import Graph, Phase, Structure, once_per_graph, once_per_structure

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
    # Sources count equally, whatever their number of samples: the next one is a new source, too.
    return MemorySpread(geometric_mean(low), geometric_mean(high), source, sum(samples))


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


_NO_EXCHANGES = Footprint(0, 0, ())
FRAGMENTED = 1.5
"""Room over requested bytes beyond which a step is expected to fit; real graphs need less (tested)."""
SEGMENTS_BYTES = 64 << 20
"""Segments that are hardly used, beside that: a few of each kind."""


@dataclass(frozen=True, eq=False)
class _Allocations:
    """What the first steps of training allocate on any device; each quantity is simulated once."""

    lifetimes: TensorLifetimes
    main: Timetable
    exchanges: Timetable | None
    exchanged: Footprint
    paged_bytes: int
    loader_bytes: int
    phases: NDArray[np.str_]
    options: MemoryOptions

    def simulate(self, room_bytes: float | None = None) -> Footprint:
        """The footprint on the main stream, in limited room."""
        return simulate_steps(self.main.steps, self.main.sizes, room_bytes)

    @cached_property
    def peak(self) -> Footprint:
        """The footprint in unlimited room."""
        return self.simulate()

    @cached_property
    def live_by_phase(self) -> tuple[float, dict[Phase, float]]:
        """Bytes that last, and the peak of the other live tensors in each phase."""
        held, passing = _live_by_call(self.lifetimes, self.options)
        at_calls = passing[1 : len(self.phases) + 1]  # the first is what lives before the first call
        in_phase = {phase: self.phases == phase.value for phase in Phase}
        return held, {phase: float(at_calls[of].max()) for phase, of in in_phase.items() if of.any()}

    @cached_property
    def requested_bytes(self) -> int:
        """The peak of the tensors alone, without gaps between them."""
        return peak_requested_bytes(self.main.steps, self.main.sizes)

    @cached_property
    def needed_bytes(self) -> float:
        """The least room in which the steps run, by bisection between what is allocated and reserved."""
        low, high = float(self.peak.peak_allocated_bytes), float(self.peak.peak_reserved_bytes)
        for _ in range(_BISECTIONS):
            middle = (low + high) / 2
            runs = self.simulate(middle).failed_at is None
            low, high = (low, middle) if runs else (middle, high)
        return high


@once_per_graph
def _known_allocations(graph: Graph) -> dict[tuple[MemoryOptions, int], _Allocations]:
    """The allocations of a graph by options and workspace of cuBLAS: those that were simulated last."""
    del graph
    return {}


@once_per_structure
def _phases(structure: Structure) -> NDArray[np.str_]:
    """The phase of each call."""
    return np.array([call.phase for call in structure.calls])


def _allocations(graph: Graph, options: MemoryOptions, workspace_bytes: int) -> _Allocations:
    known, key = _known_allocations(graph), (replace(options, communicator_bytes=0), workspace_bytes)
    if key not in known:
        if len(known) >= _OPTIONS_KEPT:
            del known[next(iter(known))]
        lifetimes = tensor_lifetimes(graph, options, workspace_bytes)
        exchanges = exchange_steps(lifetimes) if len(lifetimes.communication) else None
        known[key] = _Allocations(
            lifetimes=lifetimes,
            main=first_steps(lifetimes, options),
            exchanges=exchanges,
            exchanged=simulate_steps(exchanges.steps, exchanges.sizes) if exchanges else _NO_EXCHANGES,
            paged_bytes=lifetimes.paged_bytes,
            loader_bytes=_loader_bytes(lifetimes, options),
            phases=_phases(graph.structure),
            options=options,
        )
    return known[key]


@dataclass(frozen=True, eq=False)
class _FirstSteps:
    """The first steps of training on one device, ready to be simulated.

    `outside_bytes` are held outside the allocator of the main stream: the context, communicators, what
    loaders keep, and what exchanges reserve. `capacity_bytes` is what a process can use of the device.
    """

    allocations: _Allocations
    context_bytes: float
    communicator_bytes: int
    capacity_bytes: float

    @property
    def outside_bytes(self) -> float:
        exchanged = self.allocations.exchanged.peak_reserved_bytes
        return self.context_bytes + self.communicator_bytes + exchanged

    @property
    def room_bytes(self) -> float:
        """What the device leaves to the allocator."""
        return self.capacity_bytes - self.outside_bytes

    def may_fit(self) -> bool:
        """Whether the tensors alone, without gaps between them, fit the capacity: if not, nothing does."""
        return self.allocations.requested_bytes <= self.room_bytes

    def has_ample_room(self) -> bool:
        """Whether the room exceeds what an allocator that returns what it caches is expected to need.

        No bound holds for every sequence of allocations, so what depends on it is verified by a simulation.
        """
        return FRAGMENTED * self.allocations.requested_bytes + SEGMENTS_BYTES <= self.room_bytes

    def fits(self) -> bool:
        """Whether the steps run: simulated only if the tensors alone would fit."""
        if not self.may_fit():
            return False
        # Without a limit the pools are simulated apart, and the small one is often known already.
        if self.has_ample_room() and self.allocations.peak.peak_reserved_bytes <= self.room_bytes:
            return True
        return self.allocations.simulate(self.room_bytes).failed_at is None


def _first_steps(
    graph: Graph, device: Device, options: MemoryOptions, calibration: MemoryCalibration
) -> _FirstSteps:
    allocations = _allocations(graph, options, calibration.cublas_workspace_bytes(device.generation))
    return _FirstSteps(
        allocations=allocations,
        context_bytes=context_bytes(graph, device, calibration) + allocations.loader_bytes,
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
    steps = _first_steps(graph, device, options or MemoryOptions(), calibration)
    outside, capacity, allocations = steps.outside_bytes, steps.capacity_bytes, steps.allocations
    exchanged, peak = allocations.exchanged, allocations.peak
    least, most = outside + peak.peak_allocated_bytes, outside + peak.peak_reserved_bytes
    fits = most <= capacity
    # What is cached in ample room is more than a full device needs: simulated again in the room there is.
    if not fits and steps.may_fit():
        tight = allocations.simulate(steps.room_bytes)
        fits = tight.failed_at is None
        peak = tight if fits else peak
    by_use = allocations.main.bytes_by_use(peak)
    if allocations.exchanges is not None:
        by_use += allocations.exchanges.bytes_by_use(exchanged)
    sizes = dict(zip(MemoryUse, by_use.tolist(), strict=True))
    reserved = peak.peak_reserved_bytes + exchanged.peak_reserved_bytes
    sizes[MemoryUse.FRAGMENTATION] = reserved - sum(sizes.values())
    paged = allocations.paged_bytes
    resident = min(float(paged), max(0.0, capacity - outside - peak.peak_reserved_bytes))
    sizes[MemoryUse.OPTIMIZER_STATE] += resident
    sizes[MemoryUse.COMMUNICATORS] = float(steps.communicator_bytes)
    return MemoryEstimate(
        _estimate(sizes, allocations.loader_bytes, steps.context_bytes, calibration, device),
        capacity,
        fits,
        peak.peak_allocated_bytes + exchanged.peak_allocated_bytes,
        least,
        most,
        paged - resident,
    )


def fits_memory(graph: Graph, device: Device, options: MemoryOptions | None = None) -> bool:
    """Whether a step runs in the memory of a device, as `estimate_memory` has it."""
    return _first_steps(graph, device, options or MemoryOptions(), memory_calibration()).fits()


def tensors_fit(graph: Graph, device: Device, options: MemoryOptions | None = None) -> bool:
    """Whether the tensors of a step alone, without gaps between them, fit a device: if not, nothing does."""
    return _first_steps(graph, device, options or MemoryOptions(), memory_calibration()).may_fit()


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
        steps = _first_steps(graph, device, options or MemoryOptions(), memory_calibration())
        needed = steps.outside_bytes + steps.allocations.needed_bytes
    return chance_to_exceed(capacity, needed)


def chance_to_exceed(capacity_bytes: float, needed_bytes: float) -> float:
    """The probability that a step predicted to need some memory needs more than the capacity."""
    spread = memory_calibration().spread
    quantiles = (needed_bytes * spread.p10, needed_bytes, needed_bytes * spread.p90)
    return 1 - float(probability_within(*quantiles, capacity_bytes))


_CERTAIN = 1.5
"""Where capacity and needs differ by this factor, how well the allocator does with less does not matter."""
_BISECTIONS = 5  # each runs the allocator once: the bounds end 1/32 as far apart
_OPTIONS_KEPT = 6
"""Options of which a graph keeps its allocations."""


def live_bytes(graph: Graph, device: Device, options: MemoryOptions | None = None) -> float:
    """Context and peak of live tensors: fast, without the rounding and cache of the allocator."""
    options, calibration = options or MemoryOptions(), memory_calibration()
    lifetimes = tensor_lifetimes(graph, options, calibration.cublas_workspace_bytes(device.generation))
    held, passing = _live_by_call(lifetimes, options)
    return context_bytes(graph, device, calibration) + held + float(passing.max(initial=0.0))


def peaks_by_phase(graph: Graph, device: Device, options: MemoryOptions | None = None) -> dict[Phase, float]:
    """The peak of each phase of a step: what is outside the allocator, and live tensors without gaps."""
    options = options or MemoryOptions()
    steps = _first_steps(graph, device, options, memory_calibration())
    held, peaks = steps.allocations.live_by_phase
    outside = steps.context_bytes + steps.communicator_bytes + held
    return {phase: outside + peak for phase, peak in peaks.items()}


def _live_by_call(lifetimes: TensorLifetimes, options: MemoryOptions) -> tuple[float, NDArray[np.float64]]:
    """Bytes that last, and those of other tensors that live before the first call and at each call."""
    lasting = (lifetimes.resident, lifetimes.state, lifetimes.inputs, lifetimes.handles)
    held = sum(int(group.bytes.sum()) for group in lasting)
    gradients = lifetimes.gradients
    if options.keep_gradients:
        stays = gradients.ends >= lifetimes.calls
        held += int(gradients.bytes[stays].sum())
        gradients = gradients[~stays]
    change = np.zeros(lifetimes.calls + 3)
    for group in (lifetimes.passing, lifetimes.communication, gradients):
        np.add.at(change, group.starts + 1, group.bytes)
        np.subtract.at(change, np.minimum(group.ends, lifetimes.calls) + 2, group.bytes)
    return held, np.cumsum(change)


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


def _loader_bytes(lifetimes: TensorLifetimes, options: MemoryOptions) -> int:
    """Batches that loaders keep on separate streams, whose memory other streams cannot reuse.

    Three at a time - being copied, ready, in use - and the raw bytes.
    """
    if not options.prefetching_loaders:
        return 0
    batch = int(lifetimes.inputs.bytes.sum())
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
    fullest, options = _fullest(stages, in_flight, layout, device, network)
    return fullest, estimate_memory(stages[fullest].graph, device, options)


def fullest_stage_fits(
    stages: tuple[Program, ...],
    in_flight: tuple[float, ...],
    layout: Layout,
    device: Device,
    network: Network | None = None,
) -> bool:
    """Whether the devices of the fullest stage have the memory: `fits` of its estimate, with less work."""
    fullest, options = _fullest(stages, in_flight, layout, device, network)
    return fits_memory(stages[fullest].graph, device, options)


def _fullest(
    stages: tuple[Program, ...],
    in_flight: tuple[float, ...],
    layout: Layout,
    device: Device,
    network: Network | None,
) -> tuple[int, MemoryOptions]:
    options = [
        memory_options(stage, held, layout, network) for stage, held in zip(stages, in_flight, strict=True)
    ]
    fullest = 0
    if len(stages) > 1:
        alive = [live_bytes(stage.graph, device, each) for stage, each in zip(stages, options, strict=True)]
        fullest = max(range(len(stages)), key=lambda stage: alive[stage])
    return fullest, options[fullest]


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
    known: dict[int, bool] | None = None,
) -> int:
    """The largest batch per device that fits, by doubling and bisection; 0 if one sample does not fit.

    The search begins near `start`, because a model with batch norm may not take a batch of one, and tries
    powers of two from there, up or down: memory is not quite monotone in the batch, and a bisection between
    other batches would make the result depend on `start`. Batches far below the limit are not simulated; the
    result is. `known`, if given, remembers which batches fit.
    """
    if most < 1:
        raise InvalidRequest(f"the largest batch to try must be at least 1, got {most}")

    remembered = {} if known is None else known
    expected: set[int] = set()

    def fits(batch: int) -> bool:
        if batch not in remembered:
            try:
                graph = graph_at(batch)
            except InvalidRequest:  # batch norm of one value: such a model does not train on one sample
                if batch > 1:
                    raise
                remembered[batch] = False
                return False
            steps = _first_steps(graph, device, options or MemoryOptions(), memory_calibration())
            if steps.has_ample_room():
                expected.add(batch)
            remembered[batch] = batch in expected or steps.fits()
        return remembered[batch]

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
    if low in expected:
        remembered[low] = fits_memory(graph_at(low), device, options)
        if not remembered[low]:  # it fragments more than expected: simulate all
            simulated = {size: fits_memory(graph_at(size), device, options) for size in expected}
            return largest_batch(graph_at, device, options, most, start, remembered | simulated)
    return low
