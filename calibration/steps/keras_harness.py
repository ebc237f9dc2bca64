"""A Keras training loop around priced operators: what TensorFlow adds, and how fast its kernels are.

    t = c + (device⁴ + host⁴)^¼ + input bytes / copy rate
    device = Σ θ_class · δ(GPU, group) · priced seconds + starting each kernel + passes over the filters
    host = launches · seconds a launch

Classes of operators are as coarse as a few models can separate: convolutions by kernel and pass, products,
and the memory-bound rest. The loop waits for every step. Filters are stored as height x width x in x out and
transposed into cuDNN's order and back for every convolution and gradient: passes over the weights that images
of a few pixels do not hide. L2 regularisation adds six passes (one to sum, two to scale, three to add).
Depthwise convolutions are TensorFlow's own kernels, far from both the peak and the bandwidth. θ start from 1,
the price as it is; δ from 1, a GPU like all others; a prior shrinks both to 1, so that what the data do not
determine stays as priced.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from calibration.least_squares import minimise
from calibration.steps.generation_speed import Slowness
from foretrain.facts.devices import Device
from foretrain.prediction.operators import streaming
from foretrain.prediction.operators.pricing import Flags, Floats, PricedOps, peak_flop_per_second
from foretrain.workloads.graph import NO_TENSOR, Graph
from foretrain.workloads.ops import Direction, Kind, Op, Work

_CONVOLUTION = "aten.convolution"
_PRODUCTS = frozenset({Kind.LINEAR, Kind.MATMUL})
_SHARPNESS = 4
_REGULARISING_PASSES = 6
_COPY_BYTES_PER_SECOND = 3e9
_LAUNCH_SECONDS = 2e-5
_STEP_SECONDS = 1e-3
_START_CYCLES = 1e4
COMPUTING, MEMORY, STARTING = range(3)
_GROUPS = 3
_GROUP_SPREAD = (0.15, 0.15, 0.3)
_AROUND = 3
"""Constants around the device: of a launch, of a step, of copying a byte; priors 1 in the units above."""
_AROUND_SPREAD = 0.7


@dataclass(frozen=True)
class Composition:
    """One step on one device.

    `seconds` are the priced times of each class. `bias_seconds`: adding biases to convolutions' outputs in a
    pass of its own; `filter_seconds`: one pass over all convolutions' weights; `depthwise_seconds`: the FLOP
    of depthwise convolutions at the FP32 peak.
    """

    seconds: dict[str, float]
    launches: int
    input_bytes: int
    bias_seconds: float
    filter_seconds: float
    depthwise_seconds: float


@dataclass(frozen=True, eq=False)
class Classes:
    """The operators of a graph sorted into classes, once for all devices."""

    names: tuple[str, ...]
    of_op: tuple[int, ...]


def class_of(work: Work) -> str:
    """The class of one piece of work."""
    if work.kind is Kind.CONVOLUTION:
        passing = "forward" if work.direction is Direction.FORWARD else "backward"
        return f"{_kernel(work)} {passing}"
    if work.kind in _PRODUCTS:
        return "products"
    return work.kind.value if work.kind in (Kind.NORMALISATION, Kind.POOLING) else "streaming"


def _kernel(work: Work) -> str:
    dims = work.dims
    if dims["groups"] > 1:
        return "grouped"
    elements = dims["kernel_height"] * dims["kernel_width"]
    if elements == 1:
        return "1x1"
    return "3x3" if elements == 9 and dims["stride_height"] == 1 else "other"


def classes(ops: Sequence[Op]) -> Classes:
    """Sort a graph's operators; views belong to class -1."""
    numbers: dict[str, int] = {}
    class_numbers = [
        numbers.setdefault(class_of(op.work), len(numbers)) if op.work.kernels else -1 for op in ops
    ]
    return Classes(tuple(numbers), tuple(class_numbers))


def composition(
    graph: Graph, priced: PricedOps, sorted_ops: Classes, device: Device, input_bytes: int
) -> Composition:
    """What a priced step is made of."""
    totals = np.zeros(len(sorted_ops.names) + 1)
    np.add.at(totals, np.array(sorted_ops.of_op), priced.seconds)
    bandwidth = device.memory_bytes_per_second * streaming.calibration().share(device)
    convolutions = [call for call in graph.calls if call.name == _CONVOLUTION]
    biased = [call for call in convolutions if len(call.inputs) > 2 and call.inputs[2] != NO_TENSOR]
    outputs = sum(graph.specs[call.outputs[0]].bytes for call in biased)
    filters = sum(graph.specs[call.inputs[1]].bytes for call in convolutions)
    grouped = sum(
        op.work.flop for op in priced.ops if op.work.kind is Kind.CONVOLUTION and op.work.dims["groups"] > 1
    )
    return Composition(
        seconds=dict(zip(sorted_ops.names, totals[:-1].tolist(), strict=True)),
        launches=sum(op.work.kernels for op in priced.ops),
        input_bytes=input_bytes,
        bias_seconds=2 * outputs / bandwidth,
        filter_seconds=filters / bandwidth,
        depthwise_seconds=grouped / peak_flop_per_second(device, "float32", matrix=False),
    )


@dataclass(frozen=True, slots=True)
class Term:
    """One part of the device's time: prior median, spread of its logarithm, and which δ applies."""

    name: str
    prior: float
    spread: float
    group: int


