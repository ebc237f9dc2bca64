"""Laws that a falling curve may follow: annealing, powers, exponentials, Optimus, and no change at all.

Under a learning-rate schedule a falling rate does two things. Progress slows, since it goes with the area S1
under the rate; and the noise that the rate keeps up goes, in proportion to it. H. Tissue, V. Wang, L. Wang,
"Scaling Law with Learning Rate Annealing", arXiv:2408.11029, have S1 and a gain; K. Luo et al., "A
Multi-Power Law for Loss Curve Prediction Across Learning Rate Schedules", arXiv:2503.12811, a law which
`Annealing` follows closely.

Reference of Optimus: Y. Peng et al., "Optimus: An Efficient Dynamic Resource Scheduler for Deep Learning
Clusters", EuroSys 2018, section 3.1; the weights are those of its published code.
"""

from __future__ import annotations

import tomllib
from functools import cache
from importlib.resources import files

import numpy as np

from foretrain.convergence.curves import Floats
from foretrain.convergence.families._base import CurveFamily, CurveHorizon, mesh
from foretrain.convergence.schedules import Constant, rate_area

_SHARE_LEAST = 1e-4
"""A negative power of nothing is infinite: the area under the schedule starts here."""


@cache
def annealing_prior() -> dict[str, float]:
    """Exponent and gain by annealing of published laws, with the spread of their logarithms."""
    text = files("foretrain.convergence").joinpath("annealing.toml").read_text(encoding="utf-8")
    known = tomllib.loads(text)
    return {**known["prior"], "relative_error": float(np.mean(known["relative_error"]))}


class Annealing(CurveFamily):
    """(L0 + A S1^-α)(1 + γ η), η the rate relative to its peak, for a planned end and a schedule.

    While the rate has not fallen, the log says nothing of γ and little of α: the prior decides. Of losses
    only: γ, a share of the loss, is known of cross entropy. Early steps (warm-up, first transient) follow no
    such law and hardly count.
    """

    name = "annealing"
    equation = "(L0 + A S1^-alpha) (1 + gamma rate)"
    needs_schedule = True
    recency = 4.0
    accuracy = annealing_prior()["relative_error"]

    def shapes(self) -> Floats:
        """Exponent and gain, two standard deviations of the prior to both sides."""
        prior, away = annealing_prior(), np.linspace(-2.0, 2.0, 7)
        return mesh(
            prior["alpha"] * np.exp(away * prior["alpha_spread"]),
            prior["gain"] * np.exp(away * prior["gain_spread"]),
        )

    def penalty(self, shapes: Floats) -> Floats:
        """Normal in the logarithms of both."""
        prior = annealing_prior()
        middle = np.array([prior["alpha"], prior["gain"]])
        spread = np.array([prior["alpha_spread"], prior["gain_spread"]])
        return np.asarray(np.square(np.log(shapes / middle) / spread).sum(axis=1))

    def basis(self, steps: Floats, shapes: Floats, span: CurveHorizon) -> Floats:
        planned = span.planned_steps or span.last_step
        area = rate_area(span.schedule or Constant(), steps / planned)
        return np.asarray(np.maximum(area, _SHARE_LEAST)[None, :] ** -shapes[:, :1])

    def gain(self, shapes: Floats) -> Floats:
        return shapes[:, 1]


class Exponential(CurveFamily):
    """a e^(-k/τ) + c: linear convergence, as of a strongly convex loss."""

    name = "exponential"
    equation = "a exp(-k/tau) + c"

    def shapes(self) -> Floats:
        """The time constant, from a fiftieth of the log to ten times it."""
        return np.geomspace(0.02, 10.0, 48)[:, None]

    def basis(self, steps: Floats, shapes: Floats, span: CurveHorizon) -> Floats:
        return np.exp(-steps[None, :] / (shapes * span.last_step))


def _power(steps: Floats, shapes: Floats, span: CurveHorizon) -> Floats:
    falling: Floats = (steps[None, :] / span.last_step) ** -shapes
    return falling


class FloorlessPowerLaw(CurveFamily):
    """a k^-α: a straight line in logarithms."""

    name = "power-law-floorless"
    equation = "a k^-alpha"
    has_floor = False

    def shapes(self) -> Floats:
        """The exponent alone."""
        return np.geomspace(0.005, 2.0, 60)[:, None]

    def basis(self, steps: Floats, shapes: Floats, span: CurveHorizon) -> Floats:
        return _power(steps, shapes, span)


