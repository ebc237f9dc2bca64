"""Plans of the published greedy and the searches on top of it: an order of jobs and a wish of each.

A plan is built by packing jobs in order, each on its configuration of choice, or on the next best there is
room for; what does not fit waits. So whatever a search does to a plan, nodes are never over-allocated.
Afterwards free GPUs go to the jobs that gain most, and nodes are right-sized.

Plans are compared by the published objective. With τ the time to the first completion,

    Σ_nodes price · τ + Σ_running weight · max(now + τ - deadline, 0)
                      + 100 · Σ_waiting weight · max(now + slowest time - deadline, 0)

References: A. Jahani et al., Optimizing on-demand GPUs in the cloud for deep learning applications training,
ICCCS 2019; F. Filippini et al., A path relinking method for the joint online scheduling and capacity
allocation of DL training workloads in GPU as a service systems, IEEE Transactions on Services Computing
2023.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import NamedTuple

from foretrain.scheduling.loop import Decision, Policy
from foretrain.scheduling.options import JobOption, in_time, options_of, slack_seconds
from foretrain.scheduling.packing import Packing
from foretrain.scheduling.state import JobState, State

_WAITING = 100.0
"""Weight of the lateness of waiting jobs in the objective, as published."""


@dataclass(frozen=True)
class JobCandidate:
    """A job of a plan. `options`: first those that meet the deadline, cheapest first, then by speed."""

    job: JobState
    options: tuple[JobOption, ...]
    timely: int
    pressure: float
    late_usd_if_waiting: float


class OrderedPlan(NamedTuple):
    """An order of jobs with a wish of each (positions of candidates and of their options), and the result."""

    wishes: tuple[tuple[int, int], ...]
    packing: Packing
    objective: float


class Search:
    """The candidates of a state and how plans of them are built."""

    def __init__(self, state: State) -> None:
        self.state = state
        self._base = Packing(state)
        jobs = [job for name, job in state.jobs.items() if name not in self._base.chosen]
        listed = (_candidate(state, job, options_of(state, job, roomy=True)) for job in jobs)
        self.candidates = [each for each in listed if each.options]
        self._late_usd = {each.job.job.name: each.late_usd_if_waiting for each in self.candidates}
        self._all_late_usd = sum(self._late_usd.values())

    def by_pressure(self) -> tuple[tuple[int, int], ...]:
        """The published order: the job closest to missing its deadline first, each with its best option."""
        order = sorted(range(len(self.candidates)), key=lambda at: -self.candidates[at].pressure)
        return tuple((at, 0) for at in order)

    def plan(self, wishes: Sequence[tuple[int, int]]) -> OrderedPlan:
        """Pack the wishes in order."""
        packing = self._base.copy()
        for at, wish in wishes:
            if not packing.has_room:
                break
            self._place(packing, self.candidates[at], wish)
        packing.widen()  # before `shrink`, which drops the GPUs that no job gains from
        packing.shrink()
        return OrderedPlan(tuple(wishes), packing, self._objective(packing))

    def _place(self, packing: Packing, candidate: JobCandidate, wish: int) -> None:
        name = candidate.job.job.name
        if packing.place(name, candidate.options[wish].configuration):
            return
        for option in candidate.options:
            if packing.place(name, option.configuration):
                return

    def _objective(self, packing: Packing) -> float:
        """The published objective; 0 where nothing runs or waits."""
        jobs, now = self.state.jobs, self.state.now
        first = min((packing.seconds_left(name) for name in packing.chosen), default=0.0)
        usd = packing.usd_per_second * first
        waiting = self._all_late_usd
        for name in packing.chosen:
            job = jobs[name].job
            usd += job.weight_usd_per_second * max(0.0, now + first - job.deadline_seconds)
            waiting -= self._late_usd.get(name, 0.0)
        return usd + _WAITING * max(0.0, waiting)

    def perturbed(self, random: Random) -> tuple[tuple[int, int], ...]:
        """The greedy order and wishes at random: neighbours change places, and dearer options are taken."""
        wishes = list(self.by_pressure())
        for place in range(len(wishes) - 1):
            if random.random() < _SWAPPED:
                wishes[place], wishes[place + 1] = wishes[place + 1], wishes[place]
        return tuple((at, self._random_wish(at, random)) for at, _ in wishes)

    def _random_wish(self, at: int, random: Random) -> int:
        """Mostly the best option; the others among those that are as timely, with falling probability."""
        candidate = self.candidates[at]
        most = candidate.timely or len(candidate.options)
        wish = 0
        while wish + 1 < most and random.random() < _NEXT:
            wish += 1
        return wish


_SWAPPED = 0.3
_NEXT = 0.3


def _candidate(state: State, job: JobState, options: Sequence[JobOption]) -> JobCandidate:
    slack = slack_seconds(state, job)
    timely = sorted(in_time(options, slack), key=lambda each: (each.usd, each.seconds))
    early = {each.configuration for each in timely}
    others = sorted(
        (each for each in options if each.configuration not in early),
        key=lambda each: (each.seconds, each.usd),
    )
    fastest = min((each.seconds for each in options), default=0.0)
    slowest = max((each.seconds for each in options), default=0.0)
    late = job.job.weight_usd_per_second * max(0.0, slowest - slack)
    return JobCandidate(job, (*timely, *others), len(timely), fastest - slack, late)


def best_of(plans: Sequence[OrderedPlan]) -> OrderedPlan:
    """The plan with the least objective, the first of equal ones."""
    return min(plans, key=lambda each: each.objective)


def random_plans(search: Search, iterations: int, random: Random) -> list[OrderedPlan]:
    """The greedy plan and `iterations` perturbed ones."""
    return [
        search.plan(search.by_pressure()),
        *(search.plan(search.perturbed(random)) for _ in range(iterations)),
    ]


@dataclass(frozen=True)
class Greedy(Policy):
    """Pressure is how late a job would be on its fastest configuration; jobs may be preempted."""

    name = "greedy"
    summary = "Most deadline pressure first, cheapest configuration in time, best fit (published greedy)."

    def decide(self, state: State) -> Decision:
        """Pack all active jobs anew."""
        search = Search(state)
        return search.plan(search.by_pressure()).packing.decision()


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
            moved = search.plan(_move_randomly(search, best, random))
            if moved.objective < best.objective:
                best = moved
        return best.packing.decision()


def _move_randomly(search: Search, plan: OrderedPlan, random: Random) -> tuple[tuple[int, int], ...]:
    """One random move: two jobs exchange places, or a job wishes another configuration."""
    wishes = list(plan.wishes)
    place = random.randrange(len(wishes))
    if random.random() < _EXCHANGED and len(wishes) > 1:
        other = random.randrange(len(wishes))
        wishes[place], wishes[other] = wishes[other], wishes[place]
    else:
        at = wishes[place][0]
        wishes[place] = (at, random.randrange(len(search.candidates[at].options)))
    return tuple(wishes)


_EXCHANGED = 0.5
"""Share of the moves that exchange two jobs."""


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

    def _path(self, start: OrderedPlan, guide: OrderedPlan) -> Iterator[tuple[tuple[int, int], ...]]:
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


def _distinct(plans: list[OrderedPlan]) -> list[OrderedPlan]:
    return list({plan.wishes: plan for plan in reversed(plans)}.values())[::-1]
