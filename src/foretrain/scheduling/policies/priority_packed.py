"""Highest priority first: jobs share nodes, no preemption, the performance model picks the node."""

from __future__ import annotations

from dataclasses import dataclass

from foretrain.scheduling.decision import Decision
from foretrain.scheduling.policies._first_principles import by_priority, sharing_nodes
from foretrain.scheduling.policy import Policy
from foretrain.scheduling.state import State


@dataclass(frozen=True)
class PriorityPacked(Policy):
    """In order of priority, then of the cost of lateness; each on the cheapest configuration in time."""

    name = "priority-packed"
    summary = "Highest priority first; jobs share nodes, no preemption."

    def decide(self, state: State) -> Decision:
        """Running jobs stay; waiting ones start in order while there is room."""
        return sharing_nodes(state, by_priority)
