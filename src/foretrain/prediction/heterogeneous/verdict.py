"""Whether all nodes of a heterogeneous cluster are worth using: in words, and by evaluating alternatives."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from foretrain.prediction.advice.changes import Advice
from foretrain.prediction.collectives.network import Network
from foretrain.prediction.heterogeneous.division import Division
from foretrain.units import format_duration

_HARDLY = 0.02
"""A group that shortens a step by less than this share hardly helps."""


@dataclass(frozen=True, eq=False)
class Without:
    """A group with its samples, and the fastest division without it; None if there is none."""

    group: str
    samples: int
    division: Division | None


@dataclass(frozen=True, eq=False)
class Comparison:
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


def split_verdict(at: Comparison) -> str:
    """Whether the slow nodes help, the step of an even split, and which groups are limited by memory."""
    return "; ".join((_of_slow(at), *_of_even(at), *_of_memory(at)))


def _of_slow(at: Comparison) -> str:
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


def _of_excluded(at: Comparison) -> str:
    names = _listed(at.excluded)
    if at.too_small:
        return f"exclude {names}: {_listed(at.too_small)} cannot hold the model and a minimum batch"
    if at.all_nodes is None:
        return (
            f"exclude {names}: the minimum batches of all devices add up to {at.minimum_of_all_nodes} "
            f"samples, above the global batch of {at.global_batch}; without, a step takes "
            f"{format_duration(at.best.seconds)}"
        )
    return "; ".join((_with_and_without(at, at.all_nodes), *_why(at, at.all_nodes)))


def _with_and_without(at: Comparison, all_nodes: Division) -> str:
    return (
        f"exclude {_listed(at.excluded)}: a step takes {format_duration(all_nodes.seconds)} with all nodes "
        f"and {format_duration(at.best.seconds)} without"
    )


def _why(at: Comparison, all_nodes: Division) -> Iterator[str]:
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


def _of_even(at: Comparison) -> Iterator[str]:
    if at.even is None:
        return
    if not at.even.fits:
        fullest = at.even.fullest.context.hardware.device.id
        yield f"an even split over all nodes does not fit the memory of {fullest}"
    else:
        ratio = at.even.seconds / at.best.seconds
        even = format_duration(at.even.seconds)
        yield f"an even split over all nodes takes {even} ({ratio:.2f}x)"


def _of_memory(at: Comparison) -> Iterator[str]:
    if at.full:
        yield f"memory limits the samples of {_listed(at.full)}"


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def advice(at: Comparison) -> tuple[Advice, ...]:
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
