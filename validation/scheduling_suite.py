"""Policies on generated problems: what each costs above the clairvoyant lower bound, and beside the others.

A case is a problem of a family; `measured` is the lower bound of its cost under any policy, `predicted` what
each policy costs in the simulator, so that an error is the cost above the bound. The bound lets nodes be
divided at will and knows all submissions: where nodes are scarce no policy comes near it, and only the
comparison of policies says something. Seeds 0 to 4; settings were chosen on seeds 100 to 102.
"""

from __future__ import annotations

import os
import statistics
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from foretrain.scheduling.bound import lower_bound_usd
from foretrain.scheduling.generators import families
from foretrain.scheduling.policies import policies
from foretrain.scheduling.policies.price import Milp
from foretrain.scheduling.problem import Problem
from foretrain.scheduling.simulation import simulate
from validation.report import Case, Metrics, SuiteReport, Verdicts, metrics, quantile
from validation.scheduling_optimum import optimal_usd
from validation.scheduling_tiny import tiny_problems

AUTO, PRICE, MILP, OPTIMUM = "auto", "price", "milp", "optimum"
RULES = ("fifo", "edf", "priority")
PACKED = tuple(f"{name}-packed" for name in RULES)
PUBLISHED = ("greedy", "random-greedy", "path-relinking")
PEERS = (*RULES, *PACKED, *PUBLISHED)
SEEDS = {3: range(5), 5: range(1), 10: range(1)}
"""Problems of each family by number of nodes."""
TEN_NODES = ("low", "mixed", "high", "hybrid")
"""Families tried with ten nodes, which take minutes each."""
LIGHT = ("low", "low-scaling", "mixed", "mixed-scaling")
MILP_SEEDS = range(2)
MILP_NODES = (20, 200)
_TOLERANCE = 1.01
_NOTES = (
    "Cost above the bound at high load is mostly the bound's: it lets jobs share nodes at will and knows "
    "what is submitted later.",
    "fifo, edf and priority give a whole node to one job and never preempt; packed versions share nodes.",
    "milp solves a program at every event within a number of nodes of its search tree; the selection of "
    "price is its start.",
    "Tiny problems: three jobs known from the start, one or two nodes, two GPU counts. The optimum tries "
    "every assignment at every completion and on a grid of times; auto may change at other times too.",
)


@dataclass(frozen=True)
class Result:
    """What each policy costs on one problem, and how many of its jobs are late."""

    family: str
    nodes: int
    seed: int
    bound_usd: float
    usd: Mapping[str, float]
    late: Mapping[str, int]
    jobs: int

    @property
    def best_peer_usd(self) -> float:
        """The cheapest of the policies of others."""
        return min(self.usd[name] for name in PEERS)


def run(data: Path) -> SuiteReport:
    """All families, sizes and seeds; tiny problems; milp by size and limit. Needs no data."""
    del data
    problems = [
        (name, nodes, seed)
        for nodes in SEEDS
        for name in (families() if nodes < max(SEEDS) else TEN_NODES)
        for seed in SEEDS[nodes]
    ]
    with ProcessPoolExecutor(min(2, os.cpu_count() or 1)) as pool:
        results = list(pool.map(_result, problems))
        solved = list(pool.map(_milp_result, _milp_problems()))
        tiny = list(pool.map(_tiny_case, range(len(tiny_problems()))))
    return report(results, solved, tiny)


