"""Division of a global batch over unequal devices in data-parallel training, and the time of the step.

Every device runs the program of DistributedDataParallel on its own batch b_i; an exchange of gradients starts
when the last device is ready. Each device's step is composed with the exchanges among all devices, and

    step = max over devices of step_i(b_i)      Σ b_i = B, min_i <= b_i <= largest_i, whole samples

Batches are chosen such that all devices finish together (`balance_batches`): for step times that do not
decrease with the batch, the shortest step is found by bisection on the samples that all devices finish by
then. Without fixed costs this is the split by speed: of two devices, one 20 times faster, the slow one takes
1/21. The times step_i(b) are predicted at a few batch sizes and interpolated linearly; the sizes that result
are then predicted and added until the division no longer changes.

Gradients of uneven batches must be averaged with weights b_i / B to equal those of the whole batch. `choice`
decides which nodes take part; `BatchSplit` is the division as it is answered.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from itertools import islice, repeat

from foretrain.estimates import Estimate, longest
from foretrain.facts.devices import Device
from foretrain.facts.hardware import Hardware
from foretrain.prediction.collectives.network import Network
from foretrain.prediction.cost_models import CostModel
from foretrain.prediction.memory.estimate import communicator_bytes, fits_memory, largest_batch
from foretrain.prediction.operators.pricing import Knowledge
from foretrain.prediction.options import InputOptions
from foretrain.prediction.scenario import (
    Evaluation,
    StepConfiguration,
    StepContext,
    Throughput,
    evaluation_of,
    model_flop,
    peak_of,
)
from foretrain.prediction.step.parallel import StepEnvironment, predict_step
from foretrain.prediction.strategies.program import MemoryOptions
from foretrain.prediction.strategies.strategy import DATA_PARALLEL, layout_of
from foretrain.workloads.executed import ExecutedGraph
from foretrain.workloads.workload import Workload, executed_graph_at, smallest_batch

_RATIO = 4
"""Ratio of the batch sizes that are predicted first."""
_MAX_ROUNDS = 6  # each round predicts the batches that the last one chose; the fastest round counts
Groups = tuple[Hardware, ...]


@dataclass(frozen=True, eq=False)
class Division:
    """A global batch divided over groups of nodes.

    `batches` holds the batch of every device, group by group; `evaluations` the step of the device with the
    largest batch of each group, without waiting for slower devices.
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
        """The evaluation of the device that all others wait for."""
        return max(self.evaluations, key=lambda evaluation: evaluation.seconds)

    @cached_property
    def total(self) -> Estimate:
        """The step: parts of the device that all wait for, with the risk that another one is slower."""
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
        """Whether every batch fits its device."""
        return all(evaluation.memory.fits for evaluation in self.evaluations)

    @property
    def fullest(self) -> Evaluation:
        """The evaluation of the device that uses the largest share of its memory."""
        return max(self.evaluations, key=lambda each: each.memory.bytes / each.memory.capacity_bytes)

    @property
    def throughput(self) -> Throughput:
        """Work per second; MFU relates to the joint peak of the devices that take part."""
        graph = self.pace.graph
        rounds = self.global_batch / graph.batch / self.seconds
        joint = sum(peak_of(graph, group.device) * group.devices for group in self.groups)
        return Throughput(
            self.samples_per_second,
            graph.tokens * rounds if graph.tokens else None,
            model_flop(graph) * rounds / joint,
        )


