"""Variance components are those the residuals were drawn with."""

from __future__ import annotations

import numpy as np
import pytest
from calibration.steps.error_transfer import variance_components

from foretrain.errors import InvalidRequest


def drawn(
    models: int, devices: int, repeats: int, deviations: tuple[float, float, float, float], mean: float
) -> tuple[list[float], list[str], list[str]]:
    """Residuals of every model on every device, each several times."""
    of_device, of_model, of_pair, of_rest = deviations
    random = np.random.default_rng(0)
    a, b = random.normal(0, of_device, devices), random.normal(0, of_model, models)
    c = random.normal(0, of_pair, (models, devices))
    rows = [(m, d) for m in range(models) for d in range(devices) for _ in range(repeats)]
    residuals = [mean + a[d] + b[m] + c[m, d] + random.normal(0, of_rest) for m, d in rows]
    return residuals, [f"m{m}" for m, _ in rows], [f"d{d}" for _, d in rows]


def test_the_variances_the_residuals_were_drawn_with_are_found() -> None:
    found = variance_components(*drawn(200, 200, 2, (0.2, 0.3, 0.1, 0.05), mean=0.4))
    assert found.device == pytest.approx(0.04, rel=0.2)
    assert found.model == pytest.approx(0.09, rel=0.2)
    assert found.interaction == pytest.approx(0.01, rel=0.2)
    assert found.noise == pytest.approx(0.0025, rel=0.2)


def test_without_repeats_the_pair_counts_as_noise() -> None:
    found = variance_components(*drawn(100, 100, 1, (0.2, 0.3, 0.1, 0.05), mean=0.0))
    assert found.interaction == 0.0
    assert found.noise == pytest.approx(0.0125, rel=0.2)


def test_nothing_is_negative_where_there_is_only_noise() -> None:
    found = variance_components(*drawn(6, 5, 3, (0.0, 0.0, 0.0, 0.2), mean=0.0))
    assert min(found.device, found.model, found.interaction) >= 0
    assert found.total == pytest.approx(0.04, rel=0.4)


def test_one_device_is_not_enough() -> None:
    with pytest.raises(InvalidRequest, match="at least two"):
        variance_components([0.1, 0.2], ["a", "b"], ["d", "d"])
    with pytest.raises(InvalidRequest, match="as many"):
        variance_components([0.1], ["a", "b"], ["d", "e"])
