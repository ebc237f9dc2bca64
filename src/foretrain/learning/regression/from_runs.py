"""Stored runs as a table to learn from: their settings and environment, the step time as the target."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from foretrain.errors import MissingData
from foretrain.learning.regression.columns import DEVICE, GPUS, PREDICTED
from foretrain.learning.regression.table import Table, table_of
from foretrain.store.runs import Run, Status

STEP_SECONDS = "step_seconds"
RUN_SECONDS = "run_seconds"


def table_of_runs(runs: Sequence[Run], source: str, target: str = STEP_SECONDS) -> Table:
    """A row for every completed run with step times; settings that only some runs have are left out."""
    rows = [_row(run, target) for run in runs if run.status is Status.COMPLETED and run.summary is not None]
    if not rows:
        raise MissingData(
            f"{source}: none of the {len(runs)} runs is completed and has step times; `foretrain measure` "
            "and `foretrain campaign` store some"
        )
    common = [name for name in rows[0] if all(row.get(name) is not None for row in rows)]
    return table_of([{name: row[name] for name in common} for row in rows], source)


def _row(run: Run, target: str) -> dict[str, Any]:
    assert run.summary is not None, "checked by the caller"
    environment = run.environment
    measured = run.seconds if target == RUN_SECONDS else run.summary.seconds
    setting = {name: value for name, value in run.setting.items() if isinstance(value, str | int | float)}
    setting.pop("on", None)
    return {
        **setting,
        DEVICE: environment.device,
        GPUS: environment.devices_per_node * environment.nodes,
        "nodes": environment.nodes,
        PREDICTED: None if run.prediction is None else run.prediction.p50_seconds,
        target: measured,
    }
