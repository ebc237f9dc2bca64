"""Degrees that divide all sizes of a model that have to be divided."""

from __future__ import annotations

import math
from collections.abc import Collection


def common_degrees(sizes: Collection[int], most: int) -> tuple[int, ...]:
    """The degrees up to `most` that divide all sizes."""
    return tuple(degree for degree in range(1, most + 1) if not any(size % degree for size in sizes))


def nearest_degrees(sizes: Collection[int], degree: int) -> str:
    """The two degrees nearest to one that does not divide all sizes, in words."""
    common = math.gcd(*sizes)
    works = common_degrees([common], common)
    near = sorted(works, key=lambda divisor: (abs(divisor - degree), -divisor))[:2]
    return f"nearest degrees that do: {' and '.join(map(str, sorted(near)))}"
