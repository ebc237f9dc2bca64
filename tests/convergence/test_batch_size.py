"""Batch size, gradient noise and staleness: by hand, and recovering their own numbers."""

import numpy as np
import pytest

from foretrain.convergence.batch_size import (
    GradientNoise,
    Waiting,
    fit_batch_size_law,
    power_law_epochs,
    staleness_penalty,
    steps_over_run,
)
from foretrain.errors import InvalidRequest

BATCHES = (256.0, 1024.0, 4096.0, 16384.0)


def test_a_straight_line_is_recovered() -> None:
    law = fit_batch_size_law(BATCHES, [30 + 0.005 * batch for batch in BATCHES])
    assert (law.intercept, law.slope) == pytest.approx((30, 0.005))
    assert law.critical_batch == pytest.approx(6000)
    assert law.epochs_at(8192).p50 == pytest.approx(30 + 0.005 * 8192)
    assert law.epochs_at(32768).p50 == pytest.approx(30 + 0.005 * 32768)
    assert law.steps_at(1024, 102_400).p50 == pytest.approx(100 * (30 + 5.12))
    assert law.efficiency(6000, 1) == pytest.approx(0.5, rel=0.01)


def test_eight_times_the_batch_is_not_eight_times_the_progress() -> None:
    law = fit_batch_size_law(BATCHES, [30 + 0.005 * batch for batch in BATCHES])
    ratio = law.steps_at(2048, 1e6).p50 / law.steps_at(16384, 1e6).p50
    assert 1 < ratio < 8


def test_epochs_never_fall_with_the_batch_outside_the_points() -> None:
    law = fit_batch_size_law((32.0, 64.0, 128.0), (12.0, 11.0, 10.5))
    assert law.slope == 0
    assert law.epochs_at(256).p50 == pytest.approx(10.5)


def test_a_power_law_is_recovered() -> None:
    assert power_law_epochs(BATCHES, [3 * batch**0.3 for batch in BATCHES], 64) == pytest.approx(3 * 64**0.3)


@pytest.mark.parametrize("batches", [(32.0,), (32.0, 32.0), (0.0, 1.0)])
def test_too_few_points_are_refused(batches: tuple[float, ...]) -> None:
    with pytest.raises(InvalidRequest, match="two or more batch sizes"):
        fit_batch_size_law(batches, [5.0] * len(batches))


def test_gain_of_a_noisy_and_of_a_clean_gradient() -> None:
    noisy, clean = GradientNoise(32, 1e-9, 1.0), GradientNoise(32, 1.0, 0.0)
    assert noisy.gain(128) == pytest.approx(4)
    assert clean.gain(128) == 1
    # variance 3, squared norm 1, four times the batch: (3 + 1) / (3/4 + 1)
    middle = GradientNoise(32, 1.0, 3.0)
    assert middle.gain(128) == pytest.approx(4 / 1.75)
    assert middle.efficiency(32) == 1
    assert middle.critical_batch == 96
    assert middle.steps(128, 4000) == pytest.approx(1750)


def test_steps_over_a_run_whose_noise_does_not_change() -> None:
    steps = steps_over_run(np.array([0.0, 1000.0]), np.array([3.0, 3.0]), 32, 128, 1000)
    assert steps == pytest.approx(1000 / (4 / 1.75))


def test_staleness_by_hand() -> None:
    assert Waiting(8, 1, True).mean_staleness == 7
    assert Waiting(8, 4, True).mean_staleness == 1
    assert Waiting(8, 4, False).mean_staleness == 0
    assert Waiting(8, 4, False).batch_share == 0.5
    penalty = staleness_penalty(Waiting(4, 1, True))
    assert (penalty.p10, penalty.p50, penalty.p90) == (1, 2, 4)
    assert staleness_penalty(Waiting(8, 8, True)).p90 == 1
    with pytest.raises(InvalidRequest, match="wait for 9 of 8"):
        Waiting(8, 9, True)
