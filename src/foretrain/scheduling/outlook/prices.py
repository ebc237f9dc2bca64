"""Prices of node time at which the cheapest plans of all jobs fit into the nodes.

The prices μ (one for each group of nodes and period) maximise the dual of the plan selection problem

    Σ_jobs min_plans (cost + Σ μ · node seconds) - Σ μ · capacity,

by steps along its subgradient, demand minus capacity, with steps that shrink.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from foretrain.scheduling.outlook.options import Floats
from foretrain.scheduling.outlook.plans import Plans


@dataclass(frozen=True, eq=False)
class Prices:
    """USD per node-second by group and period, the value of the dual there, and whether demand ever exceeded
    the capacity.
    """

    usd: Floats
    dual: float
    is_scarce: bool


def prices_of(plans: Plans, capacity: Floats, floor: Floats, steps: int) -> Prices:
    """Prices, never below `floor`; `capacity` in node-seconds, infinite in the last period."""
    prices = floor.copy()
    rows = np.arange(len(plans.cost))
    limited = np.isfinite(capacity)
    room = np.where(limited, capacity, 1.0)
    best = Prices(prices, -np.inf, False)
    averaged = np.zeros_like(prices)
    weights = 0.0
    scale = 0.0

    def at(prices: Floats) -> tuple[float, Floats, float]:
        """The dual, the demand and the cost of the cheapest plans."""
        total = plans.cost + plans.node_seconds @ prices
        choice = total.argmin(axis=1)
        least = total[rows, choice]
        finite = np.isfinite(least)
        value = float(least[finite].sum()) - float((prices - floor)[limited] @ capacity[limited])
        demand = plans.node_seconds[rows, choice].sum(axis=0)
        return value, demand, float(plans.cost[rows, choice][finite].sum())

    for step in range(steps):
        dual, demand, cost = at(prices)
        excess = np.where(limited, demand / room - 1.0, 0.0)
        if dual > best.dual:
            best = Prices(prices, dual, best.is_scarce)
        if step == 0:
            if not (excess > 0).any():
                return Prices(prices, dual, False)
            best = Prices(prices, dual, True)
            scale = cost / max(float(demand.sum()), 1e-9)
        move = scale / (1.0 + step / 8.0)
        prices = np.maximum(floor, prices + move * np.clip(excess, -1.0, 1.0))
        if step >= steps // 2:
            averaged += prices
            weights += 1.0
    averaged /= max(weights, 1.0)
    dual = at(averaged)[0]
    return Prices(averaged, dual, True) if dual > best.dual else best
