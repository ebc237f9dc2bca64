"""The covariance of the constants of `besiroglu-2024` in `facts/data/scaling_laws.toml`, by bootstrap.

    python -m calibration.scaling_law svg_extracted_data.csv

The file is the one Besiroglu et al. published (github.com/Besiroglu/data): the runs that they read from a
figure of Hoffmann et al., with columns `Model Size`, `Training FLOP` and `loss`. It has no licence, so it is
not kept here. As in their paper, the five runs of the largest loss are left out and

    minimise Σ Huber(log-sum-exp(a - α ln N, b - β ln D, e) - ln L), δ = 1e-3, over (a, b, e, α, β)

Resampling the runs 4,000 times gave standard errors of 121, 1372, 0.025, 0.015 and 0.021 for A, B, E, α and
β, where the paper has 125, 1293, 0.03, 0.02 and 0.02; it does not print their covariance.
"""

from __future__ import annotations

import csv
import sys
from pathlib import Path

import numpy as np
from scipy.optimize import minimize

from foretrain.convergence.curves import Floats

_DELTA = 1e-3
_OUTLIERS = 5
_SAMPLES = 4_000
_PUBLISHED = np.array([np.log(482.01), np.log(2085.43), np.log(1.8172), 0.3478, 0.3658])
_SCALE = 1e3
"""The objective is small against the tolerances of the optimiser."""


def fit_law(log_size: Floats, log_tokens: Floats, log_loss: Floats, start: Floats = _PUBLISHED) -> Floats:
    """(ln A, ln B, ln E, α, β) of the least Huber loss; intercepts are fitted at the centre of the runs."""
    size, tokens = float(log_size.mean()), float(log_tokens.mean())

    def objective(centred: Floats) -> tuple[float, Floats]:
        a, b, e, alpha, beta = centred
        terms = np.stack([a - alpha * (log_size - size), b - beta * (log_tokens - tokens), 0 * log_size + e])
        top = terms.max(axis=0)
        shares = np.exp(terms - top)
        total = shares.sum(axis=0)
        off = top + np.log(total) - log_loss
        huber = np.where(np.abs(off) <= _DELTA, off**2 / 2, _DELTA * (np.abs(off) - _DELTA / 2))
        of_a, of_b, of_e = np.clip(off, -_DELTA, _DELTA) * shares / total
        slopes = (of_a, of_b, of_e, -of_a * (log_size - size), -of_b * (log_tokens - tokens))
        return _SCALE * float(huber.sum()), _SCALE * np.array([each.sum() for each in slopes])

    a, b, e, alpha, beta = start
    centred = np.array([a - alpha * size, b - beta * tokens, e, alpha, beta])
    a, b, e, alpha, beta = minimize(objective, centred, jac=True, method="BFGS", options={"gtol": 1e-9}).x
    return np.array([a + alpha * size, b + beta * tokens, e, alpha, beta])


def bootstrap_covariance(
    log_size: Floats, log_tokens: Floats, log_loss: Floats, samples: int = _SAMPLES
) -> Floats:
    """The covariance of (E, ln A, ln B, α, β) over fits to resampled runs."""
    start = fit_law(log_size, log_tokens, log_loss)
    generator = np.random.default_rng(0)
    picks = (generator.integers(0, len(log_size), len(log_size)) for _ in range(samples))
    fits = np.array([fit_law(log_size[each], log_tokens[each], log_loss[each], start) for each in picks])
    columns = np.column_stack([np.exp(fits[:, 2]), fits[:, 0], fits[:, 1], fits[:, 3], fits[:, 4]])
    return np.cov(columns.T)


def main(file: Path) -> None:
    """Print the covariance as a line of TOML."""
    with file.open(encoding="utf-8") as lines:
        rows = list(csv.DictReader(lines))
    size, flop, loss = (
        np.array([float(row[name]) for row in rows]) for name in ("Model Size", "Training FLOP", "loss")
    )
    kept = np.argsort(-loss)[_OUTLIERS:]
    size, flop, loss = size[kept], flop[kept], loss[kept]
    covariance = bootstrap_covariance(np.log(size), np.log(flop / 6 / size), np.log(loss))
    entries = ",\n".join("  [" + ", ".join(f"{each:.9e}" for each in row) + "]" for row in covariance)
    sys.stdout.write(f"covariance = [\n{entries},\n]\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
