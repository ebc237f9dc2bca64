"""Loss under a learning-rate schedule: what is still to come when the rate falls.

A falling rate does two things. Progress slows, since it goes with the area S1 under the rate; and the noise
that the rate keeps up goes, in proportion to it. H. Tissue, V. Wang, L. Wang, "Scaling Law with Learning Rate
Annealing", arXiv:2408.11029, have S1 and a gain; K. Luo et al., "A Multi-Power Law for Loss Curve
Prediction Across Learning Rate Schedules", arXiv:2503.12811, a law which this form follows closely.
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
