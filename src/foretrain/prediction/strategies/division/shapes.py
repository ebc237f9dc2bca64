"""The divided axis of a tensor, through changes of its shape.

A divided tensor is described by one number, `outer`: the product of the sizes to the left of the divided
axis. Unlike the number of an axis it is invariant under views: (2, 1024, 768) divided by width and its view
(2048, 12, 64) divided by heads both have 2048; (2, 12, 64, 64) divided by heads and its view (24, 64, 64)
both have 2. 0 (`WHOLE`) is a tensor that is not divided.

The parameter of each optimizer state, and the tensors of each update.
"""

from __future__ import annotations

import math
from functools import lru_cache

from foretrain.workloads.graph import NO_TENSOR, Call, Graph, Role, Spec

WHOLE = 0

Shape = tuple[int, ...]


@lru_cache(maxsize=65536)
def axis_of(shape: Shape, outer: int) -> int:
    """The divided axis; -1 if the shape has none at `outer`."""
    before = 1
    for axis, size in enumerate(shape):
        if before <= outer < before * size:
            return axis
        before *= size
    return -1


@lru_cache(maxsize=65536)
def size_at(shape: Shape, outer: int) -> int:
    """The size that is divided: that of the axis, or of the inner part of a merged axis."""
    axis = axis_of(shape, outer)
    return math.prod(shape[: axis + 1]) // outer if axis >= 0 else 1


@lru_cache(maxsize=65536)
def outer_at(shape: Shape, axis: int, inside: int = 1) -> int:
    """The `outer` of an axis; `inside` a merged axis, the part of it before the divided one."""
    return math.prod(shape[:axis]) * inside


@lru_cache(maxsize=65536)
def divide_spec(spec: Spec, outer: int, degree: int) -> Spec:
    """The share of a tensor on one of `degree` devices; a smaller last share is padded."""
    axis = axis_of(spec.shape, outer)
    if axis < 0:
        return spec
    shape = list(spec.shape)
    shape[axis] = math.ceil(shape[axis] / degree)
    return Spec(tuple(shape), spec.dtype)


@lru_cache(maxsize=65536)
def multiply_spec(spec: Spec, outer: int, degree: int) -> Spec:
    """A tensor with the parts of `degree` devices."""
    axis = axis_of(spec.shape, outer)
    if axis < 0:
        return spec
    shape = list(spec.shape)
    shape[axis] *= degree
    return Spec(tuple(shape), spec.dtype)


@lru_cache(maxsize=65536)
def through_view(name: str, before: Shape, after: Shape, outer: int) -> int:
    """The `outer` of a view of a divided tensor; `WHOLE` if the view lacks the divided axis."""
    axis = axis_of(before, outer)
    if axis < 0:
        return WHOLE
    inside = outer // math.prod(before[:axis])
    if name in _SWAPPING:
        new = 1 - axis if name == "aten.t" and len(after) == 2 else _move_axis(before, after, axis)
    elif name in _SELECTING:
        new = axis if len(after) == len(before) else _keep_axis(before, after, axis)
    elif name == "aten.expand":
        new = axis + len(after) - len(before)
    else:
        return outer if axis_of(after, outer) >= 0 else WHOLE
    return outer_at(after, new, inside) if 0 <= new < len(after) and after[new] > 1 else WHOLE


@lru_cache(maxsize=65536)
def relocate(own: Shape, shape: Shape, outer: int) -> int:
    """The `outer` of a tensor stored as `own` and read as `shape`, without a recorded view in between.

    Fused kernels do not record the views inside them: heads may have been merged with their width into the
    last axis, and the order of heads and tokens may have changed.
    """
    if len(own) > max(3, len(shape)) and axis_of(own, outer) == len(own) - 2:
        tokens = math.prod(own[:-3])
        return tokens if size_at(shape, tokens) == size_at(own, outer) else WHOLE
    if _is_merged(own, shape, outer):
        return outer_at(shape, len(shape) - 1)
    return outer if axis_of(shape, outer) >= 0 else WHOLE


