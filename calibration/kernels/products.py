"""Makes `calibrations/products.json` and `products_trees.npz`; errors on held-out shapes and GPU families."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from calibration.datasets import aiconfigurator, deepbench, neusight
from calibration.datasets.measurements import Measurements, shape_key
from calibration.files import data_used, folder, spread
from calibration.kernels.products_fit import (
    ProductFit,
    Sample,
    bandwidth_without_family,
    fit,
    fit_trees,
    least_seconds,
    modelled,
    samples,
    share_of,
)
from foretrain.facts.devices import Device
from foretrain.prediction.operators import streaming
from foretrain.prediction.operators.corrections import FILE as TREES_FILE
from foretrain.prediction.operators.corrections import Forest, apply, key
from foretrain.prediction.operators.listing import Floats
from foretrain.prediction.operators.matrix import FILE as FILE
from foretrain.prediction.operators.matrix import Calibration, Unit, calibration
from foretrain.prediction.operators.products import ProductConstants

FOLDS = 3
Shape = tuple[float, float, float, float]
"""batch, m, n, k."""


@dataclass(frozen=True, eq=False)
class Corpus:
    """Measured products: those that constants are fitted to, and those that only give a device's share."""

    measurements: tuple[Measurements, ...]
    fitted: Mapping[str, tuple[Sample, ...]]
    extra: Mapping[str, tuple[Sample, ...]]
    start_cycles: float


@dataclass(frozen=True, eq=False)
class Predictions:
    """A sample, and its prediction by a fit that had not seen its shapes (or its device)."""

    sample: Sample
    seconds: Floats


def corpus(data: Path) -> Corpus:
    """Read all data sets."""
    cycles = aiconfigurator.start_cycles(data)
    fp32, half = neusight.read_products(data), aiconfigurator.read_products(data)
    older = deepbench.read_products(data)
    main = [*samples(fp32, has_harness=True), *samples(half, has_harness=False)]
    extra = samples(older, has_harness=False)
    return Corpus(
        (fp32, half, older),
        {unit: tuple(part for part in main if part.unit == unit) for unit in ("lanes", "tensor", "fp8")},
        {unit: tuple(part for part in extra if part.unit == unit) for unit in ("lanes", "tensor", "fp8")},
        cycles,
    )


def fits(known: Corpus) -> dict[str, ProductFit]:
    """One fit per unit; FP8 runs on the tensor cores with its own shares."""
    learned = {
        unit: fit(known.fitted[unit], known.start_cycles, known.extra[unit]) for unit in ("lanes", "tensor")
    }
    shares = {part.device.id: share_of(part, learned["tensor"].constants) for part in known.fitted["fp8"]}
    return learned | {"fp8": ProductFit(learned["tensor"].constants, shares, learned["tensor"].limit)}


def unit(name: str, learned: ProductFit) -> Unit:
    """A fit as the model uses it."""
    return Unit(name, learned.constants, learned.limit, learned.shares)


def shape_unseen(known: Corpus, name: str) -> list[Predictions]:
    """Every main sample of a unit as predicted by fits that had not seen its shapes, on any device."""
    predicted = [np.full(len(part.seconds), np.nan) for part in known.fitted[name]]
    folds = [_folds(part, known.measurements) for part in known.fitted[name]]
    for number in range(FOLDS):
        seen = [part.at(fold != number) for part, fold in zip(known.fitted[name], folds, strict=True)]
        learned = fit(seen, known.start_cycles)
        for part, fold, result in zip(known.fitted[name], folds, predicted, strict=True):
            result[fold == number] = _corrected(part.at(fold != number), part.at(fold == number), learned)
    return [Predictions(part, result) for part, result in zip(known.fitted[name], predicted, strict=True)]


def _corrected(seen: Sample, rest: Sample, learned: ProductFit) -> Floats:
    """The rest of a sample as predicted by a fit, and by trees fitted to the seen part."""
    share = learned.shares[seen.device.id]
    predicted = modelled(rest, learned.constants, share)
    for is_plain, forest in forests_of(seen, learned.constants, share).items():
        mine = rest.work.is_plain == is_plain
        predicted[mine] = apply(forest, rest.work.at(mine), rest.device, predicted[mine])
    return rest.show(np.maximum(predicted, least_seconds(rest)))


