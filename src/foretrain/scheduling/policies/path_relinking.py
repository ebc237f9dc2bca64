"""Path relinking: plans on the way from the best random greedy plan to other good ones."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

from foretrain.scheduling.decision import Decision
from foretrain.scheduling.policies._search import Plan, Search, best_of, random_plans
from foretrain.scheduling.policy import Policy
from foretrain.scheduling.state import State


@dataclass(frozen=True)
class PathRelinking(Policy):
    """The `elite` best of `iterations` random plans guide the best one, at most `steps` steps each.

    A step moves the first job whose place or wish differs to where the guiding plan has it.
    """

    iterations: int = 60
    elite: int = 5
    steps: int = 10
    seed: int = 0

    name = "path-relinking"
    summary = "Plans between the best random greedy plans (published path relinking)."

    def decide(self, state: State) -> Decision:
        """Walk from the best plan to each other elite plan, and keep the best on the way."""
        search = Search(state)
        plans = random_plans(search, self.iterations, Random(self.seed))
        elite = sorted(_distinct(plans), key=lambda each: each.objective)[: self.elite]
        start = elite[0]
        on_the_way = [start]
        for guide in elite[1:]:
            on_the_way.extend(search.plan(wishes) for wishes in self._path(start, guide))
        return best_of(on_the_way).packing.decision()

    def _path(self, start: Plan, guide: Plan) -> Iterator[tuple[tuple[int, int], ...]]:
        wishes = list(start.wishes)
        taken = 0
        for place, wish in enumerate(guide.wishes):
            if wishes[place] == wish:
                continue
            wishes = [each for each in wishes if each[0] != wish[0]]
            wishes.insert(place, wish)
            taken += 1
            if taken > self.steps:
                return
            yield tuple(wishes)


def _distinct(plans: list[Plan]) -> list[Plan]:
    return list({plan.wishes: plan for plan in reversed(plans)}.values())[::-1]
