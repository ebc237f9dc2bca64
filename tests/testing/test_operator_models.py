"""Every operator model of the catalogue against the suite that extensions must pass."""

from __future__ import annotations

from dataclasses import replace

from foretrain.facts.devices import Device, device
from foretrain.prediction.operators import convolution, matrix
from foretrain.prediction.operators.attention import AttentionModel
from foretrain.prediction.operators.convolution import ConvolutionModel
from foretrain.prediction.operators.matrix import MatrixModel
from foretrain.prediction.operators.per_layer import PerLayerModel
from foretrain.prediction.operators.pricing import (
    CHOICES,
    Floats,
    RooflineModel,
    WorkTable,
    operator_models,
    roofline_seconds,
)
from foretrain.prediction.operators.recurrent import RecurrentModel
from foretrain.prediction.operators.streaming import StreamingModel
from foretrain.testing import OperatorModelSuite
from foretrain.workloads.ops import Kind


class TestRoofline(OperatorModelSuite):
    model = RooflineModel()


class TestStreaming(OperatorModelSuite):
    model = StreamingModel()


class TestMatrixWithoutKernelCorrections(OperatorModelSuite):
    model = MatrixModel(replace(matrix.calibration(), corrections={}))


class TestMatrix(OperatorModelSuite):
    """Corrections for a library's choice of kernels are steps of trees, and not monotone.

    Found in works of awkward sizes from 1 on: one step in ten falls, one in fifty by more than 5 %, a few of
    about 20 us by up to 45 %; doubling a device's figures makes one product in twenty slower, by up to 13 %.
    """

    model = MatrixModel()
    slack = 0.5
    exceptions = 0.12
    device_slack = 0.15


class TestPerLayer(OperatorModelSuite):
    model = PerLayerModel()
    devices = ("p100-pcie", "t4", "v100-sxm2-16gb")
    dtypes = ("float32",)

    def kinds(self) -> frozenset[Kind]:
        """Fused attention and recurrent layers were not measured on these."""
        return super().kinds() - {Kind.ATTENTION, Kind.RNN}

    def floor(self, works: WorkTable, on: Device) -> Floats:
        """As that of convolutions, for those."""
        is_convolution = works.where(frozenset({Kind.CONVOLUTION}))
        if is_convolution.any():
            return convolution.least_seconds(convolution.lower(works, on), on)
        return roofline_seconds(works, on)


class TestAttention(OperatorModelSuite):
    model = AttentionModel()


class TestRecurrent(OperatorModelSuite):
    model = RecurrentModel()


class TestConvolution(OperatorModelSuite):
    model = ConvolutionModel()

    def floor(self, works: WorkTable, on: Device) -> Floats:
        """Winograd's algorithms save multiplications."""
        return convolution.least_seconds(convolution.lower(works, on), on)


def test_every_model_for_gpus_is_held_to_the_suite() -> None:
    held = {type(suite.model) for suite in OperatorModelSuite.__subclasses__() if hasattr(suite, "model")}
    used = {type(model) for choice in CHOICES for model in operator_models(device("t4"), choice)}
    assert used <= held
