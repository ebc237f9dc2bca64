"""DAWNBench: epochs to 94 % on CIFAR-10 and 93 % top-5 on ImageNet, from the first part of a run.

A run is seen up to 25, 50 and 75 % of the way to its target; its planned length (the last epoch of its file)
is known, the cut's share is not. The entry is left out of the history; in further lines all of its submitter.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path

from validation.convergence_methods import CUTS, reaching_case, table
from validation.convergence_runs import Run, dawnbench
from validation.report import Case, Metrics, SuiteReport

_NOTES = (
    "Many files stop at the target, so that the planned length gives much of the answer away: see the line "
    "'0.9 of the plan'. Planned length = last epoch of the file.",
    "SQuAD is left out: its column mixes F1 with hours.",
    "The entry left out may have near twins (the same code on another machine); the lines 'leave submitter "
    "out' leave those out too.",
    "A method that never reaches the target counts as ten times what it has seen.",
    "'foretrain, no history' falls back on the shares of the plan in plan_share.toml, which were fitted on "
    "these runs: in-sample.",
)


def run(data: Path) -> SuiteReport:
    """Predict each run from the others of its task."""
    runs = [item for item in dawnbench(data) if math.isfinite(item.meets_at)]
    cases: list[Case] = []
    by_set: dict[str, dict[str, Metrics]] = {}
    for cut in CUTS:
        at_cut = _cases(runs, cut, lambda item: item.curve.group)
        cases += at_cut
        by_set[f"{cut:.0%} seen, leave entry out"] = table(at_cut)
    for cut in CUTS:
        at_cut = _cases(runs, cut, submitter, alone=False)
        by_set[f"{cut:.0%} seen, leave submitter out"] = table(at_cut)
    return SuiteReport("dawnbench", tuple(cases), by_set, notes=_NOTES)


def submitter(item: Run) -> str:
    """Who handed the entry in: the first word of its name."""
    return item.curve.group.split("_")[0]


def _cases(runs: Sequence[Run], cut: float, group: Callable[[Run], str], alone: bool = True) -> list[Case]:
    cases = []
    for item in runs:
        others = [other for other in runs if other.task == item.task and group(other) != group(item)]
        case = reaching_case(item, others, cut, alone)
        if case is not None:
            cases.append(case)
    return cases
