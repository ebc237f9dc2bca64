"""ONNX operators that compute element by element, reduce, move or reshape."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import reduce
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from foretrain.errors import InvalidRequest
from foretrain.workloads.readers.onnx_layers import (
    Arguments,
    OnnxNode,
    Operator,
    argument,
    integers,
    plain,
    torch_dtype,
)


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


def _pad(node: OnnxNode, arguments: Arguments, _training: bool) -> Tensor:
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


_SECOND = frozenset({1})

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
    "CastLike": plain(lambda x, like: x.to(like.dtype)), "Pad": Operator(_pad, frozenset({1, 2, 3})),
    "Range": Operator(_range), "Trilu": Operator(_triangle, _SECOND), "TopK": Operator(_largest, _SECOND),
    "CumSum": Operator(_cumulative_sum, _SECOND), "DepthToSpace": Operator(_depth_to_space),
}  # fmt: skip
