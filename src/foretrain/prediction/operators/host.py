"""Launch overhead of the host: Python, autograd and driver time per operator.

Eager PyTorch spends a few microseconds of CPU time on every operator, including views, and on every further
kernel. A compiled step spends a fraction of it. The constants are fitted to measured steps with many small
kernels.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from functools import cache
from typing import Any

import numpy as np

from foretrain.errors import MissingData
from foretrain.facts.devices import Device
from foretrain.facts.sheets import data_root
from foretrain.prediction.operators.listing import PHASES, Floats, Listing
from foretrain.workloads.graph import Phase

FILE = "host.json"


@dataclass(frozen=True, slots=True)
class HostModel:
    """Seconds of host time: per operator by phase, per view, per further kernel of an operator.

    `p10` and `p90` are quantiles of measured / predicted; `source` names the calibration.
    """

    forward_seconds: float
    backward_seconds: float
    optimizer_seconds: float
    view_seconds: float
    kernel_seconds: float
    compiled_share: float
    p10: float
    p90: float
    source: str

    def seconds(self, listing: Listing, compiled: bool) -> Floats:
        """Host time of each operator."""
        of_phase = {
            Phase.FORWARD: self.forward_seconds,
            Phase.BACKWARD: self.backward_seconds,
            Phase.OPTIMIZER: self.optimizer_seconds,
        }
        each = np.array([of_phase[phase] for phase in PHASES])[listing.phases]
        each = each + (listing.kernels - 1) * self.kernel_seconds
        each = np.where(listing.kernels > 0, each, self.view_seconds)
        return each * self.compiled_share if compiled else each


def host_model(device: Device) -> HostModel:
    """The calibrated host; the same for all devices."""
    del device
    return _calibrated()


@cache
def _calibrated() -> HostModel:
    file = data_root() / "calibrations" / FILE
    if not file.is_file():
        raise MissingData(
            f"the calibration of the host is missing (calibrations/{FILE}); cost_model roofline needs none"
        )
    content: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return HostModel(**{field.name: content[field.name] for field in fields(HostModel)})
