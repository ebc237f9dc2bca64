"""Data-parallel steps over devices that differ: who trains how many samples, and how long the step takes.

Every device runs DistributedDataParallel's program on its own batch b_i; an exchange of gradients starts when
the last device is ready for it. Each device's step is composed with the exchanges among all, and

    step = max over devices of step_i(b_i)

Batches are shared out so that all finish together (`strategies.heterogeneous`). The times step_i(b) are told
at a few batch sizes, straight lines between them, and told anew at the sizes that come out until they hold.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from foretrain.errors import InvalidRequest
from foretrain.estimates import Estimate, longest
from foretrain.facts.devices import Device
from foretrain.facts.hardware import Hardware
from foretrain.prediction.collectives.network import Network
from foretrain.prediction.cost_models.priced_step import PricedStep
from foretrain.prediction.cost_models.step_models import CostModel
from foretrain.prediction.evaluation import Evaluation, evaluation_of
from foretrain.prediction.heterogeneous.batch_split import Worker, share_out
from foretrain.prediction.memory.estimate import estimate_memory
from foretrain.prediction.memory.largest_batch import largest_batch
from foretrain.prediction.scenario import StepConfiguration, StepContext
from foretrain.prediction.step.input_pipeline import InputOptions
from foretrain.prediction.step.parallel import Environment, parallel_step
from foretrain.prediction.step.throughput import Throughput, model_flop, peak
from foretrain.prediction.strategies.catalogue import layout_of
from foretrain.prediction.strategies.memory_options import MemoryOptions
from foretrain.workloads.graph import Graph
from foretrain.workloads.workload import Workload, graph_at

DDP = "ddp"
_COARSE = 4
"""Each batch size told first is so many times the one before."""
_MOST_ROUNDS = 6
Groups = tuple[Hardware, ...]


@dataclass(frozen=True, eq=False)
class Division:
    """A global batch divided over groups of nodes.

    `batches` are those of every device, group by group; `outcomes` the step of the device of each group with
    the most samples, as it would be if none had to wait for the others.
    """

    groups: Groups
    network: Network
    batches: tuple[tuple[int, ...], ...]
    evaluations: tuple[Evaluation, ...]

    @property
    def global_batch(self) -> int:
        """Samples of a step on all devices together."""
        return sum(map(sum, self.batches))

    @property
    def devices(self) -> int:
        """Devices that take part."""
        return sum(group.devices for group in self.groups)

    @property
    def pace(self) -> Evaluation:
        """The device that all wait for."""
        return max(self.evaluations, key=lambda evaluation: evaluation.seconds)

    @cached_property
    def total(self) -> Estimate:
        """The step: parts of the device that all wait for, and the risk that it is another one."""
        pace = self.pace.total
        whole = longest(pace, *(each.total for each in self.evaluations if each is not self.pace))
        return replace(whole, parts=(*whole.visible, *pace.hidden))

    @property
    def seconds(self) -> float:
        """The median of a step."""
        return self.pace.seconds

    @property
    def samples_per_second(self) -> float:
        """Samples of all devices together."""
        return self.global_batch / self.seconds

    @property
    def fits(self) -> bool:
        """Whether every device holds its batch."""
        return all(evaluation.memory.fits for evaluation in self.evaluations)

    @property
    def fullest(self) -> Evaluation:
        """The device that has least memory to spare, in proportion to what it has."""
        return max(self.evaluations, key=lambda each: each.memory.bytes / each.memory.capacity_bytes)

    @property
    def throughput(self) -> Throughput:
        """What gets done in a second; MFU is of the joint peak of the devices that take part."""
        graph = self.pace.graph
        rounds = self.global_batch / graph.batch / self.seconds
        joint = sum(peak(graph, group.device) * group.devices for group in self.groups)
        return Throughput(
            self.samples_per_second,
            graph.tokens * rounds if graph.tokens else None,
            model_flop(graph) * rounds / joint,
        )


@dataclass(frozen=True, eq=False)
class CachedCostModel(CostModel):
    """Another model's steps of one workload, each told once for a device and batch."""

    inner: CostModel
    cached: dict[tuple[Device, int], PricedStep] = field(default_factory=dict)

    def priced_all(self, graphs: Sequence[Graph], device: Device) -> tuple[PricedStep, ...]:
        """The operators of steps with their times."""
        for graph in graphs:
            key = device, graph.batch
            if key not in self.cached:
                self.cached[key] = self.inner.priced(graph, device)
        return tuple(self.cached[device, graph.batch] for graph in graphs)


