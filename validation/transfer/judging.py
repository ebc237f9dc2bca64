"""Tables of the transfer suite: errors by source and by what a step is, beside a napkin and the roofline."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from itertools import groupby
from pathlib import Path

from calibration.left_out import without

from validation.transfer import language_models as many
from validation.transfer import one_gpu as one
from validation.transfer.case import Judged, TransferCase, judge

Reader = Callable[[Path], Iterator[TransferCase]]
SOURCES: Mapping[str, Reader] = {
    "llm_foundry": many.llm_foundry,
    "megatron_bridge": many.megatron_bridge,
    "simumax": many.simumax,
    "ultrascale": many.ultra_scale,
    "vtrain": many.v_train,
    "sailor": many.sailor,
    "peft": many.peft,
    "published": many.published,
    "lambda": one.lambda_,
    "timm": one.timm,
    "profet": one.profet_,
    "mlperf": one.mlperf,
    "dle": one.dle,
    "sailor_layers": one.sailor_layers,
    "neusight": one.neu_sight,
    "kernelbench": one.kernel_bench,
}
SPLITS = ("precision", "GPU", "generation", "GPUs", "length", "mode", "framework")
HEADINGS = (
    "cases", "mean", "median", "bias", "in 80 %", "napkin", "roofline", "memory", "bias", "in 80 %",
)  # fmt: skip


def cases_of(source: str, data: Path, sample: int | None = None, match: str = "") -> list[TransferCase]:
    """The cases of a source whose name has `match`; at most `sample` of them, evenly over its table."""
    cases = [case for case in SOURCES[source](data) if match in case.name]
    if sample is None or len(cases) <= sample:
        return cases
    return [cases[index * len(cases) // sample] for index in range(sample)]


def judge_all(
    cases: Sequence[TransferCase],
    with_roofline: bool = True,
    is_left_out: bool = True,
) -> list[Judged]:
    """Predict cases in order, each with calibrations that no row of its source is in, or the shipped ones."""
    judged = []
    for source, group in groupby(cases, key=lambda case: case.source):
        with without(source) if is_left_out else nullcontext():
            judged += [judge(case, with_roofline) for case in group]
    return judged


def figures(judged: Sequence[Judged]) -> tuple[str, ...]:
    """The columns of `HEADINGS` for some cases; a dash where there is nothing to compare."""
    timed = [each for each in judged if each.seconds and each.case.seconds]
    held = [each for each in judged if each.memory and each.case.memory_bytes]
    cells = [str(len(judged))]
    if timed:
        errors = [each.error for each in timed]
        sizes = [abs(error) for error in errors]
        inside = [each.is_inside for each in timed]
        cells += [f"{statistics.fmean(sizes):.1%}", f"{statistics.median(sizes):.1%}"]
        cells += [f"{statistics.median(errors):+.1%}", f"{statistics.fmean(inside):.0%}"]
        cells += [_mean_error(timed, "napkin_seconds"), _mean_error(timed, "roofline_seconds")]
    else:
        cells += ["-"] * 6
    if held:
        errors = [each.memory_error for each in held]
        inside = [each.is_memory_inside for each in held]
        cells += [f"{statistics.fmean(map(abs, errors)):.1%}", f"{statistics.median(errors):+.1%}"]
        cells.append(f"{statistics.fmean(inside):.0%}")
    else:
        cells += ["-"] * 3
    return tuple(cells)


def _mean_error(timed: Sequence[Judged], method: str) -> str:
    errors = [
        abs(getattr(each, method) / each.case.seconds - 1)
        for each in timed
        if getattr(each, method) is not None and each.case.seconds
    ]
    return f"{statistics.fmean(errors):.1%}" if errors else "-"


def by_set(judged: Sequence[Judged]) -> dict[str, list[Judged]]:
    """The answered cases by the sets that have targets, in order of first use."""
    sets: dict[str, list[Judged]] = {}
    for each in judged:
        for name in each.case.sets:
            if not each.refusal:
                sets.setdefault(name, []).append(each)
    return sets


def by_trait(judged: Sequence[Judged], trait: str) -> dict[str, list[Judged]]:
    """The answered cases by one trait, those without it left out."""
    groups: dict[str, list[Judged]] = {}
    for each in judged:
        value = each.case.traits()[trait]
        if value and not each.refusal:
            groups.setdefault(value, []).append(each)
    return dict(sorted(groups.items()))


def worst(judged: Sequence[Judged], count: int) -> list[str]:
    """The cases with the largest errors of the time, then those with the largest errors of memory."""
    times = [(each.case, each.seconds, each.case.seconds, "s", 1.0) for each in judged]
    sizes = [(each.case, each.memory, each.case.memory_bytes, "GB", 1e-9) for each in judged]
    lines = []
    for listed in (times, sizes):
        known = [
            (bound.p50 / measured - 1, case.name, f"{measured * unit:.4g} {word}, "
             f"predicted {bound.p50 * unit:.4g} ({bound.p10 * unit:.4g}-{bound.p90 * unit:.4g})")
            for case, bound, measured, word, unit in listed if bound is not None and measured
        ]  # fmt: skip
        known.sort(key=lambda row: -abs(row[0]))
        lines += [f"{error:+7.1%}  measured {text}  {name}" for error, name, text in known[:count]]
    return lines


def table(rows: Sequence[tuple[str, Sequence[str]]], first: str = "cases of") -> str:
    """A table of text: a name, then the figures."""
    width = max(len(first), *(len(name) for name, _ in rows)) if rows else len(first)
    lines = [f"{first:<{width}} " + " ".join(f"{heading:>9}" for heading in HEADINGS)]
    lines += [f"{name:<{width}} " + " ".join(f"{cell:>9}" for cell in cells) for name, cells in rows]
    return "\n".join(lines)
