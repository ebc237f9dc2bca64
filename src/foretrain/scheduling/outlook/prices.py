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
    jobs = np.arange(len(plans.cost))
    limited = np.isfinite(capacity)
    room = np.where(limited, capacity, 1.0)
    best = Prices(prices, -np.inf, False)
    averaged = np.zeros_like(prices)
    weights = 0.0
    scale = 0.0
    for step in range(steps):
        total = plans.cost + plans.node_seconds @ prices
        choice = total.argmin(axis=1)
        demand = plans.node_seconds[jobs, choice].sum(axis=0)
        excess = np.where(limited, demand / room - 1.0, 0.0)
        dual = float(total[jobs, choice].sum() - (prices - floor)[limited] @ capacity[limited])
        if dual > best.dual:
            best = Prices(prices, dual, best.is_scarce)
        if step == 0:
            if not (excess > 0).any():
                return Prices(prices, dual, False)
            best = Prices(prices, dual, True)
            scale = _scale(plans, jobs, choice)
        move = scale / (1.0 + step / 8.0)
        prices = np.maximum(floor, prices + move * np.clip(excess, -1.0, 1.0))
        if step >= steps // 2:
            averaged += prices
            weights += 1.0
    averaged /= max(weights, 1.0)
    total = plans.cost + plans.node_seconds @ averaged
    dual = float(total.min(axis=1).sum() - (averaged - floor)[limited] @ capacity[limited])
    return Prices(averaged, dual, True) if dual > best.dual else best


def _scale(plans: Plans, jobs: Floats, choice: Floats) -> float:
    """A first step: a share of what a node-second costs on average in the plans without prices."""
    cost = np.where(np.isfinite(plans.cost[jobs, choice]), plans.cost[jobs, choice], 0.0)
    used = plans.node_seconds[jobs, choice].sum()
    return float(cost.sum() / max(used, 1e-9))
