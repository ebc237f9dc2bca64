"""The operator models of each cost model, by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from foretrain.errors import InvalidRequest
from foretrain.facts.devices import Device
from foretrain.prediction.operators import cpu
from foretrain.prediction.operators._base import OperatorModel
from foretrain.prediction.operators.attention import AttentionModel
from foretrain.prediction.operators.convolution import ConvolutionModel
from foretrain.prediction.operators.cpu import CpuModel
from foretrain.prediction.operators.matrix import MatrixModel
from foretrain.prediction.operators.per_layer import PerLayerModel
from foretrain.prediction.operators.recurrent import RecurrentModel
from foretrain.prediction.operators.roofline import RooflineModel
from foretrain.prediction.operators.streaming import StreamingModel

Models = tuple[OperatorModel, ...]


def _foretrain(device: Device) -> Models:
    """The calibrated models; operators without a rule are at the roofline and reported as unmodelled."""
    if device.kind == cpu.KIND:
        return (CpuModel(), RooflineModel())
    return (
        MatrixModel(), AttentionModel(), RecurrentModel(), ConvolutionModel(), StreamingModel(),
        RooflineModel(),
    )  # fmt: skip


def _roofline(device: Device) -> Models:
    del device
    return (RooflineModel(),)


def _per_layer(device: Device) -> Models:
    """Per-layer regression; operators without a rule are priced at the roofline."""
    del device
    return (PerLayerModel(), RooflineModel())


DEFAULT = "foretrain"
CHOICES: Mapping[str, Callable[[Device], Models]] = {
    DEFAULT: _foretrain,
    RooflineModel.name: _roofline,
    PerLayerModel.name: _per_layer,
}


def operator_models(device: Device, choice: str = DEFAULT) -> Models:
    """The models that together price every kind of operator on a device."""
    if choice not in CHOICES:
        raise InvalidRequest(f"cost_model {choice!r} is not one of {', '.join(CHOICES)}")
    return CHOICES[choice](device)
