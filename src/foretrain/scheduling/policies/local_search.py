"""Local search on the best random greedy plan: jobs change places, or take another configuration."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from foretrain.scheduling.decision import Decision
from foretrain.scheduling.policies._search import Plan, Search, best_of, random_plans
from foretrain.scheduling.policy import Policy
from foretrain.scheduling.state import State


@dataclass(frozen=True)
class LocalSearch(Policy):
    """Moves are drawn from `seed`; one that lowers the objective is kept.

    The published implementation exchanges jobs between nodes without checking that they have room, and uses
    more GPUs than there are in most runs. Here a move changes wishes, which are packed again.
    """

    iterations: int = 30
    moves: int = 70
    seed: int = 0

    name = "local-search"
    summary = "Random greedy improved by exchanging jobs and configurations (published local search)."

    def decide(self, state: State) -> Decision:
        """Improve the best of some random plans."""
        random, search = Random(self.seed), Search(state)
        best = best_of(random_plans(search, self.iterations, random))
        for _ in range(self.moves if search.candidates else 0):
            moved = search.plan(_moved(search, best, random))
            if moved.objective < best.objective:
                best = moved
        return best.packing.decision()


def _moved(search: Search, plan: Plan, random: Random) -> tuple[tuple[int, int], ...]:
    """One random move: two jobs exchange places, or a job wishes another configuration."""
    wishes = list(plan.wishes)
    place = random.randrange(len(wishes))
    if random.random() < _EXCHANGED and len(wishes) > 1:
        other = random.randrange(len(wishes))
        wishes[place], wishes[other] = wishes[other], wishes[place]
    else:
        at = wishes[place][0]
        wishes[place] = (at, random.randrange(len(search.candidates[at].choices)))
    return tuple(wishes)


_EXCHANGED = 0.5
"""Share of the moves that exchange two jobs."""
