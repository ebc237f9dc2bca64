"""What a family of curves is: a falling function of steps, with shapes to be searched over.

    value(k) = level(k; shape) · (floor + scale · basis(k; shape)),    scale >= 0

in the sense that falls as training goes on (accuracies are fitted upside down); the level is 1 but under a
known schedule. Scale and floor follow from linear least squares once the shape is chosen, so that a fit is a
search over one or two bounded numbers.

Every `CurveFamily` in the modules of this package is found by `families`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cache
from typing import ClassVar

import numpy as np

from foretrain.convergence.curves import Floats
from foretrain.convergence.schedules import LearningRateSchedule
from foretrain.registry import Registry, discover


@dataclass(frozen=True)
class CurveHorizon:
    """What a family gets besides the points: where the run is planned to end, under which schedule."""

    last_step: float
    planned_steps: float | None = None
    schedule: LearningRateSchedule | None = None

    def rate(self, steps: Floats) -> Floats:
        """The learning rate at these steps, relative to its peak; 1 where the schedule is not known."""
        if self.schedule is None or not self.planned_steps:
            return np.ones(len(steps))
        return self.schedule.rate(steps / self.planned_steps)


class CurveFamily(ABC):
    """A form of learning curve."""

    name: ClassVar[str]
    equation: ClassVar[str]
    has_floor: ClassVar[bool] = True
    needs_schedule: ClassVar[bool] = False
    segment_weights: ClassVar[bool] = False
    """Whether later points weigh more, four times for each quarter of the log, as Optimus does."""
    recency: ClassVar[float] = 0.0
    """Points weigh as this power of their step: a law of the later part of a run."""
    accuracy: ClassVar[float] = 0.0
    """Residuals below this share of the value say nothing: how well the family is known to hold."""

    @abstractmethod
    def shapes(self) -> Floats:
        """Candidates of the shape parameters, one row each; steps among them are shares of the log."""

    @abstractmethod
    def basis(self, steps: Floats, shapes: Floats, span: CurveHorizon) -> Floats:
        """The falling function: shapes x steps."""

    def gain(self, shapes: Floats) -> Floats:
        """What the full learning rate adds to the value, as a share of it, for each shape."""
        return np.zeros(len(shapes))

    def level(self, steps: Floats, shapes: Floats, span: CurveHorizon) -> Floats:
        """What multiplies the curve, 1 + gain · rate: shapes x steps."""
        return np.asarray(1 + self.gain(shapes)[:, None] * span.rate(steps)[None, :])

    def penalty(self, shapes: Floats) -> Floats:
        """What is known of the shapes beforehand: minus twice the logarithm of their prior."""
        return np.zeros(len(shapes))


def mesh(*axes: Floats) -> Floats:
    """All combinations of the axes' values, one row each."""
    return np.stack([axis.ravel() for axis in np.meshgrid(*axes, indexing="ij")], axis=1)


@cache
def families() -> Registry[CurveFamily]:
    """The families, by name."""
    known = tuple(discover(__name__, CurveFamily))  # type: ignore[type-abstract]
    hint = f"Known: {', '.join(family.name for family in known)}"
    return Registry("curve family", known, name=lambda family: family.name, hint=hint)
