"""A run that goes nowhere any more."""

from __future__ import annotations

import numpy as np

from foretrain.convergence.curves import Floats
from foretrain.convergence.families._base import Family, Span


class Plateau(Family):
    """c, the level of about the last tenth of the log: what a run that has converged, or overfits, keeps."""

    name = "plateau"
    equation = "c"
    recency = 20.0

    def shapes(self) -> Floats:
        return np.ones((1, 1))

    def basis(self, steps: Floats, shapes: Floats, span: Span) -> Floats:
        return 0.0 * shapes * (steps[None, :] / span.last_step)
