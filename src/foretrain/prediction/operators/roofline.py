"""The plain roofline as an operator model: the baseline every other model is compared with."""

from __future__ import annotations

from typing import ClassVar

from foretrain.facts.devices import Device
from foretrain.prediction.operators._base import Confidence, Knowledge, OperatorModel
from foretrain.prediction.operators.listing import Floats, WorkTable
from foretrain.prediction.operators.pricing import roofline_seconds
from foretrain.workloads.ops import Kind

_P10, _P90 = 1.0, 10.0


class RooflineModel(OperatorModel):
    """max(FLOP / peak, bytes / bandwidth): a bound, not an estimate; nothing is calibrated."""

    name: ClassVar[str] = "roofline"
    kinds: ClassVar[frozenset[Kind]] = frozenset(Kind) - {Kind.VIEW}
    cost_models: ClassVar[frozenset[str]] = frozenset({"foretrain", "per-layer", "roofline"})
    device_kinds: ClassVar[frozenset[str]] = frozenset({"gpu", "cpu"})
    is_fallback: ClassVar[bool] = True

    def seconds(self, works: WorkTable, device: Device) -> Floats:
        """The least time of each work."""
        return roofline_seconds(works, device)

    def confidence(self, kind: Kind, device: Device) -> Confidence:
        """Never faster than this; the upper end is assumed, not measured."""
        del kind, device
        return Confidence(Knowledge.EXTRAPOLATED, _P10, _P90, "roofline")
