"""Several policies propose, the simulator compares: the cheapest proposal is taken."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from foretrain.scheduling.loop import Decision, Policy
from foretrain.scheduling.outlook import Settings, look_ahead
from foretrain.scheduling.policies.price import Milp, PricePolicy
from foretrain.scheduling.policies.search import Greedy, PathRelinking
from foretrain.scheduling.simulation import Simulation
from foretrain.scheduling.state import State

# Rollouts only rank proposals against each other, so their prices may be coarse.
_COARSE = Settings(periods=8, deadline_starts=1, changes=2, places=8, steps=25)


class Effort(NamedTuple):
    """What a decision on at most `jobs` jobs may try: a number of the proposals, each followed in
    the simulator for a number of decisions. Chosen by counts, not by the clock, so that the same state has
    the same decision.
    """

    jobs: float
    proposals: int
    decisions: int


@dataclass(frozen=True)
class Auto(Policy):
    """The first decisions of `proposals` are rolled out from the present state: the simulator applies each,
    then follows a fast policy for a few decisions and adds what that policy's prices say of the rest. The
    first proposal is kept unless another one is cheaper by `margin`.

    Where several groups of nodes compete, plans by price put work off until the best group is free, and jobs
    to come then find it full. There `rivals` propose, which use every node that helps at once; each proposal
    is followed by the first of them to the end.
    """

    name = "auto"
    summary = "Rolls the proposals of the best policies out in the simulator and takes the cheapest."
    forecast_by = "price"

    proposals: tuple[Policy, ...] = field(
        default_factory=lambda: (
            Milp(),
            PricePolicy(Settings(alone=False)),
            PricePolicy(Settings(haste=1.0, haste_if_scarce=3.0)),
            Greedy(),
        )
    )
    efforts: tuple[Effort, ...] = (Effort(60, 4, 0), Effort(600, 2, 0), Effort(float("inf"), 1, 0))
    margin: float = 0.01
    rivals: tuple[Policy, ...] = field(default_factory=lambda: (Greedy(), PathRelinking()))
    rival_margin: float = 0.1
    rival_jobs: int = 150

    def decide(self, state: State) -> Decision:
        """The proposal whose rollout costs least."""
        if len(state.fleet.groups) > 1:
            tried = self.rivals if len(state.jobs) <= self.rival_jobs else self.rivals[:1]
            return _cheapest(state, tried, self.rival_margin, lambda each: full_usd(state, each, tried[0]))
        effort = next(each for each in self.efforts if len(state.jobs) <= each.jobs)
        return _cheapest(
            state,
            self.proposals[: effort.proposals],
            self.margin,
            lambda each: rollout_usd(state, each, PricePolicy(_COARSE), effort.decisions),
        )


def _cheapest(
    state: State, tried: Sequence[Policy], margin: float, usd: Callable[[Decision], float]
) -> Decision:
    """The decision of the first policy, unless another one's is cheaper by a margin."""
    decisions = _different([(policy.name, policy.decide(state)) for policy in tried])
    if len(decisions) < 2:
        return decisions[0][1]
    costs = [usd(each) for _, each in decisions]
    best = min(range(len(costs)), key=lambda index: costs[index])
    chosen = best if costs[best] < costs[0] * (1 - margin) else 0
    name, decision = decisions[chosen]
    note = f"auto: proposal {chosen + 1} of {len(costs)} different ones, by {name}"
    return replace(decision, notes=(*decision.notes, note))


def _different(decisions: Sequence[tuple[str, Decision]]) -> list[tuple[str, Decision]]:
    """Decisions without those that run the same jobs on the same configurations as an earlier one."""
    different: dict[frozenset[object], tuple[str, Decision]] = {}
    for name, decision in decisions:
        different.setdefault(frozenset(decision.configurations().items()), (name, decision))
    return list(different.values())


def rollout_usd(state: State, decision: Decision, follower: PricePolicy, most_decisions: int) -> float:
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
            rest = look_ahead(reached, follower.settings).usd
        else:
            simulation.apply(follower.decide(reached))
    return simulation.usd_so_far() + rest


def full_usd(state: State, decision: Decision, follower: Policy) -> float:
    """What the active jobs cost until all are done if a decision is followed by a policy."""
    simulation = Simulation.resumed(state)
    simulation.apply(decision)
    while simulation.next_event() is not None:
        simulation.apply(follower.decide(simulation.state()))
    return simulation.usd_so_far()
