"""The variances are those the errors were drawn with."""

from __future__ import annotations

import math

import numpy as np
import pytest
from calibration.steps.error_transfer import fit_variances
from calibration.steps.timed_rows import TimedRow, read_rows, write_rows

from foretrain.errors import InvalidRequest
from foretrain.prediction.corrections.error_model import (
    StepError,
    StepKey,
    StepTraits,
    Variances,
    shared_terms,
)


def drawn(sources: int, variances: Variances) -> list[list[StepError]]:
    """Sources of 8 models on 3 devices, their errors drawn from the model."""
    random = np.random.default_rng(0)
    listed = []
    for _ in range(sources):
        steps = [
            StepError(StepKey(f"m{model}", f"d{device}"), 1.0, StepTraits(host=float(random.uniform())))
            for model in range(8)
            for device in range(3)
        ]
        terms = np.concatenate([shared_terms(steps, steps), np.eye(len(steps))[None]])
        weights = [getattr(variances, name) for name in Variances.__slots__]
        covariance = np.tensordot(weights, terms, 1)
        ratios = random.multivariate_normal(np.zeros(len(steps)), covariance)
        listed.append([StepError(s.key, 1.0, s.traits, float(r)) for s, r in zip(steps, ratios, strict=True)])
    return listed


def test_the_variances_the_errors_were_drawn_with_are_found() -> None:
    true = Variances(setup=0.02, device_precision=0.01, model=0.015, host=0.04, own=0.005)
    found = fit_variances(drawn(120, true))
    length = (math.log(1.0 / 0.1) / 4.0) ** 2  # all steps take a second
    one_of_each = found.setup + found.variant + found.family + length * found.length
    assert one_of_each == pytest.approx(0.02, rel=0.35)
    assert found.device_precision == pytest.approx(0.01, rel=0.35)
    assert found.model == pytest.approx(0.015, rel=0.25)
    assert found.host == pytest.approx(0.04, rel=0.4)
    assert found.own == pytest.approx(0.005, rel=0.25)


def test_a_change_in_the_last_digits_changes_no_variance() -> None:
    sources = drawn(6, Variances(setup=0.02, model=0.015, own=0.005))
    moved = [
        [StepError(s.key, s.predicted_seconds, s.traits, s.log_ratio * (1 + 1e-12)) for s in steps]
        for steps in sources
    ]
    one, other = fit_variances(sources), fit_variances(moved)
    for name in Variances.__slots__:
        assert getattr(one, name) == pytest.approx(getattr(other, name), rel=1e-5)


def test_one_source_is_not_enough() -> None:
    with pytest.raises(InvalidRequest, match="at least two sources"):
        fit_variances(drawn(1, Variances(own=0.01)))


def test_rows_are_kept_as_they_are(tmp_path: pytest.TempPathFactory) -> None:
    row = TimedRow("s", "m", "t4", "fp16", "training", 8.0, 1, 0.2, 0.1, 0.09, 0.12, 0.5, 0, 0.2, 0.3, 0, 0.5)
    file = tmp_path / "rows.csv"  # type: ignore[operator]
    write_rows(file, [row])
    assert read_rows(file) == [row]