TERMS = (
    Term("3x3 forward", 1.0, 0.3, COMPUTING),
    Term("3x3 backward", 1.0, 0.3, COMPUTING),
    Term("1x1 forward", 1.0, 0.3, COMPUTING),
    Term("1x1 backward", 1.0, 0.3, COMPUTING),
    Term("other forward", 1.0, 0.3, COMPUTING),
    Term("other backward", 1.0, 0.3, COMPUTING),
    Term("grouped", 1.0, 0.5, MEMORY),
    Term("depthwise issue", 1.0, 3.0, COMPUTING),
    Term("products", 1.0, 0.3, COMPUTING),
    Term("normalisation", 1.0, 0.5, MEMORY),
    Term("pooling", 1.0, 0.5, MEMORY),
    Term("streaming", 1.0, 0.3, MEMORY),
    Term("filter passes", 10.0, 1.0, MEMORY),
    Term("starting", 1.0, 1.0, STARTING),
)
_FILTERS = next(index for index, term in enumerate(TERMS) if term.name == "filter passes")


@dataclass(frozen=True, eq=False)
class HarnessTable:
    """Steps in columns: device seconds of each term, regularising passes, launches, input, which GPU."""

    terms: Floats
    regularising: Floats
    launches: Floats
    input_bytes: Floats
    device_index: Floats

    def where(self, chosen: Flags) -> HarnessTable:
        """Only the chosen steps."""
        return HarnessTable(
            self.terms[chosen], self.regularising[chosen], self.launches[chosen], self.input_bytes[chosen],
            self.device_index[chosen],
        )  # fmt: skip


@dataclass(frozen=True)
class HarnessStep:
    """One step as the harness sees it; `regularised`: with an L2 loss on the convolutions' weights."""

    composition: Composition
    slowness: Slowness
    clock_hertz: float
    device_index: int
    regularised: bool


def harness_table(steps: Sequence[HarnessStep]) -> HarnessTable:
    """Steps in columns."""
    return HarnessTable(
        terms=np.array([_terms(step) for step in steps]),
        regularising=np.array([_regularising(step) for step in steps]),
        launches=np.array([step.composition.launches for step in steps], float),
        input_bytes=np.array([step.composition.input_bytes for step in steps], float),
        device_index=np.array([step.device_index for step in steps], float),
    )


def _regularising(step: HarnessStep) -> float:
    passes = _REGULARISING_PASSES if step.regularised else 0
    return passes * step.composition.filter_seconds * step.slowness.rest


def _terms(step: HarnessStep) -> list[float]:
    parts, slow = step.composition, step.slowness
    special = {
        "grouped": parts.seconds.get("grouped forward", 0.0) + parts.seconds.get("grouped backward", 0.0),
        "depthwise issue": parts.depthwise_seconds,
        "streaming": parts.seconds.get("streaming", 0.0) + parts.bias_seconds,
        "filter passes": parts.filter_seconds,
        "starting": parts.launches * _START_CYCLES / step.clock_hertz,
    }
    factor = {COMPUTING: slow.convolutions, MEMORY: slow.rest, STARTING: 1.0}
    special["products"] = parts.seconds.get("products", 0.0) * slow.rest / slow.convolutions
    return [special.get(term.name, parts.seconds.get(term.name, 0.0)) * factor[term.group] for term in TERMS]


@dataclass(frozen=True, eq=False)
class Harness:
    """Fitted constants, as logarithms: of the terms, around the device, and δ of each GPU and group."""

    logs: Floats

    def seconds(self, steps: HarnessTable) -> Floats:
        """Predicted seconds; a GPU the fit never saw has δ = 1."""
        return _seconds(self.logs, steps)

    @property
    def constants(self) -> dict[str, float]:
        """The fitted constants by name, without δ."""
        names = [term.name for term in TERMS] + ["launch", "step", "copy"]
        return dict(zip(names, np.exp(self.logs[: len(names)]).tolist(), strict=True))


def fit_harness(steps: HarnessTable, measured: Floats, devices: int, prior_weight: float = 0.01) -> Harness:
    """The constants of some measured steps on up to `devices` GPUs."""
    count = len(TERMS) + _AROUND
    start = np.concatenate([np.log([term.prior for term in TERMS]), np.zeros(_AROUND + devices * _GROUPS)])
    spread = np.concatenate(
        [[term.spread for term in TERMS], np.full(_AROUND, _AROUND_SPREAD), np.tile(_GROUP_SPREAD, devices)]
    )
    assert len(start) == len(spread) == count + devices * _GROUPS
    weight = 0.1 * np.sqrt(prior_weight * len(measured))
    logs = np.log(measured)

    def residuals(x: Floats) -> Floats:
        return np.concatenate([np.log(_seconds(x, steps)) - logs, weight * (x - start) / spread])

    return Harness(minimise(residuals, start, scale=0.1, evaluations=40))


def _seconds(logs: Floats, steps: HarnessTable) -> Floats:
    count = len(TERMS)
    scale = np.exp(logs)
    launch, step, copy = scale[count : count + _AROUND]
    by_device = scale[count + _AROUND :].reshape(-1, _GROUPS)[steps.device_index.astype(int)]
    groups = np.array([term.group for term in TERMS])
    device = (steps.terms * scale[:count] * by_device[:, groups]).sum(axis=1)
    device = device + steps.regularising * by_device[:, TERMS[_FILTERS].group]
    host = launch * _LAUNCH_SECONDS * steps.launches
    running = (device**_SHARPNESS + host**_SHARPNESS) ** (1 / _SHARPNESS)
    seconds: Floats = step * _STEP_SECONDS + running + copy * steps.input_bytes / _COPY_BYTES_PER_SECOND
    return seconds
