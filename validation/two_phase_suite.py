"""Two-phase plans on DAWNBench's curves at today's prices: what they save, and brute force beside the search.

An entry's curve says how many epochs there are to its target, as it happened or as predicted from its first
half, and where it flattens. The steps of its network are predicted on every current offer, and billed as its
cloud bills. A case is an entry, the offers of one cloud or of all, and a deadline between the quickest offer
and the cheapest; `measured` is the least money by brute force over all ordered pairs of offers and every
switch.
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from foretrain.planning.two_phases.phases import (
    HandOver,
    PhaseAnswer,
    PhasedJob,
    PhasePlan,
    cheapest_in_phases,
    fastest_in_phases,
    plan_in_phases,
)
from foretrain.units import HOUR
from validation.convergence_runs import dawnbench
from validation.report import Case, Metrics, SuiteReport, Verdicts, metrics
from validation.two_phase_cases import (
    Market,
    Network,
    at_one_batch,
    at_own_batches,
    brute_force,
    named,
    priced_offers,
)
from validation.two_phase_curves import (
    Curve,
    critical_batches,
    predicted_epochs,
    read_curves,
    stages_of,
    top_1,
)

HERE, SINGLE, FLATTENS = "foretrain", "best single offer", "switch where the curve flattens"
ALL = "all clouds"
CLOUDS = ("aws", "azure", "gcp", "lambda", "runpod")
SHARES = (1 / 6, 2 / 6, 3 / 6, 4 / 6, 5 / 6)
"""Deadlines, on a logarithmic scale from the quickest offer's time to the cheapest's."""
ONE_BATCH, OWN_BATCHES = "one batch", "own batches"
_STAGES = 8
_AFFORDABLE = 1.2e9
"""Pairs of offers x switch steps that brute force is let loose on."""
_NOTES = (
    "With one batch everywhere a step is the same progress on every offer: the loss curve decides how many "
    "steps there are, not which part runs where. Only deadline, prices and billing place the switch, and "
    "steep part first or last is as good; 'switch where the curve flattens' shows what that rule costs.",
    "Own batches: each offer trains with 128 samples a GPU, and the critical batch size grows along the "
    "curve. It is that of the gradient statistics in the Sia data (ResNet-50 on ImageNet, ResNet-18 on "
    "CIFAR-10, smallest batch) at the entry's top-1 accuracy, in eight equal stages; learning rates are "
    "taken to be tuned to each batch. Early on large batches waste samples, later they hardly do.",
    "A step is that of the zoo's network at 224 pixels in mixed precision, channels last, input never "
    "waiting, however the entry trained; epochs count 1,024 samples a step (512 on CIFAR-10, 32 pixels).",
    "On-demand offers of the shipped catalogue in their cheapest region, one machine; those that another of "
    "the same cloud makes needless are left out. Start-up, checkpoint and its reading are the medians of "
    "facts/data/running.toml (assumed); a checkpoint that leaves a cloud is paid for, at the dearest known "
    "price where the cloud's is not known.",
    "Entries of ResNet-50 and ResNet-152: the other networks are not in the zoo. ResNet-50 of the CIFAR-10 "
    "entries is another than the zoo's, which stands in its place. Among all clouds only runs short enough "
    "for brute force are counted; where the quickest offer is also the cheapest, there is nothing to ask.",
)


JobOf = Callable[[Market, Curve], PhasedJob]


@dataclass(frozen=True)
class Outcome:
    """One case: the answer of the search, and the money of brute force and of the rule."""

    curve: Curve
    market: str
    deadline: float
    steps: int
    answer: PhaseAnswer
    optimum_usd: float
    rule_usd: float
    batches: Mapping[str, int]

    @property
    def saving(self) -> float:
        """Share of the single offer's money that two phases save; 0 where one is best."""
        single, two = self.answer.single, self.answer.two_phase
        return 1 - two.usd / single.usd if single and two else 0.0

    @property
    def epochs(self) -> float:
        """Epochs before the move; NaN where there is none."""
        two = self.answer.two_phase
        return two.phases[0].last_step / self.steps * self.curve.run.meets_at if two else math.nan

    @property
    def smaller_first(self) -> bool:
        """Whether the batch grows at the switch, were each offer to fill its devices."""
        first, second = self.answer.two_phase.phases if self.answer.two_phase else (None, None)
        return bool(first and second and self.batches[first.runner.name] < self.batches[second.runner.name])

    @property
    def error(self) -> float:
        """How far the search is from brute force, as a share."""
        best = self.answer.best
        return math.inf if best is None else abs(best.usd / self.optimum_usd - 1)

    @property
    def case(self) -> Case:
        """The same as a case of a report."""
        single, best = self.answer.single, self.answer.best
        assert single is not None
        assert best is not None
        usd = {HERE: best.usd, SINGLE: single.usd, FLATTENS: self.rule_usd}
        name = f"{self.curve.name}, {self.market}, in {self.deadline / HOUR:.2f} h"
        return Case(name, self.curve.name, self.optimum_usd, usd)


