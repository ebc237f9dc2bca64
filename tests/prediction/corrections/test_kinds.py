"""Corrections of kinds of operators: own ratios for the profiled model, bounded ones for others."""

from __future__ import annotations

import math

import pytest
from tests.support.scenarios import predicted, workload

from foretrain.learning.user_calibration.catalogue import forget, keep_profile
from foretrain.prediction.answer import Prediction
from foretrain.prediction.corrections.apply import KindTimes, ProfiledModel, corrections_by
from foretrain.prediction.operators.pricing import Knowledge
from foretrain.workloads.graph import Phase
from foretrain.workloads.ops import Kind

MODEL = "cifar-resnet20"


def prediction_of(model: str = MODEL, device: str = "t4") -> Prediction:
    return predicted(workload(model, batch=64), device)


def profile(model: str, ratio: float, whole: tuple[float, float] = (0.0, 0.0)) -> ProfiledModel:
    """A profile in which convolutions take `ratio` times what is predicted."""
    kinds = tuple(KindTimes(phase, Kind.CONVOLUTION, ratio, 1.0) for phase in (Phase.FORWARD, Phase.BACKWARD))
    return ProfiledModel(model, 64, *whole, kinds)


def test_own_ratios_count_whole_and_others_by_their_number() -> None:
    key = (Phase.FORWARD, Kind.CONVOLUTION)
    own = corrections_by("a", [profile("a", 4.0), profile("b", 9.0)])
    other = corrections_by("c", [profile("a", 4.0), profile("b", 9.0)])
    assert own is not None
    assert own.is_own
    assert own.log_ratios[key] == pytest.approx(math.log(4))
    assert other is not None
    assert not other.is_own
    assert other.log_ratios[key] == pytest.approx(2 / 3 * math.log(6))
    assert corrections_by("c", []) is None


def test_a_profiled_step_takes_its_measured_time_and_is_measured() -> None:
    before = prediction_of()
    seconds = before.step.seconds.p50
    keep_profile(profile(MODEL, 1.5, (1.7 * seconds, seconds)), "t4", {})
    after = prediction_of()
    assert after.knowledge is Knowledge.MEASURED
    assert after.step.seconds.p50 == pytest.approx(1.7 * seconds)
    assert after.step.seconds.p10 <= 1.7 * seconds <= after.step.seconds.p90
    assert sum(part.seconds for part in after.step.parts) == pytest.approx(after.step.seconds.p50)
    assert any("your own profiles" in note for note in after.notes)


def test_another_model_on_the_device_is_corrected_within_bounds() -> None:
    before, elsewhere = prediction_of("mnist-cnn"), prediction_of("mnist-cnn", "v100-sxm2-16gb")
    keep_profile(profile(MODEL, 50.0), "t4", {})
    after = prediction_of("mnist-cnn")
    assert before.step.seconds.p50 < after.step.seconds.p50 < 3 * before.step.seconds.p50
    assert prediction_of("mnist-cnn", "v100-sxm2-16gb").step == elsewhere.step


def test_forgetting_a_profile_restores_the_prediction() -> None:
    before = prediction_of().to_dict()
    keep_profile(profile(MODEL, 2.0), "t4", {})
    assert prediction_of().to_dict() != before
    assert forget("kinds-t4").samples == 2
    assert prediction_of().to_dict() == before
