"""What would make a training step fit: the largest batch, and remedies, each computed and not guessed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from foretrain.errors import InvalidRequest
from foretrain.facts.devices import Device
from foretrain.prediction.memory.estimate import MemoryEstimate, estimate_memory
from foretrain.prediction.memory.lifetimes import MemoryOptions
from foretrain.workloads.graph import Graph

GraphAt = Callable[[int], Graph]
"""The graph of a step at a batch size, re-derived or traced anew."""

LARGEST = 1 << 20
"""No batch above this is tried."""


@dataclass(frozen=True)
class Remedy:
    """A change of the training, and the memory the fullest device then needs."""

    change: str
    memory: MemoryEstimate

    @property
    def fits(self) -> bool:
        """Whether the change is enough."""
        return self.memory.fits


def largest_batch(
    graph_at: GraphAt, device: Device, options: MemoryOptions | None = None, most: int = LARGEST
) -> int:
    """The largest batch per device that fits, 0 if not even one sample does: doubling, then halving."""
    if most < 1:
        raise InvalidRequest(f"the largest batch to try is {most}; give at least 1")

    def fits(batch: int) -> bool:
        return estimate_memory(graph_at(batch), device, options).fits

    low, high = 0, 1
    while high <= most and fits(high):
        low, high = high, high * 2
    high = min(high, most + 1)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def advice(
    graph_at: GraphAt,
    batch: int,
    device: Device,
    options: MemoryOptions | None = None,
    checkpointed_at: GraphAt | None = None,
    most_devices: int = 64,
) -> tuple[Remedy, ...]:
    """What would make a step that is too large fit, or how far each change gets; empty if it fits already.

    `checkpointed_at` gives the graph with activation checkpointing. ZeRO is tried over 2, 4, 8 ... devices;
    the fewest that suffice are named.
    """
    options = options or MemoryOptions()
    graph = graph_at(batch)
    if estimate_memory(graph, device, options).fits:
        return ()
    found = [*_smaller_batch(graph_at, batch, device, options)]
    if checkpointed_at is not None:
        memory = estimate_memory(checkpointed_at(batch), device, options)
        found.append(Remedy("checkpoint activations", memory))
    if not options.eight_bit_optimizer:
        memory = estimate_memory(graph, device, replace(options, eight_bit_optimizer=True))
        found.append(Remedy("8-bit optimizer", memory))
    found.extend(
        _sharded(graph, device, options, stage, most_devices) for stage in range(options.zero_stage + 1, 4)
    )
    if checkpointed_at is not None and not any(remedy.fits for remedy in found):
        found.extend(_together(checkpointed_at(batch), device, options, most_devices))
    return tuple(found)


def _together(lean: Graph, device: Device, options: MemoryOptions, most: int) -> Iterator[Remedy]:
    """Checkpointing along with each of the others, for when none of them is enough alone."""
    small_state = replace(options, eight_bit_optimizer=True)
    memory = estimate_memory(lean, device, small_state)
    yield Remedy("checkpoint activations, 8-bit optimizer", memory)
    for stage in range(options.zero_stage + 1, 4):
        remedy = _sharded(lean, device, options, stage, most)
        yield replace(remedy, change=f"checkpoint activations, {remedy.change}")


def _smaller_batch(graph_at: GraphAt, batch: int, device: Device, options: MemoryOptions) -> Iterator[Remedy]:
    fitting = largest_batch(graph_at, device, options, most=batch)
    if 0 < fitting < batch:
        yield Remedy(f"batch {fitting}", estimate_memory(graph_at(fitting), device, options))


def _sharded(graph: Graph, device: Device, options: MemoryOptions, stage: int, most: int) -> Remedy:
    devices = max(2, options.data_parallel)
    while True:
        sharded = replace(options, zero_stage=stage, data_parallel=devices)
        memory = estimate_memory(graph, device, sharded)
        if memory.fits or devices * 2 > most:
            return Remedy(f"ZeRO-{stage} over {devices} devices", memory)
        devices *= 2
