"""Earliest deadline first: one job per node, no preemption, the performance model picks the node."""

from __future__ import annotations

from dataclasses import dataclass

from foretrain.scheduling.decision import Decision
from foretrain.scheduling.policies._first_principles import by_deadline, one_job_a_node
from foretrain.scheduling.policy import Policy
from foretrain.scheduling.state import State


@dataclass(frozen=True)
class Edf(Policy):
    """Jobs in order of their deadlines, each on the cheapest configuration that meets its deadline."""

    name = "edf"
    summary = "Earliest deadline first; one job per node, no preemption."

    def decide(self, state: State) -> Decision:
        """Running jobs stay; waiting ones start in order while there is room."""
        return one_job_a_node(state, by_deadline)
