"""Fits `prediction.spread`: how far steps of another source lie from their predictions.

Input are residuals of the transfer suite, whose sources were in no fit. With r = ln(measured / predicted):

    minimise  Σ_i w_i ( ln σ_i + |r_i| / σ_i ) + pull · Σ_k (weight_k - prior_k)²,
              ln σ_i = Σ_k weight_k · feature_ik

the likelihood of a Laplace distribution, convex in the weights. Rows of a source share its effect, so every
source has one vote (w_i = 1 / rows). With a dozen votes few features stand out from chance: the pull is as
strong as ten sources, and of weights tried from 0.5 to 20 it has the least interval score on sources left out
(2.10 with 0.5 and votes by the root of rows, 1.74 now). What a GPU that was not measured adds cannot be seen
with the only source on such GPUs left out: the prior is by how much wider residuals of single operators are
on GPUs left out of their fits than on GPUs in them. p10 and p90 are the weighted quantiles of r / σ, so the
interval is asymmetric where the residuals are. A source is judged by a spread fitted without it.

    python -m calibration.steps.spread build/transfer/residuals.csv       writes calibrations/spread.json
"""

from __future__ import annotations

import csv
import json
import math
import statistics
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy.optimize import minimize

from calibration import files
from foretrain.prediction.operators.pricing import Floats
from foretrain.prediction.spread import FILE, KnowledgeClass, Spread, SpreadTraits

_PULL = 10.0
_UNSEEN = ("device not measured", "generation not measured")
"""Features whose prior is that of GPUs left out; a GPU of another generation is left out twice."""
_LEAST_SIDE = 0.1
"""A side of an interval is at least this share of the other: a median far off cannot make it negative."""
_FAR = 3.0
"""A case this many times as far off as p10 or p90 counts as a surprise: no normal distribution has any."""
_LEAST_BY_SHEET = 0.01
"""Assumed of a GPU known by its data sheet only: no plan on it is more than 99 % certain."""
_FAIR_SOURCES = 2.0
"""Sources assumed that are half within their predictions, so that a dozen biased ones do not say all."""
_FEWEST = 3


@dataclass(frozen=True)
class Residual:
    """A case of the transfer suite: r = ln(measured / predicted), and what its spread depends on."""

    source: str
    name: str
    log_ratio: float
    traits: SpreadTraits


def fit_spread(residuals: Sequence[Residual]) -> Spread:
    """The spread of some residuals; with fewer than three sources there is nothing between sources to see."""
    sources = [each.source for each in residuals]
    if len(set(sources)) < _FEWEST:
        raise ValueError(f"a spread between sources needs {_FEWEST} of them, got {sorted(set(sources))}")
    names = list(residuals[0].traits.features())
    features = np.array([[each.traits.features()[name] for name in names] for each in residuals])
    ratios = np.array([each.log_ratio for each in residuals])
    counts = {name: sources.count(name) for name in sources}
    weights = np.array([1 / counts[name] for name in sources])
    unseen = math.log(unseen_over_seen())
    prior = np.array([unseen if name in _UNSEEN else 0.0 for name in names])
    feature_weights = _weights(features, ratios, weights, prior)
    scaled = ratios / np.exp(features @ feature_weights)
    below, above = (-_quantile(scaled, weights, 0.1), _quantile(scaled, weights, 0.9))
    least = _LEAST_SIDE * max(below, above)
    below, above = max(below, least), max(above, least)
    return Spread(
        dict(zip(names, feature_weights.tolist(), strict=True)),
        below,
        above,
        _surprises(residuals, scaled, weights, below, above),
        (float(weights @ (ratios <= 0)) + 0.5 * _FAIR_SOURCES) / (float(weights.sum()) + _FAIR_SOURCES),
    )


def unseen_over_seen() -> float:
    """How much wider 80 % of the residuals of operators are on GPUs left out: the median of the fits."""
    ratios = []
    for file in sorted(files.folder().glob("*.json")):
        known = json.loads(file.read_text(encoding="utf-8")).get("residuals")
        if not isinstance(known, dict):
            continue
        for each in [known, *known.values()]:
            if isinstance(each, dict) and {"seen", "unseen"} <= set(each):
                seen, unseen = (math.log(each[k]["p90"] / each[k]["p10"]) for k in ("seen", "unseen"))
                ratios.append(unseen / seen)
    return statistics.median(ratios)


