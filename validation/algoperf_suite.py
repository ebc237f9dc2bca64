"""AlgoPerf: steps to target of six workloads under many optimisers, from the first part of a run.

The submission (optimiser) is left out of the history, with all its studies and trials, in JAX and PyTorch.
The planned length is the workload's step hint, the same for all. A sample of runs of each workload is judged.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from validation.convergence_methods import CUTS, reaching_case, table
from validation.convergence_runs import ALGOPERF_WORKLOADS, Run, algoperf
from validation.report import Case, Metrics, SuiteReport

_A_WORKLOAD = 25
"""Runs of a workload that are judged, drawn with a fixed seed; all runs are history."""
_NOTES = (
    "Only runs that met their target can be judged; runs that never did are in the history.",
    f"A sample of {_A_WORKLOAD} runs of each workload, seed 0; imagenet_resnet has ten.",
    "A method that never reaches the target counts as ten times what it has seen.",
)


def run(data: Path) -> SuiteReport:
    """Predict a sample of runs from the runs of the other submissions."""
    runs = algoperf(data)
    chosen = [item for task in ALGOPERF_WORKLOADS for item in _sample([r for r in runs if r.task == task])]
    by_set: dict[str, dict[str, Metrics]] = {}
    cases: list[Case] = []
    for cut in CUTS:
        by_task = {
            task: _cases(runs, [item for item in chosen if item.task == task], cut)
            for task in ALGOPERF_WORKLOADS
        }
        at_cut = [case for listed in by_task.values() for case in listed]
        cases += at_cut
        by_set[f"{cut:.0%} seen, leave submission out"] = table(at_cut)
        for task, listed in by_task.items():
            if listed:
                by_set[f"{cut:.0%} seen, {task}"] = table(listed)
    return SuiteReport("algoperf", tuple(cases), by_set, notes=_NOTES)


def _sample(runs: Sequence[Run]) -> list[Run]:
    met = [item for item in runs if math.isfinite(item.meets_at)]
    order = np.random.default_rng(0).permutation(len(met))[:_A_WORKLOAD]
    return [met[index] for index in order.tolist()]


def _cases(runs: Sequence[Run], chosen: Sequence[Run], cut: float) -> list[Case]:
    cases = []
    for item in chosen:
        others = [r for r in runs if r.task == item.task and r.curve.group != item.curve.group]
        case = reaching_case(item, others, cut, alone=False)
        if case is not None:
            cases.append(case)
    return cases
