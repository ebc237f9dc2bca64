"""Per-layer regressions judged: whole networks from profiles of this machine, single layers from data sets.

The layers in `data/layers` were timed by `validation/measure_layers.py` on one core of a shared virtual
machine. Lines fitted to one network predict the others (Ardagna: GoogLeNet's layers predict AlexNet), and
lines of all others predict one.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np

from calibration.datasets import justus
from calibration.kernels import per_layer
from foretrain.learning.regression.layers import learn_layers, read_profile
from foretrain.prediction.operators.pricing import Floats
from validation.report import Case

PROFILES = Path(__file__).parent / "data" / "layers"
OWN, ONE_OTHER, ALL_OTHERS = "its own layers", "layers of one other network", "layers of all other networks"
PER_LAYER, BY_RATIO = "per-layer", "per-layer, backward by ratio"
_JUDGED = 500
"""Measurements of each layer type on each GPU that are judged, evenly picked; all are fitted to."""


def profile_cases() -> list[Case]:
    """Every profiled network by lines of its own layers, of each other network and of all others."""
    profiles = [read_profile(file) for file in sorted(PROFILES.glob("*.json"))]
    cases = []
    for profile in profiles:
        others = [each for each in profiles if each.model != profile.model]
        own = learn_layers([profile]).predictions[0].predicted_seconds
        together = learn_layers(others, [profile]).predictions[-1].predicted_seconds
        by_method = {ALL_OTHERS: together, OWN: own}
        cases.append(Case(profile.model, profile.model, profile.step_seconds, by_method))
        for other in others:
            single = learn_layers([other], [profile]).predictions[-1].predicted_seconds
            cases.append(
                Case(f"{profile.model} from {other.model}", f"{profile.model} from {other.model}",
                     profile.step_seconds, {ONE_OTHER: single})
            )  # fmt: skip
    return cases


def layer_sets(data: Path) -> Iterator[tuple[str, list[Case]]]:
    """Single layers of shapes the lines had not seen, and backward passes by the ratio of other GPUs."""
    parts = per_layer.samples(per_layer.read(data))
    predictions = zip(parts, per_layer.shape_unseen(parts), strict=True)
    yield from _by_type("per layer, shape unseen", predictions, PER_LAYER)
    yield from _by_type("per layer, backward unseen", per_layer.backward_unseen(parts), BY_RATIO)
    convolutions = per_layer.samples([justus.read_convolutions(data)])
    predictions = zip(convolutions, per_layer.shape_unseen(convolutions), strict=True)
    yield from _by_type("per layer, shape unseen, Justus", predictions, PER_LAYER)


def _by_type(
    title: str, predictions: Iterable[tuple[per_layer.Sample, Floats]], method: str
) -> Iterator[tuple[str, list[Case]]]:
    groups: dict[str, list[Case]] = {}
    for part, predicted in predictions:
        groups.setdefault(f"{title}: {part.layer}", []).extend(_layer_cases(part, predicted, method))
    yield from ((name, cases) for name, cases in sorted(groups.items()) if cases)


def _layer_cases(part: per_layer.Sample, predicted: Floats, method: str) -> Iterator[Case]:
    known = np.flatnonzero(np.isfinite(predicted))
    picked = known[:: max(1, math.ceil(len(known) / _JUDGED))]
    for row in picked.tolist():
        name = f"{part.layer} on {part.device_id}"
        yield Case(name, part.device_id, float(part.seconds[row]), {method: float(predicted[row])})
