"""When a log meets its target: predicted from the log alone and with earlier runs; refusals with reasons."""

import math

import numpy as np
import pytest

from foretrain.convergence.curves import (
    Curve,
    Floats,
    MetricDirection,
    Target,
    curve_of,
    direction_of,
    parse_target,
)
from foretrain.convergence.forecast import ConvergenceRequest, _chance_at, forecast, with_planned_end
from foretrain.convergence.history import History
from foretrain.convergence.rolling import reaching_steps
from foretrain.convergence.schedules import (
    Constant,
    Cosine,
    LinearDecay,
    StepDecay,
    parse_schedule,
    rate_area,
)
from foretrain.errors import InvalidRequest
from foretrain.estimates import Quantiles

STEPS = np.arange(100.0, 6000.0, 100.0)


def power(steps: Floats, scale: float = 2.0, seed: int = 0, noise: float = 0.005) -> Floats:
    values = scale * (steps / 100) ** -0.5 + 0.2
    return np.asarray(values + np.random.default_rng(seed).normal(0, noise, len(steps)))


def test_where_a_power_law_meets_its_target_is_predicted() -> None:
    answer = forecast(ConvergenceRequest(curve_of(STEPS, power(STEPS)), Target("loss", 0.4)))
    # 2 (k/100)^-0.5 = 0.2 at k = 10,000
    assert answer.reaches
    assert answer.steps.p50 == pytest.approx(10_000, rel=0.1)
    assert answer.steps.p10 <= 10_000 <= answer.steps.p90
    assert answer.at(5900.0) == pytest.approx(0.46, abs=0.02)
    assert answer.at(20_000.0) == pytest.approx(2 / math.sqrt(200) + 0.2, abs=0.05)
    assert sum(answer.weights.values()) == pytest.approx(1)


def test_a_target_below_the_floor_is_reported_as_unlikely() -> None:
    curve = with_planned_end(curve_of(STEPS, power(STEPS)), 10_000)
    answer = forecast(ConvergenceRequest(curve, Target("loss", 0.1)))
    assert not answer.reaches
    assert answer.steps.p50 == math.inf
    assert "unlikely" in answer.verdict
    assert answer.final_value.p10 <= 0.4 <= answer.final_value.p90


def test_a_harder_target_is_never_met_sooner() -> None:
    curve = curve_of(STEPS, power(STEPS))
    steps = [
        forecast(ConvergenceRequest(curve, Target("loss", goal))).steps.p50
        for goal in (0.45, 0.42, 0.4, 0.36)
    ]
    assert steps == sorted(steps)


def test_a_target_already_met_is_an_answer() -> None:
    answer = forecast(ConvergenceRequest(curve_of(STEPS, power(STEPS, noise=0.0)), Target("loss", 1.2)))
    assert answer.reaches
    assert answer.steps.p10 == answer.steps.p50 == answer.steps.p90 == 400  # 2 / 2 + 0.2
    assert answer.method == "already reached in the log"


def test_earlier_runs_foresee_a_decay_the_log_has_not_shown_yet() -> None:
    share = np.linspace(0.01, 1.0, 100)

    def run(level: float, name: str) -> Curve:
        values = level * (1 + share * 20) ** -0.3 - 0.25 * (share > 0.7)
        return curve_of(share * 1000, values, "loss", name=name, planned_steps=1000.0)

    history = History(tuple(run(1.0 + 0.02 * index, f"run {index}") for index in range(8)))
    seen = run(1.05, "this").until(400.0)
    target = Target("loss", 0.25)
    alone = forecast(ConvergenceRequest(seen, target))
    answer = forecast(ConvergenceRequest(seen, target, history=history))
    assert not alone.reaches
    assert answer.reaches
    assert "earlier runs" in answer.method
    assert answer.steps.p50 == pytest.approx(710, rel=0.05)
    assert answer.final_value.p50 == pytest.approx(float(run(1.05, "this").values[-1]), rel=0.1)
    assert max(answer.neighbours, key=lambda name: answer.neighbours[name]) in ("run 2", "run 3")


def test_the_chance_of_a_value_by_hand() -> None:
    # one standard deviation is 2.563 / 2.563 = 1: half at the middle, 84 % one above
    value = Quantiles(3 - 1.2815, 3.0, 3 + 1.2815)
    assert _chance_at(value, 3.0, 1.0) == pytest.approx(0.5)
    assert _chance_at(value, 4.0, 1.0) == pytest.approx(0.8413, abs=1e-3)
    assert _chance_at(value, 4.0, -1.0) == pytest.approx(0.1587, abs=1e-3)


