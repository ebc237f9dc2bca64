"""Groups along axes: who shares a node, by hand and against a numbering of all devices."""

from __future__ import annotations

import math
from collections import Counter
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretrain.prediction.collectives.costs import Group
from foretrain.prediction.strategies.program import Axis, group_along, neighbours, stride

TP, CP, EP, SHARD, DP, PP = Axis


@pytest.mark.parametrize(
    ("degrees", "axes", "expected"),
    [
        ({DP: 16}, (DP,), Group(16, 8, 1)),
        ({TP: 8, DP: 2}, (TP,), Group(8, 8, 1)),  # tensor parallelism inside a node
        ({TP: 8, DP: 2}, (DP,), Group(2, 1, 8)),  # eight groups share the node's cards
        ({TP: 2, DP: 8}, (TP,), Group(2, 2, 4)),
        ({TP: 2, DP: 8}, (DP,), Group(8, 4, 2)),
        ({TP: 16}, (TP,), Group(16, 8, 1)),
        ({TP: 4, DP: 2, PP: 2}, (DP,), Group(2, 2, 4)),
        ({TP: 4, DP: 2, PP: 2}, (PP,), Group(2, 1, 8)),
        ({SHARD: 8, DP: 2}, (SHARD,), Group(8, 8, 1)),  # hybrid sharding: shares within a node
        ({SHARD: 8, DP: 2}, (DP,), Group(2, 1, 8)),
        ({CP: 2, DP: 8}, (CP, EP, SHARD, DP), Group(16, 8, 1)),
        ({DP: 1}, (DP,), Group(1, 1, 1)),
    ],
)
def test_16_devices_on_nodes_of_8(degrees: dict[Axis, int], axes: tuple[Axis, ...], expected: Group) -> None:
    assert group_along(axes, degrees, 8) == expected


def test_neighbouring_stages_are_as_far_apart_as_all_other_degrees_together() -> None:
    assert stride(PP, {TP: 2, DP: 4}) == 8
    assert neighbours(PP, {TP: 4, DP: 2, PP: 2}, 8) == Group(2, 1, 8)
    assert neighbours(PP, {TP: 2, PP: 4}, 8) == Group(2, 2, 2)
    assert neighbours(PP, {PP: 8}, 8) == Group(2, 2, 1)


powers = st.sampled_from([1, 2, 4])


@given(
    st.tuples(powers, powers, powers, powers),
    st.sampled_from([1, 2, 4, 8]),
    st.sets(st.sampled_from([TP, SHARD, DP, PP]), min_size=1),
)
def test_groups_agree_with_numbered_devices(sizes: tuple[int, ...], per_node: int, chosen: set[Axis]) -> None:
    """Number all devices with the first axis fastest, and count whom the first one meets on its node."""
    order = [TP, SHARD, DP, PP]
    degrees = dict(zip(order, sizes, strict=True))
    axes = tuple(axis for axis in order if axis in chosen)
    members = []
    for places in product(*(range(degrees[axis]) for axis in reversed(order))):
        place = dict(zip(reversed(order), places, strict=True))
        if all(place[axis] == 0 for axis in order if axis not in chosen):
            number = 0
            for axis in reversed(order):
                number = number * degrees[axis] + place[axis]
            members.append(number)
    group = group_along(axes, degrees, per_node)
    assert group.size == len(members) == math.prod(degrees[axis] for axis in axes)
    on_nodes = Counter(number // per_node for number in members)
    assert group.per_node == on_nodes[0]
    assert group.nodes == len(on_nodes)
