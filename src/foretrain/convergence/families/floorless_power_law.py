"""Power laws that never end: of a whole log, and of its last part."""

from __future__ import annotations

import numpy as np

from foretrain.convergence.curves import Floats
from foretrain.convergence.families._base import Family, Span


def _power(steps: Floats, shapes: Floats, span: Span) -> Floats:
    falling: Floats = (steps[None, :] / span.last_step) ** -shapes
    return falling


class FloorlessPowerLaw(Family):
    """a k^-α: a straight line in logarithms."""

    name = "power-law-floorless"
    equation = "a k^-alpha"
    has_floor = False

    def shapes(self) -> Floats:
        """The exponent alone."""
        return np.geomspace(0.005, 2.0, 60)[:, None]

    def basis(self, steps: Floats, shapes: Floats, span: Span) -> Floats:
        return _power(steps, shapes, span)


class LocalPowerLaw(Family):
    """The same of about the last fifth of the log: losses that go to 0 by memorising bend down ever more."""

    name = "power-law-local"
    equation = "a k^-alpha, weights k^8"
    has_floor = False
    recency = 8.0

    def shapes(self) -> Floats:
        """The exponent; larger than that of whole logs."""
        return np.geomspace(0.005, 8.0, 60)[:, None]

    def basis(self, steps: Floats, shapes: Floats, span: Span) -> Floats:
        return _power(steps, shapes, span)