def test_the_plan_is_a_guess_only_on_the_way_of_runs_that_worked() -> None:
    steps = np.arange(1.0, 31.0)
    accuracy = 90 - 60 * steps**-0.8
    near, far = Target("accuracy", 94.0), Target("accuracy", 300.0)
    curve = with_planned_end(curve_of(steps, accuracy, "accuracy"), 100)
    answer = forecast(ConvergenceRequest(curve, near))
    assert (answer.steps.p10, answer.steps.p50, answer.steps.p90) == pytest.approx((76, 90, 100))
    assert answer.probability == 0.5
    assert "rests on the plan" in answer.drivers[0]
    assert not forecast(ConvergenceRequest(curve, far)).reaches
    assert not forecast(ConvergenceRequest(curve, near, Constant())).reaches


def test_three_points_are_refused() -> None:
    with pytest.raises(InvalidRequest, match="3 points of loss; a curve needs at least 4"):
        forecast(ConvergenceRequest(curve_of(STEPS[:3], power(STEPS[:3])), Target("loss", 0.4)))


def test_a_flat_log_is_refused() -> None:
    with pytest.raises(InvalidRequest, match=r"flat: loss stays at 0\.7"):
        forecast(ConvergenceRequest(curve_of(STEPS, np.full(len(STEPS), 0.7)), Target("loss", 0.4)))


def test_a_plan_shorter_than_the_log_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="the log goes to step 5900"):
        with_planned_end(curve_of(STEPS, power(STEPS)), 100)


@pytest.mark.parametrize("text", ["loss", "loss=", "=3", "loss=low", "loss=nan"])
def test_targets_that_are_none(text: str) -> None:
    with pytest.raises(InvalidRequest, match="write METRIC=NUMBER"):
        parse_target(text)


def test_directions_are_known_by_name_and_else_by_the_log() -> None:
    rising = np.array([1.0, 2.0, 3.0])
    assert direction_of("val_loss", rising) is MetricDirection.DOWN
    assert direction_of("top5", rising[::-1]) is MetricDirection.UP
    assert direction_of("x", rising) is MetricDirection.UP
    assert direction_of("x", rising[::-1]) is MetricDirection.DOWN


def test_the_first_crossing_is_between_grid_points() -> None:
    found = reaching_steps(np.array([1.0, 2.0, 3.0]), np.array([[4.0, 2.0, 1.0], [4.0, 4.0, 4.0]]), 3.0, 1.0)
    assert found.tolist() == [1.5, math.inf]


def test_schedules_by_hand() -> None:
    share = np.array([0.0, 0.5, 1.0])
    assert parse_schedule("linear").rate(share).tolist() == [1.0, 0.5, 0.0]
    assert parse_schedule("linear:0.5").rate(share).tolist() == [1.0, 1.0, 0.0]
    assert Cosine().rate(share) == pytest.approx([1.0, 0.5, 0.0])
    later = np.array([0.5, 0.75, 1.0])
    assert parse_schedule("linear:0.5:0.1").rate(later) == pytest.approx([1.0, 0.55, 0.1])
    assert parse_schedule("cosine:0.1").rate(share) == pytest.approx([1.0, 0.55, 0.1])
    assert parse_schedule("step:0.4,0.8").rate(share) == pytest.approx([1.0, 0.1, 0.01])
    assert parse_schedule("step:0.4:0.5") == StepDecay((0.4,), 0.5)
    for text in ("warm", "step", "linear:2", "linear:0.4:1", "step:1.5", "cosine:3"):
        with pytest.raises(InvalidRequest, match="not a schedule"):
            parse_schedule(text)


def test_the_area_under_a_linear_rate_is_a_half() -> None:
    assert rate_area(LinearDecay(), np.array([0.5, 1.0])) == pytest.approx([0.375, 0.5], abs=1e-3)
    assert rate_area(LinearDecay(0.5, end=0.2), np.array([0.5, 1.0])) == pytest.approx([0.5, 0.8], abs=1e-3)


def test_steps_from_zero_move_up_and_bad_rows_go() -> None:
    steps, values = np.array([0.0, 1.0, 2.0, 3.0, 3.0]), np.array([3.0, 2.5, np.nan, 9.0, 1.0])
    epochs = curve_of(steps, values, zero_is_first=True)
    assert epochs.steps.tolist() == [1.0, 2.0, 4.0]
    assert epochs.values.tolist() == [3.0, 2.5, 1.0]
    assert curve_of(steps, values).steps.tolist() == [1.0, 3.0]
