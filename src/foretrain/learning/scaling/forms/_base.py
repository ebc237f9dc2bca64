"""What a form is: a formula for the time of a step, with few parameters that are fitted to timings.

Times are of one job, so that everything is relative: the first parameter of each form is the logarithm of
its level, on which no prior knows anything; batch sizes are over the job's reference batch; and the other
parameters are pure numbers, which is why what was learned on one job says something about another.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from foretrain.learning.scaling.columns import Columns
from foretrain.prediction.operators.listing import Floats

LEVEL = "level"
LEVEL_DEVIATION = 10.0
"""In logarithms: any time between microseconds and days is as likely as any other."""
_STEEPEST = 3.0


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter, and how it lies before anything was timed: a normal distribution, wide."""

    name: str
    mean: float
    deviation: float


class Form(ABC):
    """A formula of step time."""

    name: str
    equation: str
    parameters: tuple[Parameter, ...]
    at_reference_batch: str = ""
    """The parameter that would be another one at another reference batch, if there is one."""

    @abstractmethod
    def log_seconds(self, values: Floats, at: Columns) -> Floats:
        """Logarithms of step times, given the parameters' values in their order."""

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the parameters."""
        return tuple(parameter.name for parameter in self.parameters)

    def named(self, values: Floats) -> Mapping[str, float]:
        """Values by name of the parameter."""
        return dict(zip(self.names, values.tolist(), strict=True))


def share(logit: float) -> float:
    """A number between 0 and 1 from one without bounds."""
    return float(1 / (1 + np.exp(-logit)))


def overlapped(log_power: float, one: Floats, other: Floats) -> Floats:
    """(one^p + other^p)^(1/p) with p = 1 + exp(log_power): their sum at p = 1, the longer one at p = ∞.

    p ends at 21, where the longer one alone is left to 3 %.
    """
    power = 1 + np.exp(np.clip(log_power, None, _STEEPEST))
    longer = np.maximum(one, other)
    result: Floats = longer * ((one / longer) ** power + (other / longer) ** power) ** (1 / power)
    return result
