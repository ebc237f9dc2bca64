"""Stepwise regression: terms enter and leave by their partial F-tests until the selection is stable.

In every step the term that explains most of the residuals enters if its partial F is significant at `enter`;
then the weakest selected term leaves if it is not significant at `leave`. With leave >= enter this cannot
cycle. Terms that are (nearly) a combination of selected ones never enter.

Rows may be weighted; the constant is always included. Columns are scaled to unit length and orthogonalised
(QR), so that features of very different size cause no numerical problems.

Reference: N. R. Draper, H. Smith, "Applied regression analysis", 3rd ed., Wiley 1998, chapter 15.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from foretrain.prediction.operators.listing import Floats

ENTER, LEAVE = 0.15, 0.15
"""Chosen among four pairs (0.05 to 0.25) on PROFET: with nine repeats they do not differ; from three single
timings, batches of 128 and 256 are 12.9 % off at 0.05, 8.5 % at 0.15 and 7.3 % at 0.25."""
_INDEPENDENT = 1e-8
"""The least share of a column's length that must be independent of the selected ones."""
_EXACT = 1e-18
"""Share of the residual squares below which a fit is exact."""


@dataclass(frozen=True, eq=False)
class Selection:
    """The selected terms in the order of their columns, and the least-squares fit on them.

    `coefficients` and `covariance` have the constant first; `covariance` is (X'WX)⁻¹, to be multiplied by a
    variance. `basis` spans the selected columns, weighted and orthonormal.
    """

    terms: tuple[int, ...]
    coefficients: Floats
    covariance: Floats
    residuals: Floats
    basis: Floats
    freedom: int

    def left_out(self, groups: NDArray[np.int64]) -> Floats:
        """The weighted residuals of rows under a fit without their group.

        (I - H_gg)⁻¹ r_g for every group g of rows, H the projection onto the selected columns.
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
    """Select at most `most` of `columns` (rows x candidates) that predict `response`."""
    if not 0 < enter <= leave < 1:
        raise ValueError(f"thresholds must satisfy 0 < enter <= leave < 1, got enter {enter}, leave {leave}")
    root = np.ones(len(response)) if weights is None else np.sqrt(weights)
    problem = _Problem(columns * root[:, None], response * root, root)
    limit = min(columns.shape[1], len(response) - 2, *([] if most is None else [most]))
    selected: tuple[int, ...] = ()
    seen: set[tuple[int, ...]] = set()
    while selected not in seen:
        seen.add(selected)
        grown = problem.entering(selected, enter) if len(selected) < limit else None
        selected = selected if grown is None else tuple(sorted((*selected, grown)))
        weakest = problem.leaving(selected, leave)
        selected = tuple(term for term in selected if term != weakest)
    return problem.fit(selected)


@dataclass(frozen=True, eq=False)
class _Problem:
    """Weighted columns, weighted response, and the weighted constant."""

    columns: Floats
    response: Floats
    constant: Floats

    def entering(self, selected: tuple[int, ...], enter: float) -> int | None:
        """The other term with the largest partial F, if it is significant."""
        basis, _ = np.linalg.qr(self._design(selected))
        left = self.response - basis @ (basis.T @ self.response)
        new = self.columns - basis @ (basis.T @ self.columns)
        new -= basis @ (basis.T @ new)  # repeated against rounding errors
        length = np.sum(new**2, axis=0)
        usable = length > _INDEPENDENT * np.sum(self.columns**2, axis=0)
        usable[list(selected)] = False
        squares = float(left @ left)
        if not usable.any() or squares <= _EXACT * float(self.response @ self.response):
            return None
        gain = np.where(usable, (new.T @ left) ** 2 / np.where(usable, length, 1.0), -1.0)
        best = int(np.argmax(gain))
        freedom = len(self.response) - len(selected) - 2
        return best if _tail(_ratio(float(gain[best]), squares, freedom), freedom) < enter else None

    def leaving(self, selected: tuple[int, ...], leave: float) -> int | None:
        """The selected term with the smallest partial F, if it is not significant."""
        if not selected:
            return None
        fit = self.fit(selected)
        variance = float(fit.residuals @ fit.residuals) / fit.freedom
        spread = np.maximum(np.diag(fit.covariance)[1:] * variance, np.finfo(float).tiny)
        partial = fit.coefficients[1:] ** 2 / spread
        weakest = int(np.argmin(partial))
        return selected[weakest] if _tail(float(partial[weakest]), fit.freedom) > leave else None

    def fit(self, selected: tuple[int, ...]) -> Selection:
        """Least squares on the selected terms and the constant."""
        design = self._design(selected)
        scale = np.sqrt(np.sum(design**2, axis=0))
        basis, upper = np.linalg.qr(design / scale)
        inverse = np.linalg.inv(upper)
        residuals = self.response - basis @ (basis.T @ self.response)
        return Selection(
            terms=selected,
            coefficients=inverse @ (basis.T @ self.response) / scale,
            covariance=inverse @ inverse.T / np.outer(scale, scale),
            residuals=residuals,
            basis=basis,
            freedom=len(self.response) - len(selected) - 1,
        )

    def _design(self, selected: tuple[int, ...]) -> Floats:
        return np.column_stack([self.constant, self.columns[:, list(selected)]])


def _ratio(gain: float, squares: float, freedom: int) -> float:
    """The partial F of a term that reduces the residual squares by `gain`."""
    rest = squares - gain
    return np.inf if rest <= 0 else gain / (rest / freedom)


def _tail(ratio: float, freedom: int) -> float:
    """The probability of a partial F of one term above `ratio`."""
    from scipy.special import fdtrc

    return float(fdtrc(1, freedom, ratio))
