"""Classes of kernels that run alike: what one library routine does, in one direction and one layout."""

from __future__ import annotations

import math

from foretrain.workloads.ops import Direction, Kind, Work

_AXES = ("depth", "height", "width")
_FEW_CHANNELS = 8
"""Tensor cores take channels by the eight: with fewer they mostly idle, as in a network's first layer."""
_DEPTHWISE_CHANNELS = 2
_NARROW_GROUP = 16
"""Channels of a group up to which grouped kernels keep pace with dense ones in the channels-last layout."""
_WIDE_KERNEL = 49
"""Kernel elements from which depthwise convolutions are bound by arithmetic."""
_DIRECTIONS = {
    Direction.FORWARD: "forward",
    Direction.INPUT_GRADIENT: "input gradient",
    Direction.WEIGHT_GRADIENT: "weight gradient",
    Direction.BACKWARD: "backward",
    Direction.UPDATE: "update",
}


def kernel_class(work: Work) -> str:
    """The name of the class a work belongs to, such as `dense convolution, forward, channels-last`."""
    direction = _DIRECTIONS[work.direction]
    if work.kind is Kind.CONVOLUTION:
        return f"{_shape(work)} convolution, {direction}, {_layout(work)}"
    if work.kind is Kind.NORMALISATION and work.dims.get("over_batch"):
        return f"batch normalisation, {direction}, {_layout(work)}"
    return f"{work.kind}, {direction}"


def _layout(work: Work) -> str:
    return "channels-last" if work.dims.get("channels_last") else "channels-first"


def _shape(work: Work) -> str:
    dims = work.dims
    groups = dims["groups"]
    if groups > 1:
        width = max(dims["in_channels"], dims["out_channels"]) / groups
        if width > _DEPTHWISE_CHANNELS:
            return "narrowly grouped" if width <= _NARROW_GROUP else "widely grouped"
        elements = math.prod(dims.get(f"kernel_{axis}", 1) for axis in _AXES)
        return "wide depthwise" if elements >= _WIDE_KERNEL else "depthwise"
    if dims["in_channels"] < _FEW_CHANNELS:
        return "first"
    kernel = [dims.get(f"kernel_{axis}", 1) for axis in _AXES]
    strides = [dims.get(f"stride_{axis}", 1) for axis in _AXES]
    if max(kernel) == 1:
        return "pointwise"
    return "patch" if all(stride >= side for stride, side in zip(strides, kernel, strict=True)) else "dense"
