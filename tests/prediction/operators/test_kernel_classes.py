"""Classes of kernels with similar behaviour."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from foretrain.prediction.operators.listing import kernel_class
from foretrain.workloads.ops import Direction, Kind, Work


def convolution(dims: Mapping[str, int], direction: Direction = Direction.FORWARD) -> Work:
    """A plain 3 x 3 convolution, but for what is given."""
    plain = {
        "batch": 1, "in_channels": 64, "out_channels": 64, "groups": 1, "transposed": 0, "channels_last": 0,
        "kernel_height": 3, "kernel_width": 3, "stride_height": 1, "stride_width": 1,
    }  # fmt: skip
    return Work(Kind.CONVOLUTION, direction, {**plain, **dims}, "float16", 1.0, 1.0, 1.0)


@pytest.mark.parametrize(
    ("dims", "name"),
    [
        ({}, "dense"),
        ({"kernel_height": 1, "kernel_width": 1}, "pointwise"),
        ({"in_channels": 3}, "first"),
        ({"kernel_height": 4, "kernel_width": 4, "stride_height": 4, "stride_width": 4}, "patch"),
        ({"groups": 64}, "depthwise"),
        ({"groups": 64, "kernel_height": 7, "kernel_width": 7}, "wide depthwise"),
        ({"groups": 4}, "narrowly grouped"),
        ({"groups": 2}, "widely grouped"),
    ],
)
def test_shapes_of_convolutions(dims: dict[str, int], name: str) -> None:
    """What decides which routine a library runs."""
    assert kernel_class(convolution(dims)) == f"{name} convolution, forward, channels-first"


def test_direction_and_layout_are_separate_classes() -> None:
    """The same shape runs other kernels backward, and in another layout."""
    gradient = convolution({"channels_last": 1}, Direction.WEIGHT_GRADIENT)
    assert kernel_class(gradient) == "dense convolution, weight gradient, channels-last"


def test_batch_norm_has_a_layout_and_layer_norm_has_none() -> None:
    """Batch norm goes over images; layer norm over rows."""
    over_batch = {"over_batch": 1, "channels_last": 1}
    batch = Work(Kind.NORMALISATION, Direction.BACKWARD, over_batch, "float16", 1.0, 1.0, 1.0)
    layer = Work(Kind.NORMALISATION, Direction.BACKWARD, {"over_batch": 0}, "float32", 1.0, 1.0, 1.0)
    assert kernel_class(batch) == "batch normalisation, backward, channels-last"
    assert kernel_class(layer) == "normalisation, backward"