@lru_cache(maxsize=65536)
def broadcast(before: Shape, after: Shape, outer: int) -> int:
    """The `outer` of a tensor computed elementwise, or along other axes, from a divided one.

    Axes are matched from the right as in broadcasting, else from the left as with `keepdim`, else by their
    position in memory (operands of a fused kernel may have other views). A vector is never matched from the
    left: it belongs to the last axis.
    """
    axis = axis_of(before, outer)
    if axis < 0:
        return WHOLE
    inside = outer // math.prod(before[:axis])
    for new in (axis + len(after) - len(before), axis):
        is_vector = len(after) == 1 < len(before) and new == axis
        if 0 <= new < len(after) and after[new] == before[axis] and not is_vector:
            return outer_at(after, new, inside)
    if len(after) > 1 and size_at(after, outer) == size_at(before, outer):
        return outer
    return outer_at(after, len(after) - 1) if _is_merged(before, after, outer) else WHOLE


@lru_cache(maxsize=65536)
def same_axis(before: Shape, after: Shape, outer: int) -> int:
    """The `outer` of a tensor with the same divided axis and as many axes; otherwise `WHOLE`."""
    axis = axis_of(before, outer)
    if axis < 0 or len(after) != len(before) or after[axis] != before[axis]:
        return WHOLE
    return outer_at(after, axis, outer // math.prod(before[:axis]))


@lru_cache(maxsize=65536)
def resize(before: Shape, after: Shape, outer: int) -> int:
    """The `outer` of a tensor composed of divided ones, possibly along the divided axis."""
    axis = axis_of(before, outer)
    if axis < 0 or len(after) != len(before):
        return broadcast(before, after, outer)
    return outer_at(after, axis, outer // math.prod(before[:axis]))


_SWAPPING = frozenset({"aten.t", "aten.transpose", "aten.permute", "aten.swapaxes", "aten.movedim"})
_SELECTING = frozenset(
    {"aten.split", "aten.split_with_sizes", "aten.slice", "aten.narrow", "aten.chunk", "aten.unsafe_split"}
    | {"aten.unsafe_split_with_sizes", "aten.unsafe_chunk", "aten.select", "aten.unbind", "aten.unfold"}
)


def _is_merged(before: Shape, after: Shape, outer: int) -> bool:
    """Whether divided heads were merged with their width into the last axis."""
    return len(before) > len(after) > 0 and after[-1] == size_at(before, outer) * before[-1] > before[-1]


def _move_axis(before: Shape, after: Shape, axis: int) -> int:
    """The new position of an axis after a transposition, by its size."""
    if after[axis] == before[axis]:
        return axis
    return next((new for new, size in enumerate(after) if size == before[axis]), -1)


def _keep_axis(before: Shape, after: Shape, axis: int) -> int:
    """The new position of an axis after another one was selected from and removed."""
    if axis < len(after) and after[:axis] == before[:axis] and after[axis] == before[axis]:
        return axis
    return axis - 1 if after[axis - 1] == before[axis] else -1


def owners_of_states(graph: Graph) -> dict[int, int]:
    """The parameter of each state: the one with the same name."""
    parameters = {b.name: index for index, b in enumerate(graph.buffers) if b.role is Role.PARAMETER}
    return {
        index: parameters[buffer.name]
        for index, buffer in enumerate(graph.buffers)
        if buffer.role is Role.OPTIMIZER_STATE and buffer.name in parameters
    }


def find_updated(call: Call) -> list[int]:
    """The buffer of each tensor of an optimizer's call (-1: none). A list that occurs twice, such as
    gradients to be squared, is the last."""
    inputs, reads = call.inputs, call.reads
    extra = len(inputs) - inputs.count(NO_TENSOR) - len(reads)
    buffers = iter([*reads, *reads[len(reads) - extra :]] if 0 < extra <= len(reads) else reads)
    return [-1 if spec == NO_TENSOR else next(buffers, -1) for spec in inputs]
