"""Where a tensor is divided, as its shape changes.

A divided tensor is described by one number, its `outer`: how many elements of the whole tensor's row-major
order lie before one step along the divided dimension repeats - the product of the sizes to its left. Unlike
an axis number it survives views: (2, 1024, 768) divided by width and its view (2048, 12, 64) divided by heads
both have 2048; (2, 12, 64, 64) divided by heads and its view (24, 64, 64) both have 2. 0 stands for whole.
"""

from __future__ import annotations

import math
from functools import lru_cache

from foretrain.workloads.graph import Spec

WHOLE = 0

Shape = tuple[int, ...]


@lru_cache(maxsize=65536)
def axis_of(shape: Shape, outer: int) -> int:
    """The axis that is divided; -1 if the shape has none there."""
    before = 1
    for axis, size in enumerate(shape):
        if before <= outer < before * size:
            return axis
        before *= size
    return -1


@lru_cache(maxsize=65536)
def size_at(shape: Shape, outer: int) -> int:
    """How many units there are to divide: the size of the axis, or of the inner part of a merged one."""
    axis = axis_of(shape, outer)
    return math.prod(shape[: axis + 1]) // outer if axis >= 0 else 1


@lru_cache(maxsize=65536)
def outer_at(shape: Shape, axis: int, inside: int = 1) -> int:
    """The `outer` of an axis (`inside` a merged one: how much of the axis lies before the divided part)."""
    return math.prod(shape[:axis]) * inside


@lru_cache(maxsize=65536)
def divided(spec: Spec, outer: int, degree: int) -> Spec:
    """The share of a tensor one of `degree` devices holds; the last share is padded where it is smaller."""
    axis = axis_of(spec.shape, outer)
    if axis < 0:
        return spec
    shape = list(spec.shape)
    shape[axis] = math.ceil(shape[axis] / degree)
    return Spec(tuple(shape), spec.dtype)


@lru_cache(maxsize=65536)
def multiplied(spec: Spec, outer: int, degree: int) -> Spec:
    """A tensor with what `degree` devices have of it."""
    axis = axis_of(spec.shape, outer)
    if axis < 0:
        return spec
    shape = list(spec.shape)
    shape[axis] *= degree
    return Spec(tuple(shape), spec.dtype)


@lru_cache(maxsize=65536)
def through_view(name: str, before: Shape, after: Shape, outer: int) -> int:
    """Where a view of a divided tensor is divided; `WHOLE` if it is a part that no longer has the axis."""
    axis = axis_of(before, outer)
    if axis < 0:
        return WHOLE
    inside = outer // math.prod(before[:axis])
    if name in _SWAPPING:
        found = 1 - axis if name == "aten.t" and len(after) == 2 else _moved(before, after, axis)
    elif name in _PICKING:
        found = axis if len(after) == len(before) else _kept(before, after, axis)
    elif name == "aten.expand":
        found = axis + len(after) - len(before)
    else:
        return outer if axis_of(after, outer) >= 0 else WHOLE
    return outer_at(after, found, inside) if 0 <= found < len(after) and after[found] > 1 else WHOLE


@lru_cache(maxsize=65536)
def relocated(own: Shape, shape: Shape, outer: int) -> int:
    """Where a tensor stored as `own` is divided when it is next seen as `shape` and nobody saw it change.

    A fused kernel leaves no trace of the views inside it: heads that were an axis of their own may have been
    merged with their width into the last one, and tokens no longer come after heads.
    """
    if len(own) > max(3, len(shape)) and axis_of(own, outer) == len(own) - 2:
        tokens = math.prod(own[:-3])
        return tokens if size_at(shape, tokens) == size_at(own, outer) else WHOLE
    if _is_merged(own, shape, outer):
        return outer_at(shape, len(shape) - 1)
    return outer if axis_of(shape, outer) >= 0 else WHOLE


@lru_cache(maxsize=65536)
def broadcast(before: Shape, after: Shape, outer: int) -> int:
    """Where a tensor is divided that was computed elementwise, or along other axes, from a divided one.

    Axes are matched from the right as in broadcasting, else from the left as `keepdim` leaves them, else by
    where they lie in memory (operands of a fused kernel come before they are viewed alike). A vector is
    never matched from the left: it belongs to the last axis.
    """
    axis = axis_of(before, outer)
    if axis < 0:
        return WHOLE
    inside = outer // math.prod(before[:axis])
    for found in (axis + len(after) - len(before), axis):
        is_vector = len(after) == 1 < len(before) and found == axis
        if 0 <= found < len(after) and after[found] == before[axis] and not is_vector:
            return outer_at(after, found, inside)
    if len(after) > 1 and size_at(after, outer) == size_at(before, outer):
        return outer
    return outer_at(after, len(after) - 1) if _is_merged(before, after, outer) else WHOLE


@lru_cache(maxsize=65536)
def same_axis(before: Shape, after: Shape, outer: int) -> int:
    """Where a tensor of as many axes is divided that has the divided axis at the same place; else `WHOLE`."""
    axis = axis_of(before, outer)
    if axis < 0 or len(after) != len(before) or after[axis] != before[axis]:
        return WHOLE
    return outer_at(after, axis, outer // math.prod(before[:axis]))


@lru_cache(maxsize=65536)
def resized(before: Shape, after: Shape, outer: int) -> int:
    """Where a tensor is divided that was put together from divided ones, perhaps along the divided axis."""
    axis = axis_of(before, outer)
    if axis < 0 or len(after) != len(before):
        return broadcast(before, after, outer)
    return outer_at(after, axis, outer // math.prod(before[:axis]))


_SWAPPING = frozenset({"aten.t", "aten.transpose", "aten.permute", "aten.swapaxes", "aten.movedim"})
_PICKING = frozenset(
    {"aten.split", "aten.split_with_sizes", "aten.slice", "aten.narrow", "aten.chunk", "aten.unsafe_split"}
    | {"aten.unsafe_split_with_sizes", "aten.unsafe_chunk", "aten.select", "aten.unbind", "aten.unfold"}
)


def _is_merged(before: Shape, after: Shape, outer: int) -> bool:
    """Whether divided heads were merged with their width into the last axis."""
    return len(before) > len(after) > 0 and after[-1] == size_at(before, outer) * before[-1] > before[-1]


def _moved(before: Shape, after: Shape, axis: int) -> int:
    """Where an axis went when axes were swapped: it stays if it can, else it went where its size is."""
    if after[axis] == before[axis]:
        return axis
    return next((found for found, size in enumerate(after) if size == before[axis]), -1)


def _kept(before: Shape, after: Shape, axis: int) -> int:
    """Where an axis is after another one was picked from and dropped."""
    if axis < len(after) and after[:axis] == before[:axis] and after[axis] == before[axis]:
        return axis
    return axis - 1 if after[axis - 1] == before[axis] else -1