def _weights(features: Floats, ratios: Floats, weights: Floats, prior: Floats) -> Floats:
    """The weights of the features; the first is the constant, which nothing pulls."""
    sizes = np.maximum(np.abs(ratios), 1e-3)
    pull = np.append(0.0, np.full(features.shape[1] - 1, _PULL))

    def loss(at: Floats) -> tuple[float, Floats]:
        logs = features @ at
        relative, off = sizes * np.exp(-logs), at - prior
        value = float(weights @ (logs + relative) + (pull * off) @ off)
        return value, features.T @ (weights * (1 - relative)) + 2 * pull * off

    start = prior.copy()
    start[0] = math.log(float(weights @ sizes / weights.sum()))
    bounds = [(None, None), *[(0.0, None)] * (len(start) - 1)]
    options = {"maxiter": 2000, "ftol": 1e-14, "gtol": 1e-10}
    fitted: Floats = minimize(loss, start, jac=True, method="L-BFGS-B", bounds=bounds, options=options).x
    return fitted


def _quantile(values: Floats, weights: Floats, share: float) -> float:
    """A weighted quantile, linear between the middles of the weights."""
    order = np.argsort(values, kind="stable")
    middles = np.cumsum(weights[order]) - weights[order] / 2
    return float(np.interp(share * weights.sum(), middles, values[order]))


def _surprises(
    residuals: Sequence[Residual], scaled: Floats, weights: Floats, below: float, above: float
) -> dict[str, float]:
    """The share of cases far outside, by class; classes with few cases are near the common share.

    What is less known surprises at least as often.
    """
    is_far = (scaled < -_FAR * below) | (scaled > _FAR * above)
    common = float(weights @ is_far / weights.sum())
    shares: dict[str, float] = {}
    at_least = 0.0
    for known in list(KnowledgeClass)[1:]:
        here = np.array([each.traits.known is known for each in residuals])
        mass = float(weights[here].sum())
        share = (float(weights[here] @ is_far[here]) + 2 * common) / (mass + 2)
        at_least = max(at_least, share, _LEAST_BY_SHEET if known is KnowledgeClass.DATA_SHEET else 0.0)
        shares[known.value] = at_least
    return shares


def leave_source_out(residuals: Sequence[Residual]) -> dict[str, Spread]:
    """For every source the spread of the others."""
    return {
        name: fit_spread([each for each in residuals if each.source != name])
        for name in dict.fromkeys(each.source for each in residuals)
    }


def is_inside(residual: Residual, spread: Spread) -> bool:
    """Whether a measurement is in the 80 % interval of a spread."""
    below, above = spread.logs(residual.traits)
    return -below <= residual.log_ratio <= above


# Files

COLUMNS = (
    "source", "name", "log_ratio", "known", "precision", "devices", "seq_len", "compiled", "forward",
    "launch_share",
)  # fmt: skip


def write_residuals(file: Path, residuals: Sequence[Residual]) -> None:
    """Keep residuals as a table."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream)
        writer.writerow(COLUMNS)
        for each in residuals:
            traits = each.traits
            writer.writerow(
                (each.source, each.name, f"{each.log_ratio:.6f}", traits.known.value, traits.precision,
                 traits.devices, traits.seq_len, int(traits.is_compiled), int(traits.is_forward),
                 f"{traits.launch_share:.6f}")
            )  # fmt: skip


def read_residuals(file: Path) -> list[Residual]:
    """A kept table of residuals."""
    with file.open(newline="", encoding="utf-8") as stream:
        return [_residual(row) for row in csv.DictReader(stream)]


def _residual(row: Mapping[str, str]) -> Residual:
    return Residual(
        row["source"],
        row["name"],
        float(row["log_ratio"]),
        SpreadTraits(
            KnowledgeClass(row["known"]),
            row["precision"],
            int(row["devices"]),
            int(row["seq_len"]),
            row["compiled"] == "1",
            row["forward"] == "1",
            float(row["launch_share"]),
        ),
    )


def write_spread(residuals: Sequence[Residual]) -> Path:
    """Fit, judge every source by the others, and write the calibration."""
    spread, others = fit_spread(residuals), leave_source_out(residuals)
    sources = {}
    for name, without in others.items():
        own = [each for each in residuals if each.source == name]
        sources[name] = {
            "cases": len(own),
            "median_log_ratio": float(np.median([each.log_ratio for each in own])),
            "inside_left_out": float(np.mean([is_inside(each, without) for each in own])),
        }
    return files.write(
        FILE,
        {
            "model": "spread between sources",
            "data": [{"source": "transfer suite", "residuals": sources}],
            "residuals_of": "ln(measured / predicted) of steps, each source judged by a fit without it",
            "weights": spread.weights,
            "below": spread.below,
            "above": spread.above,
            "surprise": spread.surprise,
            "within": spread.within,
        },
    )


if __name__ == "__main__":
    sys.stdout.write(f"{write_spread(read_residuals(Path(sys.argv[1])))}\n")
