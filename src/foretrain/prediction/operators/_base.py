"""What an operator model is: one method, from works on a device to seconds."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

from foretrain.facts.devices import Device
from foretrain.prediction.operators.table import Floats, WorkTable
from foretrain.workloads.ops import Kind


class OperatorModel(ABC):
    """Prices works of some kinds: device time of each, in seconds, without the host's launch overhead.

    Never below the roofline, never negative; a larger work is never faster on the same device.
    """

    name: ClassVar[str]
    kinds: ClassVar[frozenset[Kind]]

    @abstractmethod
    def seconds(self, works: WorkTable, device: Device) -> Floats:
        """Device seconds of each work; all works are of the model's kinds."""
