"""Prices of operators: the interface of operator models, their catalogue, and the prices of whole graphs.

A model prices the works of some kinds on a device. All subclasses of `OperatorModel` in this package are
found; those of a cost model together price every kind, the roofline what no other model does. Every distinct
work of a graph is priced once, by the model of its kind.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from itertools import combinations, pairwise
from typing import ClassVar

import numpy as np

from foretrain.errors import InvalidRequest, MissingData
from foretrain.estimates import Quantiles
from foretrain.facts.calibrations import calibration_content
from foretrain.facts.devices import Device
from foretrain.prediction.operators.listing import (
    Floats,
    Listing,
    WorkTable,
    bounds,
    concatenate,
    roofline,
    roofline_seconds,
)
from foretrain.registry import DuplicateName, discover
from foretrain.workloads.ops import Kind, Op

DEFAULT, ROOFLINE, PER_LAYER = "foretrain", "roofline", "per-layer"
CHOICES = (DEFAULT, ROOFLINE, PER_LAYER)
"""The cost models that price a step operator by operator."""
_ROOFLINE_FILE = "roofline.toml"


class Knowledge(StrEnum):
    """The basis of a prediction, best first."""

    MEASURED = "measured"
    CALIBRATED = "calibrated"
    EXTRAPOLATED = "extrapolated"


@dataclass(frozen=True, slots=True)
class Confidence:
    """The accuracy of a model on a device, from validation on measurements it was not fitted to.

    `p10` and `p90` are quantiles of measured / predicted; `source` names the calibration.
    """

    knowledge: Knowledge
    p10: float
    p90: float
    source: str


@dataclass(frozen=True, slots=True)
class Residuals:
    """Quantiles of measured / predicted of a calibration, on devices that it was fitted to and on others."""

    seen: Quantiles
    unseen: Quantiles

    def confidence(self, is_seen: bool, file: str) -> Confidence:
        """The accuracy on a device that was measured or not."""
        known = self.seen if is_seen else self.unseen
        knowledge = Knowledge.CALIBRATED if is_seen else Knowledge.EXTRAPOLATED
        return Confidence(knowledge, known.p10, known.p90, f"calibrations/{file}")


class OperatorModel(ABC):
    """Prices works of some kinds: device time of each, in seconds, without the host's launch overhead.

    Never below the roofline, never negative; a larger work is never faster on the same device. `cost_models`
    are the cost models that use it, `device_kinds` the kinds of device it prices. A fallback prices the kinds
    that no other model does. `precision` is the only one it has measurements of, if there is but one.
    """

    name: ClassVar[str]
    kinds: ClassVar[frozenset[Kind]]
    cost_models: ClassVar[frozenset[str]] = frozenset({DEFAULT})
    device_kinds: ClassVar[frozenset[str]] = frozenset({"gpu"})
    is_fallback: ClassVar[bool] = False
    precision: ClassVar[str | None] = None

    @abstractmethod
    def seconds(self, works: WorkTable, device: Device) -> Floats:
        """Device seconds of each work; all works are of the model's kinds."""

    @abstractmethod
    def confidence(self, kind: Kind, device: Device) -> Confidence:
        """The accuracy of the times of a kind on a device."""


class RooflineModel(OperatorModel):
    """max(FLOP / peak, bytes / bandwidth): a lower bound, not an estimate; nothing is calibrated."""

    name: ClassVar[str] = ROOFLINE
    kinds: ClassVar[frozenset[Kind]] = frozenset(Kind) - {Kind.VIEW}
    cost_models: ClassVar[frozenset[str]] = frozenset(CHOICES)
    device_kinds: ClassVar[frozenset[str]] = frozenset({"gpu", "cpu"})
    is_fallback: ClassVar[bool] = True

    def seconds(self, works: WorkTable, device: Device) -> Floats:
        """Lower bound of the time of each work."""
        return roofline_seconds(works, device)

    def confidence(self, kind: Kind, device: Device) -> Confidence:
        """No work is faster; the upper end of the interval is assumed."""
        del kind, device
        interval = _roofline_interval()
        return Confidence(Knowledge.EXTRAPOLATED, interval["p10"], interval["p90"], ROOFLINE)


@cache
def _roofline_interval() -> Mapping[str, float]:
    interval: Mapping[str, float] = calibration_content(_ROOFLINE_FILE)["interval"]
    return interval


def operator_models(device: Device, cost_model: str = DEFAULT) -> tuple[OperatorModel, ...]:
    """The models that together price every kind of operator on a device, the fallback last.

    An operator without a rule is priced at the roofline and reported as unmodelled.
    """
    if cost_model not in CHOICES:
        raise InvalidRequest(f"cost_model {cost_model!r} is not one of {', '.join(CHOICES)}")
    return _models(device.kind, cost_model)


def only_precision(cost_model: object, device: Device) -> str | None:
    """The one precision that a cost model has measurements of; None where it has several."""
    if not isinstance(cost_model, str) or cost_model not in CHOICES:
        return None
    return next((each.precision for each in operator_models(device, cost_model) if each.precision), None)


@cache
def _models(device_kind: str, cost_model: str) -> tuple[OperatorModel, ...]:
    models = [
        model
        for model in (*discover(__name__, OperatorModel), RooflineModel())  # type: ignore[type-abstract]
        if cost_model in model.cost_models and device_kind in model.device_kinds
    ]
    for first, second in combinations([model for model in models if not model.is_fallback], 2):
        if first.kinds & second.kinds:
            both = ", ".join(sorted(first.kinds & second.kinds))
            raise DuplicateName(f"operator models {first.name!r} and {second.name!r} both price {both}")
    return tuple(sorted(models, key=lambda model: model.is_fallback))


@dataclass(frozen=True, eq=False)
class PricedOps:
    """Device seconds of each operator, and the accuracy of the times of each kind.

    `computing` and `moving` are the two sides of the roofline: the lower bounds from FLOP and from bytes.
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
    """Several listings priced in one call; the prices are those of separate calls."""
    whole = price(concatenate(tuple(listings)), device, models)
    if len(listings) == 1:
        return (whole,)
    return tuple(
        PricedOps(listing, whole.seconds[low:high], whole.computing[low:high], whole.moving[low:high],
                  {kind: whole.confidence[kind] for kind in listing.works.kinds})
        for listing, (low, high) in zip(listings, pairwise(bounds(listings)), strict=True)
    )  # fmt: skip
