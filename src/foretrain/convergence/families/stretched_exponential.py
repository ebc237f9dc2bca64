"""Stretched exponential approach to a floor."""

from __future__ import annotations

import numpy as np

from foretrain.convergence.curves import Floats
from foretrain.convergence.families._base import Family, Span, mesh


class StretchedExponential(Family):
    """a e^(-(k/τ)^β) + c with β below 1: many time scales at once (Weibull's form)."""

    name = "stretched-exponential"
    equation = "a exp(-(k/tau)^beta) + c"

    def shapes(self) -> Floats:
        """Time constant and stretch."""
        return mesh(np.geomspace(0.01, 10.0, 16), np.array([0.25, 0.4, 0.55, 0.7, 0.85]))

    def basis(self, steps: Floats, shapes: Floats, span: Span) -> Floats:
        return np.exp(-((steps[None, :] / (shapes[:, :1] * span.last_step)) ** shapes[:, 1:2]))
