"""Highest priority first: one job per node, no preemption, the performance model picks the node."""

from __future__ import annotations

from dataclasses import dataclass

from foretrain.scheduling.decision import Decision
from foretrain.scheduling.policies._first_principles import by_priority, one_job_a_node
from foretrain.scheduling.policy import Policy
from foretrain.scheduling.state import State


@dataclass(frozen=True)
class Priority(Policy):
    """In order of priority, then of the cost of lateness; each on the cheapest configuration in time."""

    name = "priority"
    summary = "Highest priority first; one job per node, no preemption."

    def decide(self, state: State) -> Decision:
        """Running jobs stay; waiting ones start in order while there is room."""
        return one_job_a_node(state, by_priority)