def run(data: Path) -> SuiteReport:
    """Every entry, every cloud, every deadline: with one batch, and with batches of their own."""
    curves = read_curves(data)
    markets = _markets({curve.network for curve in curves})
    outcomes: dict[str, list[Outcome]] = defaultdict(list)
    verdicts: dict[str, dict[str, Verdicts]] = defaultdict(dict)
    cases: list[Case] = []
    by_set: dict[str, dict[str, Metrics]] = {}
    kinds: dict[str, JobOf] = {ONE_BATCH: _one_batch, OWN_BATCHES: _own_batches(data)}
    for kind, job_of in kinds.items():
        for name in (ALL, *CLOUDS) if kind == ONE_BATCH else CLOUDS:
            for curve in curves:
                market = markets[curve.network, name]
                outcomes[kind] += _outcomes(curve, market, job_of(market, curve))
            here = [evaluation for evaluation in outcomes[kind] if evaluation.market == name]
            wins = sum(evaluation.saving > 0 for evaluation in here)
            verdicts[f"two phases win, {kind}"][name] = Verdicts(wins, len(here))
            by_set[f"money above the optimum, {kind}, {name}"] = _table([one.case for one in here])
        cases += [evaluation.case for evaluation in outcomes[kind]]
    verdicts["planned from half of the log, run as it happened"] = _as_predicted(data, curves, markets)
    notes = tuple(note for kind, evaluations in outcomes.items() for note in _figures(kind, evaluations))
    return SuiteReport("two_phase", tuple(cases), by_set, verdicts, (*notes, *_NOTES))


def _markets(networks: set[Network]) -> dict[tuple[Network, str], Market]:
    markets = {}
    for network in networks:
        offers, state = priced_offers(network)
        for name in (ALL, *CLOUDS):
            chosen = tuple(priced for priced in offers if name in (ALL, priced.offer.provider))
            markets[network, name] = Market(name, network, chosen, state)
    return markets


def _one_batch(market: Market, curve: Curve) -> PhasedJob:
    return at_one_batch(market, curve.run.meets_at)


def _own_batches(data: Path) -> JobOf:
    critical = {task: critical_batches(data, task) for task in ("ImageNet", "CIFAR10")}
    accuracies = {task: top_1(data, task) for task in critical}

    def job_of(market: Market, curve: Curve) -> PhasedJob:
        task, entry = curve.run.task, curve.run.curve.name
        return at_own_batches(
            market, stages_of(curve.run.meets_at, accuracies[task][entry], critical[task], _STAGES)
        )

    return job_of


def deadlines(job: PhasedJob) -> tuple[float, ...]:
    """Between the quickest offer's time and the cheapest's; none if they are one."""
    quickest, cheapest = fastest_in_phases(job).single, cheapest_in_phases(job).single
    assert quickest is not None
    assert cheapest is not None
    low, high = quickest.seconds, cheapest.seconds
    return tuple(low * (high / low) ** share for share in SHARES if high > low)


def _outcomes(curve: Curve, market: Market, job: PhasedJob) -> list[Outcome]:
    """The search and brute force at each deadline; nothing where brute force would take too long."""
    if len(job.runners) ** 2 * job.steps > _AFFORDABLE:
        return []
    limits = deadlines(job)
    switch = min(max(1, round(curve.flattens_at / curve.run.meets_at * job.steps)), job.steps - 1)
    by_force, by_rule = brute_force(job, limits), brute_force(job, limits, at_step=switch)
    batches = {named(priced.offer): priced.own_batch for priced in market.offers}
    outcomes = []
    for deadline, best_of_two, rule in zip(limits, by_force, by_rule, strict=True):
        answer = cheapest_in_phases(job, deadline)
        assert answer.single is not None
        least, ruled = (min(answer.single.usd, usd) for usd in (best_of_two, rule))
        outcomes.append(Outcome(curve, market.name, deadline, job.steps, answer, least, ruled, batches))
    return outcomes