@dataclass(frozen=True, eq=False)
class GlobalBatch:
    """A global batch of a workload that is to be divided over groups of nodes.

    `devices` are those of the whole cluster. `requested_min_batch` is the smallest batch of a device; None:
    the smallest that the workload can be traced with.
    """

    workload: Workload
    samples: int
    devices: int
    model: CostModel
    input: InputOptions
    requested_min_batch: int | None = None
    jitter: float = 0.0

    @cached_property
    def min_batch(self) -> int:
        """Samples that every device gets at least."""
        if self.requested_min_batch is not None:
            return self.requested_min_batch
        return smallest_batch(self.workload)

    @cached_property
    def _executed(self) -> Callable[[int], ExecutedGraph]:
        return cache(lambda batch: executed_graph_at(self.workload, batch))

    @cached_property
    def _largest(self) -> Callable[[Device, bool, int], int]:
        @cache
        def largest(device: Device, is_parallel: bool, communicators: int) -> int:
            replicas = 2 if is_parallel else 1
            options = MemoryOptions(data_parallel=replicas, communicator_bytes=communicators)
            if fits_memory(self._executed(self.samples).graph, device, options):
                return self.samples
            return largest_batch(
                lambda batch: self._executed(batch).graph, device, options, self.samples, self.min_batch
            )

        return largest

    def largest(self, group: Hardware, devices: int, network: Network) -> int:
        """The largest batch, up to the global one, that fits a device of a group in a step of `devices`."""
        layout = layout_of(DATA_PARALLEL, devices, network.devices_per_node)
        communicators = communicator_bytes(self._executed(self.min_batch).graph, layout, network)
        return self._largest(group.device, devices > 1, communicators)

    def capacity(self, groups: Sequence[Hardware], network: Network) -> int:
        """Samples that fit the memory of all devices of some groups."""
        devices = sum(group.devices for group in groups)
        return sum(group.devices * self.largest(group, devices, network) for group in groups)

    def minimum(self, groups: Sequence[Hardware]) -> int:
        """Sum of the minimum batches of all devices of some groups."""
        return sum(group.devices for group in groups) * self.min_batch

    def can_divide(self, groups: Sequence[Hardware], network: Network) -> bool:
        """Whether minimum batches and memory allow all of these groups to take part."""
        devices = sum(group.devices for group in groups)
        is_minimum_held = all(self.largest(group, devices, network) >= self.min_batch for group in groups)
        return is_minimum_held and self.minimum(groups) <= self.samples <= self.capacity(groups, network)

    def approximate_seconds(self, groups: Groups, network: Network) -> float:
        """Approximate step time of the fastest division, to compare groups; infinite if there is none."""
        if not self.can_divide(groups, network):
            return float("inf")
        curves = self._curves(groups, network)
        batches = self._balanced(groups, curves, network)
        return max(curve(max(given)) for curve, given in zip(curves, _by_group(groups, batches), strict=True))

    def fastest(self, groups: Groups, network: Network) -> Division | None:
        """The division in which all devices finish together; None if the limits do not allow any.

        The step times of the resulting batches are added to the curves until the division no longer changes.
        """
        if not self.can_divide(groups, network):
            return None
        curves = self._curves(groups, network)
        best: Division | None = None
        for _ in range(_MAX_ROUNDS):
            division = self.division(groups, self._balanced(groups, curves, network), network)
            if best is None or division.seconds < best.seconds:
                best = division
            most = [max(given) for given in division.batches]
            if all(batch in curve.known for batch, curve in zip(most, curves, strict=True)):
                break
            curves = tuple(
                curve.with_point(batch, evaluation.seconds)
                for batch, curve, evaluation in zip(most, curves, division.evaluations, strict=True)
            )
        return best

    def even(self, groups: Groups, network: Network) -> Division | None:
        """The same batch for every device, whether it fits or not; None if there are too few samples."""
        devices = sum(group.devices for group in groups)
        each, left = divmod(self.samples, devices)
        if not each:
            return None
        batches = [each + (number < left) for number in range(devices)]
        return self.division(groups, batches, network)

    def speed(self, group: Hardware) -> float:
        """Samples per second of a single device of a group, at an even share of the global batch."""
        alone = replace(group, nodes=1, devices_per_node=1)
        batch = max(self.min_batch, self.samples // self.devices)
        return self.division((alone,), [batch], Network(1, 1, None, None)).samples_per_second

    def division(self, groups: Groups, batches: Sequence[int], network: Network) -> Division:
        """The step with given batches of all devices."""
        given = _by_group(groups, batches)
        evaluations = tuple(
            self._evaluation(groups, group, max(own), network)
            for group, own in zip(groups, given, strict=True)
        )
        return Division(groups, network, given, evaluations)

    def _evaluation(self, groups: Groups, group: Hardware, batch: int, network: Network) -> Evaluation:
        devices = sum(each.devices for each in groups)
        environment = StepEnvironment(group.device, network, self.model)
        context = StepContext(self.workload, group, environment, self.input, self.jitter)
        configuration = StepConfiguration(layout_of(DATA_PARALLEL, devices, network.devices_per_node), batch)
        executed = self._executed(batch)
        step = predict_step(executed, configuration.layout, 1, environment)
        return evaluation_of(context, configuration, executed, step)

    @cached_property
    def _curves(self) -> Callable[[Groups, Network], tuple[_Curve, ...]]:
        @cache
        def curves(groups: Groups, network: Network) -> tuple[_Curve, ...]:
            devices = sum(group.devices for group in groups)
            return tuple(
                _Curve(
                    {
                        batch: self._evaluation(groups, group, batch, network).seconds
                        for batch in _geometric(self.min_batch, self.largest(group, devices, network))
                    }
                )
                for group in groups
            )

        return curves

    def _balanced(self, groups: Groups, curves: Sequence[_Curve], network: Network) -> tuple[int, ...]:
        devices = sum(group.devices for group in groups)
        workers = [
            Worker(curve, self.largest(group, devices, network), self.min_batch)
            for group, curve in zip(groups, curves, strict=True)
            for _ in range(group.devices)
        ]
        batches = balance_batches(self.samples, workers)
        assert batches is not None, "called only where `can_divide` holds"
        return batches


@dataclass(frozen=True)
class Worker:
    """A device that takes part: step time by batch (never decreasing), largest and smallest batch."""

    seconds_at: Callable[[int], float]
    largest_batch: int
    min_batch: int = 1


def balance_batches(global_batch: int, workers: Sequence[Worker]) -> tuple[int, ...] | None:
    """Batches with which all workers finish together; None if their limits forbid it.

    What bisection leaves over adds no time; each worker gets a part in proportion to what it can still take.
    """
    fewest = [worker.min_batch for worker in workers]
    if not sum(fewest) <= global_batch <= sum(worker.largest_batch for worker in workers):
        return None

    @cache
    def seconds(seconds_at: Callable[[int], float], batch: int) -> float:
        return seconds_at(batch)

    def done_by(worker: Worker, end: float, low: int, high: int) -> int:
        """The largest batch from `low` to `high` that a worker finishes in time; `low` if none."""
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if seconds(worker.seconds_at, middle) <= end else (low, middle - 1)
        return low

    most = [min(worker.largest_batch, global_batch) for worker in workers]
    low, high = -1.0, max(seconds(w.seconds_at, size) for w, size in zip(workers, most, strict=True))
    while high - low > 1e-13 * high and (middle := (low + high) / 2) not in {low, high}:
        done = list(map(done_by, workers, repeat(middle), fewest, most))
        if sum(done) >= global_batch:
            high, most = middle, done
        else:
            low, fewest = middle, done
    room = [more - fewer for fewer, more in zip(fewest, most, strict=True)]
    given = _in_proportion(global_batch - sum(fewest), room)
    return tuple(fewer + extra for fewer, extra in zip(fewest, given, strict=True))


def _in_proportion(amount: int, room: Sequence[int]) -> list[int]:
    """Whole parts of an amount in proportion to the room for each, by largest remainders."""
    whole = sum(room)
    if not amount or not whole:
        return [0] * len(room)
    parts = [divmod(amount * each, whole) for each in room]
    given = [part for part, _ in parts]
    by_remainder = sorted(range(len(room)), key=lambda index: -parts[index][1])
    for index in by_remainder[: amount - sum(given)]:
        given[index] += 1
    return given


@dataclass(frozen=True, eq=False)
class _Curve:
    """Step time by batch size: linear between the known sizes, never falling."""

    known: Mapping[int, float]

    def with_point(self, batch: int, seconds: float) -> _Curve:
        """The curve with another known size."""
        return _Curve({**self.known, batch: seconds})

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


def _geometric(least: int, most: int) -> Iterator[int]:
    """Batch sizes from the least to the most with a constant ratio."""
    size = least
    while size < most:
        yield size
        size *= _RATIO
    yield most


def _by_group(groups: Sequence[Hardware], batches: Sequence[int]) -> tuple[tuple[int, ...], ...]:
    remaining = iter(batches)
    return tuple(tuple(islice(remaining, group.devices)) for group in groups)


@dataclass(frozen=True, slots=True)
class GroupShare:
    """What one group of equal nodes does in a step.

    `nodes_used` of its `nodes` take part; `batches` are those of their devices. `seconds` is the step of the
    device with most samples if it waited for no slower one, `computing_seconds` what of it is not
    communication. `largest_batch` is what its memory holds, at most the global batch. An excluded group has
    no batches, times or memory.
    """

    group: str
    device: str
    devices_per_node: int
    nodes: int
    nodes_used: int
    batches: tuple[int, ...]
    samples: int
    seconds: float | None
    computing_seconds: float | None
    knowledge: Knowledge | None
    memory_bytes: float | None
    capacity_bytes: float
    largest_batch: int
    fits: bool


@dataclass(frozen=True, slots=True)
class BatchSplit:
    """The samples of each group, which groups are excluded, and whether the slow ones help.

    `pacing_device` is the device all others wait for.
    """

    global_batch: int
    min_batch: int
    shares: tuple[GroupShare, ...]
    excluded: tuple[str, ...]
    pacing_device: str
    verdict: str
