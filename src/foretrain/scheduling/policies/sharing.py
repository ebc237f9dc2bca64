"""Jobs in order of a rule on all nodes of a cluster: few GPUs each at first, then free GPUs where they help.

For owned clusters: deadlines and costs do not matter, GPUs should not idle while jobs wait. The rules are
shortest remaining time, least attained service, relative throughput and max-min fairness.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from foretrain.scheduling.loop import Decision, Policy
from foretrain.scheduling.options import JobOption, options_of
from foretrain.scheduling.packing import Packing
from foretrain.scheduling.state import JobState, State
from foretrain.units import HOUR


def shared(state: State, jobs: Iterable[tuple[JobState, Sequence[JobOption]]]) -> Packing:
    """Place jobs in order, each on the first of its options there is room for, and share out free GPUs.

    Jobs are spread over nodes, so that each can have more GPUs later; nodes are right-sized at the end.
    """
    packing = Packing(state)
    for job, options in jobs:
        if not packing.has_room:
            break
        for option in options:
            if packing.place(job.job.name, option.configuration, spread=True):
                break
    packing.widen()
    packing.shrink()
    return packing


def movable_jobs(state: State) -> list[tuple[JobState, list[JobOption]]]:
    """Jobs that are not fixed, with their options; those that have to wait are left out."""
    listed = (
        (job, options_of(state, job, roomy=True)) for job in state.jobs.values() if job.may_stop(state.now)
    )
    return [(job, options) for job, options in listed if options]


def narrow_first(options: Sequence[JobOption]) -> list[JobOption]:
    """For each kind of node the option with the fewest GPU-seconds, the fastest of these first.

    Then a job in need takes the kind of node that suits it best, with as few GPUs as are efficient.
    """
    by_type: dict[str, list[JobOption]] = {}
    for each in options:
        by_type.setdefault(each.configuration.node_type, []).append(each)
    best = [fewest_gpu_seconds(listed) for listed in by_type.values()]
    return sorted((each for each in best if each is not None), key=lambda each: (each.gpu_seconds, each.usd))


def fewest_gpu_seconds(options: Sequence[JobOption]) -> JobOption | None:
    """The option with the fewest GPU-seconds, then the fastest; None if there is no option."""
    return min(options, key=lambda each: (each.gpu_seconds, each.seconds, each.usd), default=None)


def least_gpu_seconds(options: Sequence[JobOption]) -> float:
    """The GPU-seconds of what is left of a job where it needs fewest."""
    return min(each.gpu_seconds for each in options)


def shortest_seconds(options: Sequence[JobOption]) -> float:
    """The time of what is left of a job where it is fastest."""
    return min(each.seconds for each in options)


@dataclass(frozen=True)
class Srtf(Policy):
    """Jobs in order of the GPU-seconds left of them, at their most efficient width."""

    name = "srtf"
    summary = "Shortest remaining time first, preemptive; deadlines and costs do not count."

    def decide(self, state: State) -> Decision:
        """The shortest jobs run; free GPUs go to the jobs that gain most."""
        jobs = movable_jobs(state)
        jobs.sort(key=lambda each: (least_gpu_seconds(each[1]), each[0].job.submit_seconds))
        return shared(state, ((job, narrow_first(options)) for job, options in jobs)).decision()


@dataclass(frozen=True)
class Las(Policy):
    """Two-dimensional, discretised least attained service (Tiresias).

    Service is GPUs times seconds; as the width of a job changes here, it is counted at the most efficient
    one. Jobs that used less than `first_gpu_seconds` come first, then those below `factor` times that, and
    so on; in order of submission within each queue, so that equal jobs do not displace each other.

    Reference: J. Gu et al., Tiresias: A GPU cluster manager for distributed deep learning, NSDI 2019.
    """

    first_gpu_seconds: float = HOUR
    factor: float = 10.0

    name = "las"
    summary = "Least attained service first, in queues (Tiresias); needs no knowledge of job lengths."

    def decide(self, state: State) -> Decision:
        """Jobs of the lowest queue run; asks again when a running job moves to the next queue."""
        jobs = movable_jobs(state)
        queue = {job.job.name: self._queue(state, job, options)[0] for job, options in jobs}
        jobs.sort(key=lambda each: (queue[each[0].job.name], each[0].job.submit_seconds))
        packing = shared(state, ((job, narrow_first(options)) for job, options in jobs))
        wake_at = None if len(packing.chosen) == len(state.jobs) else self._next_change(state, packing, jobs)
        return packing.decision(wake_at)

    def _queue(self, state: State, job: JobState, options: list[JobOption]) -> tuple[int, float]:
        """The queue a job is in, and the share of the job at which it leaves it."""
        left = max(job.left(state.now), 1e-12)
        whole = least_gpu_seconds(options) / left
        attained, limit, number = (1 - left) * whole, self.first_gpu_seconds, 0
        while attained >= limit * (1 - 1e-9):
            limit, number = limit * self.factor, number + 1
        return number, limit / whole

    def _next_change(
        self, state: State, packing: Packing, jobs: list[tuple[JobState, list[JobOption]]]
    ) -> float | None:
        """When the first running job has used enough for the next queue."""
        times = []
        for job, options in jobs:
            if job.job.name in packing.chosen:
                left = max(job.left(state.now), 1e-12)
                until = self._queue(state, job, options)[1] - (1 - left)
                if until < left:
                    times.append(packing.seconds_left(job.job.name) * until / left)
        return state.now + max(1.0, min(times)) if times else None


@dataclass(frozen=True)
class ThroughputPolicy(Policy):
    """Maximises the sum of relative speeds, 1 being a job on its fastest configuration (Gavel).

    Jobs that are fast relative to the GPUs they use go first, each on the kind of node where that is so; free
    GPUs then go to the jobs that gain most.

    Reference: D. Narayanan et al., Heterogeneity-aware cluster scheduling policies for deep learning
    workloads, OSDI 2020.
    """

    name = "throughput"
    summary = "Most relative training speed in total on heterogeneous nodes (Gavel-like)."

    def decide(self, state: State) -> Decision:
        """Fill the cluster in order of relative speed per GPU."""
        ranked = []
        for job, options in movable_jobs(state):
            fastest = shortest_seconds(options)
            best_first = sorted(narrow_first(options), key=lambda each: -_speed_per_gpu(each, fastest))
            ranked.append((-_speed_per_gpu(best_first[0], fastest), job.job.submit_seconds, job, best_first))
        ranked.sort(key=lambda each: each[:2])
        return shared(state, ((job, options) for _, _, job, options in ranked)).decision()


def _speed_per_gpu(option: JobOption, fastest_seconds: float) -> float:
    return fastest_seconds / max(option.gpu_seconds, 1e-12)


_Jobs = list[tuple[JobState, list[JobOption]]]


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
        jobs = [(job, narrow_first(options)) for job, options in movable_jobs(state)]
        if not jobs:
            return shared(state, ()).decision()
        fastest = [shortest_seconds(options) for _, options in jobs]
        shares = _time_shares(state, jobs, fastest) if 1 < len(jobs) <= self.most_jobs else None
        ranked = []
        for at, (job, options) in enumerate(jobs):
            own = [1.0] * len(options) if shares is None else shares[at]
            entitled = sum(
                share * fastest[at] / max(option.seconds, 1e-12)
                for share, option in zip(own, options, strict=True)
            )
            preferred = sorted(range(len(options)), key=lambda place, own=own: -own[place])  # type: ignore[misc]
            lag = _relative_progress(state, job, fastest[at]) / max(entitled, 1e-9)
            ranked.append((lag, job.job.submit_seconds, job, [options[place] for place in preferred]))
        ranked.sort(key=lambda each: each[:2])
        packing = shared(state, ((job, options) for _, _, job, options in ranked))
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
    """The shares of time of each option of each job; None if the solver finds none."""
    from scipy.optimize import linprog
    from scipy.sparse import csr_matrix

    owner = np.array([at for at, (_, options) in enumerate(jobs) for _ in options])
    listed = [option for _, options in jobs for option in options]
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
    ends = np.cumsum([len(options) for _, options in jobs])
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
