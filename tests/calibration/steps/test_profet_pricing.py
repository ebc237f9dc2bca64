"""Devices left out of the operator models are predicted by others, and never beat physics."""

from __future__ import annotations

import numpy as np
import pytest
from calibration.datasets.works import Convolution
from calibration.steps.generation_speed import GenerationSpeed, Slowness
from calibration.steps.profet_pricing import HeldOutConvolutionModel, models_without_family

from foretrain.facts.devices import device
from foretrain.prediction.operators.convolution import ConvolutionModel, least_seconds, lower
from foretrain.prediction.operators.pricing import table
from foretrain.workloads.ops import Direction, Kind

_WORKS = table(
    [
        Convolution(
            batch=32, in_channels=channels, out_channels=channels, size=(28, 28), kernel=(kernel, kernel),
            stride=(1, 1), padding=(kernel // 2, kernel // 2),
        ).work(direction)
        for channels in (64, 256)
        for kernel in (1, 3)
        for direction in (Direction.FORWARD, Direction.INPUT_GRADIENT, Direction.WEIGHT_GRADIENT)
    ]
)  # fmt: skip


@pytest.mark.parametrize("name", ["t4", "v100-sxm2-16gb", "k80"])
def test_a_device_left_out_is_predicted_differently_and_not_below_the_least(name: str) -> None:
    target = device(name)
    predicted = HeldOutConvolutionModel().seconds(_WORKS, target)
    assert np.all(predicted >= least_seconds(lower(_WORKS, target), target))
    assert not np.allclose(predicted, ConvolutionModel().seconds(_WORKS, target))


def test_the_models_price_all_of_a_convolutional_network() -> None:
    kinds = frozenset().union(*(model.kinds for model in models_without_family(device("t4"))))
    assert kinds >= frozenset(Kind) - {Kind.VIEW}


def test_a_generation_is_as_slow_as_its_other_boards() -> None:
    speed = GenerationSpeed(
        {"k40": Slowness(2.0, 1.2), "k80": Slowness(3.0, 1.4), "v100-sxm2-16gb": Slowness(9.0, 9.0)}
    )
    both = speed.of(device("k80"))
    assert both.convolutions == pytest.approx(2.5)
    assert both.rest == pytest.approx(1.3)
    assert speed.of(device("k80"), without="k80") == Slowness(2.0, 1.2)
    assert speed.of(device("v100-sxm2-16gb")) == Slowness(), "the operator models know Volta themselves"
