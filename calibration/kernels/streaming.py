"""Fits the streaming model to NeuSight's vector operators and makes `calibrations/streaming.json`.

First the delivered share of bandwidth of each device from elementwise kernels alone; then, at these shares,
the cost of rows; last each device's correction of that, shrunk to none. Fits are in log space. Errors are
those on held-out shapes and on held-out GPUs.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibration.datasets import aiconfigurator, cudnn_frontend, kernelbench_layers, neusight
from calibration.datasets.measurements import Measurements
from calibration.files import data_used, spread
from calibration.kernels.convolution import UNMEASURED_DEPTHWISE_RATE, depthwise_rate
from calibration.kernels.harness import floors, observed
from calibration.least_squares import minimise
from foretrain.facts.calibrations import calibration_content, calibrations_instead
from foretrain.facts.devices import Device, device
from foretrain.prediction.operators.pricing import Floats
from foretrain.prediction.operators.streaming import FILE as FILE
from foretrain.prediction.operators.streaming import (
    GROUPS,
    PATTERNS,
    StreamConstants,
    StreamingCalibration,
    Streams,
    calibration,
    nearest_share,
    published_shares,
    stream_seconds,
    streams,
)
from foretrain.workloads.ops import Direction

_HARNESSES = ("elementwise", "softmax", "norm")
_HARNESS_OF_PATTERN = np.array([_HARNESSES.index(group) for group in GROUPS])
_ROW_PATTERNS = len(PATTERNS) - 1
_LARGE_BYTES = 1e6
_PER_PATTERN = 500
_TYPICAL_ROW_CYCLES = 3000.0
FOLDS = 3
_LARGE_NORM_BYTES = 3e7
_TYPICAL_COLUMN_BYTES = 12.0
_WELL_ABOVE = 2.0
_KIND_OF_LABEL = {"softmax": "softmax", "ln": "normalisation"}


@dataclass(frozen=True, eq=False)
class Sample:
    """What one device showed: columns of its works, seconds, harness floor."""

    device: Device
    columns: Streams
    seconds: Floats
    floor: Floats

    def at(self, rows: NDArray[np.int64]) -> Sample:
        """Only some of the works."""
        chosen = {name: getattr(self.columns, name)[rows] for name in Streams.__dataclass_fields__}
        return Sample(self.device, Streams(**chosen), self.seconds[rows], self.floor[rows])


@dataclass(frozen=True)
class StreamFit:
    """What was learned, and from which devices.

    `before` is the harness's share by group of operators, `before_on` the same on the hosts of seen devices.
    """

    constants: StreamConstants
    shares: Mapping[str, float]
    before: tuple[float, ...]
    corrections: Mapping[str, Mapping[str, tuple[float, float]]]
    before_on: Mapping[str, tuple[float, ...]]

    def share(self, target: Device) -> float:
        """The delivered share of a device, seen or not."""
        if target.id in self.shares:
            return self.shares[target.id]
        return nearest_share(target, [*published_shares(), *self.shares.items()])

    def kernel_seconds(self, sample: Sample) -> Floats:
        """Predicted kernel times."""
        constants = self.constants.corrected(self.corrections.get(sample.device.id, {}))
        return stream_seconds(sample.columns, sample.device, self.share(sample.device), constants)

    def shown(self, sample: Sample) -> Floats:
        """Predicted times as the harness shows them."""
        shares = self.before_on.get(sample.device.id, self.before)
        before = np.array(shares)[_HARNESS_OF_PATTERN[sample.columns.pattern.astype(int)]]
        return observed(self.kernel_seconds(sample), sample.floor, before)


def samples(measurements: Measurements) -> tuple[Sample, ...]:
    """The measurements by device."""
    floor = floors(measurements)
    split = []
    for name in measurements.devices:
        here = measurements.device_ids == name
        columns = streams(measurements.table.rows(here), device(name))
        split.append(Sample(device(name), columns, measurements.seconds[here], floor[here]))
    return tuple(split)


def fit(parts: Sequence[Sample], start_cycles: float, correct: bool = True) -> StreamFit:
    """Everything from the samples of the devices given."""
    start = StreamFit(_without_rows(start_cycles), {}, (0.5,) * len(_HARNESSES), {}, {})
    fitted = _fit_shares(parts, start)
    fitted = _fit_rows(parts, fitted)
    if not correct:
        return fitted
    own = {part.device.id: _fit_own(part, fitted) for part in parts}
    return replace(
        fitted,
        corrections={name: one.corrections[name] for name, one in own.items()},
        before_on={name: one.before_on[name] for name, one in own.items()},
    )


def fit_columns(data: Path, constants: StreamConstants) -> StreamConstants:
    """The constants with the bytes in flight of sums over columns: from backward norms on fast memory.

    Everything else stays as fitted; GPUs count equally. Slower memory says nothing about this limit.
    """
    norms = cudnn_frontend.read_norms(data)
    is_backward = np.array([work.direction is not Direction.FORWARD for work in norms.works], bool)
    large = norms.where(is_backward & (norms.table.bytes > _LARGE_NORM_BYTES))
    parts = [
        (target, streams(large.table.rows(here), target), large.seconds[here])
        for name in large.devices
        for target, here in ((device(name), large.device_ids == name),)
    ]
    known = calibration()

    def at(x: Floats) -> StreamConstants:
        return replace(constants, column_bytes=float(np.exp(x[0])))

    def residuals(x: Floats) -> Floats:
        return np.concatenate(
            [
                np.log(stream_seconds(columns, target, known.share(target), at(x)) / seconds)
                / np.sqrt(len(seconds))
                for target, columns, seconds in parts
            ]
        )

    return at(minimise(residuals, np.log(np.array([_TYPICAL_COLUMN_BYTES]))))


def window_elements(data: Path) -> float:
    """Elements of windows that a multiprocessor reads in a cycle, as depthwise convolutions do.

    Both are plain loops of each thread over its window. A depthwise convolution counts a multiplication and
    an addition for an element.
    """
    return depthwise_rate(kernelbench_layers.read_convolutions(data)) / 2


def without_kernelbench() -> Mapping[str, Any]:
    """The entries without KernelBench: windows are read at the rate assumed of depthwise kernels."""
    known = calibration_content(FILE)["constants"]
    return {"constants": {**known, "window_elements": UNMEASURED_DEPTHWISE_RATE / 2}}


def without_neusight(data: Path) -> Mapping[str, Any]:
    """The entries without NeuSight: kernels move bytes at published bandwidths, and rows cost nothing.

    Nothing else that was measured has elementwise kernels and softmax by shape.
    """
    none: dict[str, Any] = {"delivered_share": {}, "corrections": {}}
    with calibrations_instead({FILE: none}):
        known = calibration().constants
        constants = fit_columns(data, _without_rows(known.start_cycles))
    return {**none, "constants": asdict(replace(constants, window_elements=known.window_elements))}


def _without_rows(start_cycles: float) -> StreamConstants:
    """Constants of kernels that only move bytes."""
    bare = (1.0,) * len(PATTERNS), (0.0,) * len(PATTERNS), (0.0,) * len(PATTERNS)
    return StreamConstants(start_cycles, *bare, 1.0, 1.0, 2.0)


def _sigmoid(x: Floats) -> Floats:
    return 1 / (1 + np.exp(-x))


def _pick(part: Sample, patterns: Collection[int], per_pattern: int) -> Sample:
    """A fixed sample of the large works of some patterns."""
    generator = np.random.default_rng(0)
    chosen: list[NDArray[np.int64]] = []
    for pattern in sorted(patterns):
        is_large = part.columns.compulsory_bytes > _LARGE_BYTES
        rows = np.flatnonzero((part.columns.pattern == pattern) & is_large)
        chosen.append(generator.choice(rows, min(per_pattern, len(rows)), replace=False))
    return part.at(np.concatenate(chosen))


def _fit_shares(parts: Sequence[Sample], start: StreamFit) -> StreamFit:
    picked = [_pick(part, {0}, 3 * _PER_PATTERN) for part in parts]

    def at(x: Floats) -> StreamFit:
        values = _sigmoid(x)
        shares = {part.device.id: float(values[1 + index]) for index, part in enumerate(picked)}
        return replace(start, shares=shares, before=(float(values[0]), *start.before[1:]))

    return at(minimise(lambda x: _errors(at(x), picked), np.array([-0.3] + [1.5] * len(picked))))


def _fit_rows(parts: Sequence[Sample], start: StreamFit) -> StreamFit:
    picked = [_pick(part, range(1, len(PATTERNS)), _PER_PATTERN) for part in parts]
    n = _ROW_PATTERNS

    def at(x: Floats) -> StreamFit:
        bounded = _sigmoid(x[3 * n + 1 : 3 * n + 5])
        constants = replace(
            start.constants,
            efficiency=(1.0, *_sigmoid(x[:n]).tolist()),
            row_cycles=(0.0, *np.exp(x[n : 2 * n]).tolist()),
            chunk_cycles=(0.0, *np.exp(x[2 * n : 3 * n]).tolist()),
            crowding_midpoint=float(np.exp(x[3 * n])),
            crowding_sharpness=float(1 + 3 * bounded[0]),
            overlap=float(1 + 5 * bounded[1]),
        )
        return replace(start, constants=constants, before=(start.before[0], *bounded[2:].tolist()))

    def residuals(x: Floats) -> Floats:
        drawn = np.concatenate([0.003 * (x[n : 3 * n] - np.log(_TYPICAL_ROW_CYCLES)), 0.02 * x[3 * n + 1 :]])
        return np.concatenate([_errors(at(x), picked), drawn])

    first = np.concatenate([[2.0] * n, [np.log(3000.0)] * n, [np.log(1000.0)] * n, [-0.7, 0, 0, 0, 0]])
    return at(minimise(residuals, first))


def _fit_own(part: Sample, common: StreamFit) -> StreamFit:
    """One device's time factors of moving and turning for the row groups, and its host's harness shares."""
    picked = _pick(part, range(1, len(PATTERNS)), 2 * _PER_PATTERN)
    typical = np.log(np.array(common.before[1:]) / (1 - np.array(common.before[1:])))

    def at(x: Floats) -> StreamFit:
        pairs = np.exp(x[:4]).tolist()
        correction = {"softmax": (pairs[0], pairs[1]), "norm": (pairs[2], pairs[3])}
        before = (common.before[0], *_sigmoid(x[4:] + typical).tolist())
        return replace(common, corrections={part.device.id: correction}, before_on={part.device.id: before})

    drawn = 0.05 * np.sqrt(len(picked.seconds) / 100)
    return at(minimise(lambda x: np.concatenate([_errors(at(x), [picked]), drawn * x]), np.zeros(6)))


def _errors(fitted: StreamFit, parts: Sequence[Sample]) -> Floats:
    return np.concatenate([np.log(fitted.shown(part) / part.seconds) for part in parts])


@dataclass(frozen=True, eq=False)
class Predictions:
    """Out-of-sample predictions of every measurement, in their order, as the harness would show them.

    `device_strict` does without the published bandwidth of the device left out, too.
    """

    shape_unseen: Floats
    device_unseen: Floats
    device_strict: Floats


def cross_validate(measurements: Measurements, start_cycles: float) -> Predictions:
    """Predictions of each measurement by a fit without its shape, and by one without its GPU."""
    parts = samples(measurements)
    by_shape, by_device, strict = (np.full(len(measurements), np.nan) for _ in range(3))
    fold = measurements.fold(FOLDS)
    for number in range(FOLDS):
        learned = fit([_rows(part, measurements, fold != number) for part in parts], start_cycles)
        for part in parts:
            here = measurements.device_ids == part.device.id
            by_shape[here & (fold == number)] = learned.shown(part)[fold[here] == number]
    for left_out in parts:
        learned = fit([part for part in parts if part is not left_out], start_cycles, correct=False)
        here = measurements.device_ids == left_out.device.id
        by_device[here] = learned.shown(left_out)
        strict[here] = _without_its_bandwidth(learned, left_out.device).shown(left_out)
    return Predictions(by_shape, by_device, strict)


def _without_its_bandwidth(learned: StreamFit, target: Device) -> StreamFit:
    """The fit with the share of a device as predicted by the others only."""
    others = [row for row in (*published_shares(), *learned.shares.items()) if row[0] != target.id]
    return replace(learned, shares={**learned.shares, target.id: nearest_share(target, others)})


def calibration_without_family(
    measurements: Measurements, start_cycles: float, target: Device
) -> StreamingCalibration:
    """The calibration had no device of the target's family been measured: refitted, for the target alone."""
    parts = [part for part in samples(measurements) if part.device.family != target.family]
    learned = fit(parts, start_cycles, correct=False)
    return replace(calibration(), constants=learned.constants, delivered_share=learned.shares, corrections={})


