"""The interface of operator models: the time of works on a device, and its uncertainty."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar

from foretrain.facts.devices import Device
from foretrain.prediction.operators.listing import Floats, WorkTable
from foretrain.workloads.ops import Kind


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


class OperatorModel(ABC):
    """Prices works of some kinds: device time of each, in seconds, without the host's launch overhead.

    Never below the roofline, never negative; a larger work is never faster on the same device. `cost_models`
    are the cost models that use it, `device_kinds` the kinds of device it prices. A fallback prices the kinds
    that no other model does. `precision` is the only one it has measurements of, if there is but one.
    """

    name: ClassVar[str]
    kinds: ClassVar[frozenset[Kind]]
    cost_models: ClassVar[frozenset[str]] = frozenset({"foretrain"})
    device_kinds: ClassVar[frozenset[str]] = frozenset({"gpu"})
    is_fallback: ClassVar[bool] = False
    precision: ClassVar[str | None] = None

    @abstractmethod
    def seconds(self, works: WorkTable, device: Device) -> Floats:
        """Device seconds of each work; all works are of the model's kinds."""

    @abstractmethod
    def confidence(self, kind: Kind, device: Device) -> Confidence:
        """The accuracy of the times of a kind on a device."""
