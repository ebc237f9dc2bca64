"""Which nodes of a heterogeneous cluster take part in a step, with how many samples, and why.

Choices of nodes are compared by the step that all their devices finish together: the fastest group's nodes
first, then those of the next; and of few groups all subsets, since a fast node may sit behind a slow link.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import chain, combinations

from foretrain.errors import Infeasible, InvalidRequest
from foretrain.prediction.advice.changes import Advice
from foretrain.prediction.collectives.network import Network, network_among, with_factor
from foretrain.prediction.cost_models.step_models import CostModel
from foretrain.prediction.heterogeneous.division import DDP, Divider, Division, Groups
from foretrain.prediction.heterogeneous.report import BatchSplit, GroupShare
from foretrain.prediction.heterogeneous.verdict import Comparison, Without, advice, split_verdict
from foretrain.prediction.scenario import Parallelism, Scenario, global_batch
from foretrain.prediction.strategies.catalogue import AUTO

_FEW_GROUPS = 3
_NEARLY = 1.05
"""Choices whose coarse estimate is within this factor of the fastest are evaluated in full."""
_EARLY = 0.98
"""A group that finishes before this share of the step could take more samples."""
_WEIGHTS = "average gradients by samples: scale each device's loss by its batch x devices / global batch"


def _check_parallelism(parallelism: Parallelism) -> None:
    if parallelism.strategy not in (DDP, AUTO):
        raise InvalidRequest(
            f"strategy {parallelism.strategy} requires equal nodes; a heterogeneous cluster supports "
            f"strategy {DDP} only, or name its equal nodes in a file of their own"
        )
    if parallelism.micro_batches is not None and parallelism.micro_batches > 1:
        raise InvalidRequest(
            "micro_batches requires equal batches; on a heterogeneous cluster use a smaller global_batch"
        )
    if parallelism.links is not None:
        raise InvalidRequest(
            "links would join the devices of all nodes in the same way; give `links:` at each entry of the "
            "cluster file"
        )


Counts = tuple[int, ...]
"""How many nodes of each group take part."""


class _Choosing:
    """Compares choices of nodes for one request."""

    def __init__(self, scenario: Scenario, model: CostModel) -> None:
        cluster, parallelism = scenario.cluster, scenario.parallelism
        self.groups = cluster.groups
        self.labels = cluster.labels
        self.inter = parallelism.network
        self.divider = Divider(
            scenario.workload,
            global_batch(scenario.workload, cluster.devices, parallelism),
            cluster.devices,
            model,
            scenario.input,
            parallelism.min_batch,
            max(parallelism.jitter_on(group.device) for group in cluster.groups),
        )
        self.all = tuple(group.nodes for group in self.groups)
        speeds = [self.divider.speed(group) for group in self.groups]
        self.by_speed = sorted(range(len(self.groups)), key=lambda index: -speeds[index])

    def taking(self, counts: Counts) -> Groups:
        """The groups with only so many of their nodes, without those that have none."""
        pairs = zip(self.groups, counts, strict=True)
        return tuple(replace(group, nodes=count) for group, count in pairs if count)

    def network(self, counts: Counts) -> Network:
        """The network among chosen nodes."""
        return network_among(self.taking(counts), self.inter)

    def fastest(self, counts: Counts) -> Division | None:
        """The fastest division over chosen nodes; None if limits forbid any, or nobody is left."""
        return self.divider.fastest(self.taking(counts), self.network(counts)) if any(counts) else None

    def best(self) -> Counts | None:
        """The choice with the shortest step, of equals that with fewest nodes; None if none can be."""
        divider = self.divider
        able = [counts for counts in self._choices() if divider.can_divide(self.taking(counts))]
        about = {counts: divider.coarsely(self.taking(counts), self.network(counts)) for counts in able}
        if not about:
            return None
        near = _NEARLY * min(about.values())
        exactly = {counts: self.fastest(counts) for counts, seconds in about.items() if seconds <= near}
        seconds_of = {counts: each.seconds for counts, each in exactly.items() if each is not None}
        return min(seconds_of, key=lambda counts: (seconds_of[counts], sum(counts)))

    def _choices(self) -> list[Counts]:
        found = [*self._fastest_first(), *self._subsets()]
        return list(dict.fromkeys(found))

    def _fastest_first(self) -> Iterator[Counts]:
        """All nodes of the fastest groups and 1, 2, 4 ... of the next."""
        counts = [0] * len(self.groups)
        for index in self.by_speed:
            size = 1
            while size < self.all[index]:
                counts[index] = size
                yield tuple(counts)
                size *= 2
            counts[index] = self.all[index]
            yield tuple(counts)

    def _subsets(self) -> Iterator[Counts]:
        """Whole groups: every subset of few, all but one of many."""
        everyone = range(len(self.groups))
        few = len(self.groups) <= _FEW_GROUPS
        for size in everyone if few else (len(self.groups) - 1,):
            for chosen in combinations(everyone, size):
                if chosen:
                    yield tuple(self.all[index] if index in chosen else 0 for index in everyone)

    def without(self, counts: Counts, index: int) -> Counts:
        """The same choice without one group."""
        return tuple(0 if each == index else count for each, count in enumerate(counts))

    def why_not(self) -> Infeasible:
        """Nobody can hold the batch, or it is too small for any node."""
        divider, batch = self.divider, self.divider.global_batch
        room = divider.room(self.groups)
        if room < batch:
            more = f"use a global batch of at most {room}" if room else "shard the model over equal nodes"
            return Infeasible("the global batch", f"room for {batch} samples", f"room for {room}", more)
        nodes = [replace(group, nodes=1) for group in self.groups]
        least = min(divider.least([node]) for node in nodes)
        return Infeasible(
            "the smallest node",
            f"{least} samples, {divider.min_batch} for each device",
            f"{batch}",
            f"use a global batch of {least} or more",
        )


@dataclass(frozen=True, eq=False)
class SplitStep:
    """The fastest split of a batch over a heterogeneous cluster, beside the others it was compared with."""

    division: Division
    report: BatchSplit
    largest_batch: int
    advice: tuple[Advice, ...]
    notes: tuple[str, ...]


def split_step(scenario: Scenario, model: CostModel) -> SplitStep | Infeasible:
    """The fastest split of a batch over unequal nodes, and whether all of them are worth using."""
    _check_parallelism(scenario.parallelism)
    choosing = _Choosing(scenario, model)
    counts = choosing.best()
    if counts is None:
        return choosing.why_not()
    compared = _compared(choosing, counts)
    best = compared.best
    report = BatchSplit(
        global_batch=best.global_batch,
        min_batch=choosing.divider.min_batch,
        shares=tuple(_shares(choosing, counts, best)),
        excluded=compared.idle,
        pacing_device=best.pace.context.hardware.device.id,
        verdict=split_verdict(compared),
    )
    return SplitStep(
        division=best,
        report=report,
        largest_batch=choosing.divider.largest(best.fullest.context.hardware, best.devices),
        advice=advice(compared) if scenario.advice else (),
        notes=(_WEIGHTS,) if len(set(chain(*best.batches))) > 1 else (),
    )


def _compared(choosing: _Choosing, counts: Counts) -> Comparison:
    divider, everyone = choosing.divider, choosing.all
    best = choosing.fastest(counts)
    assert best is not None, "chosen because it can be divided"
    taking = choosing.taking(counts)
    by_speed = [index for index in choosing.by_speed if counts[index]]
    least_first = reversed(by_speed) if len(by_speed) > 1 else ()
    faster = with_factor(best.network, inter=2.0) if best.network.inter else with_factor(best.network, 2.0)
    return Comparison(
        best=best,
        idle=tuple(_idle(choosing, counts)),
        everyone=best if counts == everyone else choosing.fastest(everyone),
        even=divider.evenly(choosing.groups, choosing.network(everyone)),
        without=tuple(
            Without(
                choosing.labels[index],
                sum(best.batches[sum(map(bool, counts[:index]))]),
                choosing.fastest(choosing.without(counts, index)),
            )
            for index in least_first
        ),
        twice_the_network=divider.fastest(taking, faster) if best.devices > 1 else None,
        min_batch=divider.min_batch,
        needed_by_everyone=divider.least(choosing.groups),
        too_small=tuple(_too_small(choosing)),
        full=tuple(_full(choosing, counts, best)),
    )


def _idle(choosing: _Choosing, counts: Counts) -> Iterator[str]:
    for label, count, there in zip(choosing.labels, counts, choosing.all, strict=True):
        if not count:
            yield label
        elif count < there:
            yield f"{there - count} of the {there} nodes of {label}"


def _too_small(choosing: _Choosing) -> Iterator[str]:
    for label, group in zip(choosing.labels, choosing.groups, strict=True):
        if choosing.divider.largest(group, 2) < choosing.divider.min_batch:
            yield label


def _full(choosing: _Choosing, counts: Counts, best: Division) -> Iterator[str]:
    """Groups whose memory is the reason that they do not take more: they finish before the others."""
    labels = [label for label, count in zip(choosing.labels, counts, strict=True) if count]
    for label, given, evaluation in zip(labels, best.batches, best.evaluations, strict=True):
        group = evaluation.context.hardware
        is_full = max(given) == choosing.divider.largest(group, best.devices)
        if is_full and len(best.groups) > 1 and evaluation.seconds < _EARLY * best.seconds:
            yield label


def _shares(choosing: _Choosing, counts: Counts, best: Division) -> Iterator[GroupShare]:
    taking = iter(zip(best.batches, best.evaluations, strict=True))
    for label, group, count in zip(choosing.labels, choosing.groups, counts, strict=True):
        batches, evaluation = next(taking) if count else ((), None)
        capacity = group.device.memory_bytes
        yield GroupShare(
            group=label,
            device=group.device.id,
            devices_per_node=group.devices_per_node,
            nodes=group.nodes,
            nodes_used=count,
            batches=batches,
            samples=sum(batches),
            seconds=None if evaluation is None else evaluation.seconds,
            computing_seconds=None if evaluation is None else evaluation.step.run.computing_seconds,
            knowledge=None if evaluation is None else evaluation.step.priced.knowledge,
            memory_bytes=None if evaluation is None else evaluation.memory.bytes,
            capacity_bytes=capacity if evaluation is None else evaluation.memory.capacity_bytes,
            largest_batch=choosing.divider.largest(group, max(2, best.devices)),
            fits=evaluation is None or evaluation.memory.fits,
        )
