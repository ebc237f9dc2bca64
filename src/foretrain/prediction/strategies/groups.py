"""Which devices exchange data along an axis, and how many of them share a node.

Devices are numbered with the first axis of `Axis` fastest, node by node: tensor-parallel neighbours sit
together, pipeline stages farthest apart. Along an axis of stride s (the product of the degrees before it),
a node of N devices holds min(degree, N / s) members of a group, at least one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from foretrain.prediction.collectives._base import Group
from foretrain.prediction.strategies.program import Axis


def group_along(axes: tuple[Axis, ...], degrees: Mapping[Axis, int], devices_per_node: int) -> Group:
    """The group that spans some axes, seen from one of its members."""
    size = members = 1
    for axis in axes:
        degree = degrees.get(axis, 1)
        size *= degree
        members *= min(degree, max(1, devices_per_node // stride(axis, degrees)))
    on_node = min(devices_per_node, math.prod(degrees.values()))
    return Group(size, min(members, size), max(1, on_node // members))


def stride(axis: Axis, degrees: Mapping[Axis, int]) -> int:
    """How far apart neighbours along an axis are numbered."""
    before = list(Axis)[: list(Axis).index(axis)]
    return math.prod(degrees.get(other, 1) for other in before)


def neighbours(axis: Axis, degrees: Mapping[Axis, int], devices_per_node: int) -> Group:
    """Two devices next to each other along an axis, as pipeline stages are."""
    apart = stride(axis, degrees)
    together = apart < devices_per_node
    on_node = min(devices_per_node, math.prod(degrees.values()))
    return Group(2, 2 if together else 1, min(apart, on_node))
