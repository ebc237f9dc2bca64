"""Several policies propose, the simulator compares: the cheapest proposal is taken."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from foretrain.scheduling.decision import Decision
from foretrain.scheduling.outlook.plans import Detail
from foretrain.scheduling.outlook.view import Settings, view_of
from foretrain.scheduling.policies._base import Policy
from foretrain.scheduling.policies.edf_packed import EdfPacked
from foretrain.scheduling.policies.greedy import Greedy
from foretrain.scheduling.policies.price import Price
from foretrain.scheduling.simulation.engine import Simulation
from foretrain.scheduling.state import State

_COARSE = Detail(periods=8, deadline_starts=1, changes=2)


@dataclass(frozen=True)
class Auto(Policy):
    """The first decisions of `proposals` are rolled out from the present state, each followed by a fast policy
    until all active jobs end. The first proposal is kept unless another one is clearly cheaper.
    """

    name = "auto"
    summary = "Rolls the proposals of the best policies out in the simulator and takes the cheapest."

    proposals: tuple[Policy, ...] = field(
        default_factory=lambda: (
            Price(Settings()),
            Price(Settings(alone=False)),
            Price(Settings(haste=1.0)),
            Greedy(),
            EdfPacked(),
        )
    )
    follower: Price = field(default_factory=lambda: Price(Settings(detail=_COARSE, steps=25)))
    most_decisions: int = 4
    margin: float = 0.003

    def decide(self, state: State) -> Decision:
        """The proposal whose rollout costs least."""
        decisions = _different([policy.decide(state) for policy in self.proposals])
        if len(decisions) < 2:
            return decisions[0]
        costs = [rollout_usd(state, each, self.follower, self.most_decisions) for each in decisions]
        best = min(range(len(costs)), key=lambda index: costs[index])
        chosen = best if costs[best] < costs[0] * (1 - self.margin) else 0
        return decisions[chosen]


def _different(decisions: Sequence[Decision]) -> list[Decision]:
    """Decisions without those that run the same jobs on the same configurations as an earlier one."""
    different: dict[frozenset[object], Decision] = {}
    for decision in decisions:
        different.setdefault(frozenset(decision.configurations().items()), decision)
    return list(different.values())


def rollout_usd(state: State, decision: Decision, follower: Price, most_decisions: int) -> float:
    """What the active jobs cost from now on if a decision is followed by a policy.

    After `most_decisions` of it, the rest is estimated by its prices.
    """
    simulation = Simulation.resumed(state)
    simulation.apply(decision)
    rest = 0.0
    for turn in range(most_decisions + 1):
        if simulation.next_event() is None:
            break
        reached = simulation.state()
        if turn == most_decisions and reached.jobs:
            rest = view_of(reached, follower.settings).usd
        else:
            simulation.apply(follower.decide(reached))
    late = sum(each.tardiness_usd for each in simulation.outcomes.values())
    return simulation.ledger.execution_usd + late + rest
