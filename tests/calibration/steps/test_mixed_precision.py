"""Factors of classes from whole steps."""

from __future__ import annotations

import numpy as np
import pytest
from calibration.steps.mixed_precision import fit_factors


def test_factors_are_recovered_from_sums() -> None:
    """Steps made of three classes in changing shares determine the factor of each class."""
    seconds = np.random.default_rng(0).uniform(0.1, 1.0, (300, 3))
    truth = np.array([0.5, 1.0, 2.0])
    factors = fit_factors(seconds, seconds @ truth, pull=1e-6)
    assert factors == pytest.approx(truth, rel=1e-3)


def test_a_class_without_steps_keeps_its_factor() -> None:
    """A class that occurs in no step is not corrected."""
    seconds = np.column_stack([np.full(50, 1.0), np.zeros(50)])
    factors = fit_factors(seconds, np.full(50, 3.0), pull=1e-3)
    assert factors[0] == pytest.approx(3.0, rel=1e-2)
    assert factors[1] == pytest.approx(1.0)


def test_a_few_wild_steps_do_not_decide() -> None:
    """One step in twenty measured ten times too long moves the factor little."""
    seconds = np.full((100, 1), 1.0)
    measured = np.where(np.arange(100) % 20 == 0, 15.0, 1.5)
    assert fit_factors(seconds, measured, pull=1e-6)[0] == pytest.approx(1.5, rel=0.05)
