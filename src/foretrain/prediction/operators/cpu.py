"""Operators on a CPU, priced by a calibration of the machine (`foretrain calibrate --here`).

A CPU runs operators one after the other. The time of an operator is a sum of terms of its family:

    t = Σ_i c_i · x_i,   c_i >= 0

The terms x_i grow with the work: calls, multiplications, borders of a product's blocks, bytes within and
beyond the caches. A product of m x n x k that does not fill its blocks costs
mnk (1 + m0/m) (1 + n0/n) (1 + k0/k), which to first order is a sum over mnk, nk, mk and mn. One set of
non-negative seconds per term, measured on the machine, thus predicts all shapes of a family, and more work
never takes less time. No prediction is faster than the best rates measured on the machine: FLOP/s of any
operator, bytes/s of the fastest cache. The call is part of the price, since a CPU has no separate launches.

Reference for the terms: K. Goto, R. van de Geijn, "Anatomy of high-performance matrix multiplication", TOMS
34 (3), 2008.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np

from foretrain.errors import InvalidData, MissingData
from foretrain.facts.devices import Device
from foretrain.facts.user_data import read_kept, user_data_dir, write_atomically
from foretrain.persisted import read_json_object, restore
from foretrain.prediction.operators.pricing import Confidence, Floats, Knowledge, OperatorModel, WorkTable
from foretrain.workloads.ops import MATRIX_KINDS, Direction, Kind, Work, keys_per_query

Terms = dict[str, Floats]

CALLS = "call"
"""Calls of an operator: one; the steps of recurrent layers are separate terms."""
MMAP_THRESHOLD_BYTES = 32 * 2**20
"""glibc maps larger tensors at each allocation, page by page (DEFAULT_MMAP_THRESHOLD_MAX in malloc.c)."""
_IN_PLACE = frozenset({Kind.OPTIMIZER})
_VECTOR_CHANNELS = 8
"""Channels of a block in oneDNN's convolutions with 256-bit vectors; images with fewer stay unblocked."""
_DEPTHWISE_CHANNELS = 2
_COLOURS = 3
_SMALL_KERNEL = 9
_LSTM_GATES = 4
_FORWARD, _BACKWARD = "forward", "backward"
_PASSES = {
    Direction.INPUT_GRADIENT: "input gradient",
    Direction.WEIGHT_GRADIENT: "weight gradient",
    Direction.BACKWARD: _BACKWARD,
}
_TRANSPOSED = {_FORWARD: "input gradient", "input gradient": _FORWARD}


def family(work: Work) -> str:
    """The family of operators that a work belongs to: kind, variant and direction."""
    variant = _VARIANTS.get(work.kind)
    passes = _PASSES.get(work.direction, _FORWARD)
    if work.kind is Kind.MATMUL or work.kind is Kind.OPTIMIZER:
        return work.kind.value
    if work.kind is Kind.CONVOLUTION and work.dims.get("transposed"):
        passes = _TRANSPOSED.get(passes, passes)
    elif work.kind not in (Kind.CONVOLUTION, Kind.LINEAR) and passes != _FORWARD:
        passes = _BACKWARD
    return f"{variant(work) if variant else work.kind.value} {passes}"


def _convolution_variant(work: Work) -> str:
    """The code path of oneDNN: few channels, single pixels, larger kernels, groups, products."""
    groups, inputs = work.dims.get("groups", 1), work.dims["in_channels"]
    pixels = math.prod(work.dims.get(f"kernel_{axis}", 1) for axis in ("depth", "height", "width"))
    if _is_unrolled(work):
        return "unrolled convolution"
    if groups == 1:
        first = "first " if inputs < _VECTOR_CHANNELS else ""
        return f"{first}convolution" if first or pixels > 1 else "pointwise convolution"
    if inputs // groups > _DEPTHWISE_CHANNELS:
        return "grouped convolution"
    return "depthwise convolution" if pixels <= _SMALL_KERNEL else "wide depthwise convolution"


