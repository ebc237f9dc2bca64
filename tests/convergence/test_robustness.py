"""Logs as they really are: dips, noise, runs that diverge or overfit, logged learning rates, percentages."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from foretrain.convergence.curves import Condition, Floats, Target, curve_of, diagnose, trend
from foretrain.convergence.forecast import ConvergenceRequest, converge, forecast
from foretrain.convergence.options import LogRequest
from foretrain.convergence.schedules import Cosine, LinearDecay, StepDecay, logged_schedule
from foretrain.errors import InvalidRequest

STEPS = np.arange(100.0, 3001.0, 100.0)


def power_law(steps: Floats = STEPS, floor: float = 0.3) -> Floats:
    return np.asarray(floor + 5 * steps**-0.4)


def written(folder: Path, header: str, *columns: Floats) -> Path:
    file = folder / "log.csv"
    rows = [",".join(f"{cell:.12g}" for cell in row) for row in zip(*columns, strict=True)]
    file.write_text("\n".join([header, *rows]) + "\n", encoding="utf-8")
    return file


@pytest.mark.parametrize(
    ("floor", "scale", "exponent"), [(0.3, 5, 0.4), (0.2, 20, 0.5), (1.5, 10, 0.3), (0.0, 8, 0.35)]
)
def test_a_power_law_without_noise_is_recovered(floor: float, scale: float, exponent: float) -> None:
    def value(steps: Floats) -> Floats:
        return np.asarray(floor + scale * steps**-exponent)

    target = float(value(np.array([7210.0]))[0])
    answer = forecast(ConvergenceRequest(curve_of(STEPS, value(STEPS)), Target("loss", target)))
    assert answer.steps.p50 == pytest.approx(7210, rel=0.002)


def test_one_dip_is_not_the_target_reached() -> None:
    values = power_law()
    values[10] = 0.31  # far below all others
    answer = forecast(ConvergenceRequest(curve_of(STEPS, values), Target("loss", 0.45)))
    assert answer.steps.p50 > 3000
    values[-1] = 0.31  # the last one
    assert curve_of(STEPS, values).first_sustained(0.45) == math.inf


def test_a_target_met_at_the_last_point_of_a_smooth_log_is_met() -> None:
    values = power_law()
    assert curve_of(STEPS, values).first_sustained(float(values[-1])) == 3000


def test_noise_of_15_percent_does_not_meet_a_target_early() -> None:
    steps = np.arange(10.0, 20_001.0, 10.0)
    clean = power_law(steps, floor=0.0)
    noisy = clean * np.exp(np.random.default_rng(1).normal(0, 0.15, len(steps)))
    target = float(5 * 10_000**-0.4)
    curve = curve_of(steps, noisy)
    assert curve.first_reaching(target) < 5_000
    assert curve.first_sustained(target) == pytest.approx(10_000, rel=0.25)


def test_the_trend_of_a_falling_curve_is_the_curve() -> None:
    curve = curve_of(STEPS, power_law())
    assert trend(curve)[:-1] == pytest.approx(curve.values[:-1])


@pytest.mark.parametrize("word", ["nan", "inf", "NaN"])
def test_a_log_that_ends_without_numbers_has_diverged(tmp_path: Path, word: str) -> None:
    file = written(tmp_path, "step,loss", STEPS, power_law())
    file.write_text(file.read_text() + f"3100,{word}\n3200,{word}\n")
    answer = converge(LogRequest(file, "loss=0.35"))
    assert (answer.reaches, answer.condition) == (False, Condition.DIVERGED)
    assert "not finite from step 3,100 on" in answer.verdict


def test_one_value_that_is_not_finite_within_a_log_is_left_out() -> None:
    values = power_law()
    values[5] = math.inf
    curve = curve_of(STEPS, values)
    assert (len(curve), curve.diverged_at) == (len(STEPS) - 1, None)


def test_a_loss_that_rises_again_is_diverging_and_on_held_out_data_overfitting() -> None:
    values = power_law() + np.maximum(0, STEPS - 1500) * 2e-4
    for metric, condition in (("loss", Condition.DIVERGING), ("val_loss", Condition.OVERFITTING)):
        curve = curve_of(STEPS, values, metric)
        assert diagnose(curve).condition is condition
        answer = forecast(ConvergenceRequest(curve, Target(metric, 0.35)))
        assert not answer.reaches
        assert condition.value in answer.verdict


def test_noise_alone_is_no_divergence() -> None:
    noisy = power_law() * np.exp(np.random.default_rng(3).normal(0, 0.1, len(STEPS)))
    assert diagnose(curve_of(STEPS, noisy)).condition is Condition.IMPROVING


def test_bad_epochs_under_a_high_learning_rate_are_no_divergence() -> None:
    """Accuracies of a ResNet on CIFAR-10 before its first drop of the rate; it reached 94 % (DAWNBench)."""
    text = """34.9 53.4 66.0 69.2 70.5 65.1 69.5 74.7 75.1 75.6 70.4 74.4 73.4 77.0 78.8 79.9 74.0
        76.7 71.8 80.4 82.8 81.7 78.4 77.5 76.2 76.7 71.8 77.4 78.0 79.2 80.8 78.3 81.1 75.8"""
    values = np.array([float(word) for word in text.split()])
    curve = curve_of(np.arange(1.0, len(values) + 1), values, "accuracy")
    assert diagnose(curve).condition is Condition.IMPROVING


def test_losses_near_zero_are_fitted_on_a_logarithmic_scale() -> None:
    steps = np.arange(1.0, 101.0)
    values = 10.0 * np.exp(-steps / 10)  # 10 down to 5e-4
    answer = forecast(ConvergenceRequest(curve_of(steps, values), Target("loss", 1e-5)))
    assert answer.steps.p50 == pytest.approx(10 * math.log(1e6), rel=0.05)


@pytest.mark.parametrize(
    ("values", "target", "meant"),
    [
        (0.9 - 0.5 * STEPS**-0.2, "accuracy=94", "accuracy=0.94"),
        (90 - 50 * STEPS**-0.2, "accuracy=0.94", "accuracy=94"),
    ],
)
def test_percentages_and_fractions_are_not_compared(
    tmp_path: Path, values: Floats, target: str, meant: str
) -> None:
    file = written(tmp_path, "step,accuracy", STEPS, values)
    with pytest.raises(InvalidRequest, match=f"did you mean {meant}"):
        converge(LogRequest(file, target))


def test_logged_rates_are_the_schedule() -> None:
    steps = np.arange(0.0, 4001.0, 100.0)
    warm_up = np.minimum(1.0, steps / 500)
    linear = logged_schedule(steps, 3e-4 * warm_up * np.clip((10_000 - steps) / 9_500, 0, 1), None)
    assert linear is not None
    assert isinstance(linear.schedule, LinearDecay)
    assert linear.planned_steps == pytest.approx(10_000, rel=0.01)
    decay = 0.5 * (1 + np.cos(np.pi * np.clip((steps - 500) / 9_500, 0, 1)))
    cosine = logged_schedule(steps, 3e-4 * warm_up * decay, None)
    assert cosine is not None
    assert isinstance(cosine.schedule, Cosine)
    assert cosine.planned_steps == pytest.approx(10_000, rel=0.01)
    drops = logged_schedule(steps, np.where(steps < 3000, 0.1, 0.01), 6000)
    assert drops is not None
    assert isinstance(drops.schedule, StepDecay)
    assert drops.schedule.at == (0.5,)
    assert drops.schedule.factor == pytest.approx(0.1)


def test_a_constant_rate_says_nothing_of_the_end() -> None:
    assert logged_schedule(STEPS, np.full(len(STEPS), 1e-3), None) is None


def test_the_learning_rate_column_of_a_log_is_used_and_reported(tmp_path: Path) -> None:
    rates = 1e-3 * (10_000 - STEPS) / 10_000
    file = written(tmp_path, "step,loss,learning_rate", STEPS, power_law(), rates)
    answer = converge(LogRequest(file, "loss=0.40"))
    assert answer.final_step == pytest.approx(10_000, rel=0.01)
    assert any("read from the logged learning rates: linear" in note for note in answer.notes)


def test_a_folder_says_which_file_was_read(tmp_path: Path) -> None:
    entries = ",".join(
        f'{{"step": {step:.0f}, "loss": {value:.6g}}}' for step, value in zip(STEPS, power_law(), strict=True)
    )
    (tmp_path / "trainer_state.json").write_text(f'{{"log_history": [{entries}], "max_steps": 9000}}')
    assert converge(LogRequest(tmp_path, "loss=0.45")).notes[0] == "read trainer_state.json"


def test_a_run_that_diverged_has_no_finite_forecast() -> None:
    steps = np.arange(1.0, 21.0)
    values = np.append(3.0 / np.sqrt(steps[:15]), np.full(5, np.inf))
    answer = forecast(ConvergenceRequest(curve_of(steps, values, "loss"), Target("loss", 0.5)))
    assert answer.final_value.p10 == math.inf
    assert dict(answer.summary())["final value"] == "no finite forecast"
    assert "diverged" in answer.verdict
