"""Makes `calibrations/products.json` and `products_trees.npz`; errors on held-out shapes and GPU families."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from calibration.datasets import aiconfigurator, amd_kernels, deepbench, neusight, projections
from calibration.datasets.measurements import Measurements, shape_key
from calibration.files import data_used, folder, spread
from calibration.kernels import tf32
from calibration.kernels.products_fit import (
    Harness,
    ProductFit,
    Sample,
    bandwidth_without_family,
    fit,
    fit_trees,
    samples,
    thinned,
)
from foretrain.facts.calibrations import Forest, calibration_content
from foretrain.facts.devices import Device
from foretrain.prediction.operators import streaming
from foretrain.prediction.operators.matrix import FILE as FILE
from foretrain.prediction.operators.matrix import TREES as TREES_FILE
from foretrain.prediction.operators.matrix import (
    UNITS,
    ProductCalibration,
    calibration,
    correction_key,
    tree_correction,
)
from foretrain.prediction.operators.pricing import Floats

FOLDS = 3
_JUDGED_ROWS = 2500
Shape = tuple[float, float, float, float]
"""batch, m, n, k."""


CORRECTED = ("lanes", "tensor")
"""Units with corrections: FP8 times include casts, which trees would learn as kernels."""


@dataclass(frozen=True, eq=False)
class Corpus:
    """Measured products: those that constants are fitted to, and those that only give a device's share."""

    measurements: tuple[Measurements, ...]
    fitted: Mapping[str, tuple[Sample, ...]]
    extra: Mapping[str, tuple[Sample, ...]]
    start_cycles: Mapping[str, float]


@dataclass(frozen=True, eq=False)
class Predictions:
    """A sample, and its prediction by a fit that had not seen its shapes (or its device)."""

    sample: Sample
    seconds: Floats


def corpus(data: Path) -> Corpus:
    """Read all data sets.

    Of estimate-train-time only products of activations are fitted to: they have no other source in half
    precision and are bound by tiles and memory. Its linear layers are bursts that training does not reach.
    """
    cycles = {"nvidia": aiconfigurator.start_cycles(data), "amd": amd_kernels.start_cycles(data)}
    fp32, half = neusight.read_products(data), aiconfigurator.read_products(data)
    sustained, bursts = projections.read_sustained(data), projections.read_bursts(data)
    bursts = bursts.where(~np.char.startswith(bursts.labels, "linear"))
    tuned, older = amd_kernels.read_products(data), deepbench.read_products(data)
    tuned = tuned.where(~amd_kernels.is_capped(tuned))
    main = [
        *samples(fp32, Harness(shows_host=True)),
        *samples(half, Harness(casts=True)),
        *samples(sustained),
        *samples(bursts, Harness(is_burst=True)),
        *samples(tuned),
    ]
    extra = samples(older)
    return Corpus(
        (fp32, half, sustained, bursts, tuned, older),
        {unit: tuple(part for part in main if part.unit == unit) for unit in UNITS},
        {unit: tuple(part for part in extra if part.unit == unit) for unit in UNITS},
        cycles,
    )


def fits(known: Corpus) -> dict[str, ProductFit]:
    """One fit per unit."""
    return {
        unit: fit(unit, known.fitted[unit], known.start_cycles, known.extra[unit], kin(known, unit))
        for unit in UNITS
    }


def kin(known: Corpus, name: str, without: str = "") -> list[Sample]:
    """AMD's samples of the other tensor unit, without a family: one library has the kernels of all types."""
    other = {"tensor": "fp8", "fp8": "tensor"}.get(name)
    parts = known.fitted[other] if other else ()
    return [part for part in parts if part.device.vendor == "amd" and part.device.family != without]


