"""Measured over predicted memory by source: `python -m validation.memory_spread`.

The quantiles are those of `facts/data/calibrations/memory.toml`; beside them stands how many rows of a source
lie in the interval that the other sources give.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import numpy as np

from foretrain.prediction.memory.estimate import spread_between
from validation import did_it_run_suite
from validation.transfer.judging import cases_of, judge_all

SOURCES = ("simumax", "sailor", "ultrascale", "peft")
ADAPTERS = "adapters"
GPUMEMNET = (0.963, 1.088, 506)
"""Of `validation.memory_suite`, which fits its constants to half of its families."""


def ratios(data: Path) -> dict[str, list[float]]:
    """Measured over predicted memory of every row, by source."""
    by_source: dict[str, list[float]] = {}
    for source in SOURCES:
        judged = judge_all([each for each in cases_of(source, data, None) if each.memory_bytes], False)
        by_source[source] = [
            each.case.memory_bytes / each.memory.p50
            for each in judged
            if each.memory is not None and each.case.memory_bytes
        ]
    asked = [each for each in did_it_run_suite.adapters(did_it_run_suite.FIGURES) if each.reported_bytes]
    cases = [did_it_run_suite.memory_case(did_it_run_suite.judge(each)) for each in asked]
    by_source[ADAPTERS] = [case.measured / case.predicted[did_it_run_suite.OURS] for case in cases]
    return by_source


def main() -> None:
    """Print the quantiles of each source and what the interval of the others covers of it."""
    by_source = ratios(Path(os.environ.get("FORETRAIN_DATA", "../shared/datasets")))
    own = {
        name: (float(np.quantile(rows, 0.1)), float(np.quantile(rows, 0.9)), len(rows))
        for name, rows in by_source.items()
    }
    for name, rows in by_source.items():
        others = [GPUMEMNET, *(each for other, each in own.items() if other != name)]
        spread = spread_between(others, "others")
        inside = np.mean([spread.p10 <= each <= spread.p90 for each in rows])
        low, high, samples = own[name]
        sys.stdout.write(
            f"{name:12} {samples:4} p10 {low:.3f} p90 {high:.3f} in others' 80 %: {inside:.0%}\n"
        )
    spread = spread_between([GPUMEMNET, *own.values()], "all")
    sys.stdout.write(f"{'all':12} {spread.samples:4} p10 {spread.p10:.3f} p90 {spread.p90:.3f}\n")


if __name__ == "__main__":
    main()