def report(results: Sequence[Result], solved: Sequence[Case], tiny: Sequence[Case]) -> SuiteReport:
    """The figures of all results."""
    cases = [_case(result) for result in results]
    figures: dict[str, dict[str, Metrics]] = {"above the bound, low and mixed load": _above(results, LIGHT)}
    for name in sorted({result.family for result in results}):
        for nodes in sorted({result.nodes for result in results if result.family == name}):
            here = [result for result in results if (result.family, result.nodes) == (name, nodes)]
            figures[f"above the bound, {name}, {nodes} nodes"] = _above(here, (name,))
    for label, names in (
        ("fifo, edf and priority", RULES),
        ("packed rules", PACKED),
        ("published", PUBLISHED),
    ):
        shares = [result.usd[AUTO] / result.usd[name] for result in results for name in names]
        figures[f"cost of auto as a share of {label}"] = {AUTO: _shares(shares)}
    for group in sorted({case.group for case in solved}):
        some = [case for case in solved if case.group == group]
        figures[group] = {method: metrics(some, method) for method in some[0].predicted}
    if tiny:
        figures["above the optimum, tiny problems"] = {
            method: _shares([max(0.0, each.predicted[method] / each.measured - 1) for each in tiny])
            for method in (AUTO, PRICE)
        }
    verdicts = {
        "within 1 % of the best of fifo, edf, priority, packed, greedy, random-greedy, path-relinking": {
            name: Verdicts(
                sum(result.usd[name] <= result.best_peer_usd * _TOLERANCE for result in results), len(results)
            )
            for name in (AUTO, PRICE)
        }
    }
    return SuiteReport("scheduling", tuple(cases), figures, verdicts, notes=(*_NOTES, *_totals(results)))


def _case(result: Result) -> Case:
    name = f"{result.family}, {result.nodes} nodes, seed {result.seed}"
    return Case(name, result.family, result.bound_usd, result.usd)


def _above(results: Iterable[Result], names: Sequence[str]) -> dict[str, Metrics]:
    cases = [_case(result) for result in results if result.family in names]
    return {name: metrics(cases, name) for name in cases[0].predicted} if cases else {}


def _shares(shares: Sequence[float]) -> Metrics:
    return Metrics(
        cases=len(shares),
        mean=statistics.fmean(shares),
        median=statistics.median(shares),
        p90=quantile(shares, 0.9),
        bias=statistics.median(shares),
    )


def _totals(results: Sequence[Result]) -> list[str]:
    """Mean cost and late jobs of every policy, by family."""
    notes = []
    for name in sorted({result.family for result in results}):
        here = [result for result in results if result.family == name]
        figures = (
            f"{policy} {statistics.fmean(result.usd[policy] for result in here):,.0f} USD, "
            f"{statistics.fmean(result.late[policy] / result.jobs for result in here):.0%} late"
            for policy in here[0].usd
        )
        bound = statistics.fmean(result.bound_usd for result in here)
        notes.append(
            f"{name}, mean of {len(here)} problems: bound {bound:,.0f} USD; " + "; ".join(figures) + "."
        )
    return notes


def _result(problem: tuple[str, int, int]) -> Result:
    name, nodes, seed = problem
    drawn = families()[name].problem(nodes, seed)
    usd, late = {}, {}
    for policy in (AUTO, PRICE, *PEERS):
        outcome = simulate(drawn, policies()[policy], keeps_history=False)
        usd[policy], late[policy] = outcome.total_usd, outcome.late_jobs
    return Result(name, nodes, seed, lower_bound_usd(drawn), usd, late, len(drawn.jobs))


def _milp_problems() -> list[tuple[str, int, int, int]]:
    return [
        (name, nodes, seed, limit)
        for name in ("mixed", "high-scaling")
        for nodes in (3, 5)
        for seed in MILP_SEEDS
        for limit in MILP_NODES
    ]


def _milp_result(question: tuple[str, int, int, int]) -> Case:
    name, nodes, seed, limit = question
    drawn = families()[name].problem(nodes, seed)
    usd = {
        MILP: simulate(drawn, Milp(most_nodes=limit), keeps_history=False).total_usd,
        PRICE: simulate(drawn, policies()[PRICE], keeps_history=False).total_usd,
    }
    group = f"above the bound, milp with {limit} nodes of the search tree, {name}, {nodes} nodes"
    return Case(f"{name}, {nodes} nodes, seed {seed}", group, lower_bound_usd(drawn), usd)


def _tiny_case(number: int) -> Case:
    problem: Problem = tiny_problems()[number]
    usd = {name: simulate(problem, policies()[name], keeps_history=False).total_usd for name in (AUTO, PRICE)}
    grid = [6.0 * step for step in range(1, 8)]
    return Case(f"tiny {number}", OPTIMUM, optimal_usd(problem, grid), usd)
