"""Selection of the nodes of a heterogeneous cluster that take part in a step, and of their batches.

Selections are compared by their fastest step: the nodes of the fastest group, then those of the next as well,
and so on; with few groups also all subsets, since a fast node may have a slow link. The alternatives are
evaluated too, so that the answer says whether all nodes are worth using.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain, combinations
from typing import NamedTuple

from foretrain.answers import Infeasible
from foretrain.errors import InvalidRequest
from foretrain.prediction.advice.bottleneck import Advice
from foretrain.prediction.collectives.network import Network, network_among, with_factor
from foretrain.prediction.cost_models import CostModel
from foretrain.prediction.heterogeneous.division import (
    BatchSplit,
    Division,
    GlobalBatch,
    Groups,
    GroupShare,
)
from foretrain.prediction.options import Parallelism
from foretrain.prediction.scenario import Scenario, global_batch, jitter_on
from foretrain.prediction.strategies.strategy import AUTO, DATA_PARALLEL
from foretrain.units import format_duration

_FEW_GROUPS = 3  # up to here every subset is tried; beyond, only those without one group
_NEARLY = 1.05
"""Selections with an approximate time within this factor of the fastest are evaluated in full."""
_EARLY = 0.98
"""A group that finishes before this share of the step could take more samples."""
_WEIGHTS = "average gradients by samples: scale each device's loss by its batch x devices / global batch"


def _check_parallelism(parallelism: Parallelism) -> None:
    if parallelism.strategy not in (DATA_PARALLEL, AUTO):
        raise InvalidRequest(
            f"strategy {parallelism.strategy} requires equal nodes; a heterogeneous cluster supports "
            f"strategy {DATA_PARALLEL} only; alternatively list its equal nodes in a cluster file of their "
            "own"
        )
    if parallelism.micro_batches is not None and parallelism.micro_batches > 1:
        raise InvalidRequest(
            "micro_batches requires equal batches; on a heterogeneous cluster use a smaller global_batch"
        )
    if parallelism.links is not None:
        raise InvalidRequest(
            "links would apply to all nodes of the cluster; give `links:` at each entry of the cluster file"
        )


Counts = tuple[int, ...]
"""How many nodes of each group take part."""


@dataclass(frozen=True, eq=False)
class _Nodes:
    """The nodes of a cluster, of which some take part in a step of a global batch."""

    groups: Groups
    labels: tuple[str, ...]
    network_name: str | None
    batch: GlobalBatch

    @property
    def all(self) -> Counts:
        """All nodes of all groups."""
        return tuple(group.nodes for group in self.groups)

    @cached_property
    def by_speed(self) -> list[int]:
        """Indices of the groups, the fastest devices first."""
        speeds = [self.batch.speed(group) for group in self.groups]
        return sorted(range(len(self.groups)), key=lambda index: -speeds[index])

    def selected(self, counts: Counts) -> Groups:
        """The groups with `counts` of their nodes, without groups that have none."""
        pairs = zip(self.groups, counts, strict=True)
        return tuple(replace(group, nodes=count) for group, count in pairs if count)

    def network(self, counts: Counts) -> Network:
        """The network among the selected nodes."""
        return network_among(self.selected(counts), self.network_name)

    def fastest(self, counts: Counts) -> Division | None:
        """The fastest division over the selected nodes; None if there is none or no node is selected."""
        return self.batch.fastest(self.selected(counts), self.network(counts)) if any(counts) else None


def _nodes_of(scenario: Scenario, model: CostModel) -> _Nodes:
    cluster, parallelism = scenario.cluster, scenario.parallelism
    batch = GlobalBatch(
        scenario.workload,
        global_batch(scenario.workload, cluster.devices, parallelism),
        cluster.devices,
        model,
        scenario.input,
        parallelism.min_batch,
        max(jitter_on(parallelism, group.device) for group in cluster.groups),
    )
    return _Nodes(cluster.groups, cluster.labels, parallelism.network, batch)


def _best_counts(nodes: _Nodes) -> Counts | None:
    """The selection with the shortest step, the fewest nodes among equals; None if none is possible."""
    batch = nodes.batch
    approximate = {
        counts: batch.approximate_seconds(nodes.selected(counts), nodes.network(counts))
        for counts in dict.fromkeys((*_fastest_first(nodes), *_subsets(nodes)))
        if batch.can_divide(nodes.selected(counts), nodes.network(counts))
    }
    if not approximate:
        return None
    limit = _NEARLY * min(approximate.values())
    divisions = {counts: nodes.fastest(counts) for counts, seconds in approximate.items() if seconds <= limit}
    seconds_of = {counts: each.seconds for counts, each in divisions.items() if each is not None}
    return min(seconds_of, key=lambda counts: (seconds_of[counts], sum(counts)))


def _fastest_first(nodes: _Nodes) -> Iterator[Counts]:
    """All nodes of the fastest groups and 1, 2, 4 ... of the next."""
    counts = [0] * len(nodes.groups)
    for index in nodes.by_speed:
        size = 1
        while size < nodes.all[index]:
            counts[index] = size
            yield tuple(counts)
            size *= 2
        counts[index] = nodes.all[index]
        yield tuple(counts)


def _subsets(nodes: _Nodes) -> Iterator[Counts]:
    """Whole groups: every subset of few groups, all but one of many."""
    indices = range(len(nodes.groups))
    is_few = len(nodes.groups) <= _FEW_GROUPS
    for size in indices if is_few else (len(nodes.groups) - 1,):
        for subset in combinations(indices, size):
            if subset:
                yield tuple(nodes.all[index] if index in subset else 0 for index in indices)


def _infeasible(nodes: _Nodes) -> Infeasible:
    """The global batch exceeds the memory of all nodes, or is below the minimum of any node."""
    batch = nodes.batch
    capacity = batch.capacity(nodes.groups, nodes.network(nodes.all))
    if capacity < batch.samples:
        more = f"use a global batch of at most {capacity}" if capacity else "shard the model over equal nodes"
        return Infeasible(
            "the global batch", f"room for {batch.samples} samples", f"room for {capacity}", more
        )
    least = min(batch.minimum([replace(group, nodes=1)]) for group in nodes.groups)
    return Infeasible(
        "the smallest node",
        f"{least} samples, {batch.min_batch} for each device",
        f"{batch.samples}",
        f"use a global batch of {least} or more",
    )


@dataclass(frozen=True, eq=False)
class SplitStep:
    """The fastest split of a batch over a heterogeneous cluster, and the alternatives to it."""

    division: Division
    report: BatchSplit
    largest_batch: int
    advice: tuple[Advice, ...]
    notes: tuple[str, ...]


def split_step(scenario: Scenario, model: CostModel) -> SplitStep | Infeasible:
    """The fastest split of a batch over unequal nodes, and whether all of them are worth using."""
    _check_parallelism(scenario.parallelism)
    nodes = _nodes_of(scenario, model)
    counts = _best_counts(nodes)
    if counts is None:
        return _infeasible(nodes)
    comparison = _comparison(nodes, counts)
    best = comparison.best
    report = BatchSplit(
        global_batch=best.global_batch,
        min_batch=nodes.batch.min_batch,
        shares=tuple(_shares(nodes, counts, best)),
        excluded=comparison.excluded,
        pacing_device=best.pace.context.hardware.device.id,
        verdict=split_verdict(comparison),
    )
    return SplitStep(
        division=best,
        report=report,
        largest_batch=nodes.batch.largest(best.fullest.context.hardware, best.devices, best.network),
        advice=advice(comparison) if scenario.advice else (),
        notes=(_WEIGHTS,) if len(set(chain(*best.batches))) > 1 else (),
    )


def _comparison(nodes: _Nodes, counts: Counts) -> DivisionComparison:
    batch = nodes.batch
    best = nodes.fastest(counts)
    assert best is not None, "selected because it can be divided"
    faster = with_factor(best.network, inter=2.0) if best.network.inter else with_factor(best.network, 2.0)
    return DivisionComparison(
        best=best,
        excluded=tuple(_list_excluded(nodes, counts)),
        all_nodes=best if counts == nodes.all else nodes.fastest(nodes.all),
        even=batch.even(nodes.groups, nodes.network(nodes.all)),
        without=tuple(_without_each(nodes, counts, best)),
        twice_the_network=batch.fastest(nodes.selected(counts), faster) if best.devices > 1 else None,
        min_batch=batch.min_batch,
        minimum_of_all_nodes=batch.minimum(nodes.groups),
        too_small=tuple(_too_small(nodes)),
        full=tuple(_full(nodes, counts, best)),
    )


def _without_each(nodes: _Nodes, counts: Counts, best: Division) -> Iterator[Without]:
    """The fastest division without each group that takes part, the slowest first."""
    taking_part = [index for index in nodes.by_speed if counts[index]]
    if len(taking_part) == 1:
        return
    for index in reversed(taking_part):
        samples = sum(best.batches[sum(map(bool, counts[:index]))])
        others = tuple(0 if each == index else count for each, count in enumerate(counts))
        yield Without(nodes.labels[index], samples, nodes.fastest(others))


def _list_excluded(nodes: _Nodes, counts: Counts) -> Iterator[str]:
    for label, count, there in zip(nodes.labels, counts, nodes.all, strict=True):
        if not count:
            yield label
        elif count < there:
            yield f"{there - count} of the {there} nodes of {label}"


def _too_small(nodes: _Nodes) -> Iterator[str]:
    for label, group in zip(nodes.labels, nodes.groups, strict=True):
        if nodes.batch.largest(group, 2, nodes.network(nodes.all)) < nodes.batch.min_batch:
            yield label


def _full(nodes: _Nodes, counts: Counts, best: Division) -> Iterator[str]:
    """Groups with a batch limited by memory: they finish before the others."""
    labels = [label for label, count in zip(nodes.labels, counts, strict=True) if count]
    for label, given, evaluation in zip(labels, best.batches, best.evaluations, strict=True):
        group = evaluation.context.hardware
        is_full = max(given) == nodes.batch.largest(group, best.devices, best.network)
        if is_full and len(best.groups) > 1 and evaluation.seconds < _EARLY * best.seconds:
            yield label


def _shares(nodes: _Nodes, counts: Counts, best: Division) -> Iterator[GroupShare]:
    taking_part = iter(zip(best.batches, best.evaluations, strict=True))
    for label, group, count in zip(nodes.labels, nodes.groups, counts, strict=True):
        batches, evaluation = next(taking_part) if count else ((), None)
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
            largest_batch=nodes.batch.largest(
                group, max(2, best.devices), best.network if count else nodes.network(nodes.all)
            ),
            fits=evaluation is None or evaluation.memory.fits,
        )


_HARDLY = 0.02
"""A group that shortens a step by less than this share hardly helps."""


class Without(NamedTuple):
    """A group with its samples, and the fastest division without it; None if there is none."""

    group: str
    samples: int
    division: Division | None


@dataclass(frozen=True, eq=False)
class DivisionComparison:
    """The fastest division beside alternatives, which are None where limits forbid them.

    `excluded` names the nodes that do not take part; `all_nodes` excludes none. `without` excludes one of the
    groups that take part, the slowest devices first. `even` gives all devices the same batch. `too_small` are
    groups that cannot hold the minimum batch, `full` those with a batch limited by memory.
    """

    best: Division
    excluded: tuple[str, ...]
    all_nodes: Division | None
    even: Division | None
    without: tuple[Without, ...]
    twice_the_network: Division | None
    min_batch: int
    minimum_of_all_nodes: int
    too_small: tuple[str, ...]
    full: tuple[str, ...]

    @property
    def global_batch(self) -> int:
        """Samples of a step."""
        return self.best.global_batch


def split_verdict(at: DivisionComparison) -> str:
    """Whether the slow nodes help, the step of an even split, and which groups are limited by memory."""
    return "; ".join((_of_slow(at), *_of_even(at), *_of_memory(at)))


def _of_slow(at: DivisionComparison) -> str:
    if at.excluded:
        return _of_excluded(at)
    if not at.without:
        return f"a step takes {format_duration(at.best.seconds)}"
    slow, whole = at.without[0], at.global_batch
    if slow.division is None:
        taken = f"{slow.samples} of {whole} samples"
        return f"{slow.group} is needed: it takes {taken}, which the others cannot hold"
    saved = 1 - at.best.seconds / slow.division.seconds
    helps = "helps" if saved >= _HARDLY else "hardly helps"
    return (
        f"{slow.group} {helps}: with {slow.samples} of {whole} samples it shortens a step from "
        f"{format_duration(slow.division.seconds)} to {format_duration(at.best.seconds)} ({saved:.1%})"
    )


def _of_excluded(at: DivisionComparison) -> str:
    names = _join_names(at.excluded)
    if at.too_small:
        return f"exclude {names}: {_join_names(at.too_small)} cannot hold the model and a minimum batch"
    if at.all_nodes is None:
        return (
            f"exclude {names}: the minimum batches of all devices add up to {at.minimum_of_all_nodes} "
            f"samples, above the global batch of {at.global_batch}; without, a step takes "
            f"{format_duration(at.best.seconds)}"
        )
    return "; ".join((_with_and_without(at, at.all_nodes), *_why(at, at.all_nodes)))


def _with_and_without(at: DivisionComparison, all_nodes: Division) -> str:
    return (
        f"exclude {_join_names(at.excluded)}: a step takes {format_duration(all_nodes.seconds)} with all "
        f"nodes and {format_duration(at.best.seconds)} without"
    )


def _why(at: DivisionComparison, all_nodes: Division) -> Iterator[str]:
    """The main reason why a step with all nodes is slower."""
    waits, waited = _waiting(all_nodes), _waiting(at.best)
    if waits - waited >= (all_nodes.seconds - at.best.seconds) / 2:
        instead = format_duration(waited) if waited > 0 else "not at all"
        yield (
            f"with them devices wait {format_duration(waits)} for communication over "
            f"{_slowest_link(all_nodes.network)}, without them {instead}"
        )
    elif all_nodes.pace.configuration.batch == at.min_batch:
        slow = all_nodes.pace.context.hardware.device.id
        yield f"{slow} takes that long for the minimum batch of {at.min_batch}"


def _slowest_link(network: Network) -> str:
    """The slowest link of a ring through all nodes."""
    inside, outside = network.intra, network.inter
    if outside is None or outside.bytes_per_second_per_node is None:
        return "one device" if inside is None else inside.name
    if inside is not None and inside.bytes_per_second_per_device < outside.bytes_per_second_per_node:
        return f"{inside.name} inside a node"
    return outside.name


def _waiting(division: Division) -> float:
    return division.pace.step.run.exposed_seconds


def _of_even(at: DivisionComparison) -> Iterator[str]:
    if at.even is None:
        return
    if not at.even.fits:
        fullest = at.even.fullest.context.hardware.device.id
        yield f"an even split over all nodes does not fit the memory of {fullest}"
    else:
        ratio = at.even.seconds / at.best.seconds
        even = format_duration(at.even.seconds)
        yield f"an even split over all nodes takes {even} ({ratio:.2f}x)"


def _of_memory(at: DivisionComparison) -> Iterator[str]:
    if at.full:
        yield f"memory limits the samples of {_join_names(at.full)}"


def _join_names(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def advice(at: DivisionComparison) -> tuple[Advice, ...]:
    """The gain of other divisions of the same batch: samples per second over those of the best."""
    others = [("even split over all nodes", at.even)]
    if at.excluded:
        others.append(("all nodes, split by speed", at.all_nodes))
    others += [(f"without {each.group}", each.division) for each in at.without]
    others.append(("2x network" if at.best.network.inter else "2x links", at.twice_the_network))
    return tuple(_advice(change, then, at.best) for change, then in others if then is not None)


def _advice(change: str, then: Division, now: Division) -> Advice:
    return Advice(
        change=change,
        gain=then.samples_per_second / now.samples_per_second,
        step_seconds=then.seconds,
        samples_per_second=then.samples_per_second,
        memory_bytes=then.fullest.memory.bytes,
        fits=then.fits,
    )
