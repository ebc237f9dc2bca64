"""The published greedy: jobs under most deadline pressure first, best fit, right-sized nodes."""

from __future__ import annotations

from dataclasses import dataclass

from foretrain.scheduling.decision import Decision
from foretrain.scheduling.policies._search import Search
from foretrain.scheduling.policy import Policy
from foretrain.scheduling.state import State


@dataclass(frozen=True)
class Greedy(Policy):
    """Pressure is how late a job would be on its fastest configuration; jobs may be preempted."""

    name = "greedy"
    summary = "Most deadline pressure first, cheapest configuration in time, best fit (published greedy)."

    def decide(self, state: State) -> Decision:
        """Pack all active jobs anew."""
        search = Search(state)
        return search.plan(search.by_pressure()).packing.decision()