class LocalPowerLaw(CurveFamily):
    """The same of about the last fifth of the log: losses that go to 0 by memorising bend down ever more."""

    name = "power-law-local"
    equation = "a k^-alpha, weights k^8"
    has_floor = False
    recency = 8.0

    def shapes(self) -> Floats:
        """The exponent; larger than that of whole logs."""
        return np.geomspace(0.005, 8.0, 32)[:, None]

    def basis(self, steps: Floats, shapes: Floats, span: CurveHorizon) -> Floats:
        return _power(steps, shapes, span)


class LogPower(CurveFamily):
    """a ln(e + k/s)^-α + c (the logarithmic power form of T. Domhan et al., IJCAI 2015, in falling sense)."""

    name = "log-power"
    equation = "a ln(e + k/s)^-alpha + c"

    def shapes(self) -> Floats:
        """Exponent and the step at which the logarithm begins to bite."""
        return mesh(np.geomspace(0.25, 4.0, 10), np.array([0.003, 0.01, 0.03, 0.1, 0.3]))

    def basis(self, steps: Floats, shapes: Floats, span: CurveHorizon) -> Floats:
        return np.log(np.e + steps[None, :] / (shapes[:, 1:2] * span.last_step)) ** -shapes[:, :1]


def _offsets() -> Floats:
    """b1/b0, from a thousandth of the log to thirty times it."""
    return np.geomspace(1e-3, 30.0, 60)[:, None]


def _inverse(steps: Floats, shapes: Floats, span: CurveHorizon) -> Floats:
    falling: Floats = 1.0 / (steps[None, :] / span.last_step + shapes)
    return falling


class Optimus(CurveFamily):
    """1 / (b0 k + b1) + b2, with scale = 1/b0 and offset = b1/b0."""

    name = "optimus"
    equation = "1/(b0 k + b1) + b2"

    def shapes(self) -> Floats:
        return _offsets()

    def basis(self, steps: Floats, shapes: Floats, span: CurveHorizon) -> Floats:
        return _inverse(steps, shapes, span)


class WeightedOptimus(CurveFamily):
    """The same; later points count more, four times for each quarter of the log."""

    name = "optimus-weighted"
    equation = "1/(b0 k + b1) + b2, weights 4^segment"
    segment_weights = True

    def shapes(self) -> Floats:
        return _offsets()

    def basis(self, steps: Floats, shapes: Floats, span: CurveHorizon) -> Floats:
        return _inverse(steps, shapes, span)


class Plateau(CurveFamily):
    """c, the level of about the last tenth of the log: what a run that has converged, or overfits, keeps."""

    name = "plateau"
    equation = "c"
    recency = 20.0

    def shapes(self) -> Floats:
        return np.ones((1, 1))

    def basis(self, steps: Floats, shapes: Floats, span: CurveHorizon) -> Floats:
        return 0.0 * shapes * (steps[None, :] / span.last_step)


class PowerLaw(CurveFamily):
    """a (k + s)^-α + c (J. Hestness et al., arXiv:1712.00409, over steps instead of samples)."""

    name = "power-law"
    equation = "a (k + s)^-alpha + c"

    def shapes(self) -> Floats:
        """Exponent 0.1 to 2 and offset, from nothing to a third of the log."""
        return mesh(np.geomspace(0.1, 2.0, 14), np.array([0.0, 0.01, 0.05, 0.3]))

    def basis(self, steps: Floats, shapes: Floats, span: CurveHorizon) -> Floats:
        relative = steps[None, :] / span.last_step + shapes[:, 1:2]
        return relative ** -shapes[:, :1]


class StretchedExponential(CurveFamily):
    """a e^(-(k/τ)^β) + c with β below 1: many time scales at once (Weibull's form)."""

    name = "stretched-exponential"
    equation = "a exp(-(k/tau)^beta) + c"

    def shapes(self) -> Floats:
        """Time constant and stretch."""
        return mesh(np.geomspace(0.01, 10.0, 16), np.array([0.25, 0.4, 0.55, 0.7, 0.85]))

    def basis(self, steps: Floats, shapes: Floats, span: CurveHorizon) -> Floats:
        return np.exp(-((steps[None, :] / (shapes[:, :1] * span.last_step)) ** shapes[:, 1:2]))
