"""Gavel's throughputs: from a network on one and two GPUs to four and eight, on one machine or each apart.

A network is fitted to its timings on one and two GPUs of a kind, of all batch sizes, on one machine and apart
separately. What the physical form knows beforehand was learned without the network, in Gavel and in Sia.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from calibration.datasets.gavel import GavelStep
from calibration.scaling import gavel_jobs, gavel_timing, sia_jobs

from calibration.datasets import gavel, sia
from validation.report import Metrics, SuiteReport
from validation.scaling_cases import Priors, Question, answered, by_method
from validation.splitting import by_group

_TOGETHER, _APART = "consolidated", "unconsolidated"
_NOTES = (
    "Step times are workers / throughput. How machines were divided is not in the data: eight P100 are "
    "taken as two machines of four, the most Google rented then; unconsolidated workers as one on each "
    "machine.",
    "No method predicts V100 on one machine: language models take 2.7 times as long on four GPUs as on "
    "one, and as long on eight as on one; ResNet-18 is faster on two than on one.",
    "Networks have three to five batch sizes, so that six to ten timings are fitted to.",
)


def run(data: Path) -> SuiteReport:
    """Fit to one and two GPUs, predict four and eight."""
    steps = gavel.read(data)
    priors = Priors([*sia_jobs(sia.read(data)), *gavel_jobs(steps)])
    cases = [case for context in _questions(steps) for case in answered(context, priors)]
    by_set: dict[str, dict[str, Metrics]] = {}
    for count in (4, 8):
        here = [case for case in cases if case.name.endswith(f" {count} GPUs")]
        by_set[f"{count} GPUs"] = by_method(here)
        for how in (_TOGETHER, _APART):
            group = [case for case in here if f", {how} " in case.name]
            by_set[f"{count} GPUs, {how}"] = by_method(group)
            for cluster, some in by_group(group).items():
                by_set[f"{count} GPUs, {how}, {cluster}"] = by_method(some)
    return SuiteReport("gavel", tuple(cases), by_set, notes=_NOTES)


def _questions(steps: Sequence[GavelStep]) -> list[Question]:
    by_job: dict[tuple[str, str, bool], list[GavelStep]] = {}
    for step in steps:
        by_job.setdefault((step.model, step.cluster, step.together), []).append(step)
    contexts = []
    for (model, cluster, together), of_job in by_job.items():
        batches = {step.batch for step in of_job if step.devices > 2}
        known = tuple(gavel_timing(step) for step in of_job if step.devices <= 2 and step.batch in batches)
        rest = [step for step in of_job if step.devices > 2]
        how = _TOGETHER if together else _APART
        labels = tuple(f"{how} {step.devices} GPUs" for step in rest)
        contexts.append(Question(model, cluster, known, tuple(map(gavel_timing, rest)), labels))
    return contexts
