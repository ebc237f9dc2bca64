"""The data set of resources as tables: `python -m validation.resources_data`.

Reads `data/resources/runs.parquet`, which `foretrain runs export` wrote, and writes beside it one row per run
(`runs.csv`) and one row per run, worker and resource with its bursts and idle gaps (`bursts.csv`).
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from foretrain.learning.resources.samples import steady_window
from foretrain.prediction.resources.bursts import bursts_of, within
from foretrain.store.exchange.parquet_files import read_parquet
from foretrain.store.runs import NODE, Resource, Run

DATA = Path(__file__).parent / "data" / "resources"
_SETTING = ("model", "batch", "seq_len", "image_size", "strategy", "network", "optimizer")
_RESOURCES = (Resource.CPU, Resource.MEMORY, Resource.TRANSMIT, Resource.RECEIVE)


def run_rows(runs: Sequence[Run]) -> Iterator[dict[str, Any]]:
    """One row per run: setting, step time, prediction made before it, load of other processes."""
    for run in runs:
        others = [float(each.values[0]) for each in run.series if each.worker == NODE]
        yield {
            "trial": run.trial,
            "started_at": run.started_at.isoformat(timespec="seconds"),
            "status": run.status,
            **{name: run.setting.get(name, "") for name in _SETTING},
            "workers": run.environment.nodes,
            "seconds": f"{run.seconds:.3f}",
            "steps": run.summary.steps if run.summary else 0,
            "step_seconds": f"{run.summary.seconds:.6f}" if run.summary else "",
            "step_variation": f"{run.summary.variation:.3f}" if run.summary else "",
            "predicted_p10_seconds": f"{run.prediction.p10_seconds:.6f}" if run.prediction else "",
            "predicted_seconds": f"{run.prediction.p50_seconds:.6f}" if run.prediction else "",
            "predicted_p90_seconds": f"{run.prediction.p90_seconds:.6f}" if run.prediction else "",
            "other_processes_cores": f"{others[0]:.2f}" if others else "",
        }


def burst_rows(runs: Sequence[Run]) -> Iterator[dict[str, Any]]:
    """One row per run, worker and resource, over the steady steps; a server follows the workers."""
    for run in runs:
        window = steady_window(run)
        for series in run.series:
            if series.resource not in _RESOURCES or series.worker == NODE or window is None:
                continue
            bursts = bursts_of(within(series, window))
            if bursts is None:
                continue
            yield {
                "trial": run.trial,
                "worker": series.worker,
                "is_server": int(series.worker == run.environment.nodes),
                "resource": series.resource,
                "pattern": bursts.pattern,
                "burst_amount": f"{bursts.burst_amount:.6g}",
                "idle_amount": f"{bursts.idle_amount:.6g}",
                "burst_duration": f"{bursts.burst_duration:.4f}",
                "idle_duration": f"{bursts.idle_duration:.4f}",
            }


def write(file: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """Write a table."""
    listed = list(rows)
    with file.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.DictWriter(stream, list(listed[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(listed)


def main() -> None:
    """Write both tables."""
    runs = sorted(read_parquet(DATA / "runs.parquet"), key=lambda run: run.started_at)
    write(DATA / "runs.csv", run_rows(runs))
    write(DATA / "bursts.csv", burst_rows(runs))


if __name__ == "__main__":
    main()
