"""Whether all nodes of a heterogeneous cluster are worth using: in words, and by evaluating alternatives."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from foretrain.prediction.advice.changes import Advice
from foretrain.prediction.collectives.network import Network
from foretrain.prediction.heterogeneous.division import Division
from foretrain.units import format_duration

_HARDLY = 0.02
"""Who shortens a step by less than this hardly helps."""


@dataclass(frozen=True, eq=False)
class Without:
    """A group that takes so many samples, and the fastest division without it; None if there is none."""

    group: str
    samples: int
    division: Division | None


@dataclass(frozen=True, eq=False)
class Comparison:
    """The fastest division beside others, which are None where limits forbid them.

    `idle` names the nodes it leaves out, and `everyone` has none idle. `without` leaves out one group of
    those that take part, the slowest devices first. `even` gives all devices the same batch. `too_small` are
    groups that cannot hold a least batch, `full` those that would take more samples if they could hold them.
    """

    best: Division
    idle: tuple[str, ...]
    everyone: Division | None
    even: Division | None
    without: tuple[Without, ...]
    twice_the_network: Division | None
    min_batch: int
    needed_by_everyone: int
    too_small: tuple[str, ...]
    full: tuple[str, ...]

    @property
    def global_batch(self) -> int:
        """Samples of a step."""
        return self.best.global_batch


def split_verdict(at: Comparison) -> str:
    """Whether the slow nodes help, what an even split would take, and whose memory binds."""
    return "; ".join((_of_slow(at), *_of_even(at), *_of_memory(at)))


def _of_slow(at: Comparison) -> str:
    if at.idle:
        return _of_idle(at)
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


def _of_idle(at: Comparison) -> str:
    names = _listed(at.idle)
    if at.too_small:
        return f"exclude {names}: {_listed(at.too_small)} cannot hold the model and a minimum batch"
    if at.everyone is None:
        return (
            f"exclude {names}: the minimum batches of all devices add up to {at.needed_by_everyone} samples, "
            f"above the global batch of {at.global_batch}; without, a step takes "
            f"{format_duration(at.best.seconds)}"
        )
    return "; ".join((_with_and_without(at, at.everyone), *_why(at, at.everyone)))


def _with_and_without(at: Comparison, everyone: Division) -> str:
    return (
        f"exclude {_listed(at.idle)}: a step takes {format_duration(everyone.seconds)} with all nodes and "
        f"{format_duration(at.best.seconds)} without"
    )


def _why(at: Comparison, everyone: Division) -> Iterator[str]:
    """What most of the time that all nodes would take longer goes to."""
    waits, waited = _waiting(everyone), _waiting(at.best)
    if waits - waited >= (everyone.seconds - at.best.seconds) / 2:
        instead = format_duration(waited) if waited > 0 else "not at all"
        yield (
            f"with them devices wait {format_duration(waits)} for communication over "
            f"{_slowest_link(everyone.network)}, without them {instead}"
        )
    elif everyone.pace.configuration.batch == at.min_batch:
        slow = everyone.pace.context.hardware.device.id
        yield f"{slow} takes that long for the minimum batch of {at.min_batch}"


def _slowest_link(network: Network) -> str:
    """The link that a ring through all nodes waits for."""
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
    """What other divisions of the same batch would bring, as samples per second over those of now."""
    others = [("even split over all nodes", at.even)]
    if at.idle:
        others.append(("all nodes, split by speed", at.everyone))
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
