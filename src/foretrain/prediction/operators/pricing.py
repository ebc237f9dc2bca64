"""Operators as columns, the models that price them, and the prices of whole graphs.

A `WorkTable` holds works in columns, so that a graph is priced in a few numpy operations. A `Listing` holds
the operators of a graph in order, with each distinct work once; it is built once per graph and priced on many
devices, and the listings of graphs that differ only in batch are priced together. `kernel_class` names
kernels that one library routine runs, in one direction and layout.

A model prices the works of some kinds on a device. All subclasses of `OperatorModel` in this package are
found; those of a cost model together price every kind, the roofline what no other model does. Every distinct
work of a graph is priced once, by the model of its kind. The roofline is a lower bound of the time of any
operator:

    t >= max( FLOP / peak , bytes / bandwidth )

Reference: S. Williams, A. Waterman, D. Patterson, "Roofline: an insightful visual performance model for
multicore architectures", CACM 52 (4), 2009.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache, cached_property, lru_cache, wraps
from itertools import combinations, pairwise
from typing import Any, ClassVar, TypeVar

import numpy as np
from numpy.typing import NDArray

from foretrain.errors import InvalidRequest, MissingData
from foretrain.estimates import Quantiles
from foretrain.facts.calibrations import calibration_content
from foretrain.facts.devices import Device
from foretrain.registry import DuplicateName, discover
from foretrain.workloads.graph import ITEM_BYTES, Graph, Phase, once_per_graph
from foretrain.workloads.ops import MATRIX_KINDS, Direction, Kind, Op, Work
from foretrain.workloads.rules import operators, unknown_names

T = TypeVar("T")
Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]
Integers = NDArray[np.int64]
PHASES, KINDS = tuple(Phase), tuple(Kind)
DEFAULT, ROOFLINE, PER_LAYER = "foretrain", "roofline", "per-layer"
CHOICES = (DEFAULT, ROOFLINE, PER_LAYER)
"""The cost models that price a step operator by operator."""
_ROOFLINE_FILE = "roofline.toml"
_AXES = ("depth", "height", "width")
_FEW_CHANNELS = 8
"""Channels below which tensor cores are mostly idle, as in the first layer of a network."""
_DEPTHWISE_CHANNELS = 2
_NARROW_GROUP = 16
"""Channels per group up to which grouped kernels are as fast as dense ones in channels-last layout."""
_WIDE_KERNEL = 49
"""Kernel elements from which depthwise convolutions are compute-bound."""
_DIRECTIONS = {
    Direction.FORWARD: "forward",
    Direction.INPUT_GRADIENT: "input gradient",
    Direction.WEIGHT_GRADIENT: "weight gradient",
    Direction.BACKWARD: "backward",
    Direction.UPDATE: "update",
}
_ITEM_BYTES = {**ITEM_BYTES, "tf32": 4}
_NO_WORK = -1
"""The index of works without a kernel: the entry after the last."""
_ON_TENSOR_CORES = {
    "tf32": ("tf32_tensor_flop_per_second", "fp32_flop_per_second"),
    "float32": ("fp32_tensor_flop_per_second", "fp32_flop_per_second"),
    "float16": ("fp16_tensor_flop_per_second", "fp16_flop_per_second", "fp32_flop_per_second"),
    "bfloat16": ("bf16_tensor_flop_per_second", "bf16_flop_per_second", "fp32_flop_per_second"),
    "float8_e4m3fn": ("fp8_tensor_flop_per_second", "bf16_tensor_flop_per_second"),
    "float64": ("fp64_flop_per_second",),
}
"""The peaks of products and convolutions of a type, fastest unit first."""


@dataclass(frozen=True, eq=False)
class WorkTable:
    """Works in columns; row i of every column belongs to `works[i]`."""

    works: tuple[Work, ...]

    def __len__(self) -> int:
        return len(self.works)

    @cached_property
    def flop(self) -> Floats:
        """FLOP of each work."""
        return np.array([work.flop for work in self.works], float)

    @cached_property
    def read_bytes(self) -> Floats:
        """Bytes that each work reads at least."""
        return np.array([work.read_bytes for work in self.works], float)

    @cached_property
    def write_bytes(self) -> Floats:
        """Bytes that each work writes at least."""
        return np.array([work.write_bytes for work in self.works], float)

    @cached_property
    def bytes(self) -> Floats:
        """Compulsory traffic of each work."""
        return self.read_bytes + self.write_bytes

    @cached_property
    def kernels(self) -> Floats:
        """Kernel launches of each work."""
        return np.array([work.kernels for work in self.works], float)

    @cached_property
    def item_bytes(self) -> Floats:
        """Bytes per element of the compute type."""
        return np.array([_ITEM_BYTES[work.dtype] for work in self.works], float)

    @cached_property
    def is_matrix(self) -> Flags:
        """Whether each work is a matrix product, convolution, attention or recurrent layer."""
        return np.array([work.kind in MATRIX_KINDS for work in self.works], bool)

    @cached_property
    def arithmetic(self) -> tuple[tuple[tuple[str, bool], ...], NDArray[np.int64]]:
        """The distinct pairs of compute type and `is_matrix`, and the index of each work among them."""
        places: dict[tuple[str, bool], int] = {}
        both = zip((work.dtype for work in self.works), self.is_matrix.tolist(), strict=True)
        of_work = [places.setdefault(each, len(places)) for each in both]
        return tuple(places), np.array(of_work, np.int64)

    @cached_property
    def _cache(self) -> dict[Any, Any]:
        """Columns and tables by name or kinds; models use the same ones several times."""
        return {}

    def dim(self, name: str, default: float = 1.0) -> Floats:
        """A named dimension of each work, or `default`. The array is cached: do not modify it."""
        column: Floats | None = self._cache.get((name, default))
        if column is None:
            column = np.array([work.dims.get(name, default) for work in self.works], float)
            self._cache[name, default] = column
        return column

    def where(self, kinds: frozenset[Kind]) -> Flags:
        """Whether each work is of some kinds. The array is cached: do not modify it."""
        mask: Flags | None = self._cache.get(kinds)
        if mask is None:
            mask = np.array([work.kind in kinds for work in self.works], bool)
            self._cache[kinds] = mask
        return mask

    def directed(self, *directions: Direction) -> Flags:
        """Whether each work is of some directions. The array is cached: do not modify it."""
        mask: Flags | None = self._cache.get(directions)
        if mask is None:
            mask = np.array([work.direction in directions for work in self.works], bool)
            self._cache[directions] = mask
        return mask

    def once(self, derive: Callable[[WorkTable], T]) -> T:
        """What a function makes of the table, cached: columns that do not depend on the device."""
        if derive not in self._cache:
            self._cache[derive] = derive(self)
        derived: T = self._cache[derive]
        return derived

    @cached_property
    def kinds(self) -> frozenset[Kind]:
        """The kinds that occur."""
        return frozenset(work.kind for work in self.works)

    def of(self, kinds: frozenset[Kind]) -> WorkTable:
        """The table of the works of some kinds; cached."""
        part: WorkTable | None = self._cache.get(("of", kinds))
        if part is None:
            part = self if self.where(kinds).all() else self.rows(self.where(kinds))
            self._cache["of", kinds] = part
        return part

    def rows(self, mask: Flags) -> WorkTable:
        """The table of the rows that a mask selects."""
        return WorkTable(tuple(work for work, is_kept in zip(self.works, mask, strict=True) if is_kept))


def table(works: Sequence[Work]) -> WorkTable:
    """A table of works."""
    return WorkTable(tuple(works))


@dataclass(frozen=True, eq=False)
class Listing:
    """Operators in order of execution; entry i of every column belongs to `ops[i]`."""

    ops: tuple[Op, ...]

    @cached_property
    def _distinct(self) -> tuple[WorkTable, Integers]:
        """The distinct works, and the index of the work of each operator."""
        index_of: dict[int, int] = {}
        works: list[Work] = []
        indices = []
        for op in self.ops:
            work = op.work
            index = index_of.get(id(work))
            if index is None:
                has_kernel = bool(work.kernels and (work.read_bytes or work.write_bytes))
                index = index_of[id(work)] = len(works) if has_kernel else _NO_WORK
                if has_kernel:
                    works.append(work)
            indices.append(index)
        return table(works), np.array(indices, np.int64)

    @property
    def works(self) -> WorkTable:
        """The distinct works with at least one kernel."""
        return self._distinct[0]

    def per_op(self, of_works: Floats) -> Floats:
        """Values of distinct works expanded to operators; 0 for views and empty tensors."""
        return np.asarray(np.append(of_works, 0.0)[self._distinct[1]], float)

    @cached_property
    def calls(self) -> Integers:
        """The index of the call of each operator."""
        return np.array([op.call for op in self.ops], np.int64)

    @cached_property
    def kernels(self) -> Floats:
        """Kernel launches of each operator; 0 for a view."""
        return np.array([op.work.kernels for op in self.ops], float)

    @cached_property
    def phases(self) -> Integers:
        """Indices into `PHASES`."""
        place = {phase: index for index, phase in enumerate(PHASES)}
        return np.array([place[op.phase] for op in self.ops], np.int64)

    @cached_property
    def is_recomputed(self) -> Flags:
        """Whether each operator repeats a forward one in the backward pass."""
        return np.array([op.recomputed for op in self.ops], bool)

    @cached_property
    def kinds(self) -> Integers:
        """Indices into `KINDS`."""
        place = {kind: index for index, kind in enumerate(KINDS)}
        return np.array([place[op.work.kind] for op in self.ops], np.int64)

    @cached_property
    def classes(self) -> tuple[tuple[str, ...], Integers]:
        """The kernel classes that occur, and the index of each operator's class; -1 for a view."""
        names: dict[str, int] = {}
        of_work: dict[int, int] = {}
        for op in self.ops:
            if id(op.work) not in of_work:
                name = kernel_class(op.work) if op.work.kernels else None
                of_work[id(op.work)] = _NO_WORK if name is None else names.setdefault(name, len(names))
        return tuple(names), np.array([of_work[id(op.work)] for op in self.ops], np.int64)

    @cached_property
    def unknown_names(self) -> tuple[str, ...]:
        """Names of the operators without a rule."""
        return unknown_names(self.ops)

    @cached_property
    def is_unknown(self) -> Flags:
        """Whether each operator lacks a rule."""
        return np.asarray(self.kinds == KINDS.index(Kind.UNKNOWN), bool)


