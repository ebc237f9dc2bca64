"""Targets: what was measured, averaged over workers, and what the timeline has in the same place."""

import numpy as np
import pytest

from foretrain.learning.resources.samples import (
    METRICS,
    RESOURCES,
    TARGETS,
    measured_targets,
    sample_interval_seconds,
    timeline_figures,
)
from foretrain.prediction.resources.bursts import constant, stack_spans
from foretrain.prediction.resources.worker_cycle import WorkerCycle
from foretrain.store.runs import Resource, Run


def test_twelve_targets() -> None:
    assert len(TARGETS) == 12
    assert TARGETS[0] == "cpu burst_amount"
    assert TARGETS[11] == "network_receive idle_duration"


def test_figures_of_a_cycle_by_hand() -> None:
    """One second of computing, then half a second of 30 MB at the network; memory stays as it is."""
    cycle = WorkerCycle(
        1.5,
        {
            Resource.CPU: stack_spans([(0.0, 1.0, 1.0)], 1.5),
            Resource.MEMORY: constant(4e8, 1.5),
            Resource.TRANSMIT: stack_spans([(1.0, 1.5, 30e6)], 1.5),
            Resource.RECEIVE: stack_spans([], 1.5),
        },
        "",
    )
    figures, alternates = timeline_figures(cycle, 0.025)
    assert figures[:3].tolist() == pytest.approx([1.0, 1.0, 0.5])
    assert figures[3:6].tolist() == pytest.approx([4e8, 1.5, 0.025]), "no gap: the cycle, and a sample"
    assert figures[6:9].tolist() == pytest.approx([60e6, 0.5, 1.0])
    assert alternates.tolist() == [1.0, 0.0, 1.0, 0.0]


def test_measured_figures_have_no_durations_without_gaps(runs: tuple[Run, ...]) -> None:
    for run in runs:
        targets = measured_targets(run).reshape(len(RESOURCES), len(METRICS))
        assert np.isfinite(targets[:2, 0]).all(), "every worker computes and has memory"
        assert (np.isnan(targets[:, 1]) == np.isnan(targets[:, 2])).all()
        assert (targets[np.isfinite(targets)] > 0).all()


def test_the_interval_of_the_campaign(runs: tuple[Run, ...]) -> None:
    assert sample_interval_seconds(runs) == pytest.approx(0.025)
