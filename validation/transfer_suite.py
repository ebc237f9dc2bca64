"""Steps of other sources (data sets, harnesses, frameworks, clusters), no row of which was in any fit.

The headline of the accuracy page. Every case is one call of `foretrain.predict`; beside it stand a napkin (a
fixed share of peak) and the roofline. Calibrations that have rows of a source are fitted without it where it
is judged (`calibration.left_out`), so are power in training and the spread between sources. Also writes
`build/transfer/residuals.csv`, from which the shipped spread is fitted.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import fmean

from calibration.left_out import substitutes, without
from calibration.steps.spread import Residual, leave_source_out, write_residuals
from calibration.steps.training_power import TimedStep, write_steps
from calibration.steps.training_power import leave_source_out as leave_power_out

from foretrain.estimates import Quantiles, probability_within
from foretrain.prediction.operators import matrix
from foretrain.prediction.spread import KnowledgeClass, Spread
from validation.report import Case, Metrics, SuiteReport, Table, metrics
from validation.transfer.case import Judged
from validation.transfer.judging import SOURCES, SPLITS, by_set, by_trait, cases_of, judge_all

OURS, NAPKIN, ROOFLINE = "foretrain", "napkin", "roofline"
RESIDUALS = Path(__file__).parents[1] / "build" / "transfer" / "residuals.csv"
STEPS = RESIDUALS.with_name("steps.csv")
SAMPLE, SAMPLES = 24, {"llm_foundry": 36, "lambda": 36, "timm": 48, "published": 57}
"""Cases of a source, evenly over its table; `python -m validation.transfer --sample 0` predicts all."""
_PROCESSES = 2
ONE, MANY = "a step on one GPU", "a step on many GPUs"
_HEADLINES: dict[str, Callable[[Judged], bool]] = {
    ONE: lambda each: each.case.devices == 1 and not each.case.is_forward,
    "a forward pass on one GPU, eager": lambda each: each.case.is_forward and not each.case.is_compiled,
    "a forward pass on one GPU, compiled": lambda each: each.case.is_forward and each.case.is_compiled,
    MANY: lambda each: each.case.devices > 1,
    "sequences of 16k tokens and more": lambda each: (each.case.seq_len or 0) >= 16_384,
    "TF32": lambda each: each.case.precision == "tf32",
    "FP8": lambda each: each.case.precision == "fp8",
}
_NOTES = (
    "Napkin: 40 % of the peak of the precision used by 6 FLOP a parameter and token; with checkpointing 35 % "
    "by 8. Models without tokens count the FLOP of their graph.",
    "Published tools on their own or the same rows, as others report: SimuMax 8 % on 80 layouts of a GPT on "
    "A100, 4 % (time) and 0.3 % (memory) on its own B200 rows; llm-analysis with one efficiency of 0.5 is "
    "ahead of the earlier foretrain on four of six Megatron sources; NeuSight 7.1 % on transformers in FP32.",
    "Large tables are sampled evenly over their rows, models of timm by a hash of their name. Rows of "
    "Megatron-Bridge that differ in nothing but the release are one case; NVFP4, Nemotron 3 and DeepSeek-V4 "
    "are not asked. Of the ultra-scale playbook, at most 16 nodes with tensor parallelism on a node.",
    "Every source is judged by fits without it. Fitted to whole steps of these sources are the energy of "
    "products in training (ADR 24; three constants), hosts under Megatron-DeepSpeed and nanotron, "
    "the kernels of FlashAttention 1 and factors of half precision; to other rows of them what the table of "
    "left-out sources lists. The forms of models, and requests that say how a source ran, were found with "
    "these rows in view.",
)


def run(data: Path) -> SuiteReport:
    """Predict all sources; fit the spread without each."""
    with ProcessPoolExecutor(_PROCESSES) as pool:
        parts = dict(zip(SOURCES, pool.map(partial(_judge_source, data=data), SOURCES), strict=True))
    judged = _without_own_source([each for part in parts.values() for each in part.left_out])
    timed = [each for each in judged if each.seconds and each.case.seconds]
    residuals = [residual_of(each) for each in timed]
    write_residuals(RESIDUALS, residuals)
    spreads = leave_source_out(residuals)
    answered = [each for each in judged if not each.refusal]
    reliability = _reliability(timed, spreads)
    return SuiteReport(
        "transfer",
        tuple(_case(each, spreads) for each in timed),
        _metrics(answered, timed, spreads),
        notes=_NOTES,
        tables=(
            _left_out(parts),
            _widths(timed, spreads),
            *_splits(timed, spreads),
            _reliability_table(reliability),
            _refusals(judged),
        ),
        reliability=tuple(reliability.values()),
    )


def _without_own_source(judged: Sequence[Judged]) -> list[Judged]:
    """Each case as predicted with an energy of products in training that was fitted without its source."""
    steps = [timed_step(each) for each in judged if each.seconds and each.case.seconds]
    steps = [step for step in steps if step.product_seconds > 0]
    write_steps(STEPS, steps)
    powers, known = leave_power_out(steps, matrix.calibration()), {}
    for source in powers:
        with without(source):
            known[source] = matrix.calibration()
    results = []
    for each in judged:
        source = each.case.source
        if each.seconds and each.case.seconds and each.product_seconds and source in powers:
            factor = timed_step(each).predicted(powers[source], known[source]) / each.seconds.p50
            bound = each.seconds
            scaled = Quantiles(factor * bound.p10, factor * bound.p50, factor * bound.p90)
            results.append(replace(each, seconds=scaled))
        else:
            results.append(each)
    return results


def timed_step(each: Judged) -> TimedStep:
    """What the energy of products in training is fitted to."""
    assert each.seconds is not None and each.case.seconds
    unit = {"fp8": "fp8", "tf32": "tf32"}.get(each.case.precision, "tensor")
    return TimedStep(
        each.case.source, each.case.name, each.case.device.id, unit, each.case.seconds, each.seconds.p50,
        each.product_seconds,
    )  # fmt: skip


@dataclass(frozen=True)
class _JudgedSource:
    """The cases of a source by calibrations without it; and as shipped, where these differ."""

    left_out: Sequence[Judged]
    shipped: Sequence[Judged]


def _judge_source(source: str, data: Path) -> _JudgedSource:
    cases = cases_of(source, data, SAMPLES.get(source, SAMPLE))
    judged = judge_all(cases)
    shipped = judge_all(cases, with_roofline=False, is_left_out=False) if substitutes(source) else []
    sys.stderr.write(f"{source}: {len(judged)} cases\n")
    return _JudgedSource(judged, shipped)


def _left_out(parts: Mapping[str, _JudgedSource]) -> Table:
    """What was left out of what, and what that did to the error."""
    rows = []
    for source, part in parts.items():
        errors = [f"{_mean_error(judged):.1%}" for judged in (part.shipped, part.left_out) if part.shipped]
        for file, substitute in substitutes(source).items():
            rows.append((source, file, substitute.constants, substitute.instead, *errors))
    headings = ("source", "left out of", "what", "in its place", "error as shipped", "error without")
    return Table("sources left out of calibrations; power in training as shipped", headings, tuple(rows))


def _mean_error(judged: Sequence[Judged]) -> float:
    return fmean(abs(each.error) for each in judged if each.seconds and each.case.seconds)


def residual_of(each: Judged) -> Residual:
    """What the spread is fitted to."""
    assert each.seconds is not None and each.case.seconds and each.traits is not None
    ratio = math.log(each.case.seconds / each.seconds.p50)
    return Residual(each.case.source, each.case.name, ratio, each.traits)


def _interval(each: Judged, spreads: dict[str, Spread]) -> Quantiles:
    """The interval by a spread fitted without the source."""
    assert each.seconds is not None and each.traits is not None
    below, above = spreads[each.case.source].logs(each.traits)
    middle = each.seconds.p50
    return Quantiles(middle * math.exp(-below), middle, middle * math.exp(above))


def _case(each: Judged, spreads: dict[str, Spread]) -> Case:
    assert each.seconds is not None and each.case.seconds
    others = {NAPKIN: each.napkin_seconds, ROOFLINE: each.roofline_seconds}
    predicted = {OURS: each.seconds.p50, **{k: seconds for k, seconds in others.items() if seconds}}
    return Case(each.case.name, each.case.source, each.case.seconds, predicted, _interval(each, spreads))


def _figures(members: Sequence[Judged], spreads: dict[str, Spread]) -> dict[str, Metrics]:
    cases = [_case(each, spreads) for each in members if each.seconds and each.case.seconds]
    by_method = {}
    for method in (OURS, NAPKIN, ROOFLINE):
        known = [case for case in cases if method in case.predicted]
        if known:
            by_method[method] = metrics(known, method, with_interval=method == OURS)
    return by_method


def _metrics(
    answered: Sequence[Judged], timed: Sequence[Judged], spreads: dict[str, Spread]
) -> dict[str, dict[str, Metrics]]:
    by_cases: dict[str, dict[str, Metrics]] = {}
    for name, chosen in _HEADLINES.items():
        by_cases[name] = _figures([each for each in timed if chosen(each)], spreads)
    for source in SOURCES:
        by_cases[f"source {source}"] = _figures([e for e in answered if e.case.source == source], spreads)
    for name, members in by_set(answered).items():
        by_cases[name] = _figures(members, spreads)
        held = [
            Case(e.case.name, e.case.source, e.case.memory_bytes, {OURS: e.memory.p50}, e.memory)
            for e in members
            if e.memory and e.case.memory_bytes
        ]
        if held:
            by_cases[f"memory, {name}"] = {OURS: metrics(held, OURS, with_interval=True)}
    return {name: by_method for name, by_method in by_cases.items() if by_method}


def _splits(timed: Sequence[Judged], spreads: dict[str, Spread]) -> tuple[Table, ...]:
    tables = []
    for trait in SPLITS:
        rows = []
        for name, members in by_trait(timed, trait).items():
            by_method = _figures(members, spreads)
            ours = by_method[OURS]
            rows.append(
                (name, str(ours.cases), f"{ours.mean:.1%}", f"{ours.median:.1%}", f"{ours.bias:+.1%}",
                 "" if ours.coverage is None else f"{ours.coverage:.0%}",
                 *(f"{by_method[m].mean:.1%}" if m in by_method else "" for m in (NAPKIN, ROOFLINE)))
            )  # fmt: skip
        headings = (trait, "cases", "mean", "median", "bias", "in interval", NAPKIN, ROOFLINE)
        tables.append(Table(f"by {trait}", headings, tuple(rows)))
    return tuple(tables)


def _reliability(timed: Sequence[Judged], spreads: dict[str, Spread]) -> dict[int, tuple[float, float, int]]:
    """By tenth of stated probability: its mean, the share of limits that was met, and how many limits.

    Limits are multiples of the predicted time. A plan's probability is that of its interval, less what
    surprises by class of knowledge.
    """
    bins: dict[int, list[tuple[float, bool]]] = {}
    for each in timed:
        assert each.seconds is not None and each.case.seconds and each.traits is not None
        bound, spread = _interval(each, spreads), spreads[each.case.source]
        reliable = 1 - spread.surprise.get(each.traits.known.value, 0.0)
        for multiple in (0.5, 0.7, 0.8, 0.9, 1.0, 1.1, 1.2, 1.4, 1.7, 2.0, 3.0):
            limit = multiple * bound.p50
            within = probability_within(bound.p10, bound.p50, bound.p90, limit, spread.within)
            stated = reliable * float(within)
            bins.setdefault(min(9, int(10 * stated)), []).append((stated, each.case.seconds <= limit))
    return {
        place: (
            sum(stated for stated, _ in pairs) / len(pairs),
            sum(met for _, met in pairs) / len(pairs),
            len(pairs),
        )
        for place, pairs in sorted(bins.items())
    }


def _reliability_table(bins: Mapping[int, tuple[float, float, int]]) -> Table:
    rows = tuple(
        (f"{10 * place}-{10 * place + 10} %", str(count), f"{stated:.0%}", f"{met:.0%}")
        for place, (stated, met, count) in bins.items()
    )
    return Table(
        "probabilities of plans: stated against met", ("stated", "limits", "mean stated", "met"), rows
    )


def _widths(timed: Sequence[Judged], spreads: dict[str, Spread]) -> Table:
    """How well intervals are judged together: coverage alone is met by wide ones.

    The interval score of a case is its width and ten times what it is outside, in logarithms of the time.
    """
    groups: dict[str, list[Judged]] = {"all": list(timed)}
    groups |= {name: [each for each in timed if chosen(each)] for name, chosen in _HEADLINES.items()}
    for known in list(KnowledgeClass)[1:]:
        groups[known.sentence] = [each for each in timed if each.traits and each.traits.known is known]
    rows = []
    for name, members in groups.items():
        if not members:
            continue
        residuals = [residual_of(each) for each in members]
        logs = [spreads[each.source].logs(each.traits) for each in residuals]
        pairs = list(zip(residuals, logs, strict=True))
        inside = [-below <= each.log_ratio <= above for each, (below, above) in pairs]
        widths = [below + above for below, above in logs]
        outside = [
            max(0.0, -below - each.log_ratio, each.log_ratio - above) for each, (below, above) in pairs
        ]
        scores = [width + 10 * off for width, off in zip(widths, outside, strict=True)]
        rows.append(
            (name, str(len(members)), f"{fmean(inside):.0%}", f"{fmean(widths):.2f}", f"{fmean(scores):.2f}")
        )
    headings = ("cases of", "cases", "in interval", "width", "interval score")
    return Table("80 % intervals by spreads fitted without the source", headings, tuple(rows))


def _refusals(judged: Sequence[Judged]) -> Table:
    rows = tuple((each.case.name, each.refusal) for each in judged if each.refusal)
    return Table("not answered", ("case", "why"), rows or (("none", ""),))
