"""The plain roofline as an operator model: the baseline every other model is compared with."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import ClassVar

from foretrain.facts.devices import Device
from foretrain.facts.sheets import data_root, read_toml
from foretrain.prediction.operators._base import Confidence, Knowledge, OperatorModel
from foretrain.prediction.operators.listing import Floats, WorkTable
from foretrain.prediction.operators.pricing import roofline_seconds
from foretrain.workloads.ops import Kind

FILE = "roofline.toml"


@cache
def _interval() -> Mapping[str, float]:
    """How far above the bound the time of an operator may be."""
    interval: Mapping[str, float] = read_toml(data_root() / "calibrations" / FILE)["interval"]
    return interval


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
        return Confidence(Knowledge.EXTRAPOLATED, _interval()["p10"], _interval()["p90"], "roofline")