@once_per_graph
def listing_of(graph: Graph) -> Listing:
    """The operators of a graph, listed once per graph."""
    return Listing(operators(graph))


@lru_cache(maxsize=8)
def concatenate(listings: tuple[Listing, ...]) -> Listing:
    """Several listings, one after the other."""
    if len(listings) == 1:
        return listings[0]
    return Listing(tuple(op for listing in listings for op in listing.ops))


def bounds(listings: Sequence[Listing]) -> list[int]:
    """The first index of each listing in the concatenation, and the end of the last."""
    return np.append(0, np.cumsum([len(listing.ops) for listing in listings])).tolist()


def kernel_class(work: Work) -> str:
    """The class of a work, such as `dense convolution, forward, channels-last`."""
    direction = _DIRECTIONS[work.direction]
    if work.kind is Kind.CONVOLUTION:
        return f"{_shape(work)} convolution, {direction}, {_layout(work)}"
    if work.kind is Kind.NORMALISATION and work.dims.get("over_batch"):
        return f"batch normalisation, {direction}, {_layout(work)}"
    return f"{work.kind}, {direction}"


def _layout(work: Work) -> str:
    return "channels-last" if work.dims.get("channels_last") else "channels-first"


def _shape(work: Work) -> str:
    dims = work.dims
    groups = dims["groups"]
    if groups > 1:
        width = max(dims["in_channels"], dims["out_channels"]) / groups
        if width > _DEPTHWISE_CHANNELS:
            return "narrowly grouped" if width <= _NARROW_GROUP else "widely grouped"
        elements = math.prod(dims.get(f"kernel_{axis}", 1) for axis in _AXES)
        return "wide depthwise" if elements >= _WIDE_KERNEL else "depthwise"
    if dims["in_channels"] < _FEW_CHANNELS:
        return "first"
    kernel = [dims.get(f"kernel_{axis}", 1) for axis in _AXES]
    strides = [dims.get(f"stride_{axis}", 1) for axis in _AXES]
    if max(kernel) == 1:
        return "pointwise"
    return "patch" if all(stride >= side for stride, side in zip(strides, kernel, strict=True)) else "dense"


