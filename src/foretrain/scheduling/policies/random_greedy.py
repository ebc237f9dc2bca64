"""The published random greedy: the best of many greedy plans with perturbed order and choices."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from foretrain.scheduling.decision import Decision
from foretrain.scheduling.policies._search import Search, best_of, random_plans
from foretrain.scheduling.policy import Policy
from foretrain.scheduling.state import State


@dataclass(frozen=True)
class RandomGreedy(Policy):
    """Draws start from `seed` at each decision, so that a state has one answer."""

    iterations: int = 100
    seed: int = 0

    name = "random-greedy"
    summary = "Best of many greedy plans with random changes (published)."

    def decide(self, state: State) -> Decision:
        """Pack all active jobs anew, many times."""
        return best_of(random_plans(Search(state), self.iterations, Random(self.seed))).packing.decision()
