"""The configurations to time next: those that reduce the variance of the predictions most.

A timing with slopes j reduces the covariance C of the linearised form by C j jᵀ C / (noise² + jᵀ C j),
whatever its value. Candidates are ranked by the remaining mean variance of the predicted configurations.

Reference: D. J. C. MacKay, Information-based objective functions for active data selection, 1992.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

from foretrain.learning.scaling.configurations import Configuration, columns
from foretrain.learning.scaling.fitting import Fitted, jacobian


@dataclass(frozen=True, slots=True)
class Suggestion:
    """A configuration to time. Deviations are of log step time, over all requested configurations."""

    placement: str
    batch: int
    deviation_now: float
    deviation_then: float

    @property
    def narrower(self) -> float:
        """The share by which intervals shrink."""
        return 1 - self.deviation_then / self.deviation_now


def suggest(
    fitted: Fitted,
    requested: Sequence[Configuration],
    candidates: Sequence[Configuration],
    timed: Collection[Configuration],
    reference_batch: float,
    most: int = 3,
) -> tuple[Suggestion, ...]:
    """The candidates that reduce the variance of the requested configurations most, best first."""
    left = [item for item in dict.fromkeys(candidates) if item not in set(timed)]
    if not left:
        return ()
    target = jacobian(fitted.form, fitted.values, columns(requested, reference_batch))
    tried = jacobian(fitted.form, fitted.values, columns(left, reference_batch))
    noise = fitted.noise**2
    now = float(np.einsum("ij,jk,ik->", target, fitted.covariance, target)) / len(target) + noise
    seen = tried @ fitted.covariance
    gained = (target @ seen.T) ** 2 / (noise + np.einsum("ij,ij->i", seen, tried))
    then = np.maximum(now - gained.mean(axis=0), noise)
    best = np.argsort(then, kind="stable")[:most].tolist()
    return tuple(
        Suggestion(str(left[row].placement), left[row].batch, math.sqrt(now), math.sqrt(float(then[row])))
        for row in best
    )
