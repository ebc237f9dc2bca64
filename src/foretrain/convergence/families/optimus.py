"""Optimus: an inverse of the steps above a floor.

Reference: Y. Peng et al., "Optimus: An Efficient Dynamic Resource Scheduler for Deep Learning Clusters",
EuroSys 2018, section 3.1; the weights are those of its published code.
"""

from __future__ import annotations

import numpy as np

from foretrain.convergence.curves import Floats
from foretrain.convergence.families._base import Family, Span


def _offsets() -> Floats:
    """b1/b0, from a thousandth of the log to thirty times it."""
    return np.geomspace(1e-3, 30.0, 60)[:, None]


def _inverse(steps: Floats, shapes: Floats, span: Span) -> Floats:
    falling: Floats = 1.0 / (steps[None, :] / span.last_step + shapes)
    return falling


class Optimus(Family):
    """1 / (b0 k + b1) + b2, with scale = 1/b0 and offset = b1/b0."""

    name = "optimus"
    equation = "1/(b0 k + b1) + b2"

    def shapes(self) -> Floats:
        return _offsets()

    def basis(self, steps: Floats, shapes: Floats, span: Span) -> Floats:
        return _inverse(steps, shapes, span)


class WeightedOptimus(Family):
    """The same; later points count more, four times for each quarter of the log."""

    name = "optimus-weighted"
    equation = "1/(b0 k + b1) + b2, weights 4^segment"
    segment_weights = True

    def shapes(self) -> Floats:
        return _offsets()

    def basis(self, steps: Floats, shapes: Floats, span: Span) -> Floats:
        return _inverse(steps, shapes, span)
