"""First in, first out: jobs share nodes, no preemption, the performance model picks the node."""

from __future__ import annotations

from dataclasses import dataclass

from foretrain.scheduling.decision import Decision
from foretrain.scheduling.policies._first_principles import by_submission, sharing_nodes
from foretrain.scheduling.policy import Policy
from foretrain.scheduling.state import State


@dataclass(frozen=True)
class FifoPacked(Policy):
    """Jobs in order of submission, each on the cheapest configuration that meets its deadline."""

    name = "fifo-packed"
    summary = "First in, first out; jobs share nodes, no preemption."

    def decide(self, state: State) -> Decision:
        """Running jobs stay; waiting ones start in order while there is room."""
        return sharing_nodes(state, by_submission)
