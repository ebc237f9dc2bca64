"""Rings through a mesh of direct links: how many an all-reduce can use at once.

Where devices are joined by links of their own (DGX-1: a hybrid cube mesh) the rate depends on which devices
take part. A ring needs a Hamiltonian cycle through them; each cycle is used in both directions, so a set of
link-disjoint cycles gives twice as many rings, each at the rate of one link. Two devices have no cycle: their
links count once. Where no cycle exists a tree is left, whose n bytes go up and down every link of it: that
is 2(p-1)/p rings.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from itertools import pairwise, permutations

Links = Mapping[tuple[int, int], int]


@cache
def rings_by_size(text: str) -> tuple[float, ...]:
    """Rings among the first 1, 2, 3 ... devices of a mesh written as `0-1:1 0-2:1 0-3:2 ...`."""
    links = _read(text)
    devices = 1 + max(end for pair in links for end in pair)
    return (0.0, *(rings(links, size) for size in range(2, devices + 1)))


def rings(links: Links, size: int) -> float:
    """Rings of one link's rate that `size` devices can use at once."""
    if size == 2:
        return float(links.get((0, 1), 0))
    found = _disjoint(dict(links), _cycles(size), _most(links, size))
    return 2.0 * found if found else 2 * (size - 1) / size


def _most(links: Links, size: int) -> int:
    """At most so many disjoint cycles: each takes two links of every device."""
    ends = [0] * size
    for (first, second), count in links.items():
        if second < size:
            ends[first] += count
            ends[second] += count
    return min(ends) // 2


def _read(text: str) -> dict[tuple[int, int], int]:
    links: dict[tuple[int, int], int] = {}
    for item in text.split():
        ends, _, count = item.partition(":")
        first, second = sorted(int(end) for end in ends.split("-"))
        links[first, second] = int(count)
    return links


@cache
def _cycles(size: int) -> tuple[tuple[tuple[int, int], ...], ...]:
    """All cycles through all devices, each once, as sorted pairs of neighbours."""
    found = []
    for rest in permutations(range(1, size)):
        if rest[0] < rest[-1]:
            order = (0, *rest, 0)
            found.append(tuple((min(pair), max(pair)) for pair in pairwise(order)))
    return tuple(found)


def _disjoint(
    free: dict[tuple[int, int], int], cycles: tuple[tuple[tuple[int, int], ...], ...], most: int
) -> int:
    """The most cycles that can be taken out of the free links; the search ends at `most`."""
    possible = [cycle for cycle in cycles if all(free.get(pair, 0) > 0 for pair in cycle)]
    if not possible or most == 0:
        return 0
    best = 1
    for index, cycle in enumerate(possible):
        left = dict(free)
        for pair in cycle:
            left[pair] -= 1
        best = max(best, 1 + _disjoint(left, tuple(possible[index:]), most - 1))
        if best >= most:
            break
    return best
