"""Corrections of steps in mixed precision, fitted to whole steps.

In half precision only products and attention were measured as single kernels. The times of convolutions,
norms and elementwise kernels under autocast are fitted to whole steps of hundreds of networks:

    t = max( roofline, t_model · factor of its kernel class · factor of the step )

Boosted trees predict the factor of a step from its composition (shares of kernel classes, time per launch).
They saw steps of vision models alone, so their factor is applied to the extent that a step is one:

    factor^w,  w = min( 1, share of convolutions, batch norms, pooling / `_VISION` )

and a language model, which has none of these, is left alone, as are its norms and other memory-bound kernels
(`_memory_weight`). On the GPU that they were fitted on, image transformers are corrected in full. Attention
is not corrected, since its kernels were measured. If products were measured on similar tensor cores, they are
not corrected either, and the factors of other matrix operators are relative to those of the products.

Boards for graphics (compute capability 8.6, 8.9, 12.0) run the same kernels at the clocks of their power.
Where their products were not measured, products and convolutions are scaled from the board of the fit by

    share of peak = 1 / sqrt( 1 + (energy / headroom)² )

with one energy a FLOP, that of a measured board, and the headroom as in `matrix`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from functools import cache, cached_property

import numpy as np

from foretrain.facts.calibrations import Forest, calibration_arrays, load_calibration, load_forest
from foretrain.facts.devices import Device, devices
from foretrain.prediction.operators import matrix
from foretrain.prediction.operators.matrix import headroom, kernels_of
from foretrain.prediction.operators.pricing import KINDS, Floats, Listing, PricedOps, Residuals
from foretrain.workloads.executed import fuses
from foretrain.workloads.graph import Graph
from foretrain.workloads.ops import MATRIX_KINDS, Kind

FILE, TREES = "mixed_precision.json", "mixed_precision_trees.npz"
BOUND = 0.4
"""Bound of the logarithm of the factor of a step."""
Correction = Callable[[PricedOps, Device], PricedOps]
_HALF = ("fp16", "bf16", "fp8")
"""In FP8 only linear layers differ from BF16."""
_UNIT = "tensor"
_SIMILAR = 2.0
"""Devices are similar up to this factor between their ratios of power to peak."""
_PRODUCTS = frozenset({Kind.LINEAR, Kind.MATMUL, Kind.ATTENTION})
_CLOCKED = frozenset({Kind.LINEAR, Kind.MATMUL, Kind.CONVOLUTION})
GRAPHICS = frozenset({"8.6", "8.9", "12.0"})
"""Compute capabilities of boards for graphics: tensor cores that warps feed from registers (mma.sync)."""
_VISION = 0.25
"""Share of a step in kernels of convolutional networks from which the factor of a step applies in full."""
_OF_VISION = ("convolution", "batch normalisation", "pooling", "resample")


@dataclass(frozen=True)
class MixedPrecisionCalibration:
    """The calibration: `factors` by kernel class, `products` their mean over products.

    `classes` are the features of `trees`, the name of a file of arrays if there are any.
    """

    factors: Mapping[str, float]
    products: float
    classes: tuple[str, ...]
    devices: frozenset[str]
    residuals: Residuals
    joules_per_flop: float
    trees: str | None = None

    @cached_property
    def forest(self) -> Forest | None:
        """The trees."""
        return load_forest(calibration_arrays(self.trees)) if self.trees else None

    def factor(self, kind: Kind, class_name: str, is_measured: bool) -> float:
        """The factor of a kernel class, 1 if it is unknown; `is_measured`: products on similar devices."""
        factor = self.factors.get(class_name, 1.0)
        if kind is Kind.ATTENTION:  # its kernels were measured after these factors were fitted
            return 1.0
        if kind not in MATRIX_KINDS or not is_measured:
            return factor
        return 1.0 if kind in _PRODUCTS else factor / self.products


def choose_correction(graph: Graph, device: Device) -> Correction | None:
    """The correction of a step's prices; None unless it runs in mixed precision on tensor cores."""
    if graph.options.precision not in _HALF or not device.sheet.has("fp16_tensor_flop_per_second"):
        return None
    return correct_compiled_prices if fuses(graph) else correct_prices


def correct_prices(priced: PricedOps, device: Device, is_eager: bool = True) -> PricedOps:
    """The corrected prices of a step in mixed precision."""
    known = calibration()
    least = np.maximum(priced.computing, priced.moving)
    seconds = np.maximum(priced.seconds * factors(priced, device, known), least)
    if is_eager and known.forest is not None:
        step = known.forest.predict(features(priced, seconds, known.classes)[None, :])[0]
        step = float(np.clip(step, -BOUND, BOUND)) * step_weight(priced, seconds, device, known)
        seconds = np.maximum(seconds * np.exp(step * _is_correctable(priced, device)), least)
    trust = known.residuals.confidence(is_eager and device.id in known.devices, FILE)
    return replace(priced, seconds=seconds, confidence=dict.fromkeys(priced.confidence, trust))


def correct_compiled_prices(priced: PricedOps, device: Device) -> PricedOps:
    """The corrected prices of a compiled step: by kernel class only, since no whole steps were measured."""
    return correct_prices(priced, device, is_eager=False)


