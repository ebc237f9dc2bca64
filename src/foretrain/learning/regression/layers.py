"""Per-layer regression on profiles: a line for each type of layer, summed to whole networks.

    t_l = b0 + b1 · c_l ,   b0, b1 >= 0 ,   t_network = Σ_l t_l

c is the complexity of the published table (operations) or foretrain's own prediction of the layer. A type of
layer is a kind of operator in one direction. What a step spends outside them is a share of their time.
Kinds that no profile has are priced by the line of elementwise operators, and named in the answer.

Reference: E. Gianniti, L. Zhang, D. Ardagna, "Performance prediction of GPU-based deep learning
applications", SBAC-PAD 2018.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from foretrain.answers import Answer
from foretrain.encoding import encode
from foretrain.errors import InvalidData, InvalidRequest, MissingData
from foretrain.persisted import Malformed, read_json_object, restore
from foretrain.prediction.operators.pricing import Floats
from foretrain.workloads.graph import Phase
from foretrain.workloads.ops import Kind

OPERATIONS, PREDICTED = "operations", "predicted"
_UNITS = {OPERATIONS: ("GFLOP", 1e9), PREDICTED: ("predicted second", 1.0)}
_LEAST_SECONDS = 1e-6
"""Bounds weights: layers of less than a microsecond would otherwise decide the line."""
_REWEIGHTINGS = 12
"""Rounds of iteratively reweighted least squares; each takes its variances from the line before."""
_PROFILE = "a profile with layers (`foretrain profile --json`)"


@dataclass(frozen=True)
class LayerTime:
    """Operators of one kind in one phase of one layer."""

    phase: str
    kind: str
    works: int
    operations: float
    measured_seconds: float
    predicted_seconds: float | None = None

    @property
    def type(self) -> str:
        """The type of layer that has a line."""
        return f"{self.kind} {self.phase}"


@dataclass(frozen=True)
class LayerProfile:
    """The layers of one profiled step; `step_seconds` is the profiled one, operators and the rest."""

    model: str
    device: str
    batch: int
    step_seconds: float
    layers: tuple[LayerTime, ...]


@dataclass(frozen=True, kw_only=True)
class LayerLine:
    """t = start + slope · c, and how many layers it was fitted to."""

    start_seconds: float
    slope: float
    layers: int


@dataclass(frozen=True, kw_only=True)
class NetworkPrediction:
    """A profiled step beside the sum of its lines; `substituted` is the share of kinds without a line."""

    model: str
    batch: int
    measured_seconds: float
    predicted_seconds: float
    is_fitted: bool
    substituted: float

    @property
    def error(self) -> float:
        """Predicted over measured, less 1."""
        return self.predicted_seconds / self.measured_seconds - 1


@dataclass(frozen=True, kw_only=True)
class LayersAnswer(Answer):
    """The lines of a device, and the networks they predict."""

    device: str
    complexity: str
    fitted: tuple[str, ...]
    lines: Mapping[str, LayerLine]
    outside_share: float
    predictions: tuple[NetworkPrediction, ...] = field(default=())

    @property
    def unit(self) -> str:
        """What c counts."""
        return _UNITS[self.complexity][0]

    @property
    def scale(self) -> float:
        """How many of c are one unit."""
        return _UNITS[self.complexity][1]

    def to_dict(self) -> dict[str, Any]:
        """The answer as plain data."""
        content: dict[str, Any] = encode(self)
        content["predictions"] = [{**encode(row), "error": row.error} for row in self.predictions]
        return content

    def summary(self) -> tuple[tuple[str, str], ...]:
        """The error of every network."""
        return tuple((f"{row.model}, batch {row.batch}", f"{row.error:+.1%}") for row in self.predictions)


@dataclass(frozen=True)
class _SavedProfile:
    """What of a profile is read: its layers are called works there."""

    model: str
    device: str
    batch: int
    traced_step_seconds: float
    works: tuple[LayerTime, ...]

    def __post_init__(self) -> None:
        for each in self.works:
            Phase(each.phase), Kind(each.kind)  # a ValueError for any other word


def read_profile(file: Path) -> LayerProfile:
    """The layers in a file that `foretrain profile --json` wrote."""
    if not file.is_file():
        raise MissingData(f"no profile {file}; `foretrain profile` makes one with `json`")
    try:
        saved = restore(_SavedProfile, read_json_object(file, _PROFILE))
    except Malformed as error:
        raise InvalidData(str(file), f"is not {_PROFILE}: {error}") from error
    return LayerProfile(saved.model, saved.device, saved.batch, saved.traced_step_seconds, saved.works)


def learn_layers(
    fitted: Sequence[LayerProfile], others: Sequence[LayerProfile] = (), complexity: str = OPERATIONS
) -> LayersAnswer:
    """Lines of all fitted profiles; every profile predicted by them."""
    devices = sorted({profile.device for profile in (*fitted, *others)})
    if len(devices) != 1:
        raise InvalidRequest(f"lines are of one device; these profiles are of {', '.join(devices) or 'none'}")
    lines = _lines(fitted, complexity)
    inside = sum(layer.measured_seconds for profile in fitted for layer in profile.layers)
    whole = sum(profile.step_seconds for profile in fitted)
    outside_share = max(0.0, whole / inside - 1) if inside else 0.0
    return LayersAnswer(
        device=devices[0],
        complexity=complexity,
        fitted=tuple(f"{profile.model} (batch {profile.batch})" for profile in fitted),
        lines=lines,
        outside_share=outside_share,
        predictions=tuple(
            _predict_network(profile, lines, outside_share, complexity, is_fitted)
            for profiles, is_fitted in ((fitted, True), (others, False))
            for profile in profiles
        ),
    )


def _complexity(layer: LayerTime, complexity: str) -> float:
    if complexity == OPERATIONS:
        return layer.operations
    if layer.predicted_seconds is None:
        raise MissingData("the profile has no prediction; learn lines of `complexity` operations")
    return layer.predicted_seconds


def _lines(profiles: Sequence[LayerProfile], complexity: str) -> dict[str, LayerLine]:
    by_type: dict[str, list[LayerTime]] = {}
    for profile in profiles:
        for layer in profile.layers:
            if layer.works and layer.measured_seconds > 0:
                by_type.setdefault(layer.type, []).append(layer)
    return {name: _line(layers, complexity) for name, layers in sorted(by_type.items())}


def _line(layers: Sequence[LayerTime], complexity: str) -> LayerLine:
    """Non-negative least squares whose variance grows with the predicted time, found by reweighting.

    Σ (t - p) / p · p = 0 at the end: the lines sum to the measured time of all layers of the type.
    """
    from scipy.optimize import nnls

    seconds: Floats = np.array([layer.measured_seconds for layer in layers])
    design = np.array([[layer.works, _complexity(layer, complexity)] for layer in layers], float)
    scale = np.maximum(design.max(axis=0), np.finfo(float).tiny)
    variance = seconds
    for _ in range(_REWEIGHTINGS):
        weight = 1 / np.sqrt(np.maximum(variance, _LEAST_SECONDS))
        slopes = nnls(design / scale * weight[:, None], seconds * weight)[0] / scale
        variance = design @ slopes
    start, slope = slopes.tolist()
    return LayerLine(start_seconds=start, slope=slope, layers=len(layers))


def _predict_network(
    profile: LayerProfile,
    lines: Mapping[str, LayerLine],
    outside_share: float,
    complexity: str,
    is_fitted: bool,
) -> NetworkPrediction:
    total, substituted = 0.0, 0.0
    for layer in profile.layers:
        line = lines.get(layer.type) or lines.get(f"{Kind.ELEMENTWISE} {layer.phase}")
        if line is None or not layer.works:
            continue
        seconds = layer.works * line.start_seconds + line.slope * _complexity(layer, complexity)
        total += seconds
        substituted += seconds if layer.type not in lines else 0.0
    return NetworkPrediction(
        model=profile.model,
        batch=profile.batch,
        measured_seconds=profile.step_seconds,
        predicted_seconds=total * (1 + outside_share),
        is_fitted=is_fitted,
        substituted=substituted / total if total else 0.0,
    )
