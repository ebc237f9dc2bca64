"""Fits: known parameters are found again, priors decide where timings do not, intervals are of that width."""

import math

import numpy as np
import pytest

from foretrain.estimates import Z90
from foretrain.learning.scaling.answer import suggest
from foretrain.learning.scaling.configurations import (
    Columns,
    Placement,
    ScalingConfiguration,
    Timing,
    columns,
    parse_placement,
)
from foretrain.learning.scaling.fitting import (
    Prior,
    fit,
    form_prior,
    jacobian,
    leave_out,
    prior_from_prediction,
    step_seconds,
    wide_prior,
)
from foretrain.learning.scaling.forms import FORMS, LEVEL_DEVIATION, Form, form
from foretrain.prediction.operators.pricing import Floats

BATCHES = (8, 32, 128)
GRID = tuple(
    ScalingConfiguration(parse_placement(place), batch)
    for place in ("1", "2", "4", "1+1", "4+4", "2+2+2", "4+4+4+4")
    for batch in BATCHES
)


def seconds_of(of: Form, values: Floats, places: tuple[ScalingConfiguration, ...]) -> Floats:
    return of.log_seconds(values, columns(places, 32))


@pytest.mark.parametrize("of", FORMS.values(), ids=FORMS)
def test_a_form_finds_its_own_times_again(of: Form) -> None:
    values = np.array(
        [item.mean + 0.3 * item.deviation * (-1) ** row for row, item in enumerate(of.parameters)]
    )
    values[0] = math.log(0.25)
    seconds = seconds_of(of, values, GRID)
    fitted = fit(of, columns(GRID, 32), seconds, wide_prior(of, 0.01))
    assert fitted.log_seconds(columns(GRID, 32)) == pytest.approx(seconds, abs=0.02)
    assert fitted.noise == pytest.approx(0.01)


def test_one_timing_sets_the_level_and_leaves_the_rest_to_the_prior() -> None:
    of = form("physical")
    prior = form_prior(of)
    here = (ScalingConfiguration(Placement((1,)), 32),)
    fitted = fit(of, columns(here, 32), np.log([0.5]), prior)
    assert np.exp(fitted.log_seconds(columns(here, 32)))[0] == pytest.approx(0.5, rel=0.001)
    assert fitted.values[1:] == pytest.approx(prior.means[1:], abs=1e-3)
    near, far = step_seconds(fitted, (here[0], ScalingConfiguration(Placement((8, 8)), 32)), 32)
    assert far.p90 / far.p10 > 2 * near.p90 / near.p10


def test_the_interval_is_that_of_a_straight_line() -> None:
    """A form with its level alone: the mean of n timings, known to noise / √n."""

    class Level(Form):
        name, equation = "level", "a"
        parameters = (form("sanghvi").parameters[0],)

        def log_seconds(self, values: Floats, at: Columns) -> Floats:
            return np.full(len(at), values[0])

    places = GRID[:4]
    seconds = np.array([-0.1, 0.1, 0.1, -0.1])
    prior = Prior(np.zeros(1), np.array([[LEVEL_DEVIATION**2]]), 0.1)
    fitted = fit(Level(), columns(places, 32), seconds, prior)
    assert fitted.values == pytest.approx([0.0], abs=1e-6)
    assert fitted.deviations(columns(places, 32)) == pytest.approx(0.1 * math.sqrt(1 + 1 / 4), rel=1e-3)
    (quantiles,) = step_seconds(fitted, places[:1], 32)
    assert math.log(quantiles.p90) == pytest.approx(Z90 * 0.1 * math.sqrt(1.25), rel=1e-3)


def test_timings_that_no_parameters_explain_widen_the_interval() -> None:
    of = form("sanghvi")
    seconds = seconds_of(of, np.array([-1.0, -2.0, -1.0]), GRID)
    prior = wide_prior(of, 0.05)
    rough = seconds + 0.5 * (-1.0) ** np.arange(len(GRID))
    assert (
        fit(of, columns(GRID, 32), rough, prior).noise > 4 * fit(of, columns(GRID, 32), seconds, prior).noise
    )


