"""The operator models as if no device of one family had ever been measured; constants all share stay."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from foretrain.facts.devices import Device, devices
from foretrain.prediction.operators import convolution, matrix
from foretrain.prediction.operators._base import Confidence, Knowledge, OperatorModel
from foretrain.prediction.operators.bandwidth import nearest_share
from foretrain.prediction.operators.convolution import convolution_seconds, least_seconds, lower
from foretrain.prediction.operators.listing import Floats, WorkTable
from foretrain.prediction.operators.matrix import MatrixModel
from foretrain.prediction.operators.roofline import RooflineModel
from foretrain.prediction.operators.streaming import StreamingModel
from foretrain.workloads.ops import Kind


class ForgetfulConvolutionModel(OperatorModel):
    """Convolutions at the share of peak that devices of other families nearest to this one achieve."""

    name: ClassVar[str] = "convolution, family forgotten"
    kinds: ClassVar[frozenset[Kind]] = frozenset({Kind.CONVOLUTION})

    def seconds(self, works: WorkTable, device: Device) -> Floats:
        """Device seconds of each work."""
        known, work = convolution.calibration(), lower(works, device)
        others = [row for row in known.shares if devices()[row.device_id].family != device.family]
        shares = np.full(len(work), nearest_share(device, others))
        bandwidth = matrix.calibration().without(device).memory.share(device)
        times = convolution_seconds(work, device, known.constants, shares, bandwidth)
        return np.maximum(times, least_seconds(work, device))

    def confidence(self, kind: Kind, device: Device) -> Confidence:
        """That of devices nobody measured."""
        del kind, device
        p10, p90 = convolution.calibration().residuals["unseen"]
        return Confidence(Knowledge.EXTRAPOLATED, p10, p90, f"calibrations/{convolution.FILE}")


def forgotten(target: Device) -> tuple[OperatorModel, ...]:
    """The models of a convolutional network for a device whose family is forgotten."""
    known = matrix.calibration().without(target)
    return (MatrixModel(known), ForgetfulConvolutionModel(), StreamingModel(known.memory), RooflineModel())
