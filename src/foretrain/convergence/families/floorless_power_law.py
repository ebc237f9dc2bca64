"""Power law that never ends."""

from __future__ import annotations

import numpy as np

from foretrain.convergence.curves import Floats
from foretrain.convergence.families._base import Family, Span


class FloorlessPowerLaw(Family):
    """a k^-α: a straight line in logarithms."""

    name = "power-law-floorless"
    equation = "a k^-alpha"
    has_floor = False

    def shapes(self) -> Floats:
        """The exponent alone."""
        return np.geomspace(0.005, 2.0, 60)[:, None]

    def basis(self, steps: Floats, shapes: Floats, span: Span) -> Floats:
        return (steps[None, :] / span.last_step) ** -shapes
