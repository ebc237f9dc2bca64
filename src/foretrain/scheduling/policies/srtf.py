"""Shortest remaining time first, with preemption: the least mean completion time on one machine."""

from __future__ import annotations

from dataclasses import dataclass

from foretrain.scheduling.decision import Decision
from foretrain.scheduling.policies._sharing import least_gpu_seconds, movable_jobs, narrow_first, shared
from foretrain.scheduling.policy import Policy
from foretrain.scheduling.state import State


@dataclass(frozen=True)
class Srtf(Policy):
    """Jobs in order of the GPU-seconds left of them, at their most efficient width."""

    name = "srtf"
    summary = "Shortest remaining time first, preemptive; deadlines and costs do not count."

    def decide(self, state: State) -> Decision:
        """The shortest jobs run; free GPUs go to the jobs that gain most."""
        jobs = movable_jobs(state)
        jobs.sort(key=lambda each: (least_gpu_seconds(each[1]), each[0].job.submit_seconds))
        return shared(state, ((job, narrow_first(choices)) for job, choices in jobs)).decision()
