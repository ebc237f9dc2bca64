"""ONNX nodes, and the operators that are layers.

Convolutions, pooling, norms, products, activations, resampling.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from onnx import helper
from torch import Tensor
from torch.nn import functional

from foretrain.errors import InvalidRequest

Arguments = list[Any]
"""What a node reads, by position; None where an optional input is absent."""


@dataclass(frozen=True)
class OnnxNode:
    """One node of a graph: its type, attributes and the version of the operator set it is written in."""

    type: str
    attributes: Mapping[str, Any]
    opset: int

    def get(self, name: str, default: Any = None) -> Any:
        """An attribute, or the default the ONNX specification gives it."""
        return self.attributes.get(name, default)


Run = Callable[[OnnxNode, Arguments, bool], Any]


@dataclass(frozen=True)
class Operator:
    """How an operator is run: a function of the node, its arguments and whether the module is training.

    `settings` are the positions of arguments whose values decide shapes: they stay on the host.
    """

    run: Run
    settings: frozenset[int] = frozenset()

    def placed(self, arguments: list[Tensor | None], device: torch.device) -> Arguments:
        """The arguments on one device: the host if all are there, else `device`."""
        given = [value for position, value in enumerate(arguments) if position not in self.settings]
        if all(value is None or value.device.type != device.type for value in given):
            return arguments
        return [
            value.to(device)
            if value is not None and value.dim() and position not in self.settings and value.device != device
            else value
            for position, value in enumerate(arguments)
        ]


def plain(function: Callable[..., Any]) -> Operator:
    """An operator that is a torch function of its arguments alone."""
    return Operator(lambda _node, arguments, _training: function(*arguments))


def integers(value: Tensor | None, what: str) -> list[int] | None:
    """The values of a setting, which must not depend on the data."""
    if value is None:
        return None
    if value.is_meta:
        raise InvalidRequest(f"{what} of the ONNX graph depends on the data, which a trace does not have")
    return [int(item) for item in value.flatten().tolist()]


def argument(arguments: Arguments, position: int) -> Any:
    """An argument, None where it was left out."""
    return arguments[position] if position < len(arguments) else None


def torch_dtype(element_type: int) -> torch.dtype:
    """The torch type of an ONNX element type."""
    try:
        name = helper.tensor_dtype_to_np_dtype(element_type).name
    except KeyError:
        raise InvalidRequest(f"ONNX element type {element_type} is unknown") from None
    dtype = getattr(torch, {"bool": "bool", "float8_e4m3": "float8_e4m3fn"}.get(name, name), None)
    if not isinstance(dtype, torch.dtype):
        raise InvalidRequest(f"tensors of type {name} cannot be trained with")
    return dtype


_CONVOLUTIONS = {1: functional.conv1d, 2: functional.conv2d, 3: functional.conv3d}
_TRANSPOSED = {1: functional.conv_transpose1d, 2: functional.conv_transpose2d, 3: functional.conv_transpose3d}
_MAX_POOLS = {1: functional.max_pool1d, 2: functional.max_pool2d, 3: functional.max_pool3d}
_MEAN_POOLS: dict[int, Any] = {
    1: functional.avg_pool1d,
    2: functional.avg_pool2d,
    3: functional.avg_pool3d,
}
_GLOBAL_POOLS: dict[int, Any] = {
    1: functional.adaptive_avg_pool1d,
    2: functional.adaptive_avg_pool2d,
    3: functional.adaptive_avg_pool3d,
}


def _padding(node: OnnxNode, x: Tensor, kernel: list[int], strides: list[int]) -> tuple[list[int], list[int]]:
    """Padding before and after each axis, from `pads` or `auto_pad`."""
    axes = len(kernel)
    automatic = node.get("auto_pad", "NOTSET")
    if automatic in ("NOTSET", "VALID"):
        pads = node.get("pads", [0] * 2 * axes) if automatic == "NOTSET" else [0] * 2 * axes
        return list(pads[:axes]), list(pads[axes:])
    dilations = node.get("dilations", [1] * axes)
    before, after = [], []
    for size, k, s, d in zip(x.shape[2:], kernel, strides, dilations, strict=True):
        total = max(0, (math.ceil(size / s) - 1) * s + d * (k - 1) + 1 - size)
        small, large = total // 2, total - total // 2
        before.append(small if automatic == "SAME_UPPER" else large)
        after.append(large if automatic == "SAME_UPPER" else small)
    return before, after


def _pad(x: Tensor, pads: tuple[list[int], list[int]], value: float = 0.0) -> tuple[Tensor, list[int]]:
    """The input and the padding left for the operator, which pads both ends equally."""
    before, after = pads
    if before == after:
        return x, before
    both = [side for pair in zip(reversed(before), reversed(after), strict=True) for side in pair]
    return functional.pad(x, both, value=value), [0] * len(before)


def _convolution(node: OnnxNode, arguments: Arguments, _training: bool) -> Tensor:
    x, weight, bias = arguments[0], arguments[1], argument(arguments, 2)
    axes = weight.dim() - 2
    strides = node.get("strides", [1] * axes)
    x, padding = _pad(x, _padding(node, x, list(weight.shape[2:]), strides))
    dilations, groups = node.get("dilations", [1] * axes), node.get("group", 1)
    return _CONVOLUTIONS[axes](x, weight, bias, strides, padding, dilations, groups)


def _transposed_convolution(node: OnnxNode, arguments: Arguments, _training: bool) -> Tensor:
    x, weight, bias = arguments[0], arguments[1], argument(arguments, 2)
    axes = weight.dim() - 2
    pads = node.get("pads", [0] * 2 * axes)
    if pads[:axes] != pads[axes:] or node.get("auto_pad", "NOTSET") != "NOTSET" or node.get("output_shape"):
        raise InvalidRequest("an ONNX ConvTranspose with uneven or automatic padding cannot be traced")
    return _TRANSPOSED[axes](
        x,
        weight,
        bias,
        node.get("strides", [1] * axes),
        pads[:axes],
        node.get("output_padding", [0] * axes),
        node.get("group", 1),
        node.get("dilations", [1] * axes),
    )


def _max_pool(node: OnnxNode, arguments: Arguments, _training: bool) -> Tensor:
    kernel = node.get("kernel_shape")
    strides = node.get("strides", [1] * len(kernel))
    x, padding = _pad(arguments[0], _padding(node, arguments[0], kernel, strides), -math.inf)
    dilations = node.get("dilations", [1] * len(kernel))
    pooled: Tensor = _MAX_POOLS[len(kernel)](
        x, kernel, strides, padding, dilations, ceil_mode=bool(node.get("ceil_mode", 0))
    )
    return pooled


def _mean_pool(node: OnnxNode, arguments: Arguments, _training: bool) -> Tensor:
    kernel = node.get("kernel_shape")
    strides = node.get("strides", [1] * len(kernel))
    counts_padding = bool(node.get("count_include_pad", 0))
    before, after = _padding(node, arguments[0], kernel, strides)
    if before != after and not counts_padding:
        raise InvalidRequest("an ONNX AveragePool with uneven padding that is not counted cannot be traced")
    x, padding = _pad(arguments[0], (before, after))
    pooled: Tensor = _MEAN_POOLS[len(kernel)](
        x, kernel, strides, padding, bool(node.get("ceil_mode", 0)), counts_padding
    )
    return pooled


def _global_mean_pool(x: Tensor) -> Tensor:
    pooled: Tensor = _GLOBAL_POOLS[x.dim() - 2](x, 1)
    return pooled


def _global_max_pool(x: Tensor) -> Tensor:
    return x.amax(tuple(range(2, x.dim())), keepdim=True)


def _batch_norm(node: OnnxNode, arguments: Arguments, training: bool) -> Tensor:
    x, scale, bias, mean, variance = arguments[:5]
    return functional.batch_norm(
        x, mean, variance, scale, bias, training, 1 - node.get("momentum", 0.9), node.get("epsilon", 1e-5)
    )


def _instance_norm(node: OnnxNode, arguments: Arguments, _training: bool) -> Tensor:
    x, scale, bias = arguments
    return functional.instance_norm(x, weight=scale, bias=bias, eps=node.get("epsilon", 1e-5))


def _layer_norm(node: OnnxNode, arguments: Arguments, _training: bool) -> Tensor:
    x, scale, bias = arguments[0], arguments[1], argument(arguments, 2)
    shape = list(x.shape[node.get("axis", -1) :])
    return functional.layer_norm(x, shape, scale.reshape(shape), bias, node.get("epsilon", 1e-5))


def _rms_norm(node: OnnxNode, arguments: Arguments, _training: bool) -> Tensor:
    x, scale = arguments
    shape = list(x.shape[node.get("axis", -1) :])
    return functional.rms_norm(x, shape, scale, node.get("epsilon", 1e-5))


def _group_norm(node: OnnxNode, arguments: Arguments, _training: bool) -> Tensor:
    x, scale, bias = arguments
    return functional.group_norm(x, node.get("num_groups"), scale, bias, node.get("epsilon", 1e-5))


def _local_response_norm(node: OnnxNode, arguments: Arguments, _training: bool) -> Tensor:
    alpha, beta, bias = node.get("alpha", 1e-4), node.get("beta", 0.75), node.get("bias", 1.0)
    return functional.local_response_norm(arguments[0], node.get("size"), alpha, beta, bias)


def _general_product(node: OnnxNode, arguments: Arguments, _training: bool) -> Tensor:
    """alpha · A' B' + beta · C; a linear layer where that is all it is."""
    a, b, c = arguments[0], arguments[1], argument(arguments, 2)
    alpha, beta = node.get("alpha", 1.0), node.get("beta", 1.0)
    a = a.T if node.get("transA", 0) else a
    is_vector = c is None or c.dim() == 1
    if alpha == 1.0 and beta == 1.0 and is_vector:
        return functional.linear(a, b if node.get("transB", 0) else b.T, c)
    product = a @ (b.T if node.get("transB", 0) else b)
    product = product if alpha == 1.0 else alpha * product
    result: Tensor = product if c is None else product + (c if beta == 1.0 else beta * c)
    return result


def _softmax(node: OnnxNode, arguments: Arguments, _training: bool) -> Tensor:
    function = torch.log_softmax if node.type == "LogSoftmax" else torch.softmax
    x = arguments[0]
    if node.opset >= 13:
        return function(x, node.get("axis", -1))
    axis = node.get("axis", 1) % x.dim()  # before version 13 all axes from this one on count as one
    return function(x.flatten(axis), axis).reshape(x.shape)


def _clip(node: OnnxNode, arguments: Arguments, _training: bool) -> Tensor:
    low = argument(arguments, 1) if node.opset >= 11 else node.get("min")
    high = argument(arguments, 2) if node.opset >= 11 else node.get("max")
    bounds = [float(bound) if isinstance(bound, Tensor) else bound for bound in (low, high)]
    return torch.clamp(arguments[0], *bounds) if any(b is not None for b in bounds) else arguments[0]


def _resize(node: OnnxNode, arguments: Arguments, _training: bool) -> Tensor:
    x = arguments[0]
    mode = node.get("mode", "nearest")
    kinds = {
        "nearest": ("nearest", "nearest", "nearest"),
        "linear": ("linear", "bilinear", "trilinear"),
        "cubic": ("", "bicubic", ""),
    }
    size = _resize_shape(node, arguments)[2:]
    kind = kinds[mode][len(size) - 1]
    aligned = node.get("coordinate_transformation_mode", "half_pixel") == "align_corners"
    return functional.interpolate(x, size, mode=kind, align_corners=None if kind == "nearest" else aligned)


def _resize_shape(node: OnnxNode, arguments: Arguments) -> list[int]:
    """The whole shape after a Resize: given as sizes, or by scales."""
    x = arguments[0]
    sizes = integers(argument(arguments, 3), "the size of a Resize") if node.type == "Resize" else None
    if sizes:
        return sizes
    scales = arguments[1] if node.type == "Upsample" or node.opset < 11 else arguments[2]
    return [math.floor(length * scale) for length, scale in zip(x.shape, scales.tolist(), strict=True)]


def _dropout(node: OnnxNode, arguments: Arguments, training: bool) -> Tensor:
    ratio = argument(arguments, 1)
    share = node.get("ratio", 0.5) if ratio is None else float(ratio)
    return functional.dropout(arguments[0], share, training)


def _gelu(node: OnnxNode, arguments: Arguments, _training: bool) -> Tensor:
    return functional.gelu(arguments[0], approximate=node.get("approximate", "none"))


def _hard_sigmoid(node: OnnxNode, arguments: Arguments, _training: bool) -> Tensor:
    return torch.clamp(node.get("alpha", 0.2) * arguments[0] + node.get("beta", 0.5), 0.0, 1.0)


LAYERS: Mapping[str, Operator] = {
    "Conv": Operator(_convolution),
    "ConvTranspose": Operator(_transposed_convolution),
    "MaxPool": Operator(_max_pool),
    "AveragePool": Operator(_mean_pool),
    "GlobalAveragePool": plain(_global_mean_pool),
    "GlobalMaxPool": plain(_global_max_pool),
    "BatchNormalization": Operator(_batch_norm),
    "InstanceNormalization": Operator(_instance_norm),
    "LayerNormalization": Operator(_layer_norm),
    "RMSNormalization": Operator(_rms_norm),
    "GroupNormalization": Operator(_group_norm),
    "LRN": Operator(_local_response_norm),
    "Gemm": Operator(_general_product),
    "MatMul": plain(torch.matmul),
    "Einsum": Operator(lambda node, arguments, _: torch.einsum(node.get("equation"), *arguments)),
    "Softmax": Operator(_softmax),
    "LogSoftmax": Operator(_softmax),
    "Relu": plain(torch.relu),
    "LeakyRelu": Operator(lambda node, x, _: functional.leaky_relu(x[0], node.get("alpha", 0.01))),
    "PRelu": plain(lambda x, slope: torch.where(x < 0, x * slope, x)),
    "Elu": Operator(lambda node, x, _: functional.elu(x[0], node.get("alpha", 1.0))),
    "Selu": plain(functional.selu),
    "Celu": Operator(lambda node, x, _: functional.celu(x[0], node.get("alpha", 1.0))),
    "Sigmoid": plain(torch.sigmoid),
    "HardSigmoid": Operator(_hard_sigmoid),
    "HardSwish": plain(functional.hardswish),
    "Tanh": plain(torch.tanh),
    "Softplus": plain(functional.softplus),
    "Softsign": plain(functional.softsign),
    "Mish": plain(functional.mish),
    "Gelu": Operator(_gelu),
    "Clip": Operator(_clip, frozenset({1, 2})),
    "Dropout": Operator(_dropout, frozenset({1, 2})),
    "Resize": Operator(_resize, frozenset({1, 2, 3})),
    "Upsample": Operator(_resize, frozenset({1})),
}