def _is_unrolled(work: Work) -> bool:
    """Whether oneDNN unrolls images to columns and multiplies matrices, sample by sample.

    So it does with sequences, and with the gradient of weights that are wider than the image.
    """
    dims = work.dims
    if dims.get("groups", 1) > 1 or dims.get("kernel_width", 1) == 1:
        return False
    is_narrow = dims.get("width", dims["out_width"]) < dims["kernel_width"]
    return "kernel_height" not in dims or (is_narrow and work.direction is Direction.WEIGHT_GRADIENT)


def _norm_variant(work: Work) -> str:
    return "batch normalisation" if work.dims.get("over_batch") else "normalisation"


def _attention_variant(work: Work) -> str:
    return "attention with dropout" if work.dims.get("dropout") else "attention"


def _recurrent_variant(work: Work) -> str:
    """oneDNN runs whole LSTM layers; other cells are called step by step."""
    return "lstm" if work.dims["gates"] == _LSTM_GATES else "other rnn"


_VARIANTS: Mapping[Kind, Callable[[Work], str]] = {
    Kind.CONVOLUTION: _convolution_variant,
    Kind.NORMALISATION: _norm_variant,
    Kind.ATTENTION: _attention_variant,
    Kind.RNN: _recurrent_variant,
}


_SUBSTITUTES = {
    "first convolution": "convolution",
    "unrolled convolution": "convolution",
    "pointwise convolution": "convolution",
    "grouped convolution": "convolution",
    "wide depthwise convolution": "depthwise convolution",
    "depthwise convolution": "grouped convolution",
    "batch normalisation": "normalisation",
    "attention with dropout": "attention",
    "lstm": "other rnn",
}
"""The variants that replace variants that were not timed."""
_DIRECTIONS = (" input gradient", " weight gradient", " backward", " forward", "")


def nearest_family(name: str, known: Mapping[str, object]) -> str | None:
    """The family itself if it was timed, else its variant in another direction, else a substitute."""
    direction = next(end for end in _DIRECTIONS if name.endswith(end))
    variant: str | None = name.removesuffix(direction)
    while variant is not None:
        for end in (direction, *_DIRECTIONS):
            if variant + end in known:
                return variant + end
        variant = _SUBSTITUTES.get(variant)
    return None


def terms(works: WorkTable, cache_bytes: float) -> Terms:
    """The terms of works of one family."""
    kind = works.works[0].kind
    build = _TERMS.get(kind, _streaming)
    return {CALLS: np.ones(len(works)), **build(works, cache_bytes)}


def fresh_bytes(works: WorkTable) -> Floats:
    """Bytes written to newly mapped memory, where every page is a page fault."""
    in_place = works.where(_IN_PLACE)
    return np.where((works.write_bytes > MMAP_THRESHOLD_BYTES) & ~in_place, works.write_bytes, 0.0)


def _moving(works: WorkTable, cache_bytes: float) -> Terms:
    within = np.minimum(works.bytes, cache_bytes)
    return {"byte in cache": within, "byte in memory": works.bytes - within}


def _streaming(works: WorkTable, cache_bytes: float) -> Terms:
    elements = np.maximum(works.flop, works.dim("elements", 0))
    return {"element": elements, "tensor": works.dim("tensors", 0), **_moving(works, cache_bytes)}


def _product(works: WorkTable, cache_bytes: float) -> Terms:
    batch, m, n, k = (works.dim(name) for name in ("batch", "m", "n", "k"))
    return {
        "FLOP": works.flop,
        "product": batch,
        "m x n": batch * m * n,
        "m x k": batch * m * k,
        "n x k": batch * n * k,
        **_moving(works, cache_bytes),
    }


def _padding(channels: Floats, groups: Floats) -> Floats:
    """Factor of oneDNN's padding of channels to whole vectors; few channels without groups are not padded."""
    padded = np.ceil(channels / _VECTOR_CHANNELS) * _VECTOR_CHANNELS
    is_plain = (channels < _VECTOR_CHANNELS) & ((groups == 1) | (channels <= _DEPTHWISE_CHANNELS))
    return np.where(is_plain, 1.0, padded / channels)


def _image_padding(works: WorkTable) -> Floats:
    """Further factor of gradients of images with few channels: 8 / channels.

    The forward pass takes such images as they are; the gradient of the weights those of three channels.
    """
    channels = works.dim("in_channels")
    to_weights = works.directed(Direction.WEIGHT_GRADIENT)
    is_forward = works.directed(Direction.FORWARD)
    is_padded = (works.dim("groups") == 1) & (channels < _VECTOR_CHANNELS) & ~is_forward
    return np.where(is_padded & ~(to_weights & (channels == _COLOURS)), _VECTOR_CHANNELS / channels, 1.0)