def _rows(part: Sample, measurements: Measurements, keep: np.ndarray[Any, Any]) -> Sample:
    return part.at(np.flatnonzero(keep[measurements.device_ids == part.device.id]))


def calibrate(data: Path) -> Mapping[str, Any]:
    """The content of the calibration file."""
    measurements = neusight.read_vector_operators(data)
    cycles = aiconfigurator.start_cycles(data)
    learned: StreamFit = fit(samples(measurements), cycles)
    predicted = cross_validate(measurements, cycles)
    kinds = np.array([_KIND_OF_LABEL.get(label, "elementwise") for label in measurements.labels.tolist()])
    shows_kernel = measurements.seconds > _WELL_ABOVE * floors(measurements)
    residuals = {}
    for kind in sorted(set(kinds.tolist())):
        chosen = (kinds == kind) & shows_kernel
        residuals[kind] = {
            "seen": spread(measurements.seconds[chosen], predicted.shape_unseen[chosen]),
            "unseen": spread(measurements.seconds[chosen], predicted.device_unseen[chosen]),
        }
    return {
        "model": "streaming",
        "data": data_used([measurements]),
        "column_bytes_from": data_used([cudnn_frontend.read_norms(data)])[0],
        "residuals_of": "measured / predicted, of times twice the harness floor or more; "
        "seen: by shape, unseen: by GPU left out",
        "residuals": residuals,
        "harness_share_before_kernel": list(learned.before),
        "constants": asdict(
            replace(fit_columns(data, learned.constants), window_elements=window_elements(data))
        ),
        "delivered_share": dict(learned.shares),
        "corrections": {name: {g: list(p) for g, p in c.items()} for name, c in learned.corrections.items()},
    }
