"""The roofline as an operator model: the baseline of all other models."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import ClassVar

from foretrain.facts.calibrations import calibration_content
from foretrain.facts.devices import Device
from foretrain.prediction.operators._base import Confidence, Knowledge, OperatorModel
from foretrain.prediction.operators.listing import Floats, WorkTable
from foretrain.prediction.operators.pricing import roofline_seconds
from foretrain.workloads.ops import Kind

FILE = "roofline.toml"


@cache
def _interval() -> Mapping[str, float]:
    """The assumed interval of times relative to the bound."""
    interval: Mapping[str, float] = calibration_content(FILE)["interval"]
    return interval


class RooflineModel(OperatorModel):
    """max(FLOP / peak, bytes / bandwidth): a lower bound, not an estimate; nothing is calibrated."""

    name: ClassVar[str] = "roofline"
    kinds: ClassVar[frozenset[Kind]] = frozenset(Kind) - {Kind.VIEW}
    cost_models: ClassVar[frozenset[str]] = frozenset({"foretrain", "per-layer", "roofline"})
    device_kinds: ClassVar[frozenset[str]] = frozenset({"gpu", "cpu"})
    is_fallback: ClassVar[bool] = True

    def seconds(self, works: WorkTable, device: Device) -> Floats:
        """Lower bound of the time of each work."""
        return roofline_seconds(works, device)

    def confidence(self, kind: Kind, device: Device) -> Confidence:
        """No work is faster; the upper end of the interval is assumed."""
        del kind, device
        return Confidence(Knowledge.EXTRAPOLATED, _interval()["p10"], _interval()["p90"], "roofline")
