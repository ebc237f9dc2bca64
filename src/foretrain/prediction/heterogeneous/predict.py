"""A prediction for a cluster whose nodes differ: which nodes take part, with how many samples, and why.

Choices of nodes are compared by the step that all their devices finish together: the fastest group's nodes
first, then those of the next; and of few groups all subsets, for a fast node may sit behind a slow link.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import chain, combinations

from foretrain.errors import Infeasible, InvalidRequest
from foretrain.facts.clusters import Cluster
from foretrain.prediction.advice.bottleneck import Bottleneck
from foretrain.prediction.advice.verdict import verdict
from foretrain.prediction.answer import (
    Coverage,
    MemoryAnswer,
    MixedPrediction,
    Share,
    SplitAnswer,
    memory_parts,
)
from foretrain.prediction.collectives.network import Network, network_among, with_factor
from foretrain.prediction.cost_models.step_models import CostModel
from foretrain.prediction.heterogeneous.division import DDP, Divider, Division, Groups
from foretrain.prediction.heterogeneous.verdict import Comparison, Without, advice, split_verdict
from foretrain.prediction.many_devices import Parallelism, own_batch, step_answer
from foretrain.prediction.operators._base import Knowledge
from foretrain.prediction.step.input_pipeline import InputOptions
from foretrain.workloads.workload import Workload

_FEW_GROUPS = 3
_NEARLY = 1.05
"""Choices that look no slower than this times the fastest are told exactly."""
_EARLY = 0.98
"""Who finishes before this share of the step could do more."""
_WEIGHTS = "average gradients by samples: scale each device's loss by its batch x devices / global batch"
_RANK = (Knowledge.EXTRAPOLATED, Knowledge.CALIBRATED, Knowledge.MEASURED)


@dataclass(frozen=True)
class MixedRequest:
    """What is asked of a workload on nodes that differ; `least_batch` None: the least that can be trained."""

    workload: Workload
    cluster: Cluster
    model: CostModel
    parallelism: Parallelism
    input: InputOptions
    least_batch: int | None = None

    def __post_init__(self) -> None:
        _refuse_other_ways(self.parallelism)
        if self.least_batch is not None and self.least_batch < 1:
            raise InvalidRequest(f"the least batch of a device is {self.least_batch}; give at least 1")

    @property
    def global_batch(self) -> int:
        """Samples of a step on all devices: those asked for, or the batch of one device times all of them."""
        return self.parallelism.global_batch or own_batch(self.workload) * self.cluster.devices


def _refuse_other_ways(parallelism: Parallelism) -> None:
    if parallelism.strategy not in (DDP, "auto"):
        raise InvalidRequest(
            f"--strategy {parallelism.strategy} wants equal nodes; a cluster whose nodes differ trains by "
            f"--strategy {DDP} alone, or name the equal ones of its nodes in a file of their own"
        )
    if parallelism.micro_batches is not None and parallelism.micro_batches > 1:
        raise InvalidRequest(
            "--micro-batches wants equal batches; on nodes that differ give a smaller --global-batch instead"
        )
    if parallelism.intra is not None:
        raise InvalidRequest(
            "--links would join the devices of all nodes alike; say `links:` at each entry of the file"
        )


def predict_mixed(request: MixedRequest, with_advice: bool = True) -> MixedPrediction | Infeasible:
    """The fastest division of a batch over nodes that differ, and whether all of them are worth having."""
    choosing = _Choosing(request)
    best = choosing.best()
    if best is None:
        return choosing.why_not()
    return _answer(request, choosing, best, with_advice)


Counts = tuple[int, ...]
"""How many nodes of each group take part."""


class _Choosing:
    """Compares choices of nodes for one request."""

    def __init__(self, request: MixedRequest) -> None:
        self.groups = request.cluster.groups
        self.labels = request.cluster.labels
        self.inter = request.parallelism.inter
        self.divider = Divider(
            request.workload,
            request.global_batch,
            request.cluster.devices,
            request.model,
            request.input,
            request.least_batch,
            max(request.parallelism.jitter_of(group.device) for group in request.cluster.groups),
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
        told = {counts: found.seconds for counts, found in exactly.items() if found is not None}
        return min(told, key=lambda counts: (told[counts], sum(counts)))

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
            f"{least} samples, {divider.least_batch} for each device",
            f"{batch}",
            f"use a global batch of {least} or more",
        )


def _answer(request: MixedRequest, choosing: _Choosing, counts: Counts, with_advice: bool) -> MixedPrediction:
    compared = _compared(choosing, counts)
    best, pace = compared.best, compared.best.pace
    said = split_verdict(compared)
    found = verdict(pace, (), None)
    step = step_answer(replace(pace, total=best.total))
    tokens = pace.graph.tokens * best.global_batch // pace.graph.batch
    memory = _memory(best, choosing)
    weights = (_WEIGHTS,) if len(set(chain(*best.batches))) > 1 else ()
    notes = (*best.network.notes, *pace.spread.notes, *weights)
    return MixedPrediction(
        workload=request.workload,
        cluster=request.cluster,
        strategy=DDP,
        tokens=tokens,
        split=SplitAnswer(
            global_batch=best.global_batch,
            least_batch=choosing.divider.least_batch,
            shares=tuple(_shares(choosing, counts, best)),
            left_out=compared.idle,
            paced_by=pace.context.hardware.device.id,
            network=_tiers(best.network),
            moved_bytes=pace.spread.moved_bytes,
            verdict=said,
        ),
        step=step,
        throughput=best.throughput,
        memory=memory,
        fullest=best.fullest.context.hardware.device.id,
        knowledge=min((each.spread.priced.knowledge for each in best.evaluations), key=_RANK.index),
        bottleneck=Bottleneck(found.kind, found.verdict, advice(compared) if with_advice else ()),
        coverage=Coverage(
            min(each.spread.modelled_share for each in best.evaluations), pace.spread.unmodelled
        ),
        sources=tuple(dict.fromkeys((*best.total.sources, memory.source))),
        notes=tuple(dict.fromkeys(notes)),
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
        least_batch=divider.least_batch,
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
        if choosing.divider.largest(group, 2) < choosing.divider.least_batch:
            yield label


def _full(choosing: _Choosing, counts: Counts, best: Division) -> Iterator[str]:
    """Groups whose memory is the reason that they do not take more: they finish before the others."""
    labels = [label for label, count in zip(choosing.labels, counts, strict=True) if count]
    for label, given, evaluation in zip(labels, best.batches, best.evaluations, strict=True):
        group = evaluation.context.hardware
        is_full = max(given) == choosing.divider.largest(group, best.devices)
        if is_full and len(best.groups) > 1 and evaluation.seconds < _EARLY * best.seconds:
            yield label


def _shares(choosing: _Choosing, counts: Counts, best: Division) -> Iterator[Share]:
    taking = iter(zip(best.batches, best.evaluations, strict=True))
    for label, group, count in zip(choosing.labels, choosing.groups, counts, strict=True):
        batches, evaluation = next(taking) if count else ((), None)
        capacity = group.device.memory_bytes
        yield Share(
            group=label,
            device=group.device.id,
            devices_per_node=group.devices_per_node,
            nodes=group.nodes,
            nodes_used=count,
            batches=batches,
            samples=sum(batches),
            seconds=None if evaluation is None else evaluation.seconds,
            computing_seconds=None if evaluation is None else evaluation.spread.run.computing_seconds,
            knowledge=None if evaluation is None else evaluation.spread.priced.knowledge,
            memory_bytes=None if evaluation is None else evaluation.memory.bytes,
            capacity_bytes=capacity if evaluation is None else evaluation.memory.capacity_bytes,
            largest_batch=choosing.divider.largest(group, max(2, best.devices)),
            fits=evaluation is None or evaluation.memory.fits,
        )


def _tiers(network: Network) -> dict[str, str]:
    tiers = {"inside a node": network.intra, "between nodes": network.inter}
    return {where: tier.name for where, tier in tiers.items() if tier is not None}


def _memory(best: Division, choosing: _Choosing) -> MemoryAnswer:
    fullest = best.fullest
    memory = fullest.memory
    return MemoryAnswer(
        bytes=memory.estimate.quantiles,
        capacity_bytes=memory.capacity_bytes,
        fits=memory.fits,
        parts=memory_parts(memory),
        source=", ".join(memory.estimate.sources),
        largest_batch=choosing.divider.largest(fullest.context.hardware, best.devices),
        advice=(),
    )