def _convolution(works: WorkTable, cache_bytes: float) -> Terms:
    flop = works.flop
    groups = works.dim("groups")
    inputs, outputs = works.dim("in_channels") / groups, works.dim("out_channels") / groups
    kernel = works.dim("kernel_depth") * works.dim("kernel_height") * works.dim("kernel_width")
    weights = works.dim("out_channels") * inputs * kernel
    is_unrolled = np.array([_is_unrolled(work) for work in works.works])
    padded = flop * _padding(inputs, groups) * _padding(outputs, groups)
    return {
        "FLOP": padded,
        "FLOP on padding": np.where(is_unrolled, 0.0, padded * (_image_padding(works) - 1)),
        "FLOP / in": flop / inputs,
        "FLOP / out": flop / outputs,
        "FLOP / row": flop / works.dim("out_width"),
        "FLOP / kernel": flop / kernel,
        "strided FLOP": np.where(works.dim("stride_width") > 1, flop, 0.0),
        "weight": weights,
        "weight of a sample": np.where(is_unrolled, works.dim("batch") * weights, 0.0),
        **_moving(works, cache_bytes),
    }


def _attention(works: WorkTable, cache_bytes: float) -> Terms:
    """PyTorch's CPU kernels compute nearly all scores of a causal mask or a window."""
    of_all = [
        dims["keys"] / keys_per_query(dims["keys"], dims.get("causal", 0) > 0, dims.get("window", 0))
        for dims in (work.dims for work in works.works)
    ]
    computed = works.flop * np.array(of_all)
    scores = works.dim("batch") * works.dim("heads") * works.dim("queries") * works.dim("keys")
    return {"FLOP": computed, "score": scores, "head": works.dim("batch") * works.dim("heads"),
            **_moving(works, cache_bytes)}  # fmt: skip


def _recurrent(works: WorkTable, cache_bytes: float) -> Terms:
    steps = works.dim("steps") * works.dim("layers") * works.dim("directions")
    hidden, gates = works.dim("hidden"), works.dim("gates")
    return {
        "FLOP": works.flop,
        "step": steps,
        "gate": steps * works.dim("batch") * hidden * gates,
        "weight of a step": steps * hidden * hidden * gates,
        **_moving(works, cache_bytes),
    }


_TERMS: Mapping[Kind, Callable[[WorkTable, float], Terms]] = {
    Kind.LINEAR: _product,
    Kind.MATMUL: _product,
    Kind.CONVOLUTION: _convolution,
    Kind.ATTENTION: _attention,
    Kind.RNN: _recurrent,
}


FORMAT = 1


@dataclass(frozen=True)
class FamilyFit:
    """Seconds per term of one family of operators, and the errors on shapes that were not fitted.

    `p10` and `p90` are quantiles of measured / predicted, each shape predicted by a fit to the others.
    """

    seconds_per: Mapping[str, float]
    cases: int
    mean_absolute_error: float
    p10: float
    p90: float


@dataclass(frozen=True)
class CpuCalibration:
    """The calibration of a CPU.

    The peaks are the best rates of any operator, with bytes in cache and in memory: no prediction is faster.
    `seconds_per_fresh_byte` is the cost of newly mapped memory. `threads` and `software` describe what was
    timed.
    """

    device_id: str
    threads: int
    flop_per_second: float
    bytes_per_second: float
    memory_bytes_per_second: float
    cache_bytes: float
    seconds_per_fresh_byte: float
    families: Mapping[str, FamilyFit]
    software: Mapping[str, str]
    measured_on: str


def calibration_file(device_id: str) -> Path:
    """The file of the calibration of a CPU."""
    return user_data_dir() / "calibrations" / f"cpu-{device_id}.json"


def keep(calibration: CpuCalibration) -> Path:
    """Store a calibration, atomically replacing the previous one."""
    file = calibration_file(calibration.device_id)
    write_atomically(file, json.dumps({"format": FORMAT, **asdict(calibration)}, indent=1) + "\n")
    return file


