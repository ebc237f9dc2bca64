"""Price a whole graph: every distinct work once, by the model that knows its kind."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from foretrain.errors import MissingData
from foretrain.facts.devices import Device
from foretrain.prediction.operators._base import Confidence, OperatorModel
from foretrain.prediction.operators.limits import roofline
from foretrain.prediction.operators.table import Floats, table
from foretrain.workloads.ops import Kind, Op, Work

_NOWHERE = -1
"""The place of works that run nothing, behind those that do."""


@dataclass(frozen=True, eq=False)
class PricedOps:
    """Device seconds of each operator, and how far to trust the times of each kind.

    `computing` and `moving` are the two sides of the roofline: the least time of its FLOP and of its bytes.
    """

    ops: tuple[Op, ...]
    seconds: Floats
    computing: Floats
    moving: Floats
    confidence: dict[Kind, Confidence]


def price(ops: Sequence[Op], device: Device, models: Sequence[OperatorModel]) -> PricedOps:
    """Price operators; views and empty tensors cost nothing, a kind without a model raises `MissingData`."""
    place: dict[int, int] = {}
    works: list[Work] = []
    places = []
    for op in ops:
        work = op.work
        found = place.get(id(work))
        if found is None:
            runs = bool(work.kernels and (work.read_bytes or work.write_bytes))
            found = place[id(work)] = len(works) if runs else _NOWHERE
            if runs:
                works.append(work)
        places.append(found)
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
    place_of = np.array(places, int)
    seconds, computing, moving = (
        np.append(column, 0.0)[place_of] for column in (seconds, *roofline(everything, device))
    )
    return PricedOps(tuple(ops), seconds, computing, moving, confidence)
