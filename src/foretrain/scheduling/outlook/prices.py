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
    """USD per node-second by group and period, the value of the dual there, and whether plans did not fit
    without.

    `dual` counts what plans cost in truth: prices above the floor cancel out, the floor itself is left out.
    """

    usd: Floats
    dual: float
    is_scarce: bool


def prices_of(plans: Plans, capacity: Floats, floors: tuple[Floats, Floats], steps: int) -> Prices:
    """Prices that are never below a floor; `capacity` in node-seconds, infinite in the last period.

    The first of the floors holds if all plans fit at it, else the second.
    """
    limited = np.isfinite(capacity)
    room = np.where(limited, capacity, 1.0)
    market = _Market(plans, np.where(limited, capacity, 0.0))
    dual, demand, _ = market.at(floors[0], floors[0])
    if not (demand > capacity).any():
        return Prices(floors[0], dual, False)
    floor = floors[1]
    prices, averaged = floor.copy(), np.zeros_like(floor)
    best = Prices(prices, -np.inf, True)
    scale = 0.0
    for step in range(steps):
        dual, demand, cost = market.at(prices, floor)
        if dual > best.dual:
            best = Prices(prices, dual, True)
        scale = scale or cost / max(float(demand.sum()), 1e-9)
        excess = np.where(limited, demand / room - 1.0, 0.0)
        move = scale / (1.0 + step / 8.0)
        prices = np.maximum(floor, prices + move * np.clip(excess, -1.0, 1.0))
        if 2 * step >= steps:
            averaged += prices / (steps - (steps + 1) // 2)
    dual = market.at(averaged, floor)[0]
    return Prices(averaged, dual, True) if dual > best.dual else best


@dataclass(frozen=True, eq=False)
class _Market:
    """The cheapest plans at given prices."""

    plans: Plans
    capacity: Floats

    def at(self, prices: Floats, floor: Floats) -> tuple[float, Floats, float]:
        """The dual without the floor, the demand, and the cost of the cheapest plans."""
        total = self.plans.cost + self.plans.node_seconds @ prices
        choice = total.argmin(axis=1)
        rows = np.arange(len(choice))
        used = self.plans.node_seconds[rows, choice]
        cost = self.plans.cost[rows, choice]
        cost = np.where(np.isfinite(cost), cost, 0.0)
        demand = used.sum(axis=0)
        dual = float(cost.sum() + (prices - floor) @ (demand - self.capacity))
        return dual, demand, float(cost.sum())
