"""Families of curves: they recover their own numbers, shrug off spikes, and stay within bounds."""

import tomllib

import numpy as np
import pytest
from calibration.annealing import FILE, multi_power_loss, prior

from foretrain.convergence.curves import Curve, MetricDirection, curve_of, without_spikes
from foretrain.convergence.families import CurveFamily, CurveHorizon, families
from foretrain.convergence.families.laws import Optimus, Plateau, PowerLaw
from foretrain.convergence.fitting import condense, fit
from foretrain.convergence.rolling import ensemble, quantiles_of
from foretrain.convergence.schedules import Cosine, LinearDecay
from foretrain.registry import DuplicateName, Registry

STEPS = np.arange(1.0, 201.0)


def test_optimus_recovers_its_own_parameters() -> None:
    values = 1 / (0.05 * STEPS + 0.4) + 0.3
    fitted = fit(curve_of(STEPS, values), Optimus())
    assert fitted.floor == pytest.approx(0.3, abs=0.005)
    assert fitted.values(np.array([2000.0]))[0] == pytest.approx(1 / (0.05 * 2000 + 0.4) + 0.3, rel=0.01)


@pytest.mark.parametrize("family", list(families().values()), ids=lambda family: family.name)
def test_each_family_extrapolates_what_it_made(family: CurveFamily) -> None:
    span = CurveHorizon(200.0, 400.0, LinearDecay())
    shapes = family.shapes()
    shape = shapes[len(shapes) // 2][None, :]
    floor = 0.5 if family.has_floor else 0.0
    later = np.array([200.0, 250.0, 390.0])
    made = floor + 2.0 * family.basis(STEPS, shape, span)[0]
    true = floor + 2.0 * family.basis(later, shape, span)[0]
    predicted = fit(curve_of(STEPS, made), family, span).values(later)
    assert predicted == pytest.approx(true, rel=0.02)


@pytest.mark.parametrize("family", list(families().values()), ids=lambda family: family.name)
def test_no_family_ever_rises(family: CurveFamily) -> None:
    span = CurveHorizon(200.0, 400.0, Cosine())
    basis = family.basis(np.linspace(1.0, 400.0, 300), family.shapes(), span)
    assert (np.diff(basis, axis=1) <= 1e-12).all()


def test_a_spike_moves_the_fit_little() -> None:
    values = 2.0 * STEPS**-0.5 + 0.2
    spiked = values.copy()
    spiked[150] += 3.0
    at = np.array([1000.0])
    clean, dirty = (fit(curve_of(STEPS, item), PowerLaw()).values(at)[0] for item in (values, spiked))
    assert dirty == pytest.approx(clean, rel=0.01)
    assert without_spikes(curve_of(STEPS, spiked)).values == pytest.approx(values, rel=0.01)


def test_accuracy_is_fitted_upside_down_and_never_above_one() -> None:
    values = 0.95 - 0.6 * STEPS**-0.7
    fitted = fit(curve_of(STEPS, values, "accuracy"), PowerLaw())
    assert fitted.values(np.array([1e6]))[0] == pytest.approx(0.95, abs=0.005)
    rising = fit(curve_of(STEPS, 0.1 + 0.004 * STEPS, "accuracy"), PowerLaw())
    assert rising.values(np.array([1e9]))[0] <= 1.0


def test_the_same_log_upside_down_gives_the_same_curve() -> None:
    values = 2.0 * STEPS**-0.5 + 0.2
    down = fit(curve_of(STEPS, values), PowerLaw()).values(np.array([500.0]))[0]
    up = fit(Curve(STEPS, 10.0 - values, "accuracy", MetricDirection.UP), PowerLaw()).values(
        np.array([500.0])
    )[0]
    assert 10.0 - up == pytest.approx(down, rel=1e-3)


def test_long_logs_are_condensed_evenly_in_the_logarithm() -> None:
    steps = np.arange(1.0, 10_001.0)
    short = condense(curve_of(steps, 1 / steps))
    assert len(short) <= 96
    assert short.steps[-1] > 9000
    assert short.values * short.steps == pytest.approx(np.ones(len(short)), rel=0.06)


def test_two_families_of_one_name_are_refused() -> None:
    with pytest.raises(DuplicateName):
        Registry("curve family", (Optimus(), Optimus()), name=lambda family: family.name)


def test_the_prior_of_annealing_is_that_of_the_published_laws() -> None:
    known = tomllib.loads(FILE.read_text(encoding="utf-8"))
    found = prior(known)
    assert known["prior"]["alpha"] == found["alpha"]
    assert known["prior"]["gain"] == pytest.approx(found["gain"], abs=5e-5)
    assert known["prior"]["gain_spread"] == pytest.approx(found["gain_spread"], abs=5e-3)


@pytest.mark.parametrize("tail", [0.3, 0.6])
@pytest.mark.parametrize("model", [0, 1, 2])
def test_a_decay_that_the_log_has_not_shown_is_foreseen(model: int, tail: float) -> None:
    """A published law from its first 40 % at a constant rate: within 1.5 %; a power law is far above."""
    known = tomllib.loads(FILE.read_text(encoding="utf-8"))
    schedule = LinearDecay(tail)
    at = np.linspace(1200, known["steps"] - 1, 60).astype(np.int64)
    rates = known["peak_rate"] * np.maximum(
        schedule.rate(np.arange(1, known["steps"] + 1) / known["steps"]), 1e-6
    )
    losses = multi_power_loss(known["law"][model], rates, 0.0, at)
    steps = at.astype(np.float64) + 1
    seen = curve_of(steps, losses).until(0.4 * known["steps"])
    span = CurveHorizon(seen.last_step, float(known["steps"]), schedule)
    fitted = ensemble(seen, span)
    values, weights = fitted.members(steps[-1:])
    final = quantiles_of(values[:, 0], weights)
    assert final.p50 == pytest.approx(losses[-1], rel=0.015)
    assert final.p10 < losses[-1] < final.p90
    assert fit(seen, PowerLaw(), span).values(steps[-1:])[0] > 1.015 * losses[-1]


def test_a_loss_that_goes_to_zero_does_not_follow_the_annealing_law() -> None:
    """Memorising: the loss halves every 20 steps whatever the rate does."""
    values = 2.0 * 0.5 ** (STEPS / 20)
    fitted = ensemble(curve_of(STEPS, values), CurveHorizon(200.0, 400.0, LinearDecay()))
    weights = dict(zip([item.family.name for item in fitted.fits], fitted.weights, strict=True))
    assert weights["annealing"] < 0.01


def test_a_flat_end_is_a_plateau() -> None:
    values = np.maximum(3.0 - 0.1 * STEPS, 1.0)
    assert fit(curve_of(STEPS, values), Plateau()).values(np.array([1e4]))[0] == pytest.approx(1.0, abs=1e-3)