def peak_flop_per_second(device: Device, dtype: str, matrix: bool) -> float:
    """The dense peak of a device for a type: on tensor cores for matrix work, else on FP32 lanes.

    Types without a unit run at the FP32 rate; FP16 outside tensor cores counts if it is faster.
    """
    names = _ON_TENSOR_CORES.get(dtype, ("fp32_flop_per_second",)) if matrix else ("fp32_flop_per_second",)
    known = [device.sheet.number(name) for name in names if device.sheet.has(name)]
    if not known:
        raise MissingData(f"{device.id} has no peak for {dtype}; add {' or '.join(names)} to its device file")
    return max(known) if matrix and dtype in ("float16", "bfloat16") else known[0]


def peaks(works: WorkTable, device: Device) -> Floats:
    """The peak of the unit of each work."""
    kinds, place = works.arithmetic
    return np.array([peak_flop_per_second(device, dtype, matrix) for dtype, matrix in kinds])[place]


def roofline(works: WorkTable, device: Device) -> tuple[Floats, Floats]:
    """Lower bounds of the time to compute each work, and to move its bytes."""
    return works.flop / peaks(works, device), works.bytes / device.memory_bytes_per_second


def roofline_seconds(works: WorkTable, device: Device) -> Floats:
    """Lower bound of the time of each work."""
    return np.maximum(*roofline(works, device))


