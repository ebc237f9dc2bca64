"""Stepwise regression: terms enter and leave by their partial F-tests, until nothing changes.

At every step the term that explains most of what is left enters if its partial F is significant at `enter`;
then the weakest term chosen leaves if it no longer is at `leave`. With leave >= enter this cannot go round
in circles. Terms that are (nearly) a combination of those chosen never enter.

Rows may be weighted; the constant is always in. Columns are scaled to length one and what is chosen is kept
orthogonal (QR), so that features of very different size do no harm.

Reference: N. R. Draper, H. Smith, "Applied regression analysis", 3rd ed., Wiley 1998, chapter 15.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from foretrain.prediction.operators.listing import Floats
from foretrain.ties import first_of_least, first_of_most

ENTER, LEAVE = 0.15, 0.15
"""Chosen among four pairs (0.05 to 0.25) on PROFET: with nine repeats they do not differ; from three single
timings, batches of 128 and 256 are 12.9 % off at 0.05, 8.5 % at 0.15 and 7.3 % at 0.25."""
_INDEPENDENT = 1e-8
"""The least share of a column's length that must be new to those chosen."""
_SAME_GAIN = 1e-9
"""Collinear terms explain the same but for rounding: the first of them enters."""
_EXACT = 1e-18
"""A share of the squares left below which a fit counts as exact."""


@dataclass(frozen=True, eq=False)
class Selection:
    """The terms chosen, in the order of their columns, and the least-squares fit on them.

    `coefficients` and `covariance` have the constant first; `covariance` is (X'WX)⁻¹, to be multiplied by a
    variance. `basis` spans the chosen columns, weighted and orthonormal.
    """

    terms: tuple[int, ...]
    coefficients: Floats
    covariance: Floats
    residuals: Floats
    basis: Floats
    freedom: int

    def left_out(self, groups: NDArray[np.int64]) -> Floats:
        """The weighted residuals rows would have, had the fit been made without their whole group.

        (I - H_gg)⁻¹ r_g for every group g of rows, H the projection onto the chosen columns.
        """
        residuals = np.zeros(len(self.residuals))
        for group in np.unique(groups):
            rows = np.flatnonzero(groups == group)
            kept = np.eye(len(rows)) - self.basis[rows] @ self.basis[rows].T
            residuals[rows] = np.linalg.lstsq(kept, self.residuals[rows], rcond=_INDEPENDENT)[0]
        return residuals


def select(
    columns: Floats,
    response: Floats,
    weights: Floats | None = None,
    enter: float = ENTER,
    leave: float = LEAVE,
    most: int | None = None,
) -> Selection:
    """Choose among `columns` (rows x candidates) those that predict `response`; at most `most` of them."""
    if not 0 < enter <= leave < 1:
        raise ValueError(f"thresholds must keep 0 < enter <= leave < 1, got enter {enter}, leave {leave}")
    root = np.ones(len(response)) if weights is None else np.sqrt(weights)
    problem = _Problem(columns * root[:, None], response * root, root)
    limit = min(columns.shape[1], len(response) - 2, *([] if most is None else [most]))
    chosen: tuple[int, ...] = ()
    seen: set[tuple[int, ...]] = set()
    while chosen not in seen:
        seen.add(chosen)
        grown = problem.entering(chosen, enter) if len(chosen) < limit else None
        chosen = chosen if grown is None else tuple(sorted((*chosen, grown)))
        weakest = problem.leaving(chosen, leave)
        chosen = tuple(term for term in chosen if term != weakest)
    return problem.fit(chosen)


@dataclass(frozen=True, eq=False)
class _Problem:
    """Weighted columns, weighted response, and the weighted constant."""

    columns: Floats
    response: Floats
    constant: Floats

    def entering(self, chosen: tuple[int, ...], enter: float) -> int | None:
        """The term with the largest partial F among those left, if it is significant."""
        basis, _ = np.linalg.qr(self._design(chosen))
        left = self.response - basis @ (basis.T @ self.response)
        new = self.columns - basis @ (basis.T @ self.columns)
        new -= basis @ (basis.T @ new)  # once more: rounding of the first pass
        length = np.sum(new**2, axis=0)
        usable = length > _INDEPENDENT * np.sum(self.columns**2, axis=0)
        usable[list(chosen)] = False
        squares = float(left @ left)
        if not usable.any() or squares <= _EXACT * float(self.response @ self.response):
            return None
        gain = np.where(usable, (new.T @ left) ** 2 / np.where(usable, length, 1.0), -1.0)
        best = first_of_most(gain, _SAME_GAIN)
        freedom = len(self.response) - len(chosen) - 2
        return best if _tail(_ratio(float(gain[best]), squares, freedom), freedom) < enter else None

    def leaving(self, chosen: tuple[int, ...], leave: float) -> int | None:
        """The term with the smallest partial F among those chosen, if it is not significant."""
        if not chosen:
            return None
        fit = self.fit(chosen)
        variance = float(fit.residuals @ fit.residuals) / fit.freedom
        spread = np.maximum(np.diag(fit.covariance)[1:] * variance, np.finfo(float).tiny)
        partial = fit.coefficients[1:] ** 2 / spread
        # of equally weak terms the last leaves, as the first enters
        weakest = len(partial) - 1 - first_of_least(partial[::-1] / max(float(partial.max()), 1e-300))
        return chosen[weakest] if _tail(float(partial[weakest]), fit.freedom) > leave else None

    def fit(self, chosen: tuple[int, ...]) -> Selection:
        """Least squares on the terms chosen and the constant."""
        design = self._design(chosen)
        scale = np.sqrt(np.sum(design**2, axis=0))
        basis, upper = np.linalg.qr(design / scale)
        inverse = np.linalg.inv(upper)
        residuals = self.response - basis @ (basis.T @ self.response)
        return Selection(
            terms=chosen,
            coefficients=inverse @ (basis.T @ self.response) / scale,
            covariance=inverse @ inverse.T / np.outer(scale, scale),
            residuals=residuals,
            basis=basis,
            freedom=len(self.response) - len(chosen) - 1,
        )

    def _design(self, chosen: tuple[int, ...]) -> Floats:
        return np.column_stack([self.constant, self.columns[:, list(chosen)]])


def _ratio(gain: float, squares: float, freedom: int) -> float:
    """The partial F of a term that takes `gain` off the squares left."""
    rest = squares - gain
    return np.inf if rest <= 0 else gain / (rest / freedom)


def _tail(ratio: float, freedom: int) -> float:
    """The probability of a partial F of one term above `ratio`."""
    from scipy.special import fdtrc

    return float(fdtrc(1, freedom, ratio))