def calibration_of(device: Device) -> CpuCalibration:
    """The calibration of a CPU; `MissingData` without one."""
    known = read_kept(calibration_file(device.id), _read)
    if known is None:
        raise MissingData(_not_calibrated(device))
    return known


def _not_calibrated(device: Device) -> str:
    if device.is_this_machine:
        return "this machine's CPU is not calibrated; run `foretrain calibrate --here`"
    return (
        f"{device.id} is not calibrated; only a machine's own CPU can be: run `foretrain calibrate --here` "
        "on it, then predict on the device `here`"
    )


def _read(file: Path) -> CpuCalibration:
    raw = read_json_object(file, "a calibration", "run `foretrain calibrate --here` again")
    try:
        if raw.get("format") != FORMAT:
            raise ValueError("another version of foretrain wrote it")
        return restore(CpuCalibration, raw)
    except ValueError as error:
        problem = f"cannot be read ({error}); run `foretrain calibrate --here` again"
        raise InvalidData(str(file), problem) from error


KIND = "cpu"
"""The kind of CPU devices."""
_MEASURED_TYPES = frozenset({"float32", "tf32"})
"""Types that products were timed in; TF32 exists on GPUs only, a CPU computes it as FP32."""


class CpuModel(OperatorModel):
    """Prices all kinds with rules on a calibrated CPU."""

    name: ClassVar[str] = "cpu"
    kinds: ClassVar[frozenset[Kind]] = frozenset(Kind) - {Kind.VIEW, Kind.UNKNOWN}
    device_kinds: ClassVar[frozenset[str]] = frozenset({KIND})

    def seconds(self, works: WorkTable, device: Device) -> Floats:
        """Seconds of each work, including its call."""
        _refuse_untimed_types(works)
        known = calibration_of(device)
        names = np.array([_timed_family(family(work), known) for work in works.works])
        seconds = least_seconds(works, known)
        for name in sorted(set(names.tolist())):
            mine = names == name
            predicted = family_seconds(works.rows(mine), known, name)
            seconds[mine] = np.maximum(seconds[mine], predicted)
        return seconds

    def confidence(self, kind: Kind, device: Device) -> Confidence:
        """The residuals of the kind's families, weighted by the number of timed shapes."""
        known = calibration_of(device)
        mine = [fit for name, fit in known.families.items() if _kind_of(name) is kind]
        fits = mine or list(known.families.values())
        cases = [fit.cases for fit in fits]
        p10 = float(np.average([fit.p10 for fit in fits], weights=cases))
        p90 = float(np.average([fit.p90 for fit in fits], weights=cases))
        return Confidence(Knowledge.CALIBRATED, min(p10, 1.0), max(p90, 1.0), f"calibrate --here: {kind}")


def family_seconds(works: WorkTable, known: CpuCalibration, name: str) -> Floats:
    """The times of works of a family by its fit."""
    values = terms(works, known.cache_bytes)
    seconds = fresh_bytes(works) * known.seconds_per_fresh_byte
    for term, each in known.families[name].seconds_per.items():
        if term in values:
            seconds += each * values[term]
    return seconds


def least_seconds(works: WorkTable, known: CpuCalibration) -> Floats:
    """The roofline with the best rates measured on the machine, in any cache."""
    return np.maximum(works.flop / known.flop_per_second, works.bytes / known.bytes_per_second)


def _refuse_untimed_types(works: WorkTable) -> None:
    untimed = {work.dtype for work in works.works if work.kind in MATRIX_KINDS} - _MEASURED_TYPES
    if untimed:
        raise MissingData(
            f"products in {', '.join(sorted(untimed))} are not calibrated on CPUs; use precision fp32"
        )


def _timed_family(name: str, known: CpuCalibration) -> str:
    timed = nearest_family(name, known.families)
    if timed is None:
        raise MissingData(f"{name} was not timed on {known.device_id}; run `foretrain calibrate --here`")
    return timed


def _kind_of(name: str) -> Kind | None:
    """The kind of a family, from its name."""
    words = name.replace("lstm", Kind.RNN.value).split()
    return next((kind for kind in Kind if kind.value in words), None)