def _table(cases: Sequence[Case]) -> dict[str, Metrics]:
    return {name: metrics(cases, name) for name in (HERE, SINGLE, FLATTENS)}


def _figures(kind: str, evaluations: Sequence[Outcome]) -> list[str]:
    """How often and by how much two phases win, the best case, and how far from brute force."""
    largest = max(evaluation.error for evaluation in evaluations)
    lines = [f"{kind}: largest difference of the search to brute force {largest:.1e} of the bill."]
    for task in sorted({evaluation.curve.run.task for evaluation in evaluations}):
        here = [evaluation for evaluation in evaluations if evaluation.curve.run.task == task]
        won = [evaluation for evaluation in here if evaluation.saving > 0]
        lines.append(f"{kind}, {task}: two phases win {len(won)} of {len(here)} cases")
        if won:
            saved = statistics.median(evaluation.saving for evaluation in won)
            growing = sum(evaluation.smaller_first for evaluation in won)
            best = max(won, key=lambda evaluation: evaluation.saving)
            lines[-1] += f" and save {saved:.1%} of the money there in the median; {growing} of them go from "
            lines[-1] += f"fewer GPUs to more. The largest saving: {_described(best)}"
            same_run = (best.curve.name, best.market)
            lines.append(_sweep([one for one in here if (one.curve.name, one.market) == same_run]))
    return lines


def _sweep(evaluations: Sequence[Outcome]) -> str:
    """All deadlines of one entry on one market."""
    costs = []
    for evaluation in evaluations:
        single, two = evaluation.answer.single, evaluation.answer.two_phase
        assert single is not None
        cost = f"in {evaluation.deadline / HOUR:.2f} h {single.usd:.2f} USD"
        if two is not None:
            cost += f" or {two.usd:.2f} USD ({evaluation.saving:.1%} less)"
            cost += f" moving at epoch {evaluation.epochs:.1f}"
        costs.append(cost)
    return f"The same run at each deadline, one offer or two: {'; '.join(costs)}."


def _described(evaluation: Outcome) -> str:
    curve, single, two = evaluation.curve, evaluation.answer.single, evaluation.answer.two_phase
    assert single is not None
    assert two is not None
    first, second = (phase.runner.name for phase in two.phases)
    return (
        f"{curve.name} in {evaluation.deadline / HOUR:.2f} h: {single.usd:.2f} USD on "
        f"{single.phases[0].runner.name}, {two.usd:.2f} USD on {first} up to epoch {evaluation.epochs:.1f} "
        f"of {curve.run.meets_at:.0f} and {second} after ({evaluation.saving:.1%} less); the curve flattens "
        f"at epoch {curve.flattens_at:.0f}."
    )


def _as_predicted(
    data: Path, curves: Sequence[Curve], markets: Mapping[tuple[Network, str], Market]
) -> dict[str, Verdicts]:
    """Plans for the epochs predicted from half of the log, evaluated over the epochs that it took."""
    runs = [item for item in dawnbench(data) if math.isfinite(item.meets_at)]
    counts: dict[str, list[bool]] = defaultdict(list)
    for curve in curves:
        epochs = predicted_epochs(curve.run, runs)
        for name in (ALL, *CLOUDS) if epochs is not None else ():
            market = markets[curve.network, name]
            planned, happened = at_one_batch(market, epochs or 0.0), at_one_batch(market, curve.run.meets_at)
            for deadline in deadlines(planned):
                answer = cheapest_in_phases(planned, deadline)
                counts["two phases planned"].append(answer.two_phase is not None)
                if answer.single is None or answer.two_phase is None:
                    continue
                one, two = (_run_on(happened, plan) for plan in (answer.single, answer.two_phase))
                counts["of these, cheaper as it happened too"].append(two.usd < one.usd)
                counts["of these, in time"].append(two.seconds <= deadline)
                counts["the single offers in their place, in time"].append(one.seconds <= deadline)
    return {name: Verdicts(sum(results), len(results)) for name, results in counts.items()}


def _run_on(job: PhasedJob, plan: PhasePlan) -> PhasePlan:
    """The same offers and switch on a job of another length; it ends on the first if it is that short."""
    places = [
        next(i for i, runner in enumerate(job.runners) if runner == phase.runner) for phase in plan.phases
    ]
    switch = plan.phases[0].last_step
    if len(places) == 1 or switch >= job.steps:
        alone = replace(job, runners=(job.runners[places[0]],), hand_over=HandOver())
        single = cheapest_in_phases(alone).single
        assert single is not None
        return single
    return plan_in_phases(job, places[0], places[1], switch)
