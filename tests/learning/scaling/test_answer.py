"""The whole answer: usual configurations, notes, and the prediction of a job as what is known beforehand."""

import math

import pytest

from foretrain.errors import InvalidRequest
from foretrain.learning.scaling.answer import ScalingProblem, predict_scaling, usual_configurations
from foretrain.learning.scaling.configurations import Placement, ScalingConfiguration, Timing, parse_placement


def timing(place: str, batch: int, seconds: float) -> Timing:
    return Timing(ScalingConfiguration(parse_placement(place), batch), seconds)


def places_of(*timed: str) -> list[str]:
    found = usual_configurations([ScalingConfiguration(parse_placement(place), 8) for place in timed])
    return [str(item.placement) for item in found]


def test_usual_configurations_fill_the_node_then_double_the_nodes() -> None:
    assert places_of("4") == ["1", "2", "4", "4+4"]
    assert places_of("6", "6+6") == ["1", "2", "4", "6", "6+6", "6+6+6+6"]
    assert places_of("1") == ["1", "2", "4", "8", "8+8"]


def test_few_of_many_batches_are_predicted() -> None:
    timed = [ScalingConfiguration(Placement((2,)), batch) for batch in (1, 2, 4, 8, 16)]
    assert sorted({item.batch for item in usual_configurations(timed)}) == [1, 4, 16]


def test_a_prediction_of_the_job_stands_in_for_what_was_not_timed() -> None:
    def predicted(place: Placement, batch: int) -> float:
        return 0.01 * batch * (1 if place.devices == 1 else 3)

    timings = (timing("1", 32, 0.26),)
    at = (ScalingConfiguration(Placement((4, 4)), 32),)
    (blind,) = predict_scaling(ScalingProblem(timings, at)).predictions
    answer = predict_scaling(ScalingProblem(timings, at, predict_at=predicted, prediction_error=0.2))
    (informed,) = answer.predictions
    # a fifth faster on one device than predicted: so it is on eight, three times as slow
    assert informed.step_seconds.p50 == pytest.approx(3 * 0.26, rel=0.12)
    assert blind.step_seconds.p50 < 0.8 * informed.step_seconds.p50
    assert answer.model.prior == "a prediction of this job"
    assert "rests on a prediction of this job alone" in answer.notes[0]


def test_many_timings_outweigh_a_wrong_prediction() -> None:
    timings = tuple(
        timing(place, batch, 0.01 * batch) for place in ("1", "2", "4", "4+4") for batch in (8, 32)
    )
    at = (ScalingConfiguration(Placement((2,)), 16),)
    request = ScalingProblem(timings, at, predict_at=lambda _, batch: 1.0 * batch, prediction_error=0.3)
    (prediction,) = predict_scaling(request).predictions
    assert prediction.step_seconds.p50 == pytest.approx(0.16, rel=0.1)


def test_requests_that_make_no_sense() -> None:
    with pytest.raises(InvalidRequest, match="give at least one"):
        ScalingProblem(())
    with pytest.raises(InvalidRequest, match="a prediction needs its error"):
        ScalingProblem((timing("1", 8, 1.0),), predict_at=lambda *_: 1.0)


def test_notes_say_what_rests_on_others() -> None:
    one = predict_scaling(ScalingProblem((timing("4", 8, 1.0),))).notes
    assert len(one) == 1
    assert "several nodes" in one[0]
    batches = ScalingProblem((timing("4", 8, 1.0),), (ScalingConfiguration(Placement((4,)), 16),))
    assert "One batch size was timed" in predict_scaling(batches).notes[0]


def test_samples_a_second_are_those_of_all_devices() -> None:
    (prediction,) = predict_scaling(
        ScalingProblem((timing("4", 8, 1.0),), (ScalingConfiguration(Placement((4,)), 8),))
    ).predictions
    assert prediction.samples_per_second == pytest.approx(4 * 8 / prediction.step_seconds.p50)
    assert prediction.timed_seconds == 1.0
    assert math.isclose(prediction.step_seconds.p50, 1.0, rel_tol=0.05)