def factors(priced: PricedOps, device: Device, known: MixedPrecisionCalibration) -> Floats:
    """The factor of each operator."""
    is_measured, weight = _is_measured(device), _memory_weight(priced)
    listing = priced.listing
    names, places = listing.classes
    kind_of = dict(zip(places.tolist(), listing.kinds.tolist(), strict=True))  # a class is of one kind
    of_class = [
        known.factor(kind, name, is_measured) ** (1.0 if kind in MATRIX_KINDS else weight)
        for kind, name in ((KINDS[kind_of[place]], name) for place, name in enumerate(names))
    ]
    of_power = 1.0 if is_measured else power_factors(listing, device, known.devices, known.joules_per_flop)
    return np.array([*of_class, 1.0])[places] * of_power


def power_factors(
    listing: Listing, device: Device, fitted_on: Collection[str], joules_per_flop: float
) -> Floats:
    """Time of products and convolutions over what the modelled share of a board's peak says; else 1.

    The share of a board for graphics follows from that of the boards of the fit and from the power of both;
    without any, from its power alone.
    """
    if kernels_of(device) not in GRAPHICS:
        return np.ones(len(listing.kinds))
    products = matrix.calibration()
    own = products.share(_UNIT, device) / sustained_share(device, joules_per_flop)
    fitted = [devices()[name] for name in sorted(fitted_on)]
    others = [products.share(_UNIT, other) / sustained_share(other, joules_per_flop) for other in fitted]
    factor = float(own / np.exp(np.mean(np.log(others)))) if others else own
    names, places = listing.classes
    on_lanes = np.array([*("depthwise" in name for name in names), True])[places]  # they use no tensor cores
    is_clocked = np.isin(listing.kinds, [KINDS.index(kind) for kind in _CLOCKED]) & ~on_lanes
    return np.where(is_clocked, factor, 1.0)


def sustained_share(device: Device, joules_per_flop: float) -> float:
    """The share of its tensor peak that a board sustains within its power."""
    return float(1 / np.sqrt(1 + (joules_per_flop / headroom(device, _UNIT)) ** 2))


def _memory_weight(priced: PricedOps) -> float:
    """To what extent the factors of memory-bound classes apply: in full to vision models.

    The layer norms, additions and updates of language models are as fast as `streaming` says, measured on
    A100, H100, H200 and GB200 in half precision; the factors come from the narrow rows of vision models.
    """
    return _vision_share(priced, priced.seconds) if _looks_up_tokens(priced) else 1.0


def step_weight(
    priced: PricedOps, seconds: Floats, device: Device, known: MixedPrecisionCalibration
) -> float:
    """To what extent the factor of a step applies, from 0 to 1; continuous in the times of a step."""
    if device.id in known.devices and not _looks_up_tokens(priced):
        return 1.0
    return _vision_share(priced, seconds)


def _looks_up_tokens(priced: PricedOps) -> bool:
    """Whether a step embeds tokens, as language models do."""
    return bool((priced.listing.kinds == KINDS.index(Kind.EMBEDDING)).any())


def _vision_share(priced: PricedOps, seconds: Floats) -> float:
    """The share of a step in kernels of convolutional networks, over `_VISION`; at most 1."""
    names, places = priced.listing.classes
    of_vision = np.array([*(any(part in name for part in _OF_VISION) for name in names), False])
    share = float(seconds[of_vision[places]].sum()) / max(float(seconds.sum()), 1e-12)
    return min(1.0, share / _VISION)


def _is_correctable(priced: PricedOps, device: Device) -> Floats:
    """0 for products and attention that were measured as kernels, else 1; by operator."""
    if not _is_measured(device):
        return np.ones(len(priced.seconds))
    measured = [KINDS.index(kind) for kind in _PRODUCTS]
    return np.where(np.isin(priced.listing.kinds, measured), 0.0, 1.0)


def features(priced: PricedOps, seconds: Floats, classes: tuple[str, ...]) -> Floats:
    """The features of the trees: shares of the step by class, time per launch, share of the roofline."""
    place = {name: index for index, name in enumerate(classes)}
    names, places = priced.listing.classes
    column = np.array([*(place.get(name, len(classes)) for name in names), len(classes)])
    shares = np.bincount(column[places], seconds, len(classes) + 1)[: len(classes)].astype(float)
    launches = int(np.count_nonzero(priced.listing.kernels))
    least = float(np.maximum(priced.computing, priced.moving).sum())
    return step_features(shares, float(seconds.sum()), launches, least)


def step_features(by_class: Floats, seconds: float, launches: float, least: float) -> Floats:
    """The row of features of a step, from its seconds by class."""
    total = max(seconds, 1e-12)
    return np.append(by_class / total, [np.log(total / max(launches, 1)), least / total])


@cache
def _is_measured(device: Device) -> bool:
    """Whether products were measured on similar tensor cores.

    Similar devices have the same compute capability and about the same power per FLOP: a GeForce board
    accumulates in full precision at half the rate of its chip, so that power never limits it.
    """
    known, own = devices(), headroom(device, _UNIT)
    measured = (known[name] for name in matrix.calibration().units[_UNIT].shares if name in known)
    return any(
        kernels_of(other) == kernels_of(device) and own / _SIMILAR < headroom(other, _UNIT) < own * _SIMILAR
        for other in measured
    )


@cache
def calibration() -> MixedPrecisionCalibration:
    """The shipped calibration."""
    return load_calibration(MixedPrecisionCalibration, FILE)
