"""Run every benchmark, print a table, keep it in build/benchmarks.json; exit 1 if a target is missed."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from benchmarks.timing import Benchmark, Measurement, discover, measure
from foretrain.units import format_duration

RESULTS = Path("build/benchmarks.json")


def main(wanted: Sequence[str]) -> int:
    """Run the benchmarks whose name contains one of the given texts (all of them if none is given)."""
    with tempfile.TemporaryDirectory() as home:
        os.environ["FORETRAIN_HOME"] = home  # what the user imported must not slow or speed anything
        chosen = [item for item in discover() if not wanted or any(text in item.name for text in wanted)]
        return report(chosen, RESULTS)


def report(chosen: Sequence[Benchmark], results: Path) -> int:
    """Measure, print and keep; the exit code says whether all targets are met."""
    measured = []
    print(f"{'benchmark':<28}{'median':>10}{'fastest':>10}{'target':>10}")
    for item in chosen:
        measured.append(measure(item))
        print(_line(measured[-1]), flush=True)
    results.parent.mkdir(parents=True, exist_ok=True)
    results.write_text(json.dumps([{**asdict(item), "met": item.met} for item in measured], indent=2) + "\n")
    return 0 if all(item.met for item in measured) else 1


def _line(item: Measurement) -> str:
    times = (item.median_seconds, item.fastest_seconds, item.target_seconds)
    cells = "".join(f"{format_duration(seconds):>10}" for seconds in times)
    return f"{item.name:<28}{cells}  {'met' if item.met else 'MISSED'}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
