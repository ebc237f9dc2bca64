"""What the stopwatch adds."""

from __future__ import annotations

import numpy as np
import pytest
from calibration.datasets.measurements import measurements
from calibration.kernels.harness import floors, observed

from calibration.datasets import neusight


def test_a_short_kernel_shows_the_floor_and_a_long_one_itself_plus_what_precedes_it() -> None:
    shown = observed(np.array([1e-9, 1000.0]), np.array([30.0, 30.0]), 0.4)
    assert shown == pytest.approx([30.0, 0.4 * 30 + 1000], rel=1e-3)


def test_the_floor_is_that_of_the_tiny_works_of_the_same_operator() -> None:
    works = [neusight.vector_work("add", 1, 8), neusight.vector_work("add", 4096, 4096)]
    works.append(neusight.vector_work("relu", 1, 8))
    found = measurements("test", works, ["t4"] * 3, [26e-6, 9.0, 31e-6], ["add", "add", "relu"])
    assert floors(found) == pytest.approx([26e-6, 26e-6, 31e-6])
