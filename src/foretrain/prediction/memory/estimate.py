"""Peak memory of one device: a walk over the life of every buffer through PyTorch's allocator.

    memory = framework context + what the caching allocator has reserved at its peak

The walk covers the first steps of training, since later ones repeat the last: in the first there is no
optimizer state yet while activations come and go; the state is then carved out of cached memory, and the
next step's activations no longer fit into the holes. The parts of the estimate are what is alive when most
is allocated; what has been reserved beyond that is rounding and fragmentation.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from foretrain.estimates import Estimate
from foretrain.estimates import Part as EstimatePart
from foretrain.facts.devices import Device
from foretrain.prediction.memory.allocator import FREE, RELEASE, Event, simulate
from foretrain.prediction.memory.calibration import MemoryCalibration, memory_calibration
from foretrain.prediction.memory.lifetimes import (
    Part,
    Piece,
    TensorLifetimes,
    tensor_lifetimes,
)
from foretrain.prediction.memory.workspace import uses_convolutions
from foretrain.prediction.strategies.catalogue import active_strategies
from foretrain.prediction.strategies.layout import Layout
from foretrain.prediction.strategies.memory_options import MemoryOptions
from foretrain.prediction.strategies.program import Program
from foretrain.workloads.graph import Graph

STEPS = 3
"""Steps until the allocator repeats itself: without state, with state for the first time, steady."""

_RAW_SHARE = 4
"""A loader copies bytes and turns them into 4-byte floats on the device."""


@dataclass(frozen=True)
class MemoryEstimate:
    """Peak bytes of the fullest device with their parts, its capacity, and whether the step fits.

    `allocated_bytes` is the peak of what tensors and workspaces occupy, without context, cache and rounding.
    """

    estimate: Estimate
    capacity_bytes: float
    fits: bool
    allocated_bytes: int

    @property
    def bytes(self) -> float:
        """The median."""
        return self.estimate.value


def estimate_memory(
    graph: Graph,
    device: Device,
    options: MemoryOptions | None = None,
    calibration: MemoryCalibration | None = None,
) -> MemoryEstimate:
    """The memory one device needs for the training step `graph`."""
    options = options or MemoryOptions()
    calibration = calibration or memory_calibration()
    tenants = tensor_lifetimes(graph, options, calibration.cublas_workspace_bytes(device.generation))
    events, part_of = step_events(tenants, options)
    context = context_bytes(graph, device, calibration) + _loader_bytes(tenants, options)
    exchanged = simulate(_communication_events(tenants))
    outside = context + exchanged.peak_reserved_bytes
    capacity = device.memory_bytes * calibration.usable_share
    peak = simulate(events)
    fits = outside + peak.peak_reserved_bytes <= capacity
    if not fits and outside + peak.peak_allocated_bytes <= capacity:
        tight = simulate(events, capacity - outside)
        fits = tight.failed_at is None
        peak = tight if fits else peak
    sizes = dict.fromkeys(Part, 0.0)
    for key, size in peak.live_at_peak.items():
        sizes[part_of[key]] += size
    for key, size in exchanged.live_at_peak.items():
        sizes[tenants.communication[key].part] += size
    reserved = peak.peak_reserved_bytes + exchanged.peak_reserved_bytes
    sizes[Part.FRAGMENTATION] = reserved - sum(sizes.values())
    return MemoryEstimate(
        _estimate(sizes, _loader_bytes(tenants, options), context, calibration, device),
        capacity,
        fits,
        peak.peak_allocated_bytes + exchanged.peak_allocated_bytes,
    )


def _communication_events(tenants: TensorLifetimes) -> list[Event]:
    """A step's allocations on the streams of exchanges, by their place in `communication`.

    PyTorch's allocator gives a block back to the stream it was allocated on, so gathered parameters and
    activations do not fragment each other.
    """
    starts: dict[int, list[Event]] = {}
    ends: dict[int, list[Event]] = {}
    for key, piece in enumerate(tenants.communication):
        starts.setdefault(piece.start, []).append((key, piece.bytes))
        ends.setdefault(piece.end, []).append((key, FREE))
    calls = sorted({*starts, *ends})
    return [event for call in calls for event in (*starts.get(call, ()), *ends.get(call, ()))]


def live_bytes(graph: Graph, device: Device, options: MemoryOptions | None = None) -> float:
    """Context and what is alive at the fullest moment: quick, without the allocator's rounding and cache."""
    options, calibration = options or MemoryOptions(), memory_calibration()
    tenants = tensor_lifetimes(graph, options, calibration.cublas_workspace_bytes(device.generation))
    lasting = (tenants.resident, tenants.state, tenants.inputs, tenants.handles)
    held = sum(piece.bytes for pieces in lasting for piece in pieces)
    change = np.zeros(tenants.calls + 3)
    passing = [*tenants.passing, *tenants.communication, *tenants.gradients]
    if options.keep_gradients:
        held += sum(piece.bytes for piece in tenants.gradients if piece.end >= tenants.calls)
        passing = [
            piece for piece in passing if piece.part is not Part.GRADIENTS or piece.end < tenants.calls
        ]
    for piece in passing:
        change[piece.start + 1] += piece.bytes
        change[min(piece.end, tenants.calls) + 2] -= piece.bytes
    return context_bytes(graph, device, calibration) + held + float(np.cumsum(change).max(initial=0.0))


def context_bytes(graph: Graph, device: Device, calibration: MemoryCalibration) -> float:
    """What the process holds besides the allocator's memory."""
    context = calibration.context(device.generation)
    return context.bytes + (context.convolution_bytes if uses_convolutions(graph) else 0.0)


