"""The report of a run and the load of other processes of the machine."""

from __future__ import annotations

from datetime import UTC, datetime

import numpy as np
import pytest

from foretrain.measuring.watching.outlook import RunOutlook
from foretrain.measuring.watching.report import Report, report_of
from foretrain.serving.rendering import register
from foretrain.serving.verbs.measuring import Measured
from foretrain.store.runs import (
    NODE,
    OTHER_PROCESSES,
    Environment,
    Resource,
    ResourceSeries,
    Run,
    Status,
    StepSummary,
    WorkerSteps,
)

AHEAD = RunOutlook(steps=10, total_steps=None, seconds=1.0, seconds_left=None)


def report(worker_cores: float, other_cores: float, variation: float = 0.1) -> Report:
    """A run of one worker on two cores, two seconds long."""
    seconds = np.array([0.5, 1.0, 1.5, 2.0])

    def cpu(cores: float, worker: int, label: str = "") -> ResourceSeries:
        return ResourceSeries(
            resource=Resource.CPU, worker=worker, seconds=seconds, values=np.full(4, cores), label=label
        )

    return report_of(
        Run(
            id="0123456789abcdef",
            started_at=datetime(2026, 1, 1, tzinfo=UTC),
            seconds=2.0,
            status=Status.COMPLETED,
            exit_code=0,
            command=("train",),
            setting={},
            environment=Environment(device="here", device_name="CPU", cores=2),
            provenance="measure",
            summary=StepSummary(
                seconds=0.5,
                p10_seconds=0.5,
                p90_seconds=0.5,
                steps=4,
                warm_up_steps=0,
                variation=variation,
                input_share=None,
                source="log",
            ),
            steps=(WorkerSteps(worker=0, ends=seconds, seconds=np.full(4, 0.5)),),
            series=(cpu(worker_cores, 0), cpu(other_cores, NODE, OTHER_PROCESSES)),
        )
    )


@pytest.mark.parametrize(
    ("worker_cores", "other_cores", "is_disturbed"),
    [(0.5, 1.4, True), (1.0, 0.1, False), (0.2, 0.5, False), (1.9, 0.1, False)],
)
def test_a_run_is_disturbed_where_others_leave_no_core_idle(
    worker_cores: float, other_cores: float, is_disturbed: bool
) -> None:
    assert report(worker_cores, other_cores).is_disturbed is is_disturbed


def test_other_processes_are_no_part_of_the_bursts_of_the_node() -> None:
    (cpu,) = report(0.5, 1.4).bursts
    assert cpu.burst_amount == pytest.approx(0.5)
    assert report(0.5, 1.4).to_dict()["other_cores"] == pytest.approx(1.4)


def test_the_text_names_other_processes_and_an_unknown_variation() -> None:
    register()
    shown = str(Measured(report(0.5, 1.4, variation=0.0), AHEAD, None, 0))
    assert "Other processes kept 1.4 of 2 cores busy" in shown
    assert "Variation (standard deviation / mean): unknown" in shown
    assert "Other processes" not in str(Measured(report(1.0, 0.1), AHEAD, None, 0))
