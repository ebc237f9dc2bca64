"""The fit of a scaling law recovers its own constants, and its covariance is that of its noise."""

from __future__ import annotations

import numpy as np
import pytest
from calibration.scaling_law import bootstrap_covariance, fit_law

from foretrain.convergence.curves import Floats

A, B, E, ALPHA, BETA = 400.0, 2000.0, 1.8, 0.35, 0.36


def runs(noise: float) -> tuple[Floats, Floats, Floats]:
    grid = np.meshgrid(np.geomspace(5e7, 1e10, 12), np.geomspace(1e9, 3e11, 12))
    sizes, tokens = (each.ravel() for each in grid)
    loss = E + A / sizes**ALPHA + B / tokens**BETA
    off = np.random.default_rng(1).normal(0, noise, len(loss))
    return np.log(sizes), np.log(tokens), np.log(loss) + off


def test_constants_are_recovered() -> None:
    found = fit_law(*runs(0.0))
    assert np.exp(found[:3]) == pytest.approx([A, B, E], rel=1e-3)
    assert found[3:] == pytest.approx([ALPHA, BETA], rel=1e-3)


def test_more_noise_has_a_larger_covariance() -> None:
    little, more = (bootstrap_covariance(*runs(noise), samples=40) for noise in (1e-3, 1e-2))
    assert (np.diag(more) > 4 * np.diag(little)).all()
    # ln A and α err together: a larger exponent with a larger factor passes through the same runs.
    assert little[1, 3] / np.sqrt(little[1, 1] * little[3, 3]) > 0.9
