"""Fits of the constants of CPU workers: they recover their own constants, and one bad run moves little."""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import UTC, datetime

import numpy as np
import pytest

from foretrain.errors import InvalidRequest
from foretrain.learning.user_calibration.fitting import fit_constants, fit_workers
from foretrain.learning.user_calibration.samples import RunSample
from foretrain.prediction.step.cpu_workers import (
    DDP,
    FSDP,
    GROUPS,
    SERVER,
    SINGLE,
    Message,
    WorkerConstants,
    WorkerStep,
    prior,
    worker_time,
)
from foretrain.store.runs import PredictionMade

MODELS = tuple(f"model{number}" for number in range(8))
MBIT = 1e6 / 8


def true_constants() -> WorkerConstants:
    """A machine that is not the assumed one."""
    return replace(
        prior().constants,
        products_factor=1.3,
        streams_factor=0.7,
        streams_contention=0.5,
        step_seconds=1e-3,
        ddp_byte_seconds=4e-9,
        fsdp_message_seconds=3e-3,
        server_byte_seconds=8e-9,
        wire_share=1.15,
    )


def steps() -> list[tuple[str, WorkerStep]]:
    """Steps of several models, strategies and networks, with shares of work that differ by model."""
    random = np.random.default_rng(7)
    listed = []
    for model in MODELS:
        shares = random.dirichlet(np.ones(len(GROUPS)))
        size = float(random.uniform(2e5, 2e7))
        for batch in (1.0, 4.0):
            seconds = dict(zip(GROUPS, (0.05 * batch * shares).tolist(), strict=True))
            for strategy, workers in ((SINGLE, 1), (DDP, 2), (FSDP, 2), (SERVER, 2)):
                for rate in (None, 200 * MBIT, 1000 * MBIT):
                    messages = (
                        [] if strategy == SINGLE
                        else [Message(size / 4, 0.5), Message(3 * size / 4)] if strategy == DDP
                        else [Message(size / 3)] * 9 if strategy == FSDP
                        else [Message(size)]
                    )  # fmt: skip
                    step = WorkerStep(
                        strategy=strategy,
                        workers=workers,
                        workers_on_machine=workers,
                        cores=2,
                        seconds=seconds,
                        backward_seconds=0.5 * sum(seconds.values()),
                        calls=100,
                        messages=tuple(messages),
                        network_bytes_per_second=rate,
                    )
                    listed.append((model, step))
    return listed


def prediction(p10: float, p50: float, p90: float) -> PredictionMade:
    return PredictionMade(
        made_at=datetime(2026, 1, 1, tzinfo=UTC),
        version="1",
        knowledge="",
        p10_seconds=p10,
        p50_seconds=p50,
        p90_seconds=p90,
        memory_bytes=None,
        answer={},
    )


def measured(noise: float = 0.0, before: PredictionMade | None = None) -> list[RunSample]:
    """Runs on the true machine."""
    random = np.random.default_rng(3)
    return [
        RunSample(
            id=str(number),
            model=model,
            device="here",
            key=f"{model}-{number}",
            measured_seconds=worker_time(step, true_constants()).seconds
            * math.exp(noise * float(random.normal())),
            step=step,
            before=before,
        )
        for number, (model, step) in enumerate(steps())
    ]


def test_a_fit_recovers_the_constants_that_the_runs_show() -> None:
    found, true = fit_constants(measured()), true_constants()
    for name in ("products_factor", "ddp_byte_seconds", "server_byte_seconds", "wire_share"):
        assert getattr(found, name) == pytest.approx(getattr(true, name), rel=0.1), name
    of_two = [each.streams_factor * (1 + each.streams_contention) for each in (found, true)]
    assert of_two[0] == pytest.approx(of_two[1], rel=0.1)


def test_constants_without_runs_stay_at_the_prior() -> None:
    single = [sample for sample in measured() if sample.step.strategy == SINGLE]
    found = fit_constants(single)
    assert found.fsdp_byte_seconds == pytest.approx(prior().constants.fsdp_byte_seconds)
    assert found.wire_share == pytest.approx(prior().constants.wire_share)


def test_other_models_are_predicted_after_a_fit_to_half_of_them() -> None:
    fit = fit_workers(measured(noise=0.05), held_out=MODELS[::2])
    assert fit.held_out is not None
    assert fit.held_out.mean < 0.1
    assert 0.6 < fit.held_out.coverage <= 1
    assert fit.held_out_models == MODELS[::2]
    assert fit.models == MODELS[1::2]
    assert not set(fit.calibration.models) & set(MODELS[::2])


def test_one_wild_run_moves_little() -> None:
    samples = measured()
    wild = [replace(samples[0], measured_seconds=50 * samples[0].measured_seconds), *samples[1:]]
    step = samples[-1].step
    before, after = (worker_time(step, fit_constants(each)).seconds for each in (samples, wild))
    assert after == pytest.approx(before, rel=0.03)


def test_errors_before_are_those_of_the_stored_predictions() -> None:
    samples = measured()
    known = [replace(each, before=prediction(0.0, 2 * each.measured_seconds, 1e9)) for each in samples]
    fit = fit_workers(known)
    assert fit.before is not None
    assert fit.before.mean == pytest.approx(1.0)
    assert fit.before.bias == pytest.approx(1.0)
    assert fit.before.coverage == 1
    assert fit.left_out.mean < fit.before.mean


def test_too_few_runs_are_refused() -> None:
    samples = measured()
    with pytest.raises(InvalidRequest, match="0 runs of 0 models are too few"):
        fit_workers(samples, held_out=MODELS)
    with pytest.raises(InvalidRequest, match="of 1 models are too few"):
        fit_workers([sample for sample in samples if sample.model == MODELS[0]])
