"""Run every benchmark, print a table, keep it in build/benchmarks.json; exit 1 if a target is missed.

python -m benchmarks                        all of them
python -m benchmarks resnet50 wheel         those whose name contains one of these texts
python -m benchmarks --page                 write the table of docs/performance.md, too
"""

from __future__ import annotations

import argparse
import json
import os
import re
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from datetime import date
from pathlib import Path
from typing import Any

from benchmarks.timing import SECONDS, Benchmark, Failed, Measurement, NotMeasured, discover, measure
from foretrain.units import format_duration

RESULTS = Path("build/benchmarks.json")
PAGE = Path("docs/performance.md")
_MEASURED = re.compile(r"(<!-- begin measured -->\n).*?(<!-- end measured -->)", re.DOTALL)


def main() -> int:
    """Run the benchmarks asked for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--page", action="store_true", help=f"write the table of {PAGE}, too")
    parser.add_argument("names", nargs="*", help="texts that names must contain one of (default: all)")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as home:
        os.environ["FORETRAIN_HOME"] = home  # what the user imported must not slow or speed anything
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # an installed package is compiled
        names: list[str] = asked.names
        chosen = [item for item in discover() if not names or any(text in item.name for text in names)]
        code = report(chosen, RESULTS)
    if asked.page:
        write_page(RESULTS, PAGE)
    return code


def report(chosen: Sequence[Benchmark], results: Path) -> int:
    """Measure, print and keep; the exit code says whether all targets are met."""
    kept: list[dict[str, object]] = []
    for item in chosen:
        try:
            measured = measure(item)
        except NotMeasured as reason:
            kept.append({"name": item.name, "met": None, "reason": f"not measured, {reason}"})
            print(f"{item.name}: not measured, {reason}", flush=True)
        except Failed as reason:
            kept.append({"name": item.name, "met": False, "reason": f"failed, {reason}"})
            print(f"{item.name}: FAILED, {reason}", flush=True)
        else:
            kept.append({**asdict(measured), "ratio": measured.ratio, "met": measured.met})
            print(_line(measured), flush=True)
    results.parent.mkdir(parents=True, exist_ok=True)
    results.write_text(json.dumps(kept, indent=2) + "\n")
    verdicts = [row["met"] for row in kept]
    left_out = f", {verdicts.count(None)} not measured" if None in verdicts else ""
    print(f"{verdicts.count(True)} of {len(kept)} targets met{left_out}", flush=True)
    return 1 if False in verdicts else 0


def _line(item: Measurement) -> str:
    ratio = "" if item.ratio is None else f" ({item.ratio:.1f}x)"
    amounts = f"{_amount(item.median, item.unit)}{ratio}, target {_amount(item.target, item.unit)}"
    return f"{item.name}: {amounts}, {'met' if item.met else 'MISSED'}"


def _amount(value: float, unit: str) -> str:
    return format_duration(value) if unit == SECONDS else f"{value:,.1f} {unit}"


def write_page(results: Path, page: Path) -> None:
    """Replace the table of a page by the kept results."""
    kept = json.loads(results.read_text(encoding="utf-8"))
    lines = ["", f"Measured on {date.today().isoformat()}, {os.cpu_count()} cores.", ""]
    lines += ["| | median | of `import numpy` | target | |", "|---|---:|---:|---:|---|"]
    lines += [f"| {' | '.join(_row(each))} |" for each in kept]
    table = "\n".join([*lines, "", ""])
    text = page.read_text(encoding="utf-8")
    page.write_text(_MEASURED.sub(lambda match: match[1] + table + match[2], text), encoding="utf-8")


def _row(kept: dict[str, Any]) -> tuple[str, ...]:
    """A row of the table: name, median, ratio, target, whether it is met."""
    name = kept["name"].replace("|", "\\|")
    if "reason" in kept:
        return name, "", "", "", kept["reason"].replace("|", "\\|")
    ratio = "" if kept["ratio"] is None else f"{kept['ratio']:.1f}x"
    target = _amount(kept["target"], kept["unit"])
    if kept["reference"]:
        target = f"{kept['target'] / kept['reference']:.1f}x"
    return name, _amount(kept["median"], kept["unit"]), ratio, target, "met" if kept["met"] else "**missed**"


if __name__ == "__main__":
    raise SystemExit(main())
