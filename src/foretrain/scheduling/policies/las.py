"""Least attained service: jobs that have used little go first, without knowing how long they take."""

from __future__ import annotations

from dataclasses import dataclass

from foretrain.scheduling.decision import Decision
from foretrain.scheduling.policies._choices import Choice
from foretrain.scheduling.policies._packing import Packing
from foretrain.scheduling.policies._sharing import least_gpu_seconds, movable_jobs, narrow_first, shared
from foretrain.scheduling.policy import Policy
from foretrain.scheduling.state import JobState, State
from foretrain.units import HOUR


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
        queue = {job.job.name: self._queue(state, job, choices)[0] for job, choices in jobs}
        jobs.sort(key=lambda each: (queue[each[0].job.name], each[0].job.submit_seconds))
        packing = shared(state, ((job, narrow_first(choices)) for job, choices in jobs))
        wake_at = None if len(packing.chosen) == len(state.jobs) else self._next_change(state, packing, jobs)
        return packing.decision(wake_at)

    def _queue(self, state: State, job: JobState, choices: list[Choice]) -> tuple[int, float]:
        """The queue a job is in, and the share of the job at which it leaves it."""
        left = max(job.left(state.now), 1e-12)
        whole = least_gpu_seconds(choices) / left
        attained, limit, number = (1 - left) * whole, self.first_gpu_seconds, 0
        while attained >= limit * (1 - 1e-9):
            limit, number = limit * self.factor, number + 1
        return number, limit / whole

    def _next_change(
        self, state: State, packing: Packing, jobs: list[tuple[JobState, list[Choice]]]
    ) -> float | None:
        """When the first running job has used enough for the next queue."""
        times = []
        for job, choices in jobs:
            if job.job.name in packing.chosen:
                left = max(job.left(state.now), 1e-12)
                until = self._queue(state, job, choices)[1] - (1 - left)
                if until < left:
                    times.append(packing.seconds_left(job.job.name) * until / left)
        return state.now + max(1.0, min(times)) if times else None
