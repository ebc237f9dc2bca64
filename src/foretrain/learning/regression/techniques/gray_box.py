"""Gray box: foretrain's own prediction, corrected by what the timings say of its error.

    log(measured / predicted) = level + offsets of categories + slopes and walks along numbers + noise

Each part is a random function with a variance of its own: an offset for each category and each combination of
them (a model on a device), a slope and a random walk along the octaves of every number (batch, GPUs, image
size), common to all rows and of each combination alone. It is a Gaussian process; the variances are the most
probable ones given the rows, with the spreads of `calibrations/few_timings.json` as prior medians. What the
rows do not determine stays as predicted, so three timings are enough to start, and a device or a batch that
was never timed keeps the physics of the prediction. Where that is better on rows left out, the prediction is
first put on a line, b0 + b1 · predicted + b2 · batch with b >= 0: another framework's overhead of a step and
its copies of the input.

Reference: C. E. Rasmussen, C. K. I. Williams, "Gaussian processes for machine learning", MIT Press 2006,
chapters 2 and 5. Gray box: D. Didona et al., "Enhancing performance prediction robustness by combining
analytical modeling and machine learning", ICPE 2015.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from foretrain.learning.regression.columns import BATCH, PREDICTED, UNSEEN, Schema
from foretrain.learning.regression.table import Sample
from foretrain.learning.regression.techniques._base import Parameters, Predictor, Technique, floats
from foretrain.prediction.corrections.error_model import size_spreads
from foretrain.prediction.operators.pricing import Floats

_MOST_ROWS_FOR_VARIANCES = 400
"""Variances are chosen by inverting a matrix of the rows many times, which takes their cube."""
_SPREAD_OF_LOG = 1.0
"""Standard deviation of the logarithm of a standard deviation around its prior median."""
_OFFSET, _COMBINED = 0.5, 0.5
"""Prior median of a category's offset, and of a combination's, as shares of the level's."""
_JITTER = 1e-10
"""On the diagonal, so that repeated rows leave the covariance invertible."""


@dataclass(frozen=True)
class Inputs:
    """Which columns the process looks at: categories, and numbers with the value that counts as 0 octaves.

    `kinds` are categories of the device (its generation): offsets that a device never timed shares.
    """

    texts: tuple[int, ...]
    kinds: tuple[int, ...]
    numbers: tuple[int, ...]
    origins: tuple[float, ...]
    predicted: int
    batch: int | None = None

    def octaves(self, rows: Floats) -> Floats:
        """Numbers as octaves above the smallest that was fitted."""
        return np.asarray(np.log2(rows[:, list(self.numbers)] / np.array(self.origins)))


def parts(inputs: Inputs, a: Floats, b: Floats) -> list[Floats]:
    """The covariance of each part at unit variance, between rows a and rows b."""
    same, related = (
        [
            ((a[:, None, place] == b[None, :, place]) & (a[:, None, place] != UNSEEN)).astype(float)
            for place in places
        ]
        for places in (inputs.texts, inputs.kinds)
    )
    every = np.prod(same, axis=0) if same else np.ones((len(a), len(b)))
    along_a, along_b = inputs.octaves(a), inputs.octaves(b)
    lines = [along_a[:, None, n] * along_b[None, :, n] for n in range(len(inputs.numbers))]
    walks = [
        np.where(line > 0, np.minimum(np.abs(along_a[:, None, n]), np.abs(along_b[None, :, n])), 0.0)
        for n, line in enumerate(lines)
    ]
    kinds: list[Floats] = [np.ones((len(a), len(b))), *same, *related]
    kinds += [every] if len(same) > 1 else []
    for own in (np.ones((1, 1)), *same, *([every] if len(same) > 1 else [])):
        kinds += [line * own for line in lines] + [walk * own for walk in walks]
    return kinds


