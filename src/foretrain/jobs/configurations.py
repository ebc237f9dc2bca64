"""The best way to run a job on given machines: strategy, batch of each device and micro-batches together.

    job = steps to the end (global batch) · seconds of a step (strategy, batch, micro-batches)

Plain data parallelism is compared at every batch size in closed form (`prediction.replicas`). Sharding the
state (ZeRO, FSDP) only pays through the memory it frees, so it is looked at where a larger batch would be
quicker but does not fit, or none fits. Of ways that take about as long the smallest global batch is
preferred: it departs least from what people have tried.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import takewhile

import numpy as np

from foretrain.facts.devices import Device
from foretrain.facts.hardware import Hardware
from foretrain.jobs.batch_limits import BatchLimits
from foretrain.jobs.device_memory import DeviceMemory, capacity_bytes
from foretrain.jobs.job import Steps
from foretrain.jobs.length import Length
from foretrain.jobs.smallest_step import smallest_step
from foretrain.prediction.collectives.network import Network, network_of
from foretrain.prediction.cost_models.step_models import CostModel
from foretrain.prediction.search.replicas import (
    Reduction,
    ReplicaStep,
    gradient_buckets,
    reduction,
    replica_step,
    sent_bytes,
    sharded_seconds,
)
from foretrain.prediction.step.input_pipeline import InputOptions, InputPipeline, input_pipeline
from foretrain.prediction.step.parallel import Environment
from foretrain.prediction.stragglers import default_jitter, slowdown
from foretrain.prediction.strategies.catalogue import layout_of
from foretrain.prediction.strategies.gradients import Bucket
from foretrain.prediction.strategies.sharded import STAGES as ZERO_STAGES
from foretrain.workloads.graph import Graph
from foretrain.workloads.workload import BATCHES, Workload, graph_at

PLAIN = "ddp"
STRATEGIES = (PLAIN, "zero1", "zero2", "zero3")
_ABOUT = 0.02
"""Ways this close in time count as equal."""
_WORTH_SHARDING = 0.05
"""The gain from a larger batch below which sharding is not looked at."""
_SMALL = 64
"""Batches up to here that do not fit are looked at with sharded state before larger ones are given up."""
_WINDOW = 8
"""Octaves of batch sizes that are compared at least, the largest that fits somewhere being the last."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """One way, sketched: what a step and all steps take, and the memory of each device."""

    strategy: str
    micro_batch: int
    micro_batches: int
    devices: int
    seconds: float
    training_seconds: float
    memory_bytes: float

    @property
    def global_batch(self) -> int:
        """Samples of a step."""
        return self.micro_batch * self.micro_batches * self.devices

    @property
    def is_sharded(self) -> bool:
        """Whether `seconds` is a sketch."""
        return self.strategy != PLAIN


class Ways:
    """Ways to run one workload on machines, its steps priced once for each device."""

    def __init__(self, workload: Workload, model: CostModel, length: Length, limits: BatchLimits) -> None:
        self.workload = workload
        self.model = model
        self.compared = 0
        self._length = length
        self._limits = limits
        self._graphs: dict[int, Graph] = {}
        self._priced: dict[str, dict[int, ReplicaStep]] = {}
        self._steps: dict[int, Steps] = {}
        self._reductions: dict[str, Reduction] = {}
        self._loading: dict[tuple[int, str, int], InputPipeline] = {}
        self._batches: tuple[int, ...] = ()
        self.input = InputOptions()

    def prepare(self, machines: Collection[Hardware], input_options: InputOptions) -> None:
        """Choose the batch sizes to compare, by what fits on the largest of the devices and on each other."""
        largest = max((each.device for each in machines), key=capacity_bytes)
        self.input = input_options
        if self._limits.at_once is not None:
            self.memory = DeviceMemory(self.graph, largest, self._limits.at_once)
            self._batches = (self._limits.at_once,)
            return
        most = min(self._limits.largest, self._limits.global_batch or math.inf)
        counts = {each.devices for each in machines}
        smallest = self._smallest(largest, {each.device for each in machines}, most / max(counts))
        top = smallest
        while top < most and self._may_fit(top, largest, max(counts)):
            top *= 4  # the last one would fit with sharded state, perhaps
        known = list(takewhile(lambda size: size <= top, self._limits.sizes(counts)))
        known = known or [next(self._limits.sizes(counts), smallest)]
        sizes = [size for size in known if size >= smallest] or [smallest]
        fitting = (self._largest_to_add_up(sizes, on) for on in {each.device for each in machines})
        lowest = min(sizes[-1] / 2 ** (_WINDOW - 1), most / max(counts), *fitting)
        self._batches = tuple(size for size in sizes if size >= lowest)

    def _smallest(self, largest: Device, devices: Collection[Device], share: float) -> int:
        """The smallest batch to compare: one sample only where two may be too many."""
        pair = BATCHES[0]
        if self._limits.global_batch is None and share >= pair:
            self.memory = DeviceMemory(self.graph, largest, pair)
            if all(self.memory.bytes(pair, 0, 1, True, on) <= capacity_bytes(on) for on in devices):
                return pair
        smallest, self._graphs[smallest] = smallest_step(self.workload)
        self.memory = DeviceMemory(self.graph, largest, smallest)
        return smallest

    def _largest_to_add_up(self, sizes: Sequence[int], on: Device) -> int:
        """The largest micro-batch a device can add up gradients of; the smallest of all if there is none."""
        room = capacity_bytes(on)
        fitting = takewhile(lambda size: self.memory.bytes(size, 0, 1, True, on) <= room, sizes)
        return max(fitting, default=sizes[0])

    def _may_fit(self, batch: int, on: Device, devices: int) -> bool:
        """Whether a batch fits on one device; a small one at least with all state sharded."""
        room = capacity_bytes(on)
        if self.memory.bytes(batch, 0, 1, False, on) <= room:
            return True
        stage = max(ZERO_STAGES.values())
        return batch <= _SMALL and self.memory.bytes(batch, stage, devices, False, on) <= room

    def graph(self, batch: int) -> Graph:
        """The step at a batch size."""
        if batch not in self._graphs:
            self._graphs[batch] = graph_at(self.workload, batch)
        return self._graphs[batch]

    def steps_at(self, global_batch: int) -> Steps:
        """The steps of the whole job."""
        if global_batch not in self._steps:
            self._steps[global_batch] = self._length.steps_at(global_batch)
        return self._steps[global_batch]

    def replica(self, batch: int, on: Device) -> ReplicaStep:
        """One device's step."""
        if on.id not in self._priced:
            graphs = [self.graph(each) for each in self._batches]
            told = self.model.priced_all(graphs, on)
            self._priced[on.id] = {
                each: replica_step(step, on, self._buckets)
                for each, step in zip(self._batches, told, strict=True)
            }
        return self._priced[on.id][batch]

    def reduction(self, hardware: Hardware) -> Reduction:
        """What averaging the gradients takes."""
        if hardware.name not in self._reductions:
            self._reductions[hardware.name] = reduction(self._buckets, hardware, _network(hardware))
        return self._reductions[hardware.name]

    def loading(self, batch: int, hardware: Hardware) -> InputPipeline:
        """What bringing a micro-batch to each device takes."""
        key = batch, hardware.device.id, 1 if self.input.dataset is None else hardware.devices_per_node
        if key not in self._loading:
            self._loading[key] = input_pipeline(self.graph(batch), hardware.device, self.input, key[2])
        return self._loading[key]

    def candidates(self, hardware: Hardware, strategies: Sequence[str]) -> list[Candidate]:
        """All ways that fit, the one to take first."""
        room = capacity_bytes(hardware.device)
        plain = list(self._plain(hardware))
        found = [each for each in plain if each.memory_bytes <= room] if PLAIN in strategies else []
        best = min((each.training_seconds for each in found), default=math.inf)
        quicker = [each for each in plain if each.training_seconds < best * (1 - _WORTH_SHARDING)]
        sharded = [name for name in strategies if name != PLAIN]
        if quicker and sharded and hardware.devices > 1:
            environment = Environment(hardware.device, _network(hardware), self.model)
            for strategy in sharded:
                found += self._sharded(strategy, quicker, hardware, environment)
        self.compared += len(plain)
        return _ranked(found)

    def of(self, workload: Workload) -> Ways:
        """Ways to run a variant of the workload, of the same length and within the same limits."""
        return Ways(workload, self.model, self._length, self._limits)

    def shares_out(self, hardware: Hardware) -> bool:
        """Whether some batch can be shared out over the devices at all."""
        return any(self._limits.rounds(batch, hardware.devices) for batch in self._batches)

    def leanest_bytes(self, hardware: Hardware) -> float:
        """The least memory the smallest batch needs on each device."""
        stage = max(ZERO_STAGES.values()) if hardware.devices > 1 else 0
        return self.memory.bytes(self._batches[0], stage, hardware.devices, False, hardware.device)

    def _plain(self, hardware: Hardware) -> Iterator[Candidate]:
        """Plain data parallelism at every batch size, whether it fits or not."""
        devices, on = hardware.devices, hardware.device
        group = self.reduction(hardware)
        for batch in self._batches:
            rounds = self._limits.rounds(batch, devices)
            if not rounds:
                continue
            told = self.replica(batch, on).seconds([group], np.array(rounds))[0]
            for micro_batches, computing in zip(rounds, told.tolist(), strict=True):
                yield self._candidate(PLAIN, batch, micro_batches, hardware, computing)

    def _sharded(
        self, strategy: str, instead_of: Iterable[Candidate], hardware: Hardware, at: Environment
    ) -> Iterator[Candidate]:
        """The same batches with sharded state, as far as they fit."""
        layout = layout_of(strategy, hardware.devices, hardware.devices_per_node)
        room = capacity_bytes(hardware.device)
        for plain in instead_of:
            step = self.replica(plain.micro_batch, hardware.device)
            seconds = sharded_seconds(step, layout, plain.micro_batches, self._sent_bytes, at)
            self.compared += 1
            found = self._candidate(strategy, plain.micro_batch, plain.micro_batches, hardware, seconds)
            if found.memory_bytes <= room:
                yield found

    def _candidate(
        self, strategy: str, batch: int, micro_batches: int, hardware: Hardware, computing: float
    ) -> Candidate:
        devices, loading = hardware.devices, self.loading(batch, hardware)
        computing *= slowdown(devices, default_jitter(hardware.device))
        waiting = loading.seconds * micro_batches
        seconds = max(computing, waiting) if loading.overlaps else computing + waiting
        steps = self.steps_at(batch * micro_batches * devices).quantiles.p50
        needed = self.memory.bytes(
            batch, ZERO_STAGES.get(strategy, 0), devices, micro_batches > 1, hardware.device
        )
        return Candidate(strategy, batch, micro_batches, devices, seconds, steps * seconds, needed)

    @cached_property
    def _sent_bytes(self) -> float:
        return sent_bytes(self.graph(self._batches[0]))

    @cached_property
    def _buckets(self) -> tuple[Bucket, ...]:
        return gradient_buckets(self.graph(self._batches[0]))


def _network(hardware: Hardware) -> Network:
    return network_of(hardware, hardware.links, hardware.network)


def _ranked(found: Sequence[Candidate]) -> list[Candidate]:
    """By time, but of those about as quick as the quickest the smallest global batch first."""
    if not found:
        return []
    limit = min(each.training_seconds for each in found) * (1 + _ABOUT)
    about = [each for each in found if each.training_seconds <= limit]
    about.sort(key=lambda each: (each.global_batch, each.is_sharded, -each.micro_batch))
    rest = sorted((each for each in found if each.training_seconds > limit), key=lambda e: e.training_seconds)
    return [*about, *rest]
