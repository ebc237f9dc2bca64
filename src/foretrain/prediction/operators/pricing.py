"""Price a whole graph: every distinct work once, by the model that knows its kind."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from foretrain.errors import MissingData
from foretrain.facts.devices import Device
from foretrain.prediction.operators._base import Confidence, OperatorModel
from foretrain.prediction.operators.table import Floats, table
from foretrain.workloads.ops import Kind, Op, Work


@dataclass(frozen=True, eq=False)
class PricedOps:
    """Device seconds of each operator, and how far to trust the times of each kind."""

    ops: tuple[Op, ...]
    seconds: Floats
    confidence: dict[Kind, Confidence]


def price(ops: Sequence[Op], device: Device, models: Sequence[OperatorModel]) -> PricedOps:
    """Price operators; views cost nothing, and a kind without a model raises `MissingData`."""
    distinct: dict[int, int] = {}
    works: list[Work] = []
    for op in ops:
        if op.work.kernels and id(op.work) not in distinct:
            distinct[id(op.work)] = len(works)
            works.append(op.work)
    everything = table(works)
    seconds = np.zeros(len(works))
    confidence: dict[Kind, Confidence] = {}
    left = {work.kind for work in works}
    for model in models:
        mine = frozenset(left & model.kinds)
        if mine:
            chosen = everything.where(mine)
            seconds[chosen] = model.seconds(everything.rows(chosen), device)
            confidence |= {kind: model.confidence(kind, device) for kind in mine}
            left -= mine
    if left:
        raise MissingData(f"no operator model prices {', '.join(sorted(left))}")
    each = np.array([seconds[distinct[id(op.work)]] if op.work.kernels else 0.0 for op in ops])
    return PricedOps(tuple(ops), each, confidence)