def _estimate(
    sizes: dict[Part, float],
    loader: float,
    context: float,
    calibration: MemoryCalibration,
    device: Device,
) -> Estimate:
    sizes[Part.INPUTS] += loader
    sizes[Part.CONTEXT] = context - loader
    spread = calibration.spread
    source = calibration.context(device.generation).source
    return Estimate(
        "bytes",
        tuple(
            EstimatePart(
                part.value,
                size,
                source,
                below=size * max(0.0, 1 - spread.p10),
                above=size * max(0.0, spread.p90 - 1),
            )
            for part, size in sizes.items()
            if size > 0
        ),
    )


def step_events(
    tenants: TensorLifetimes, options: MemoryOptions, steps: int = STEPS
) -> tuple[list[Event], list[Part]]:
    """The first steps of training as allocator events, and the part each key belongs to."""
    timetable = _Timetable(tenants, options)
    events: list[Event] = [(key, piece.bytes) for key, piece in timetable.resident]
    for step in range(steps):
        events.extend(timetable.step(step))
    return events, timetable.part_of


class _Timetable:
    """Keys for all pieces, and the events of each step."""

    def __init__(self, tenants: TensorLifetimes, options: MemoryOptions) -> None:
        self._tenants = tenants
        self._loads = options.prefetching_loaders == 0
        self.part_of: list[Part] = []
        self.resident = self._keyed(tenants.resident)
        self._state = self._keyed(tenants.state)
        self._inputs = (self._keyed(tenants.inputs), self._keyed(tenants.inputs))
        self._handles = self._keyed(tenants.handles)
        passing, gradients = self._keyed(tenants.passing), self._keyed(tenants.gradients)
        lasting = [(key, piece) for key, piece in gradients if piece.end >= tenants.calls]
        self._first = _Calls([*passing, *gradients], stay=lasting if options.keep_gradients else ())
        self._later = self._first
        if options.keep_gradients:  # new gradients are added to the kept ones and freed at once
            added = tuple(piece._replace(end=piece.start + 1) for _, piece in lasting)
            reduced = [(key, piece) for key, piece in gradients if piece.end < tenants.calls]
            self._later = _Calls([*passing, *reduced, *self._keyed(added)])

    def _keyed(self, pieces: tuple[Piece, ...]) -> list[tuple[int, Piece]]:
        first = len(self.part_of)
        self.part_of.extend(piece.part for piece in pieces)
        return list(enumerate(pieces, start=first))

    def step(self, step: int) -> list[Event]:
        """The events of one step, the first being 0."""
        events: list[Event] = []
        if self._loads:
            events.extend((key, piece.bytes) for key, piece in self._inputs[step % 2])
            events.extend((key, FREE) for key, _ in self._inputs[(step + 1) % 2])
        calls = self._later if step else self._first
        once = {} if step else self._only_once()
        for call in range(self._tenants.calls + 1):
            for happening in (once, calls.starts, calls.ends):
                if call in happening:
                    events += happening[call]
        return events

    def _only_once(self) -> dict[int, list[Event]]:
        """What happens in the first step alone, before a call."""
        once: dict[int, list[Event]] = {}
        for key, piece in self._handles:
            once.setdefault(piece.start, []).append((key, piece.bytes))
        state = [(key, piece.bytes) for key, piece in self._state]
        once.setdefault(self._tenants.optimizer_start, []).extend(state)
        for call in self._tenants.tuned:
            once.setdefault(call, []).append((0, RELEASE))
        return once


class _Calls:
    """Events by the call they happen before (`starts`) or after (`ends`); pieces that `stay` never end."""

    def __init__(self, pieces: Iterable[tuple[int, Piece]], stay: Iterable[tuple[int, Piece]] = ()) -> None:
        self.starts: dict[int, list[Event]] = {}
        self.ends: dict[int, list[Event]] = {}
        staying = {key for key, _ in stay}
        for key, piece in pieces:
            self.starts.setdefault(piece.start, []).append((key, piece.bytes))
            if key not in staying:
                self.ends.setdefault(piece.end, []).append((key, FREE))


def _loader_bytes(tenants: TensorLifetimes, options: MemoryOptions) -> int:
    """Batches that loaders keep in streams of their own, whose memory other streams cannot reuse.

    Three at a time - the one being copied, the one to be handed out, the one in use - and the raw bytes.
    """
    if not options.prefetching_loaders:
        return 0
    batch = sum(piece.bytes for piece in tenants.inputs)
    alive = simulate([(0, batch), (1, batch), (2, batch // _RAW_SHARE), (3, batch)])
    return options.prefetching_loaders * alive.peak_reserved_bytes


def fullest_stage(
    stages: tuple[Program, ...], in_flight: tuple[float, ...], layout: Layout, device: Device
) -> tuple[int, MemoryEstimate]:
    """The stage whose devices need most memory, and what they need."""
    options = [memory_options(stage, held, layout) for stage, held in zip(stages, in_flight, strict=True)]
    fullest = 0
    if len(stages) > 1:
        alive = [
            live_bytes(stage.graph, device, chosen) for stage, chosen in zip(stages, options, strict=True)
        ]
        fullest = max(range(len(stages)), key=lambda stage: alive[stage])
    return fullest, estimate_memory(stages[fullest].graph, device, options[fullest])


def memory_options(stage: Program, in_flight: float, layout: Layout) -> MemoryOptions:
    """How a device of a stage spends memory; with several micro-batches, gradients stay between them."""
    options = MemoryOptions(keep_gradients=stage.micro_batches > 1, in_flight=in_flight)
    for strategy in active_strategies(layout):
        options = strategy.memory(options, stage, layout)
    return options