def _prior_medians(inputs: Inputs) -> Floats:
    known = size_spreads()
    texts, numbers = len(inputs.texts), len(inputs.numbers)
    has_combined = texts > 1
    medians = [known.level, *[_OFFSET * known.level] * (texts + len(inputs.kinds))]
    medians += [_COMBINED * _OFFSET * known.level] if has_combined else []
    for _ in range(1 + texts + has_combined):
        medians += [known.slope] * numbers + [known.wander] * numbers
    return np.array([*medians, known.noise])


@final
@dataclass(frozen=True, eq=False)
class ResidualProcess(Predictor):
    """(b0 + b1 · predicted + b2 · batch) · exp(k(row, known) · weights)."""

    inputs: Inputs
    base: tuple[float, float, float]
    variances: Floats
    known: Floats
    weights: Floats

    def __post_init__(self) -> None:
        if self.known.ndim != 2 or len(self.known) != len(self.weights):
            raise ValueError(f"{len(self.weights)} weights of {len(self.known)} rows")

    def predict(self, rows: Floats) -> Floats:
        """The prediction of every row, corrected."""
        covariance = _weighted(self.variances, parts(self.inputs, rows, self.known))
        return np.asarray(based(self.base, self.inputs, rows) * np.exp(covariance @ self.weights))

    def to_plain(self) -> dict[str, Any]:
        """Rows, weights and variances."""
        return {
            "texts": list(self.inputs.texts),
            "kinds": list(self.inputs.kinds),
            "batch": self.inputs.batch,
            "base": list(self.base),
            "numbers": list(self.inputs.numbers),
            "origins": list(self.inputs.origins),
            "predicted": self.inputs.predicted,
            "variances": self.variances.tolist(),
            "known": self.known.tolist(),
            "weights": self.weights.tolist(),
        }


class GrayBox(Technique):
    """foretrain's prediction with its error learned."""

    name = "gray-box"
    about = "foretrain's prediction, its error learned by a Gaussian process"

    def lacks(self, schema: Schema) -> str:
        """A prediction of every row."""
        if schema.with_role(PREDICTED) is not None:
            return ""
        return f"a column {PREDICTED!r}, or model, device and batch of every row to predict it from"

    def grid(self) -> tuple[Parameters, ...]:
        """The prediction as it is, or on a line first."""
        return ({"base": "predicted"}, {"base": "line"})

    def fit(self, sample: Sample, parameters: Parameters) -> ResidualProcess:
        """The most probable variances, then the weights of all rows."""
        inputs = _inputs(sample)
        base = _line(inputs, sample) if parameters["base"] == "line" else (0.0, 1.0, 0.0)
        error = np.log(sample.measured / based(base, inputs, sample.rows))
        chosen = np.unique(
            np.linspace(0, len(sample) - 1, min(len(sample), _MOST_ROWS_FOR_VARIANCES)).astype(int)
        )
        variances = _probable_variances(inputs, sample.rows[chosen], error[chosen])
        covariance = _weighted(variances, parts(inputs, sample.rows, sample.rows))
        covariance[np.diag_indices_from(covariance)] += variances[-1]
        weights: Floats = np.asarray(np.linalg.solve(covariance, error), float)
        return ResidualProcess(inputs, base, variances, sample.rows, weights)

    def read(self, plain: Mapping[str, Any], schema: Schema) -> ResidualProcess:
        """From rows and weights."""
        inputs = Inputs(
            tuple(int(each) for each in plain["texts"]),
            tuple(int(each) for each in plain["kinds"]),
            tuple(int(each) for each in plain["numbers"]),
            floats(plain["origins"]),
            int(plain["predicted"]),
            None if plain["batch"] is None else int(plain["batch"]),
        )
        constant, slope, per_sample = floats(plain["base"])
        places = (*inputs.texts, *inputs.kinds, *inputs.numbers, inputs.predicted, inputs.batch or 0)
        if any(not 0 <= place < len(schema.features) for place in places):
            raise ValueError("columns that the schema does not have")
        known = np.array(plain["known"], float)
        if known.shape[1] != len(schema.features):
            raise ValueError(f"rows of {known.shape[1]} columns where the schema has {len(schema.features)}")
        variances = np.array(floats(plain["variances"]))
        if len(variances) != len(_prior_medians(inputs)):
            raise ValueError(f"{len(variances)} variances of {len(_prior_medians(inputs))} parts")
        base = (constant, slope, per_sample)
        return ResidualProcess(inputs, base, variances, known, np.array(floats(plain["weights"])))


