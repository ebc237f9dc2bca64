"""Runs made by hand."""

from __future__ import annotations

from dataclasses import fields
from datetime import UTC, datetime
from typing import Any

import numpy as np

from foretrain.store.arrays import TIME_ERROR_SECONDS, VALUE_RELATIVE_ERROR
from foretrain.store.runs import (
    NODE,
    Environment,
    Floats,
    PredictionMade,
    Resource,
    ResourceSeries,
    Run,
    Status,
    StepSummary,
    WorkerSteps,
    new_run_id,
)

HERE = Environment(
    device="here", device_name="CPU", cores=2, memory_bytes=8 * 2**30, versions={"torch": "2.9"}
)
STARTED = datetime(2026, 11, 16, 12, 30, 15, 123456, tzinfo=UTC)


def plain_run(**changes: Any) -> Run:
    """A short completed run without steps and series; `changes` are fields of `Run`."""
    values: dict[str, Any] = {
        "id": new_run_id(), "started_at": STARTED, "seconds": 2.5, "status": Status.COMPLETED, "exit_code": 0,
        "command": ("python", "train.py"), "setting": {"model": "mnist-cnn", "on": "here", "batch": 32},
        "environment": HERE, "provenance": "measure", "summary": summary_of(0.1),
    }  # fmt: skip
    return Run(**(values | changes))


def whole_run(**changes: Any) -> Run:
    """A run with everything: a prediction, two workers, and series of workers and of the node."""
    ticks = np.arange(1, 41) / 20
    series = [
        ResourceSeries(
            resource=Resource.CPU, worker=worker, seconds=ticks, values=0.5 + worker + np.sin(ticks)
        )
        for worker in (0, 1)
    ]
    network = ResourceSeries(
        resource=Resource.TRANSMIT, worker=NODE, seconds=ticks, values=np.floor(1e6 * ticks), label="eth0"
    )
    steps = tuple(
        WorkerSteps(worker=worker, ends=np.cumsum(np.full(20, 0.1)), seconds=np.full(20, 0.1))
        for worker in (0, 1)
    )
    values: dict[str, Any] = {
        "prediction": prediction_of(0.11),
        "steps": steps,
        "series": (*series, network),
        "message": "ended well",
    }
    return plain_run(**(values | changes))


def summary_of(seconds: float) -> StepSummary:
    return StepSummary(
        seconds=seconds, p10_seconds=0.9 * seconds, p90_seconds=1.2 * seconds, steps=18, warm_up_steps=2,
        variation=0.04, input_share=0.125, source="foretrain.step",
    )  # fmt: skip


def prediction_of(seconds: float) -> PredictionMade:
    return PredictionMade(
        made_at=STARTED,
        version="0.1",
        knowledge="measured",
        p10_seconds=0.8 * seconds,
        p50_seconds=seconds,
        p90_seconds=1.3 * seconds,
        memory_bytes=1.5e9,
        answer={"step": {"seconds": seconds}, "notes": ["a", None]},
    )


def assert_same(stored: Run, given: Run) -> None:
    """Equal, except for the stated loss of arrays."""
    for name in (each.name for each in fields(Run) if each.name not in ("steps", "series")):
        assert getattr(stored, name) == getattr(given, name), name
    assert len(stored.steps) == len(given.steps)
    for ours, theirs in zip(stored.steps, given.steps, strict=True):
        assert (ours.worker, ours.node) == (theirs.worker, theirs.node)
        assert_close_times(ours.ends, theirs.ends)
        assert_close_values(ours.seconds, theirs.seconds)
        assert_close_values(ours.input_seconds, theirs.input_seconds)
    assert len(stored.series) == len(given.series)
    for sampled, original in zip(stored.series, given.series, strict=True):
        for name in ("resource", "worker", "node", "label"):
            assert getattr(sampled, name) == getattr(original, name)
        assert_close_times(sampled.seconds, original.seconds)
        assert_close_values(sampled.values, original.values)


def assert_close_times(ours: Floats, theirs: Floats) -> None:
    ulps = 2.0**-51 * np.abs(theirs)  # of the division by the ticks of a second
    assert_within(ours, theirs, TIME_ERROR_SECONDS + ulps)


def assert_close_values(ours: Floats, theirs: Floats) -> None:
    assert_within(ours, theirs, VALUE_RELATIVE_ERROR * np.abs(theirs))


def assert_within(ours: Floats, theirs: Floats, error: Floats) -> None:
    assert ours.shape == theirs.shape
    assert np.array_equal(np.isnan(ours), np.isnan(theirs))
    with np.errstate(invalid="ignore"):
        close = np.abs(ours - theirs) <= error
    assert np.all(close | (ours == theirs) | np.isnan(theirs))