def test_slopes_are_those_of_the_form() -> None:
    of = form("sanghvi")
    slopes = jacobian(of, np.array([0.0, 0.0, 0.0]), columns(GRID[:2], 8))
    # b + g + 1 with g = 1 and b = 1 or 4: each term over the sum
    assert slopes == pytest.approx(np.array([[1, 1 / 3, 1 / 3], [1, 1 / 6, 1 / 6]]))


def test_the_suggestion_is_what_shrinks_the_variance_most() -> None:
    """Against fitting anew with the candidate as one more timing, for each candidate."""
    of = form("physical")
    prior = form_prior(of)
    values = prior.means.copy()
    timed = tuple(item for item in GRID if item.placement.devices == 1)
    fitted = fit(of, columns(timed, 32), seconds_of(of, values, timed), prior)
    (best, *_) = suggest(fitted, GRID, GRID, timed, 32)
    left = [item for item in GRID if item not in timed]

    def then(extra: ScalingConfiguration) -> float:
        known = (*timed, extra)
        again = fit(of, columns(known, 32), seconds_of(of, values, known), prior)
        return math.sqrt(float(np.mean(again.deviations(columns(GRID, 32)) ** 2)))

    anew = {item: then(item) for item in left}
    winner = min(anew, key=lambda item: anew[item])
    assert (best.placement, best.batch) == (str(winner.placement), winner.batch)
    assert best.deviation_then == pytest.approx(anew[winner], rel=0.01)
    assert 0 < best.narrower < 1
    assert suggest(fitted, GRID, timed, timed, 32) == ()


def test_timings_left_out_select_the_right_form() -> None:
    values = np.array([math.log(0.1), math.log(0.05), math.log(0.5)])
    timings = [
        Timing(item, float(np.exp(seconds)))
        for item, seconds in zip(GRID, seconds_of(form("sanghvi"), values, GRID), strict=True)
    ]
    errors = {name: leave_out(of, timings, wide_prior(of, 0.05)).mean_error for name, of in FORMS.items()}
    assert errors["sanghvi"] < 0.01
    assert errors["sanghvi"] < min(errors["physical"], errors["pollux"], errors["ring"])


def test_a_prediction_makes_a_prior() -> None:
    of = form("physical")
    values = form_prior(of).means.copy()
    values[0], values[3] = math.log(0.2), 1.0

    def predicted(place: Placement, batch: int) -> float:
        here = (ScalingConfiguration(place, batch),)
        return float(np.exp(seconds_of(of, values, here))[0])

    prior = prior_from_prediction(of, predicted, GRID, 32, error=0.25)
    nodes = (ScalingConfiguration(Placement((4, 4)), 32),)
    timed = (ScalingConfiguration(Placement((1,)), 32),)
    level = 1.1 * predicted(timed[0].placement, 32)
    fitted = fit(of, columns(timed, 32), np.log([level]), prior)
    (informed,) = step_seconds(fitted, nodes, 32)
    (blind,) = step_seconds(fit(of, columns(timed, 32), np.log([level]), form_prior(of)), nodes, 32)
    wanted = 1.1 * predicted(nodes[0].placement, 32)
    assert informed.p50 == pytest.approx(wanted, rel=0.15)
    assert abs(math.log(informed.p50 / wanted)) < abs(math.log(blind.p50 / wanted))
    assert informed.p90 / informed.p10 < blind.p90 / blind.p10


def test_one_batch_leaves_open_where_it_lies_among_all() -> None:
    of = form("physical")
    prior = form_prior(of)
    assert prior.one_batch > 0.5

    def wide(*batches: int) -> float:
        known = tuple(ScalingConfiguration(Placement((1,)), batch) for batch in batches)
        fitted = fit(of, columns(known, 32), np.log([0.01 * batch for batch in batches]), prior)
        return float(fitted.deviations(columns([ScalingConfiguration(Placement((1,)), 256)], 32))[0])

    place = of.names.index(of.at_reference_batch)
    open_still = fit(of, columns(GRID[1:2], 32), np.log([1.0]), prior).covariance[place, place]
    assert open_still == pytest.approx(prior.covariance[place, place] + prior.one_batch**2, rel=0.01)
    assert wide(32) > 3 * wide(16, 64)
