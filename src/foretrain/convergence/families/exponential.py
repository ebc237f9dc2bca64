"""Exponential approach to a floor."""

from __future__ import annotations

import numpy as np

from foretrain.convergence.curves import Floats
from foretrain.convergence.families._base import Family, Span


class Exponential(Family):
    """a e^(-k/τ) + c: linear convergence, as of a strongly convex loss."""

    name = "exponential"
    equation = "a exp(-k/tau) + c"

    def shapes(self) -> Floats:
        """The time constant, from a fiftieth of the log to ten times it."""
        return np.geomspace(0.02, 10.0, 48)[:, None]

    def basis(self, steps: Floats, shapes: Floats, span: Span) -> Floats:
        return np.exp(-steps[None, :] / (shapes * span.last_step))
