"""The Keras harness recovers its own constants and keeps the priors that the data do not determine."""

from __future__ import annotations

import numpy as np
import pytest
from calibration.steps.generation_speed import Slowness
from calibration.steps.keras_harness import (
    TERMS,
    Composition,
    Harness,
    HarnessStep,
    fit_harness,
    harness_table,
)


def _step(rng: np.random.Generator, gpu: int, regularised: bool = False) -> HarnessStep:
    seconds = {
        name: float(rng.uniform(0.01, 0.1))
        for name in ("3x3 forward", "3x3 backward", "1x1 forward", "1x1 backward", "products", "pooling",
                     "normalisation", "streaming", "other forward", "other backward")
    }  # fmt: skip
    made_of = Composition(
        seconds, int(rng.integers(50, 500)), int(rng.integers(10**6, 10**8)), 0.01, 1e-4, 0.0
    )
    return HarnessStep(made_of, Slowness(), 1e9, gpu, regularised)


def test_a_fit_predicts_steps_of_known_constants() -> None:
    rng = np.random.default_rng(4)
    table = harness_table([_step(rng, gpu) for gpu in (0, 1) for _ in range(60)])
    truth = np.concatenate([np.log([term.prior for term in TERMS]), np.zeros(3 + 6)])
    truth[1] = np.log(1.6)
    truth[-3] = np.log(1.3)
    measured = Harness(truth).seconds(table)
    fitted = fit_harness(table, measured, devices=2, prior_weight=1e-4)
    assert fitted.seconds(table) == pytest.approx(measured, rel=0.02)
    assert fitted.constants["3x3 backward"] > 1.3


def test_an_unseen_gpu_and_an_unseen_class_stay_as_priced() -> None:
    rng = np.random.default_rng(5)
    table = harness_table([_step(rng, 0) for _ in range(40)])
    fitted = fit_harness(table, 1.2 * Harness(_priors(2)).seconds(table), devices=2)
    assert fitted.constants["grouped"] == pytest.approx(1.0)
    assert np.exp(fitted.logs[-3:]) == pytest.approx(1.0)


def test_regularised_weights_and_a_slow_generation_cost_more() -> None:
    rng = np.random.default_rng(6)
    step = _step(rng, 0)
    variants = [
        step,
        HarnessStep(step.composition, Slowness(), 1e9, 0, regularised=True),
        HarnessStep(step.composition, Slowness(convolutions=2.0), 1e9, 0, regularised=False),
    ]
    plain, regularised, slow = Harness(_priors(1)).seconds(harness_table(variants)).tolist()
    assert regularised == pytest.approx(plain + 6e-4, rel=1e-3)
    assert slow > plain


def _priors(devices: int) -> np.ndarray:
    return np.concatenate([np.log([term.prior for term in TERMS]), np.zeros(3 + 3 * devices)])