def shape_unseen(known: Corpus, name: str) -> list[Predictions]:
    """Every main sample of a unit as predicted by fits that had not seen its shapes, on any device."""
    predicted = [np.full(len(part.seconds), np.nan) for part in known.fitted[name]]
    folds = [_folds(part, known.measurements) for part in known.fitted[name]]
    for number in range(FOLDS):
        seen = [part.at(fold != number) for part, fold in zip(known.fitted[name], folds, strict=True)]
        learned = fit(name, seen, known.start_cycles, kin=kin(known, name))
        trees = forests_of(seen, learned) if name in CORRECTED else {}
        for part, fold, result in zip(known.fitted[name], folds, predicted, strict=True):
            result[fold == number] = _corrected(part.at(fold == number), learned, trees)
    return [Predictions(part, result) for part, result in zip(known.fitted[name], predicted, strict=True)]


def _corrected(part: Sample, learned: ProductFit, trees: Mapping[str, Forest]) -> Floats:
    """A sample as predicted by a fit and its trees."""
    predicted = learned.kernel_seconds(part)
    for is_plain in (False, True):
        mine, forest = (
            part.work.is_plain == is_plain,
            trees.get(correction_key(part.unit, part.device, is_plain)),
        )
        if forest is not None and mine.any():
            predicted[mine] *= tree_correction(forest, part.work.at(mine), part.device, predicted[mine])
    return learned.shown(part, predicted)


def forests_of(parts: Sequence[Sample], learned: ProductFit) -> dict[str, Forest]:
    """The corrections of NVIDIA's kernels: of plain products and of layers of each compute capability.

    AMD's times are those of the fastest of all kernels, whose shapes say little about a library's choice.
    """
    grouped: dict[str, list[Sample]] = {}
    for part in parts:
        for is_plain in (False, True):
            chosen = part.at(part.work.is_plain == is_plain)
            if len(chosen.seconds) and part.device.vendor == "nvidia":
                grouped.setdefault(correction_key(part.unit, part.device, is_plain), []).append(chosen)
    return {
        name: fit_trees(group, [learned.kernel_seconds(part) for part in group])
        for name, group in sorted(grouped.items())
    }


def _folds(part: Sample, measurements: Sequence[Measurements]) -> np.ndarray[Any, Any]:
    works = next(each for each in measurements if each.source == part.source).works
    return np.array([shape_key(works[row]) % FOLDS for row in part.positions.tolist()])


def device_unseen(known: Corpus, name: str) -> list[Predictions]:
    """Every main sample of a unit as predicted by a fit that had not seen its device, nor its family."""
    parts = known.fitted[name]
    without: dict[str, ProductFit] = {}
    for family in sorted({part.device.family for part in parts}):
        rest, extra = (
            [part for part in group if part.device.family != family] for group in (parts, known.extra[name])
        )
        without[family] = fit(name, rest, known.start_cycles, extra, kin(known, name, without=family))
    results = []
    for part in parts:
        learned = without[part.device.family]
        predicted = learned.kernel_seconds(part, bandwidth_without_family(part.device))
        results.append(Predictions(part, learned.shown(part, predicted)))
    return results


def calibration_without_family(
    known: Corpus, target: Device, memory: streaming.StreamingCalibration
) -> ProductCalibration:
    """The calibration had no device of the target's family been measured: FP32 refitted without them.

    Of the other units, which the target's own measurements do not touch, the shipped constants are kept.
    """
    kept, extra = (
        [part for part in parts["lanes"] if part.device.family != target.family]
        for parts in (known.fitted, known.extra)
    )
    without = calibration().without(target)
    units = {**without.units, "lanes": fit("lanes", kept, known.start_cycles, extra).unit}
    return replace(without, units=units, memory=memory)


def calibration_without_shapes(known: Corpus, shapes: Collection[Shape]) -> ProductCalibration:
    """The calibration with corrections of FP32 products fitted without these shapes (batch, m, n, k)."""
    shipped = calibration()
    lanes = shipped.units["lanes"]
    unseen = []
    for part in known.fitted["lanes"]:
        work = part.work
        rows = zip(work.batch.tolist(), work.m.tolist(), work.n.tolist(), work.k.tolist(), strict=True)
        unseen.append(part.at(np.array([shape not in shapes for shape in rows], bool)))
    refitted = forests_of(unseen, ProductFit(lanes, lanes.shares))
    return replace(shipped, corrections={**shipped.corrections, **refitted})


