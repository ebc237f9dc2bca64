"""Robust least squares recovers what it was given."""

from __future__ import annotations

import numpy as np
import pytest
from calibration.least_squares import minimise


def test_recovers_its_own_parameters_despite_an_outlier() -> None:
    x = np.linspace(1, 5, 40)
    y = 3.0 * x**0.7
    y[7] *= 20
    found = minimise(lambda p: p[0] + p[1] * np.log(x) - np.log(y), np.array([0.0, 0.0]))
    assert np.exp(found[0]) == pytest.approx(3.0, rel=0.02)
    assert found[1] == pytest.approx(0.7, abs=0.02)
