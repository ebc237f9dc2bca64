"""Asynchronous training counts the updates that stale gradients cost, and all of an epoch's samples."""

from __future__ import annotations

import pytest
from tests.support.scenarios import predicted

from foretrain.estimates import Quantiles
from foretrain.jobs.epochs import epoch_of
from foretrain.jobs.job import Steps
from foretrain.jobs.length import with_staleness
from foretrain.workloads.options import WorkloadRequest
from foretrain.workloads.workload import workload_of

EXACT = Steps(Quantiles(100.0, 100.0, 100.0), "steps as given")


def test_fresh_gradients_change_nothing() -> None:
    """No staleness, no penalty."""
    assert with_staleness(EXACT, 0.0, to_a_target=True) is EXACT


def test_a_given_number_of_steps_is_not_changed() -> None:
    """A request for 100 steps gets 100, with a note on what they are worth."""
    found = with_staleness(EXACT, 3.0, to_a_target=False)
    assert found.quantiles == EXACT.quantiles
    assert any("2 times the updates" in note for note in found.notes)


def test_three_updates_old() -> None:
    """Between none and 1 + 3 times the updates, √4 = 2 in the middle, and a note says that it is assumed."""
    found = with_staleness(EXACT, 3.0, to_a_target=True)
    assert (found.quantiles.p10, found.quantiles.p50, found.quantiles.p90) == (100.0, 200.0, 400.0)
    assert "assumed" in found.source
    assert any("3.0 updates old" in note for note in found.notes)


@pytest.mark.parametrize("strategy", ["ddp", "ps-sync", "ps-async", "ps-ksync=2", "ps-kasync=2"])
def test_an_epoch_takes_its_samples_at_the_pace_of_the_step(strategy: str) -> None:
    """Whatever an update waits for, samples over throughput is the time of an epoch."""
    workload = workload_of(WorkloadRequest("mnist-cnn", batch=32))
    prediction = predicted(workload, "t4:4", strategy=strategy)
    epoch = epoch_of(prediction, 128_000)
    assert epoch.seconds.p50 == pytest.approx(128_000 / prediction.throughput.samples_per_second, rel=1e-9)