class Divider:
    """Divides one global batch of a workload over any choice of groups."""

    def __init__(
        self,
        workload: Workload,
        global_batch: int,
        devices: int,
        model: CostModel,
        samples: InputOptions,
        min_batch: int | None = None,
        jitter: float = 0.0,
    ) -> None:
        self.workload, self.global_batch, self.jitter = workload, global_batch, jitter
        self._model, self._samples = CachedCostModel(model), samples
        self._devices = devices
        self._graphs: dict[int, Graph] = {}
        self._limits: dict[tuple[Device, bool], int] = {}
        self._coarse: dict[tuple[Groups, Network], list[_Curve]] = {}
        self.min_batch = min_batch or self._smallest_trainable()

    def _smallest_trainable(self) -> int:
        """One sample, or two where a model cannot be trained on one, as with batch norm of single values."""
        try:
            self._graph(1)
        except InvalidRequest:
            return 2
        return 1

    def _graph(self, batch: int) -> Graph:
        if batch not in self._graphs:
            self._graphs[batch] = graph_at(self.workload, batch)
        return self._graphs[batch]

    def largest(self, group: Hardware, devices: int) -> int:
        """The largest batch, up to the global one, that a device of a group holds in a step of so many."""
        key = group.device, devices > 1
        if key not in self._limits:
            options = MemoryOptions(data_parallel=min(devices, 2))
            most = self.global_batch
            whole = estimate_memory(self._graph(most), group.device, options).fits
            found = most if whole else largest_batch(self._graph, group.device, options, most)
            self._limits[key] = found
        return self._limits[key]

    def room(self, groups: Sequence[Hardware]) -> int:
        """Samples that the devices of some groups hold together."""
        devices = sum(group.devices for group in groups)
        return sum(group.devices * self.largest(group, devices) for group in groups)

    def least(self, groups: Sequence[Hardware]) -> int:
        """Samples that the devices of some groups need together to be of use."""
        return sum(group.devices for group in groups) * self.min_batch

    def can_divide(self, groups: Sequence[Hardware]) -> bool:
        """Whether limits let all of these groups take part."""
        devices = sum(group.devices for group in groups)
        holding = all(self.largest(group, devices) >= self.min_batch for group in groups)
        return holding and self.least(groups) <= self.global_batch <= self.room(groups)

    def coarsely(self, groups: Groups, network: Network) -> float:
        """About what the fastest division takes, for comparing choices of groups; infinite if none can be."""
        if not self.can_divide(groups):
            return float("inf")
        curves = self._curves(groups, network)
        batches = self._shared_out(groups, curves)
        return max(curve(max(given)) for curve, given in zip(curves, _by_group(groups, batches), strict=True))

    def fastest(self, groups: Groups, network: Network) -> Division | None:
        """The division by which all devices finish together; None if limits do not allow any."""
        if not self.can_divide(groups):
            return None
        curves = [curve.copied() for curve in self._curves(groups, network)]
        best: Division | None = None
        for _ in range(_MOST_ROUNDS):
            batches = self._shared_out(groups, curves)
            division = self.divided(groups, batches, network)
            if best is None or division.seconds < best.seconds:
                best = division
            most = [max(given) for given in division.batches]
            if all(batch in curve.known for batch, curve in zip(most, curves, strict=True)):
                break
            for batch, curve, evaluation in zip(most, curves, division.evaluations, strict=True):
                curve.known[batch] = evaluation.seconds
        return best

    def evenly(self, groups: Groups, network: Network) -> Division | None:
        """The same batch for every device, whether it fits or not; None if there are too few samples."""
        devices = sum(group.devices for group in groups)
        each, left = divmod(self.global_batch, devices)
        if not each:
            return None
        batches = [each + (number < left) for number in range(devices)]
        return self.divided(groups, batches, network)

    def speed(self, group: Hardware) -> float:
        """Samples per second of one device of a group by itself, at its even share of those of all."""
        alone = replace(group, nodes=1, devices_per_node=1)
        batch = max(self.min_batch, self.global_batch // self._devices)
        return self.divided((alone,), [batch], Network(1, 1, None, None)).samples_per_second

    def divided(self, groups: Groups, batches: Sequence[int], network: Network) -> Division:
        """What becomes of given batches."""
        given = _by_group(groups, batches)
        evaluations = tuple(
            self._outcome(groups, group, max(own), network) for group, own in zip(groups, given, strict=True)
        )
        return Division(groups, network, given, evaluations)

    def _outcome(self, groups: Groups, group: Hardware, batch: int, network: Network) -> Evaluation:
        devices = sum(each.devices for each in groups)
        environment = Environment(group.device, network, self._model)
        context = StepContext(self.workload, group, environment, self._samples, self.jitter)
        configuration = StepConfiguration(layout_of(DDP, devices, network.devices_per_node), batch)
        graph = self._graph(batch)
        return evaluation_of(
            context, configuration, graph, parallel_step(graph, configuration.layout, 1, environment)
        )

    def _curves(self, groups: Groups, network: Network) -> list[_Curve]:
        key = groups, network
        if key not in self._coarse:
            devices = sum(group.devices for group in groups)
            self._coarse[key] = [
                _Curve(
                    {
                        batch: self._outcome(groups, group, batch, network).seconds
                        for batch in _ladder(self.min_batch, self.largest(group, devices))
                    }
                )
                for group in groups
            ]
        return self._coarse[key]

    def _shared_out(self, groups: Groups, curves: Sequence[_Curve]) -> tuple[int, ...]:
        devices = sum(group.devices for group in groups)
        workers = [
            Worker(group.name, curve, self.largest(group, devices), self.min_batch)
            for group, curve in zip(groups, curves, strict=True)
            for _ in range(group.devices)
        ]
        batches = share_out(self.global_batch, workers)
        assert batches is not None, "asked only where limits allow it"
        return batches


@dataclass(frozen=True, eq=False)
class _Curve:
    """Step times at some batch sizes, straight lines between them; it never falls."""

    known: dict[int, float]

    def copied(self) -> _Curve:
        """The same, to be added to."""
        return _Curve(dict(self.known))

    def __call__(self, batch: int) -> float:
        sizes = sorted(self.known)
        place = bisect_left(sizes, batch)
        if place == len(sizes):
            return max(self.known.values())
        if sizes[place] == batch or place == 0:
            return max(self.known[size] for size in sizes[: place + 1])
        low, high = sizes[place - 1], sizes[place]
        below = max(self.known[size] for size in sizes[:place])
        above = max(below, self.known[high])
        return below + (above - below) * (batch - low) / (high - low)


def _ladder(least: int, most: int) -> Iterator[int]:
    """Batch sizes from the least to the most, each a few times the one before."""
    size = least
    while size < most:
        yield size
        size *= _COARSE
    yield most


def _by_group(groups: Sequence[Hardware], batches: Sequence[int]) -> tuple[tuple[int, ...], ...]:
    found, start = [], 0
    for group in groups:
        found.append(tuple(batches[start : start + group.devices]))
        start += group.devices
    return tuple(found)