class Knowledge(StrEnum):
    """The basis of a prediction, best first."""

    MEASURED = "measured"
    CALIBRATED = "calibrated"
    EXTRAPOLATED = "extrapolated"


@dataclass(frozen=True, slots=True)
class Confidence:
    """The accuracy of a model on a device, from validation on measurements it was not fitted to.

    `p10` and `p90` are quantiles of measured / predicted; `source` names the calibration.
    """

    knowledge: Knowledge
    p10: float
    p90: float
    source: str


@dataclass(frozen=True, slots=True)
class Residuals:
    """Quantiles of measured / predicted of a calibration, on devices that it was fitted to and on others."""

    seen: Quantiles
    unseen: Quantiles

    def confidence(self, is_seen: bool, file: str) -> Confidence:
        """The accuracy on a device that was measured or not."""
        known = self.seen if is_seen else self.unseen
        knowledge = Knowledge.CALIBRATED if is_seen else Knowledge.EXTRAPOLATED
        return Confidence(knowledge, known.p10, known.p90, f"calibrations/{file}")


class OperatorModel(ABC):
    """Prices works of some kinds: device time of each, in seconds, without the host's launch overhead.

    Never below the roofline, never negative; a larger work is never faster on the same device. `cost_models`
    are the cost models that use it, `device_kinds` the kinds of device it prices. A fallback prices the kinds
    that no other model does. `precision` is the only one it has measurements of, if there is but one.
    """

    name: ClassVar[str]
    kinds: ClassVar[frozenset[Kind]]
    cost_models: ClassVar[frozenset[str]] = frozenset({DEFAULT})
    device_kinds: ClassVar[frozenset[str]] = frozenset({"gpu"})
    is_fallback: ClassVar[bool] = False
    precision: ClassVar[str | None] = None

    @abstractmethod
    def seconds(self, works: WorkTable, device: Device) -> Floats:
        """Device seconds of each work; all works are of the model's kinds."""

    @abstractmethod
    def confidence(self, kind: Kind, device: Device) -> Confidence:
        """The accuracy of the times of a kind on a device."""


class RooflineModel(OperatorModel):
    """max(FLOP / peak, bytes / bandwidth): a lower bound, not an estimate; nothing is calibrated."""

    name: ClassVar[str] = ROOFLINE
    kinds: ClassVar[frozenset[Kind]] = frozenset(Kind) - {Kind.VIEW}
    cost_models: ClassVar[frozenset[str]] = frozenset(CHOICES)
    device_kinds: ClassVar[frozenset[str]] = frozenset({"gpu", "cpu"})
    is_fallback: ClassVar[bool] = True

    def seconds(self, works: WorkTable, device: Device) -> Floats:
        """Lower bound of the time of each work."""
        return roofline_seconds(works, device)

    def confidence(self, kind: Kind, device: Device) -> Confidence:
        """No work is faster; the upper end of the interval is assumed."""
        del kind, device
        interval = _roofline_interval()
        return Confidence(Knowledge.EXTRAPOLATED, interval["p10"], interval["p90"], ROOFLINE)


