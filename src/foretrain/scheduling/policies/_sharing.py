"""Jobs in order of a rule on all nodes of a cluster: few GPUs each at first, then free GPUs where they help.

For owned clusters: deadlines and costs do not matter, GPUs should not idle while jobs wait.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from foretrain.scheduling.policies._choices import Choice, choices_of, fewest_gpu_seconds
from foretrain.scheduling.policies._packing import Packing
from foretrain.scheduling.state import JobState, State


def shared(state: State, jobs: Iterable[tuple[JobState, Sequence[Choice]]]) -> Packing:
    """Place jobs in order, each on the first of its choices there is room for, and share out free GPUs.

    Jobs are spread over nodes, so that each can have more GPUs later; nodes are right-sized at the end.
    """
    packing = Packing(state)
    for job, choices in jobs:
        if not packing.has_room:
            break
        for choice in choices:
            if packing.place(job.job.name, choice.configuration, spread=True):
                break
    packing.widen()
    packing.shrink()
    return packing


def movable_jobs(state: State) -> list[tuple[JobState, list[Choice]]]:
    """Jobs that are not fixed, with their choices; those that have to wait are left out."""
    listed = (
        (job, choices_of(state, job, roomy=True)) for job in state.jobs.values() if job.may_stop(state.now)
    )
    return [(job, choices) for job, choices in listed if choices]


def narrow_first(choices: Sequence[Choice]) -> list[Choice]:
    """For each kind of node the choice with the fewest GPU-seconds, the fastest of these first.

    Then a job in need takes the kind of node that suits it best, with as few GPUs as are efficient.
    """
    by_type: dict[str, list[Choice]] = {}
    for each in choices:
        by_type.setdefault(each.configuration.node_type, []).append(each)
    best = [fewest_gpu_seconds(listed) for listed in by_type.values()]
    return sorted((each for each in best if each is not None), key=lambda each: (each.gpu_seconds, each.usd))


def least_gpu_seconds(choices: Sequence[Choice]) -> float:
    """The GPU-seconds of what is left of a job where it needs fewest."""
    return min(each.gpu_seconds for each in choices)


def shortest_seconds(choices: Sequence[Choice]) -> float:
    """The time of what is left of a job where it is fastest."""
    return min(each.seconds for each in choices)
