"""Which configuration to time next: the one after which the others are known best.

A timing at slopes j takes C j jᵀ C / (noise² + jᵀ C j) from the covariance C of the linearised form, whatever
it will be; what is left of the mean variance of the predicted configurations is its worth.

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
    """A configuration worth timing. Deviations are of log step time, over all configurations asked for."""

    placement: str
    batch: int
    deviation_now: float
    deviation_then: float

    @property
    def narrower(self) -> float:
        """By which share intervals shrink."""
        return 1 - self.deviation_then / self.deviation_now


def suggest(
    fitted: Fitted,
    asked: Sequence[Configuration],
    candidates: Sequence[Configuration],
    timed: Collection[Configuration],
    reference_batch: float,
    most: int = 3,
) -> tuple[Suggestion, ...]:
    """The candidates not yet timed that teach most about those asked for, best first."""
    left = [item for item in dict.fromkeys(candidates) if item not in set(timed)]
    if not left:
        return ()
    wanted = jacobian(fitted.form, fitted.values, columns(asked, reference_batch))
    tried = jacobian(fitted.form, fitted.values, columns(left, reference_batch))
    noise = fitted.noise**2
    now = float(np.einsum("ij,jk,ik->", wanted, fitted.covariance, wanted)) / len(wanted) + noise
    seen = tried @ fitted.covariance
    gained = (wanted @ seen.T) ** 2 / (noise + np.einsum("ij,ij->i", seen, tried))
    then = np.maximum(now - gained.mean(axis=0), noise)
    best = np.argsort(then, kind="stable")[:most].tolist()
    return tuple(
        Suggestion(str(left[row].placement), left[row].batch, math.sqrt(now), math.sqrt(float(then[row])))
        for row in best
    )