def forests_of(part: Sample, known: ProductConstants, share: float) -> dict[bool, Forest]:
    """The corrections fitted to a sample: of plain products and of layers, where it has them."""
    predicted = modelled(part, known, share)
    return {
        is_plain: fit_trees(
            part.at(part.work.is_plain == is_plain), predicted[part.work.is_plain == is_plain]
        )
        for is_plain in sorted(set(part.work.is_plain.tolist()))
    }


def _folds(part: Sample, measurements: Sequence[Measurements]) -> np.ndarray[Any, Any]:
    works = next(each for each in measurements if each.source == part.source).works
    return np.array([shape_key(works[row]) % FOLDS for row in part.positions.tolist()])


def device_unseen(known: Corpus, name: str) -> list[Predictions]:
    """Every main sample of a unit as predicted by a fit that had not seen its device, nor its family."""
    results = []
    for left_out in known.fitted[name]:
        family = left_out.device.family

        def others(parts: Sequence[Sample], family: str = family) -> list[Sample]:
            return [part for part in parts if part.device.family != family]

        learned = fit(others(known.fitted[name]), known.start_cycles, others(known.extra[name]))
        share = unit(name, learned).share(left_out.device)
        bandwidth = bandwidth_without_family(left_out.device)
        predicted = modelled(left_out, learned.constants, share, bandwidth)
        predicted = np.maximum(predicted, least_seconds(left_out))
        results.append(Predictions(left_out, left_out.show(predicted)))
    return results


def calibration_without_family(known: Corpus, target: Device, memory: streaming.Calibration) -> Calibration:
    """The calibration had no device of the target's family been measured: FP32 refitted without them.

    Of the other units, which the target's own measurements do not touch, the shipped constants are kept.
    """
    kept, extra = (
        [part for part in parts["lanes"] if part.device.family != target.family]
        for parts in (known.fitted, known.extra)
    )
    without = calibration().without(target)
    units = {**without.units, "lanes": unit("lanes", fit(kept, known.start_cycles, extra))}
    return replace(without, units=units, memory=memory)


def calibration_without_shapes(known: Corpus, shapes: Collection[Shape]) -> Calibration:
    """The calibration with corrections of FP32 products fitted without these shapes (batch, m, n, k)."""
    shipped = calibration()
    lanes, refitted = shipped.units["lanes"], dict(shipped.corrections)
    for part in known.fitted["lanes"]:
        work = part.work
        rows = zip(work.batch.tolist(), work.m.tolist(), work.n.tolist(), work.k.tolist(), strict=True)
        unseen = part.at(np.array([shape not in shapes for shape in rows], bool))
        for is_plain, forest in forests_of(unseen, lanes.constants, lanes.share(part.device)).items():
            refitted[key("lanes", part.device, is_plain)] = forest
    return replace(shipped, corrections=refitted)


def _spread(predicted: Sequence[Predictions]) -> dict[str, float]:
    measured = np.concatenate([each.sample.seconds for each in predicted])
    return spread(measured, np.concatenate([each.seconds for each in predicted]))


def calibrate(data: Path) -> Mapping[str, Any]:
    """The content of the calibration file."""
    known = corpus(data)
    learned = fits(known)
    seen = [each for name in ("lanes", "tensor") for each in shape_unseen(known, name)]
    unseen = [each for name in ("lanes", "tensor") for each in device_unseen(known, name)]
    _write_trees(known, learned)
    return {
        "model": "products",
        "data": data_used(known.measurements),
        "residuals_of": "measured / predicted; seen: by shape, unseen: by family of GPU left out",
        "residuals": {"seen": _spread(seen), "unseen": _spread(unseen)},
        "units": {
            name: {
                "constants": asdict(each.constants),
                "power_limit": asdict(each.limit),
                "shares": dict(each.shares),
            }
            for name, each in learned.items()
        },
    }


def _write_trees(known: Corpus, learned: Mapping[str, ProductFit]) -> None:
    """Write the corrections beside the calibration: fitted to all measurements of each unit and device."""
    arrays: dict[str, np.ndarray[Any, Any]] = {}
    for name in ("lanes", "tensor"):
        for part in known.fitted[name]:
            share = learned[name].shares[part.device.id]
            for is_plain, forest in forests_of(part, learned[name].constants, share).items():
                arrays |= forest.arrays(key(name, part.device, is_plain) + "/")
    np.savez_compressed(folder() / TREES_FILE, **arrays)  # type: ignore[arg-type]
