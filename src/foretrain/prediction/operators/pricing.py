"""Price whole graphs: every distinct work once, by the model that knows its kind."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from foretrain.errors import MissingData
from foretrain.facts.devices import Device
from foretrain.prediction.operators._base import Confidence, OperatorModel
from foretrain.prediction.operators.limits import roofline
from foretrain.prediction.operators.listing import Listing, bounds, together
from foretrain.prediction.operators.table import Floats
from foretrain.workloads.ops import Kind, Op


@dataclass(frozen=True, eq=False)
class PricedOps:
    """Device seconds of each operator, and how far to trust the times of each kind.

    `computing` and `moving` are the two sides of the roofline: the least time of its FLOP and of its bytes.
    """

    listing: Listing
    seconds: Floats
    computing: Floats
    moving: Floats
    confidence: dict[Kind, Confidence]

    @property
    def ops(self) -> tuple[Op, ...]:
        """The operators."""
        return self.listing.ops


def price(ops: Sequence[Op] | Listing, device: Device, models: Sequence[OperatorModel]) -> PricedOps:
    """Price operators; views and empty tensors cost nothing, a kind without a model raises `MissingData`."""
    listing = ops if isinstance(ops, Listing) else Listing(tuple(ops))
    everything = listing.works
    seconds = np.zeros(len(everything))
    confidence: dict[Kind, Confidence] = {}
    left = set(everything.kinds)
    for model in models:
        mine = frozenset(left & model.kinds)
        if mine:
            seconds[everything.where(mine)] = model.seconds(everything.of(mine), device)
            confidence |= {kind: model.confidence(kind, device) for kind in mine}
            left -= mine
    if left:
        raise MissingData(f"no operator model prices {', '.join(sorted(left))}")
    computing, moving = roofline(everything, device)
    return PricedOps(
        listing, listing.per_op(seconds), listing.per_op(computing), listing.per_op(moving), confidence
    )


def price_all(
    listings: Sequence[Listing], device: Device, models: Sequence[OperatorModel]
) -> tuple[PricedOps, ...]:
    """Several listings priced at once, as each of them would be alone."""
    whole = price(together(tuple(listings)), device, models)
    if len(listings) == 1:
        return (whole,)
    return tuple(
        PricedOps(listing, whole.seconds[low:high], whole.computing[low:high], whole.moving[low:high],
                  {kind: whole.confidence[kind] for kind in listing.works.kinds})
        for listing, (low, high) in zip(listings, pairwise(bounds(listings)), strict=True)
    )  # fmt: skip
