"""A training framework in a handful of constants, fitted on its own timed layouts.

    pass  = max( a·products + b·other kernels + c·outside blocks + d·exchanges,          on the device
                 e·launches + exchanges · (f + g·devices beyond the node + h·devices) )   on the host
    step  = Σ stages pass + (micro-batches − 1) · slowest pass + r·reduction + s·further nodes + u·update

Where a framework runs exchanges beside products, they add up as √(kernels² + exchanges²): hidden where one is
much longer than the other, half hidden where they are alike. The first line is what kernels take where they
follow each other without a gap, the second what the host takes to launch them; whatever is longer sets the
pace. h is for pipelines that span nodes: there, each exchange of tensor-parallel devices was seen to hold the
host up in proportion to how many they are. A pipeline over very many nodes may stall for a while in every
micro-batch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

import numpy as np

from foretrain.learning.layouts.parts import LayoutParts
from foretrain.prediction.operators.listing import Floats

MANY_NODES = 64
_SOFT = 0.1
"""Errors much larger than this (as logarithms) count in proportion to their logarithm alone."""
_LEAST = 1e-9
_PRIOR = 0.1
"""A constant that no step tells of stays where it began: off by e, it counts as a step that is 10 % off."""


@dataclass(frozen=True, slots=True)
class Framework:
    """The constants: factors of predicted parts, and seconds where they say so.

    `overlaps` says whether tensor-parallel exchanges run beside products.
    """

    products: float = 1.0
    others: float = 1.0
    outside: float = 1.0
    outside_alone: float = 1.0
    exchanging_on_node: float = 1.0
    exchanging_across: float = 1.0
    launching: float = 1.0
    exchange_seconds: float = 0.0
    exchange_seconds_per_far_device: float = 0.0
    exchange_seconds_per_device_of_pipelines: float = 0.0
    reducing: float = 1.0
    seconds_per_further_node: float = 0.0
    updating: float = 1.0
    stall_seconds: float = 0.0
    overlaps: bool = False


def step_seconds(parts: LayoutParts, at: Framework) -> float:
    """The time of a step."""
    stages, tensor = parts.stages, parts.tensor
    far = parts.is_tensor_parallel_across_nodes
    computing = (
        at.products * stages.products
        + at.others * stages.others
        + (at.outside_alone if tensor == 1 else at.outside) * stages.outside
    )
    exchanging = (at.exchanging_across if far else at.exchanging_on_node) * stages.exchanging
    busy = np.hypot(computing, exchanging) if at.overlaps else computing + exchanging
    each = at.exchange_seconds
    if far:
        each += at.exchange_seconds_per_far_device * (tensor - parts.devices_per_node)
    if parts.is_pipeline_across_nodes and tensor > 1:
        each += at.exchange_seconds_per_device_of_pipelines * tensor
    passes = np.maximum(busy, at.launching * stages.launching + each * stages.exchanges)
    if parts.is_pipeline_across_nodes and parts.nodes >= MANY_NODES:
        passes = passes + at.stall_seconds / len(passes)
    seconds = passes.sum() + (parts.micro_batches - 1) * passes.max()
    if parts.is_pipeline_across_nodes and parts.nodes >= MANY_NODES:
        seconds += (parts.micro_batches - 1) * at.stall_seconds * (1 - 1 / len(passes))
    if parts.replicas > 1:
        seconds += at.reducing * parts.reducing + at.seconds_per_further_node * (parts.nodes - 1)
    return float(seconds + at.updating * parts.updating)


def fit(
    timed: Sequence[tuple[LayoutParts, float]], start: Framework, free: Sequence[str] | None = None
) -> Framework:
    """The constants that tell the timed steps best, beginning at `start`; only those `free` may move.

    Errors are logarithms, with a loss that forgives runs that something else held up.
    """
    from scipy.optimize import least_squares  # type: ignore[import-untyped]

    names = list(free or (field.name for field in fields(Framework) if field.name != "overlaps"))
    measured = np.log([seconds for _, seconds in timed])

    begin = np.log([max(value, _LEAST) for value in _values(start, names)])

    def errors(logarithms: Floats) -> Floats:
        at = _moved(start, dict(zip(names, np.exp(logarithms).tolist(), strict=True)))
        told = np.log([step_seconds(parts, at) for parts, _ in timed]) - measured
        return np.append(told, _PRIOR * (logarithms - begin))

    found = least_squares(errors, begin, loss="cauchy", f_scale=_SOFT)
    return _moved(start, dict(zip(names, np.exp(found.x).tolist(), strict=True)))


def _values(at: Framework, names: Sequence[str]) -> list[float]:
    known = asdict(at)
    return [known[name] for name in names]


def _moved(at: Framework, values: Mapping[str, Any]) -> Framework:
    return replace(at, **values)