@cache
def _roofline_interval() -> Mapping[str, float]:
    interval: Mapping[str, float] = calibration_content(_ROOFLINE_FILE)["interval"]
    return interval


def operator_models(device: Device, cost_model: str = DEFAULT) -> tuple[OperatorModel, ...]:
    """The models that together price every kind of operator on a device, the fallback last.

    An operator without a rule is priced at the roofline and reported as unmodelled.
    """
    if cost_model not in CHOICES:
        raise InvalidRequest(f"cost_model {cost_model!r} is not one of {', '.join(CHOICES)}")
    return _models(device.kind, cost_model)


def only_precision(cost_model: object, device: Device) -> str | None:
    """The one precision that a cost model has measurements of; None where it has several."""
    if not isinstance(cost_model, str) or cost_model not in CHOICES:
        return None
    return next((each.precision for each in operator_models(device, cost_model) if each.precision), None)


@cache
def _models(device_kind: str, cost_model: str) -> tuple[OperatorModel, ...]:
    models = [
        model
        for model in (*discover(__name__, OperatorModel), RooflineModel())  # type: ignore[type-abstract]
        if cost_model in model.cost_models and device_kind in model.device_kinds
    ]
    for first, second in combinations([model for model in models if not model.is_fallback], 2):
        if first.kinds & second.kinds:
            both = ", ".join(sorted(first.kinds & second.kinds))
            raise DuplicateName(f"operator models {first.name!r} and {second.name!r} both price {both}")
    return tuple(sorted(models, key=lambda model: model.is_fallback))


@dataclass(frozen=True, eq=False)
class PricedOps:
    """Device seconds of each operator, and the accuracy of the times of each kind.

    `computing` and `moving` are the two sides of the roofline: the lower bounds from FLOP and from bytes.
    """

    listing: Listing
    seconds: Floats
    computing: Floats
    moving: Floats
    confidence: dict[Kind, Confidence]

    @property
    def ops(self) -> tuple[Op, ...]:
        """The operators."""
        return self.listing.ops


def price(ops: Sequence[Op] | Listing, device: Device, models: Sequence[OperatorModel]) -> PricedOps:
    """Price operators; views and empty tensors cost nothing, a kind without a model raises `MissingData`."""
    listing = ops if isinstance(ops, Listing) else Listing(tuple(ops))
    everything = listing.works
    seconds = np.zeros(len(everything))
    confidence: dict[Kind, Confidence] = {}
    left = set(everything.kinds)
    for model in models:
        mine = frozenset(left & model.kinds)
        if mine:
            seconds[everything.where(mine)] = model.seconds(everything.of(mine), device)
            confidence |= {kind: model.confidence(kind, device) for kind in mine}
            left -= mine
    if left:
        raise MissingData(f"no operator model prices {', '.join(sorted(left))}")
    computing, moving = roofline(everything, device)
    return PricedOps(
        listing, listing.per_op(seconds), listing.per_op(computing), listing.per_op(moving), confidence
    )


def price_all(
    listings: Sequence[Listing], device: Device, models: Sequence[OperatorModel]
) -> tuple[PricedOps, ...]:
    """Several listings priced in one call; the prices are those of separate calls."""
    whole = price(concatenate(tuple(listings)), device, models)
    if len(listings) == 1:
        return (whole,)
    return tuple(
        PricedOps(listing, whole.seconds[low:high], whole.computing[low:high], whole.moving[low:high],
                  {kind: whole.confidence[kind] for kind in listing.works.kinds})
        for listing, (low, high) in zip(listings, pairwise(bounds(listings)), strict=True)
    )  # fmt: skip


def once_per_device(method: Callable[[Any, Device], float]) -> Callable[[Any, Device], float]:
    """A method of a calibration whose figure for a device is computed once."""
    name = f"_{method.__name__}_by_device"

    @wraps(method)
    def kept(self: Any, device: Device) -> float:
        figures = self.__dict__.setdefault(name, {})
        if device not in figures:
            figures[device] = method(self, device)
        return float(figures[device])

    return kept