def _spread(predicted: Sequence[Predictions]) -> dict[str, float]:
    measured = np.concatenate([each.sample.seconds for each in predicted])
    return spread(measured, np.concatenate([each.seconds for each in predicted]))


def of_vendor(known: Corpus, vendor: str) -> Corpus:
    """The measurements of one vendor's devices; constants are fitted by vendor, so others add nothing."""
    fitted, extra = (
        {name: tuple(part for part in parts if part.device.vendor == vendor) for name, parts in group.items()}
        for group in (known.fitted, known.extra)
    )
    return replace(known, fitted=fitted, extra=extra)


def thin(known: Corpus) -> Corpus:
    """At most `_JUDGED_ROWS` rows of each sample: what quantiles of errors need."""
    fitted = {
        name: tuple(thinned(part, _JUDGED_ROWS) for part in parts) for name, parts in known.fitted.items()
    }
    return replace(known, fitted=fitted)


def calibrate(data: Path) -> Mapping[str, Any]:
    """The content of the calibration file."""
    known = corpus(data)
    learned = fits(known)
    judged = thin(known)
    seen = [each for name in UNITS for each in shape_unseen(judged, name)]
    unseen = [each for name in UNITS for each in device_unseen(judged, name)]
    _write_trees(known, learned)
    return {
        "model": "products",
        "data": data_used(known.measurements),
        "residuals_of": "measured / predicted; seen: by shape, unseen: by family of GPU left out",
        "residuals": {"seen": _spread(seen), "unseen": _spread(unseen)},
        "tf32": tf32.calibrate(data, learned["tensor"].unit),
        "training": _training(),
        "casts_in_fp8_times": {name: asdict(cast) for name, cast in learned["fp8"].casts.items()},
        "corrected": list(CORRECTED),
        "units": {name: _unit(fitted) for name, fitted in learned.items()},
    }


def without_kernelbench() -> Mapping[str, Any]:
    """The entries without KernelBench, the one source of TF32 kernels: fed as well as half precision's."""
    return {"tf32": {"flop_per_cycle": tf32.NO_LIMIT}}


def without_neusight(data: Path) -> Mapping[str, Any]:
    """The entries without NeuSight: DeepBench, of which else only shares are used, has FP32 products, too.

    They are too few for corrections.
    """
    known = corpus(data)
    parts = known.extra["lanes"]
    own = [part for part in parts if part.device.vendor == "nvidia"]
    learned = fit("lanes", own, known.start_cycles, [part for part in parts if part not in own])
    corrected = [name for name in CORRECTED if name != "lanes"]
    return {"corrected": corrected, "units": {**calibration_content(FILE)["units"], "lanes": _unit(learned)}}


def _unit(fitted: ProductFit) -> dict[str, Any]:
    return {
        "vendors": {
            vendor: {"constants": asdict(each.constants), "power_limit": asdict(each.power_limit)}
            for vendor, each in fitted.unit.vendors.items()
        },
        "shares": dict(fitted.unit.shares),
    }


def _training() -> dict[str, Any]:
    """The energy of a FLOP in training, as shipped: `calibration.steps.training_power` fits it to steps."""
    shipped: dict[str, Any] = calibration_content(FILE)["training"]
    return shipped


def _write_trees(known: Corpus, learned: Mapping[str, ProductFit]) -> None:
    """Write the corrections beside the calibration: fitted to all measurements of each unit and device."""
    arrays: dict[str, np.ndarray[Any, Any]] = {}
    for name in CORRECTED:
        for prefix, forest in forests_of(known.fitted[name], learned[name]).items():
            arrays |= forest.arrays(prefix + "/")
    np.savez_compressed(folder() / TREES_FILE, **arrays)  # type: ignore[arg-type]
