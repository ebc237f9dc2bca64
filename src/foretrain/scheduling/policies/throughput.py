"""The most training per second: each GPU goes where it is worth most."""

from __future__ import annotations

from dataclasses import dataclass

from foretrain.scheduling.decision import Decision
from foretrain.scheduling.policies._choices import Choice
from foretrain.scheduling.policies._sharing import movable_jobs, narrow_first, shared, shortest_seconds
from foretrain.scheduling.policy import Policy
from foretrain.scheduling.state import State


@dataclass(frozen=True)
class Throughput(Policy):
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
        for job, choices in movable_jobs(state):
            fastest = shortest_seconds(choices)
            best_first = sorted(narrow_first(choices), key=lambda each: -_speed_per_gpu(each, fastest))
            ranked.append((-_speed_per_gpu(best_first[0], fastest), job.job.submit_seconds, job, best_first))
        ranked.sort(key=lambda each: each[:2])
        return shared(state, ((job, choices) for _, _, job, choices in ranked)).decision()


def _speed_per_gpu(choice: Choice, fastest_seconds: float) -> float:
    return fastest_seconds / max(choice.gpu_seconds, 1e-12)
