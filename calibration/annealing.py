"""The prior of the annealing law, from published laws: `python -m calibration.annealing` prints it.

The multi-power law of Luo et al. is evaluated for its three models under linear decays over the last 20 to
100 % of a run, and each curve is described as (floor + scale S1^-α)(1 + gain · rate). With S1 counted from
the begin of the warm-up, α is the published one; the gain is fitted.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foretrain.convergence.schedules import LinearDecay

FILE = Path(__file__).parents[1] / "src" / "foretrain" / "convergence" / "annealing.toml"
_TAILS = (0.2, 0.3, 0.4, 0.6, 1.0)
_POINTS = 120
_FROM = 0.1
"""The first tenth of a run is left out: warm-up."""

Floats = NDArray[np.float64]


def multi_power_loss(
    law: Mapping[str, float], rates: Floats, warm_up_area: float, at: NDArray[np.int64]
) -> Floats:
    """L0 + A (S1 + warm-up)^-α - B Σ drops · (1 - (1 + C rate^-γ area since)^-β) at these steps."""
    area = np.cumsum(rates)
    drops = np.concatenate([[0.0], rates[:-1] - rates[1:]])
    losses = []
    for step in at.tolist():
        since = area[step] - area[: step + 1] + rates[: step + 1]
        reached = 1 - (1 + law["C"] * rates[: step + 1] ** -law["gamma"] * since) ** -law["beta"]
        power = law["A"] * (area[step] + warm_up_area) ** -law["alpha"]
        losses.append(law["L0"] + power - law["B"] * float(drops[: step + 1] @ reached))
    return np.array(losses)


def gain_of(law: Mapping[str, float], tail: float, known: Mapping[str, Any]) -> float:
    """The gain for which (floor + scale S1^-α)(1 + gain · rate) is nearest to the law."""
    steps = int(known["steps"])
    share = np.arange(1, steps + 1) / steps
    rate = np.maximum(LinearDecay(tail).rate(share), 1e-6)
    at = np.unique(np.linspace(_FROM * steps, steps - 1, _POINTS).astype(np.int64))
    warm_up = 0.5 * known["warm_up_steps"]
    losses = multi_power_loss(law, known["peak_rate"] * rate, known["peak_rate"] * warm_up, at)
    basis = (np.cumsum(rate)[at] + warm_up) ** -law["alpha"]

    def misfit(gain: float) -> float:
        columns = (
            np.stack([np.ones(len(at)), basis], axis=1) * (1 + gain * rate[at])[:, None] / losses[:, None]
        )
        solved = np.linalg.lstsq(columns, np.ones(len(at)), rcond=None)[0]
        return float(np.square(columns @ solved - 1).sum())

    gains = np.linspace(0.0, 0.12, 1201)
    return float(gains[int(np.argmin([misfit(gain) for gain in gains]))])


def prior(known: Mapping[str, Any]) -> dict[str, float]:
    """Medians of exponent and gain, and the spread of the gain's logarithm."""
    gains = np.array([gain_of(law, tail, known) for law in known["law"] for tail in _TAILS])
    return {
        "alpha": float(np.median([law["alpha"] for law in known["law"]])),
        "gain": float(np.median(gains)),
        "gain_spread": float(np.log(gains).std()),
    }


if __name__ == "__main__":
    print(prior(tomllib.loads(FILE.read_text(encoding="utf-8"))))  # noqa: T201
