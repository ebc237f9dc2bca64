"""The cost of a workload's steps at many micro-batches and on many machines, each part computed once.

Pricing a step, the all-reduce of its gradients, its input pipeline and its memory are the expensive parts of
a search for the best run configuration. A `StepTable` owns them and their caches.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial
from itertools import takewhile

from foretrain.facts.devices import Device
from foretrain.facts.hardware import Hardware
from foretrain.jobs.batch_limits import DeviceMemory, capacity_bytes, smallest_batch
from foretrain.jobs.options import BatchLimits
from foretrain.prediction.collectives.network import Network, network_of
from foretrain.prediction.cost_models import CostModel
from foretrain.prediction.memory.estimate import communicator_bytes
from foretrain.prediction.options import InputOptions
from foretrain.prediction.scenario import as_stored, in_usual_precision
from foretrain.prediction.search.sketch import (
    Reduction,
    ReplicaStep,
    gradient_buckets,
    reduction,
    replica_step,
)
from foretrain.prediction.step.input_pipeline import InputPipeline, estimate_input
from foretrain.prediction.strategies.program import Bucket
from foretrain.prediction.strategies.sharded import STAGES as ZERO_STAGES
from foretrain.prediction.strategies.strategy import DATA_PARALLEL, MixedPrecision, layout_of
from foretrain.workloads.graph import Graph, checkpoint_bytes
from foretrain.workloads.workload import BATCHES, Workload, graph_at

_SMALL = 64
"""Batches up to this one that do not fit are considered with sharded state before larger ones are dropped."""
_WINDOW = 8
"""Octaves of batch sizes compared at least, the largest that fits on any device being the last."""


@dataclass(frozen=True, eq=False)
class StepTable:
    """Steps of one workload at the micro-batches in `batches`, on the machines it was made for.

    `compared`, if given, are the micro-batches and their memory; else they are computed at first use.
    """

    workload: Workload
    cost_model: CostModel
    input: InputOptions
    machines: Mapping[str, Hardware]
    limits: BatchLimits
    graph: Callable[[int], Graph]
    compared: tuple[tuple[int, ...], DeviceMemory] | None = None

    @cached_property
    def _compared(self) -> tuple[tuple[int, ...], DeviceMemory]:
        return self.compared or _batches(self.graph, self.limits, list(self.machines.values()))

    @property
    def batches(self) -> tuple[int, ...]:
        """The micro-batches that are compared."""
        return self._compared[0]

    @property
    def memory(self) -> DeviceMemory:
        """Their memory on any device."""
        return self._compared[1]

    def replica(self, batch: int, on: Device) -> ReplicaStep:
        """The step of one device."""
        return self._replicas(on.id)[batch]

    def reduction(self, hardware: Hardware) -> Reduction:
        """The all-reduce of the gradients."""
        return self._reduction(hardware.name)

    def loading(self, batch: int, hardware: Hardware) -> InputPipeline:
        """The input of one micro-batch of each device."""
        readers = 1 if self.input.dataset is None else hardware.devices_per_node
        return self._loading(batch, hardware.device.id, readers)

    def communicator_bytes(self, hardware: Hardware) -> int:
        """The buffers of NCCL on a device under data parallelism."""
        return self._communicators(hardware.name)

    @cached_property
    def state_bytes(self) -> float:
        """Bytes of a checkpoint."""
        return checkpoint_bytes(self.graph(self.batches[0]))

    @cached_property
    def _buckets(self) -> tuple[Bucket, ...]:
        return gradient_buckets(self.graph(self.batches[0]))

    @cached_property
    def _devices(self) -> Mapping[str, Device]:
        return _devices(self.machines.values())

    @cached_property
    def _replicas(self) -> Callable[[str], Mapping[int, ReplicaStep]]:
        def priced(device_id: str) -> Mapping[int, ReplicaStep]:
            on = self._devices[device_id]
            steps = self.cost_model.price_all([self.graph(batch) for batch in self.batches], on)
            return {
                batch: replica_step(step, on, self._buckets)
                for batch, step in zip(self.batches, steps, strict=True)
            }

        return cache(priced)

    @cached_property
    def _reduction(self) -> Callable[[str], Reduction]:
        def reduced(name: str) -> Reduction:
            hardware = self.machines[name]
            return reduction(self._buckets, hardware, network_on(hardware))

        return cache(reduced)

    @cached_property
    def _communicators(self) -> Callable[[str], int]:
        def held(name: str) -> int:
            hardware = self.machines[name]
            layout = layout_of(DATA_PARALLEL, hardware.devices, hardware.devices_per_node)
            return communicator_bytes(self.graph(self.batches[0]), layout, network_on(hardware))

        return cache(held)

    @cached_property
    def _loading(self) -> Callable[[int, str, int], InputPipeline]:
        def loaded(batch: int, device_id: str, readers: int) -> InputPipeline:
            return estimate_input(self.graph(batch), self._devices[device_id], self.input, readers)

        return cache(loaded)


def with_weights_stored(table: StepTable, how: MixedPrecision) -> StepTable:
    """The same steps with weights stored in another way; the same table where that was given."""
    return _with_workload(table, as_stored(table.workload, how))


def on_device(table: StepTable, device: Device) -> StepTable:
    """The same steps in the usual precision of a device; the same table where precision was given."""
    return _with_workload(table, in_usual_precision(table.workload, (device,)))


def _with_workload(table: StepTable, workload: Workload) -> StepTable:
    if workload == table.workload:
        return table
    graph = cache(partial(graph_at, workload))
    memory = DeviceMemory(graph, table.memory.reference, table.memory.smallest)
    return replace(table, workload=workload, graph=graph, compared=(table.batches, memory))


def step_table(
    workload: Workload,
    cost_model: CostModel,
    limits: BatchLimits,
    machines: Iterable[Hardware],
    input_options: InputOptions,
) -> StepTable:
    """The steps of a workload on these machines, at the batch sizes that fit on any of them."""
    by_name = {hardware.name: hardware for hardware in machines}
    largest = max(_devices(by_name.values()).values(), key=capacity_bytes)
    workload = in_usual_precision(workload, (largest,))
    graph = cache(partial(graph_at, workload))
    return StepTable(workload, cost_model, input_options, by_name, limits, graph)


def network_on(hardware: Hardware) -> Network:
    """The network of hardware, with its own links."""
    return network_of(hardware, hardware.links, hardware.network)


def _devices(machines: Iterable[Hardware]) -> Mapping[str, Device]:
    return {hardware.device.id: hardware.device for hardware in machines}


def _batches(
    graph: Callable[[int], Graph], limits: BatchLimits, machines: Sequence[Hardware]
) -> tuple[tuple[int, ...], DeviceMemory]:
    """The micro-batches to compare, by what fits on the largest device and on each other one."""
    devices = list(_devices(machines).values())
    largest = max(devices, key=capacity_bytes)
    if limits.micro_batch is not None:
        return (limits.micro_batch,), DeviceMemory(graph, largest, limits.micro_batch)
    most = min(limits.largest, limits.global_batch or math.inf)
    counts = {hardware.devices for hardware in machines}
    smallest, memory = _smallest(graph, limits, largest, devices, most / max(counts))
    top = smallest
    while top < most and _may_fit(memory, top, largest, max(counts)):
        top *= 4  # the last one may still fit with sharded state
    known = list(takewhile(lambda size: size <= top, limits.sizes(counts)))
    known = known or [next(limits.sizes(counts), smallest)]
    sizes = [size for size in known if size >= smallest] or [smallest]
    fitting = (_largest_to_accumulate(memory, sizes, on) for on in devices)
    lowest = min(sizes[-1] / 2 ** (_WINDOW - 1), most / max(counts), *fitting)
    return tuple(size for size in sizes if size >= lowest), memory


def _smallest(
    graph: Callable[[int], Graph],
    limits: BatchLimits,
    largest: Device,
    devices: Collection[Device],
    share: float,
) -> tuple[int, DeviceMemory]:
    """The smallest batch to compare; one sample, which is recorded separately, only where two may not fit."""
    pair = BATCHES[0]
    if limits.global_batch is None and share >= pair:
        memory = DeviceMemory(graph, largest, pair)
        if all(memory.bytes(pair, 0, 1, True, on) <= capacity_bytes(on) for on in devices):
            return pair, memory
    smallest = smallest_batch(graph)
    return smallest, DeviceMemory(graph, largest, smallest)


def _largest_to_accumulate(memory: DeviceMemory, sizes: Sequence[int], on: Device) -> int:
    """The largest micro-batch whose gradients a device can accumulate; the smallest size if none fits."""
    capacity = capacity_bytes(on)
    fitting = takewhile(lambda size: memory.bytes(size, 0, 1, True, on) <= capacity, sizes)
    return max(fitting, default=sizes[0])


def _may_fit(memory: DeviceMemory, batch: int, on: Device, devices: int) -> bool:
    """Whether a batch fits on one device; a small one at least with all state sharded."""
    capacity = capacity_bytes(on)
    if memory.bytes(batch, 0, 1, False, on) <= capacity:
        return True
    stage = max(ZERO_STAGES.values())
    return batch <= _SMALL and memory.bytes(batch, stage, devices, False, on) <= capacity