def _inputs(sample: Sample) -> Inputs:
    schema = sample.schema
    predicted = schema.with_role(PREDICTED)
    assert predicted is not None, "checked by `lacks`"
    numbers = [
        each
        for each in schema.numbers(without=(PREDICTED,))
        if not each.of_device and float(sample.column(each.name).min()) > 0
    ]
    batch = schema.with_role(BATCH)
    return Inputs(
        tuple(schema.place(each.name) for each in schema.texts),
        tuple(place for place, each in enumerate(schema.features) if each.is_text and each.of_device),
        tuple(schema.place(each.name) for each in numbers),
        tuple(float(sample.column(each.name).min()) for each in numbers),
        schema.place(predicted.name),
        None if batch is None else schema.place(batch.name),
    )


def based(base: tuple[float, float, float], inputs: Inputs, rows: Floats) -> Floats:
    """The line b0 + b1 · predicted + b2 · batch."""
    constant, slope, per_sample = base
    batch = rows[:, inputs.batch] if inputs.batch is not None else 0.0
    return np.asarray(constant + slope * rows[:, inputs.predicted] + per_sample * batch)


def _line(inputs: Inputs, sample: Sample) -> tuple[float, float, float]:
    """Non-negative, relative errors least; the plain prediction where the line would vanish."""
    from scipy.optimize import nnls

    columns = [np.ones(len(sample)), sample.rows[:, inputs.predicted]]
    columns += [sample.rows[:, inputs.batch]] if inputs.batch is not None else []
    weighted = np.column_stack(columns) / sample.measured[:, None]
    scale = np.sqrt((weighted**2).sum(axis=0))
    slopes = (nnls(weighted / scale, np.ones(len(sample)))[0] / scale).tolist()
    return (slopes[0], slopes[1], slopes[2] if len(slopes) > 2 else 0.0)


def _weighted(variances: Floats, kinds: Sequence[Floats]) -> Floats:
    total = np.zeros(kinds[0].shape)
    for variance, kind in zip(variances[:-1].tolist(), kinds, strict=True):
        total = total + variance * kind
    return np.asarray(total)


def _probable_variances(inputs: Inputs, rows: Floats, error: Floats) -> Floats:
    """The maximum of likelihood times prior over the logarithms of the standard deviations."""
    from scipy.optimize import minimize

    kinds = [*parts(inputs, rows, rows), np.eye(len(rows))]
    start = np.log(_prior_medians(inputs))

    def objective(logs: Floats) -> tuple[float, Floats]:
        variances = np.exp(2 * logs)
        covariance = sum(v * k for v, k in zip(variances.tolist(), kinds, strict=True))
        covariance = covariance + _JITTER * np.eye(len(rows))
        lower = np.linalg.cholesky(covariance)
        inverse = np.linalg.inv(covariance)
        weights = inverse @ error
        away = (logs - start) / _SPREAD_OF_LOG
        value = 0.5 * float(error @ weights) + float(np.log(np.diag(lower)).sum()) + 0.5 * float(away @ away)
        rest = inverse - np.outer(weights, weights)
        slope = np.array(
            [v * float((rest * k).sum()) for v, k in zip(variances.tolist(), kinds, strict=True)]
        )
        return value, slope + away / _SPREAD_OF_LOG

    optimum = minimize(objective, start, jac=True, method="L-BFGS-B", bounds=[(-12.0, 3.0)] * len(start),
                     options={"maxiter": 60})  # fmt: skip
    variances: Floats = np.exp(2 * optimum.x)
    return variances
