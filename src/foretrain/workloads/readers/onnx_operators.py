"""ONNX nodes and their operators, each as a function on torch tensors.

`LAYERS` are convolutions, pooling, norms, products, activations and resampling; `MOVES` compute element by
element, reduce, move or reshape.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Any

import torch
from onnx import helper
from torch import Tensor
from torch.nn import functional

from foretrain.errors import InvalidRequest

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
_SECOND = frozenset({1})


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


def _quotient(a: Tensor, b: Tensor) -> Tensor:
    whole = not a.is_floating_point() and not b.is_floating_point()
    return torch.div(a, b, rounding_mode="trunc") if whole else a / b


def _modulus(node: OnnxNode, arguments: Arguments, _training: bool) -> Tensor:
    return (torch.fmod if node.get("fmod", 0) else torch.remainder)(*arguments)


def _variadic(function: Callable[[Any, Any], Any]) -> Operator:
    return Operator(lambda _node, arguments, _training: reduce(function, arguments))


def _axes(node: OnnxNode, arguments: Arguments, position: int = 1) -> list[int] | None:
    """The axes of a node: an input in newer versions, an attribute in older ones."""
    given = integers(argument(arguments, position), f"the axes of a {node.type}")
    axes: list[int] | None = given if given is not None else node.get("axes")
    return axes


def _reduction(function: Callable[..., Any]) -> Operator:
    def run(node: OnnxNode, arguments: Arguments, _training: bool) -> Any:
        x, axes = arguments[0], _axes(node, arguments)
        if not axes and node.get("noop_with_empty_axes", 0):
            return x
        return function(x, tuple(axes or range(x.dim())), keepdim=bool(node.get("keepdims", 1)))

    return Operator(run, frozenset({1}))


def _product(x: Tensor, axes: tuple[int, ...], keepdim: bool) -> Tensor:
    for axis in sorted((axis % x.dim() for axis in axes), reverse=True):
        x = torch.prod(x, axis, keepdim=keepdim)
    return x


def _length(x: Tensor, axes: tuple[int, ...], keepdim: bool) -> Tensor:
    norm: Tensor = torch.linalg.vector_norm(x, dim=axes, keepdim=keepdim)
    return norm


def _shape(node: OnnxNode, arguments: Arguments, _training: bool) -> Tensor:
    sizes = list(arguments[0].shape)[node.get("start", 0) : node.get("end")]
    return torch.tensor(sizes, dtype=torch.int64, device="cpu")


def _constant(node: OnnxNode, _arguments: Arguments, _training: bool) -> Tensor:
    if "value" in node.attributes:
        value: Tensor = node.get("value")
        return value
    for name, kind in (("value_int", "int64"), ("value_float", "float32")):
        for form in (name, f"{name}s"):
            if form in node.attributes:
                return torch.tensor(node.get(form), dtype=getattr(torch, kind), device="cpu")
    raise InvalidRequest(f"an ONNX Constant of {', '.join(node.attributes)} cannot be traced")


def _constant_of_shape(node: OnnxNode, arguments: Arguments, _training: bool) -> Tensor:
    value = node.get("value", torch.zeros(1, device="cpu"))
    shape = integers(arguments[0], "a shape") or []
    return torch.full(shape, value.item(), dtype=value.dtype, device="cpu")


def _reshape(node: OnnxNode, arguments: Arguments, _training: bool) -> Tensor:
    x, wanted = arguments[0], integers(arguments[1], "a shape") or []
    if not node.get("allowzero", 0):
        wanted = [x.shape[axis] if size == 0 else size for axis, size in enumerate(wanted)]
    reshaped: Tensor = x.reshape(wanted)
    return reshaped


def _transpose(node: OnnxNode, arguments: Arguments, _training: bool) -> Tensor:
    order = node.get("perm", list(reversed(range(arguments[0].dim()))))
    transposed: Tensor = arguments[0].permute(order)
    return transposed


def _flatten(node: OnnxNode, arguments: Arguments, _training: bool) -> Tensor:
    x, axis = arguments[0], node.get("axis", 1)
    rows = int(torch.Size(x.shape[:axis]).numel())
    flat: Tensor = x.reshape(rows, -1)
    return flat


def _squeeze(node: OnnxNode, arguments: Arguments, _training: bool) -> Tensor:
    axes = _axes(node, arguments)
    squeezed: Tensor = arguments[0].squeeze() if axes is None else arguments[0].squeeze(tuple(axes))
    return squeezed


def _unsqueeze(node: OnnxNode, arguments: Arguments, _training: bool) -> Tensor:
    x, axes = arguments[0], _axes(node, arguments) or []
    rank = x.dim() + len(axes)
    for axis in sorted(axis % rank for axis in axes):
        x = x.unsqueeze(axis)
    result: Tensor = x
    return result


def _slice(node: OnnxNode, arguments: Arguments, _training: bool) -> Tensor:
    x = arguments[0]
    if node.opset >= 10:
        starts, ends, axes, steps = (
            integers(argument(arguments, position), "the bounds of a Slice") for position in range(1, 5)
        )
    else:
        starts, ends, axes, steps = node.get("starts"), node.get("ends"), node.get("axes"), None
    starts, ends = starts or [], ends or []
    axes = axes or list(range(len(starts)))
    for axis, start, end, step in zip(axes, starts, ends, steps or [1] * len(starts), strict=True):
        x = _slice_axis(x, axis % x.dim(), start, end, step)
    result: Tensor = x
    return result


def _slice_axis(x: Tensor, axis: int, start: int, end: int, step: int) -> Tensor:
    picked = range(x.shape[axis])[slice(start, end if end > -(2**31) else None, step)]
    if step > 0:
        return x[(slice(None),) * axis + (slice(start, end, step),)]
    return x.index_select(axis, torch.tensor(list(picked), dtype=torch.int64, device=x.device))


def _split(node: OnnxNode, arguments: Arguments, _training: bool) -> tuple[Tensor, ...]:
    x, axis = arguments[0], node.get("axis", 0)
    sizes = integers(argument(arguments, 1), "the sizes of a Split") or node.get("split")
    if sizes:
        return tuple(torch.split(x, sizes, axis))
    parts = node.get("num_outputs")
    return tuple(torch.split(x, -(-x.shape[axis] // parts), axis))


def _gather(node: OnnxNode, arguments: Arguments, _training: bool) -> Tensor:
    x, indices = arguments
    axis = node.get("axis", 0) % x.dim()
    if not indices.dim() and not indices.is_meta:
        return x.select(axis, int(indices))  # type: ignore[no-any-return]
    if axis == 0 and x.dim() == 2 and x.is_floating_point():
        return functional.embedding(indices, x)
    picked = x.index_select(axis, indices.flatten())
    return picked.reshape(*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :])  # type: ignore[no-any-return]


def _expand(_node: OnnxNode, arguments: Arguments, _training: bool) -> Tensor:
    x, shape = arguments[0], integers(arguments[1], "a shape") or []
    expanded: Tensor = x.expand(torch.broadcast_shapes(x.shape, tuple(shape)))
    return expanded


def _tile(_node: OnnxNode, arguments: Arguments, _training: bool) -> Tensor:
    tiled: Tensor = arguments[0].repeat(integers(arguments[1], "the repeats of a Tile") or [])
    return tiled


def _cast(node: OnnxNode, arguments: Arguments, _training: bool) -> Tensor:
    cast: Tensor = arguments[0].to(torch_dtype(node.get("to")))
    return cast


def _run_pad(node: OnnxNode, arguments: Arguments, _training: bool) -> Tensor:
    x = arguments[0]
    pads = integers(argument(arguments, 1), "the width of a Pad") or node.get("pads", [])
    axes = integers(argument(arguments, 3), "the axes of a Pad") or list(range(x.dim()))
    fill = argument(arguments, 2)
    value = float(fill) if fill is not None else node.get("value", 0.0)
    before, after = [0] * x.dim(), [0] * x.dim()
    for axis, first, last in zip(axes, pads[: len(axes)], pads[len(axes) :], strict=True):
        before[axis], after[axis] = first, last
    both = [side for pair in zip(reversed(before), reversed(after), strict=True) for side in pair]
    mode = {"constant": "constant", "reflect": "reflect", "edge": "replicate"}[node.get("mode", "constant")]
    if mode == "constant":
        return functional.pad(x, both, value=value)
    return functional.pad(x, both[: 2 * (x.dim() - 2)], mode=mode)


def _range(_node: OnnxNode, arguments: Arguments, _training: bool) -> Tensor:
    start, end, step = (value.item() for value in arguments)
    return torch.arange(start, end, step, dtype=arguments[0].dtype, device="cpu")


def _triangle(node: OnnxNode, arguments: Arguments, _training: bool) -> Tensor:
    diagonal = integers(argument(arguments, 1), "the diagonal of a Trilu") or [0]
    return (torch.triu if node.get("upper", 1) else torch.tril)(arguments[0], diagonal[0])


def _largest(node: OnnxNode, arguments: Arguments, _training: bool) -> tuple[Tensor, Tensor]:
    count = (integers(arguments[1], "the count of a TopK") or [1])[0]
    largest = torch.topk(arguments[0], count, node.get("axis", -1), bool(node.get("largest", 1)))
    return largest.values, largest.indices


def _cumulative_sum(_node: OnnxNode, arguments: Arguments, _training: bool) -> Tensor:
    return torch.cumsum(arguments[0], (integers(arguments[1], "the axis of a CumSum") or [0])[0])


def _gather_elements(node: OnnxNode, arguments: Arguments, _training: bool) -> Tensor:
    return torch.gather(arguments[0], node.get("axis", 0), arguments[1])


def _arg(function: Callable[..., Tensor]) -> Operator:
    def run(node: OnnxNode, arguments: Arguments, _training: bool) -> Tensor:
        return function(arguments[0], node.get("axis", 0), keepdim=bool(node.get("keepdims", 1)))

    return Operator(run)


def _depth_to_space(node: OnnxNode, arguments: Arguments, _training: bool) -> Tensor:
    if node.get("mode", "DCR") == "CRD":
        return functional.pixel_shuffle(arguments[0], node.get("blocksize"))
    x, block = arguments[0], node.get("blocksize")
    batch, channels, height, width = x.shape
    x = x.reshape(batch, block, block, channels // block**2, height, width).permute(0, 3, 4, 1, 5, 2)
    result: Tensor = x.reshape(batch, channels // block**2, height * block, width * block)
    return result


MOVES: Mapping[str, Operator] = {
    "Add": plain(torch.add), "Sub": plain(torch.sub), "Mul": plain(torch.mul), "Div": plain(_quotient),
    "Pow": plain(torch.pow), "Mod": Operator(_modulus), "Sqrt": plain(torch.sqrt), "Exp": plain(torch.exp),
    "Log": plain(torch.log), "Neg": plain(torch.neg), "Abs": plain(torch.abs), "Floor": plain(torch.floor),
    "Ceil": plain(torch.ceil), "Round": plain(torch.round), "Sign": plain(torch.sign),
    "Reciprocal": plain(torch.reciprocal), "Sin": plain(torch.sin), "Cos": plain(torch.cos),
    "Erf": plain(torch.erf), "And": plain(torch.logical_and), "Or": plain(torch.logical_or),
    "Not": plain(torch.logical_not), "Equal": plain(torch.eq), "Greater": plain(torch.gt),
    "Less": plain(torch.lt), "GreaterOrEqual": plain(torch.ge), "LessOrEqual": plain(torch.le),
    "Where": plain(torch.where), "IsNaN": plain(torch.isnan),
    "Max": _variadic(torch.maximum), "Min": _variadic(torch.minimum), "Sum": _variadic(torch.add),
    "ReduceMean": _reduction(torch.mean), "ReduceSum": _reduction(torch.sum),
    "ReduceMax": _reduction(torch.amax), "ReduceMin": _reduction(torch.amin),
    "ReduceProd": _reduction(_product), "ReduceL2": _reduction(_length),
    "ArgMax": _arg(torch.argmax), "ArgMin": _arg(torch.argmin),
    "Shape": Operator(_shape, frozenset({0})),
    "Size": plain(lambda x: torch.tensor(x.numel(), device="cpu")),
    "Constant": Operator(_constant), "ConstantOfShape": Operator(_constant_of_shape),
    "Identity": plain(lambda x: x), "Reshape": Operator(_reshape, _SECOND),
    "Transpose": Operator(_transpose), "Flatten": Operator(_flatten), "Squeeze": Operator(_squeeze, _SECOND),
    "Unsqueeze": Operator(_unsqueeze, _SECOND),
    "Concat": Operator(lambda node, arguments, _: torch.cat(arguments, node.get("axis"))),
    "Slice": Operator(_slice, frozenset({1, 2, 3, 4})), "Split": Operator(_split, _SECOND),
    "Gather": Operator(_gather), "GatherElements": Operator(_gather_elements),
    "Expand": Operator(_expand, _SECOND), "Tile": Operator(_tile, _SECOND), "Cast": Operator(_cast),
    "CastLike": plain(lambda x, like: x.to(like.dtype)), "Pad": Operator(_run_pad, frozenset({1, 2, 3})),
    "Range": Operator(_range), "Trilu": Operator(_triangle, _SECOND), "TopK": Operator(_largest, _SECOND),
    "CumSum": Operator(_cumulative_sum, _SECOND), "DepthToSpace": Operator(_depth_to_space),
}  # fmt: skip
