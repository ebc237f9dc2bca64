"""What TensorFlow adds to a layer, found again from layers it was added to."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from calibration.datasets.measurements import Measurements, measurements
from calibration.datasets.works import Convolution

from calibration.datasets import justus
from calibration.steps import keras_layers
from foretrain.facts.devices import device
from foretrain.prediction.operators import streaming
from foretrain.prediction.operators.convolution import ConvolutionModel
from foretrain.prediction.operators.pricing import table
from foretrain.workloads.ops import Direction


def _timed(passes: float, floor: float) -> Measurements:
    """A tiny layer, which takes the floor, and layers with filters far larger than images."""
    v100 = device("v100-sxm2-16gb")
    sizes = [(2, 1), *((512, images) for images in (1, 2, 3))]
    works = [
        Convolution(images, channels, channels, (2, 2), (3, 3), padding=(1, 1)).work(Direction.FORWARD)
        for channels, images in sizes
    ]
    one_pass = 4 * 512**2 * 9 / (v100.memory_bytes_per_second * streaming.calibration().share(v100))
    seconds = floor + np.where([size[0] > 2 for size in sizes], passes * one_pass, 0.0)
    seconds += ConvolutionModel().seconds(table(works), v100) * [0, 1, 1, 1]
    return measurements("justus", works, [v100.id] * 4, seconds.tolist(), ["forward"] * 4)


def test_the_passes_over_a_filter_are_found_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(justus, "read_convolutions", lambda _data: _timed(passes=7.0, floor=1e-4))
    assert keras_layers.filter_passes(Path()) == pytest.approx(7.0, rel=0.05)


def test_launches_of_training_over_those_of_plain_pytorch(monkeypatch: pytest.MonkeyPatch) -> None:
    def factor(added: float) -> float:
        monkeypatch.setattr(justus, "dense_floors", lambda _data: {"t4": (1e-4, 1e-4 + added)})
        return keras_layers.host_factor(Path())

    assert factor(2e-4) == pytest.approx(2 * factor(1e-4))
