"""Max-min fairness on heterogeneous nodes: the job that is slowed down most is slowed down least."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from foretrain.scheduling.decision import Decision
from foretrain.scheduling.policies._choices import Choice
from foretrain.scheduling.policies._sharing import movable_jobs, narrow_first, shared, shortest_seconds
from foretrain.scheduling.policy import Policy
from foretrain.scheduling.state import JobState, State

_Jobs = list[tuple[JobState, list[Choice]]]


@dataclass(frozen=True)
class Fairness(Policy):
    """Heterogeneity-aware max-min fairness (Gavel), in rounds.

    A linear program shares the time of nodes among jobs so that the least relative speed z is largest,
    where 1 is a job on its fastest configuration. With x[j,c] the share of time job j has configuration c:

        maximise z + ε · Σ speeds  with  Σ_c x[j,c] · speed[j,c] >= z,  Σ_c x[j,c] <= 1,
                                         Σ_j,c x[j,c] · share of nodes[c] <= nodes      (each group)

    At each round the jobs run that lag most behind what they are entitled to, on the kind of node where their
    share of time is largest. A round takes `round_seconds`, or a twentieth of the mean time to the end of a
    job if that is longer. With more than `most_jobs` jobs all are entitled to the same, without the
    program.

    Reference: D. Narayanan et al., Heterogeneity-aware cluster scheduling policies for deep learning
    workloads, OSDI 2020.
    """

    round_seconds: float = 360.0
    most_jobs: int = 500

    name = "fairness"
    summary = "Max-min fair relative speed on heterogeneous nodes, in rounds (Gavel-like)."

    def decide(self, state: State) -> Decision:
        """Run the jobs that lag most; asks again after a round if any job waits."""
        jobs = [(job, narrow_first(choices)) for job, choices in movable_jobs(state)]
        if not jobs:
            return shared(state, ()).decision()
        fastest = [shortest_seconds(choices) for _, choices in jobs]
        shares = _time_shares(state, jobs, fastest) if 1 < len(jobs) <= self.most_jobs else None
        ranked = []
        for at, (job, choices) in enumerate(jobs):
            own = [1.0] * len(choices) if shares is None else shares[at]
            entitled = sum(
                share * fastest[at] / max(choice.seconds, 1e-12)
                for share, choice in zip(own, choices, strict=True)
            )
            preferred = sorted(range(len(choices)), key=lambda place, own=own: -own[place])  # type: ignore[misc]
            lag = _relative_progress(state, job, fastest[at]) / max(entitled, 1e-9)
            ranked.append((lag, job.job.submit_seconds, job, [choices[place] for place in preferred]))
        ranked.sort(key=lambda each: each[:2])
        packing = shared(state, ((job, choices) for _, _, job, choices in ranked))
        all_run = len(packing.chosen) == len(state.jobs)
        return packing.decision(None if all_run else state.now + self._round(fastest))

    def _round(self, fastest_seconds: list[float]) -> float:
        return max(self.round_seconds, sum(fastest_seconds) / len(fastest_seconds) / 20)


def _relative_progress(state: State, job: JobState, fastest_seconds: float) -> float:
    """The mean speed since submission, relative to the fastest configuration."""
    left = max(job.left(state.now), 1e-12)
    whole_seconds = fastest_seconds / left
    return (1 - left) * whole_seconds / max(state.now - job.job.submit_seconds, 1.0)


def _time_shares(state: State, jobs: _Jobs, fastest: list[float]) -> list[list[float]] | None:
    """The shares of time of each choice of each job; None if the solver finds none."""
    from scipy.optimize import linprog
    from scipy.sparse import csr_matrix

    owner = np.array([at for at, (_, choices) in enumerate(jobs) for _ in choices])
    listed = [choice for _, choices in jobs for choice in choices]
    speed = np.array([fastest[at] for at in owner]) / np.array([max(each.seconds, 1e-12) for each in listed])
    kinds = _kinds(state)
    variables, count = len(listed), len(jobs)
    here = np.arange(variables)
    types = state.fleet.types
    use = [
        each.configuration.nodes * each.configuration.gpus / types[each.configuration.node_type].gpus
        for each in listed
    ]
    kind = np.array([kinds[each.configuration.node_type] for each in listed])
    rows = np.concatenate([owner, owner + count, kind + 2 * count, np.arange(count)])
    columns = np.concatenate([here, here, here, np.full(count, variables)])
    values = np.concatenate([-speed, np.ones(variables), use, np.ones(count)])
    nodes = np.zeros(max(kinds.values()) + 1)
    for index, group in enumerate(state.fleet.groups):
        nodes[kinds[group.types[0]]] += state.available(index)
    limits = np.concatenate([np.zeros(count), np.ones(count), nodes])
    matrix = csr_matrix((values, (rows, columns)), shape=(len(limits), variables + 1))
    answer = linprog(-np.append(1e-3 / count * speed, 1.0), A_ub=matrix, b_ub=limits, method="highs")
    if answer.status != 0:
        return None
    ends = np.cumsum([len(choices) for _, choices in jobs])
    return [[float(share) for share in part] for part in np.split(answer.x[:-1], ends[:-1])]


def _kinds(state: State) -> dict[str, int]:
    """A number for each node type; types of groups that have one in common share it."""
    kind: dict[str, int] = {}
    for number, group in enumerate(state.fleet.groups):
        known = {kind[name] for name in group.types if name in kind}
        for name, other in list(kind.items()):
            if other in known:
                kind[name] = number
        kind.update(dict.fromkeys(group.types, number))
    return kind
