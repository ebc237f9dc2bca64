"""A training framework in a handful of constants, fitted on its own timed parallel layouts.

    pass  = max( a·products + b·other kernels + c·outside blocks + d·exchanges,          on the device
                 e·launches + exchanges · (f + g·devices beyond the node + h·devices) )   on the host
    step  = Σ stages pass + (micro-batches − 1) · slowest pass + r·reduction + s·further nodes + u·update

Where a framework overlaps exchanges with products, they add up as √(kernels² + exchanges²): hidden where one
is much longer than the other, half hidden where they are equal. The first line is the time of kernels without
gaps, the second the time the host takes to launch them; the longer one sets the pace. h applies to pipelines
that span nodes: there each exchange of tensor-parallel devices delays the host in proportion to their number.
A pipeline over very many nodes may stall in every micro-batch.

    memory = what tensors occupy + kept · tokens · width · 2 bytes · blocks · in flight / tensor degree

`kept` counts half-precision tensors of a block's width that the framework holds beyond those of its
operators. A run fits where its memory stays below a limit that best separates the runs that ran from those
that did not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

import numpy as np

from foretrain.prediction.operators.pricing import Flags, Floats

MANY_NODES = 64
_SOFT = 0.1
"""Errors much larger than this (as logarithms) count in proportion to their logarithm alone."""
_LEAST = 1e-9
_PRIOR = 0.1
"""A constant that no step determines stays where it began: off by e, it counts as a step that is 10 % off."""


@dataclass(frozen=True, eq=False)
class StageParts:
    """Seconds of one micro-batch, one entry for each stage of a pipeline; `exchanges` are counted."""

    products: Floats
    others: Floats
    outside: Floats
    exchanging: Floats
    launching: Floats
    exchanges: Floats

    def __len__(self) -> int:
        return len(self.products)


@dataclass(frozen=True, slots=True)
class LayoutParts:
    """A layout with the parts of its step. `reducing` and `updating` are seconds of the fullest stage."""

    stages: StageParts
    micro_batches: int
    tensor: int
    nodes: int
    devices_per_node: int
    replicas: int
    reducing: float
    updating: float

    @property
    def is_tensor_parallel_across_nodes(self) -> bool:
        """Whether tensor-parallel exchanges leave the node."""
        return self.tensor > self.devices_per_node

    @property
    def is_pipeline_across_nodes(self) -> bool:
        """Whether stages of one pipeline live on several nodes."""
        return len(self.stages) > 1 and self.nodes > 1


def summed(values: Floats, stage_of_call: np.ndarray, stages: int, where: Flags) -> Floats:
    """Seconds of some calls by stage; calls of no stage (-1) are left out."""
    chosen = where & (stage_of_call >= 0)
    return np.bincount(stage_of_call[chosen], values[chosen], stages).astype(np.float64)


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


def fit_framework(
    timed: Sequence[tuple[LayoutParts, float]], start: Framework, free: Sequence[str] | None = None
) -> Framework:
    """The constants that fit the timed steps best, beginning at `start`; only those `free` may move.

    Errors are logarithms, with a loss that forgives runs that something else held up.
    """
    from scipy.optimize import least_squares

    names = list(free or (field.name for field in fields(Framework) if field.name != "overlaps"))
    measured = np.log([seconds for _, seconds in timed])

    begin = np.log([max(value, _LEAST) for value in _values(start, names)])

    def errors(logarithms: Floats) -> Floats:
        at = _moved(start, dict(zip(names, np.exp(logarithms).tolist(), strict=True)))
        off = np.log([step_seconds(parts, at) for parts, _ in timed]) - measured
        return np.append(off, _PRIOR * (logarithms - begin))

    solution = least_squares(errors, begin, loss="cauchy", f_scale=_SOFT)
    return _moved(start, dict(zip(names, np.exp(solution.x).tolist(), strict=True)))


def _values(at: Framework, names: Sequence[str]) -> list[float]:
    known = asdict(at)
    return [known[name] for name in names]


def _moved(at: Framework, values: Mapping[str, Any]) -> Framework:
    return replace(at, **values)


@dataclass(frozen=True, slots=True)
class Holding:
    """What a run holds: `bytes` of its tensors as predicted, and one block-wide tensor of all it keeps."""

    bytes: float
    unit_bytes: float


@dataclass(frozen=True, slots=True)
class Held:
    """The constants."""

    kept: float
    limit_bytes: float

    def memory(self, holding: Holding) -> float:
        """Bytes in use at the peak."""
        return holding.bytes + self.kept * holding.unit_bytes

    def fits(self, holding: Holding) -> bool:
        """Whether it can be expected to run."""
        return self.memory(holding) <= self.limit_bytes


def fit_held_activations(seen: Sequence[tuple[Holding, Holding, float | None]]) -> Held:
    """The constants that fit the memory of runs best.

    Each run is described by what its first and its fullest device hold, and what was measured on the first
    (None: it did not run).
    """
    from scipy.optimize import least_squares

    ran = [(first, size) for first, _, size in seen if size is not None]

    def errors(value: Floats) -> Floats:
        predicted = [first.bytes + value[0] * first.unit_bytes for first, _ in ran]
        off: Floats = np.log(predicted) - np.log([size for _, size in ran])
        return off

    kept = float(least_squares(errors, [1.0], bounds=([0.0], [100.0]), loss="cauchy", f_scale=_SOFT).x[0])
    predicted = np.array([fullest.bytes + kept * fullest.unit_bytes for _, fullest, _ in seen])
    did = np.array([size is not None for _, _, size in seen])
    limits = np.unique(predicted)
    right = np.array([((predicted <= limit) == did).sum() for limit in limits])
    best = int(right.argmax())
    return Held(kept, float(limits[best : best + 2].mean()))
