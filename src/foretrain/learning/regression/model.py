"""A learned model: rows in, seconds with an interval out; kept as a JSON file.

The file holds numbers, names and, for gradient boosting, LightGBM's text: nothing in it is executed. It
states its format and version; what does not match is refused with the reason.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from foretrain.errors import InvalidData, MissingData
from foretrain.estimates import Quantiles
from foretrain.facts.user_data import write_output
from foretrain.learning.regression.columns import DEVICE, Feature, Schema, device_figures
from foretrain.learning.regression.techniques._base import Parameters, Predictor, techniques
from foretrain.persisted import read_json_object, restore

FORMAT, VERSION = "foretrain-regression", 1


@dataclass(frozen=True)
class Evidence:
    """What a model was learned from and judged on: `error` is its mean relative error on rows left out."""

    source: str
    timings: int
    configurations: int
    split: str
    error: float | None = None


@dataclass(frozen=True, eq=False)
class LearnedModel:
    """A fitted technique. `p10` and `p90` are factors from rows left out (conformal)."""

    technique: str
    parameters: Parameters
    target: str
    schema: Schema
    predictor: Predictor
    evidence: Evidence
    p10: float = 1.0
    p90: float = 1.0

    def predict(self, rows: Sequence[Mapping[str, object]]) -> tuple[Quantiles, ...]:
        """The target of every row, with its interval; rows it cannot answer are errors."""
        if not rows:
            return ()
        values = self.predictor.predict(self.schema.encode(rows))
        for row, value in zip(rows, values.tolist(), strict=True):
            if not value > 0:
                raise MissingData(
                    f"the {self.technique} model is not above 0 at {dict(row)}: its {self.evidence.timings} "
                    f"timings ({self._ranges()}) are too far away; time a run nearer by"
                )
        return tuple(Quantiles(value * self.p10, value, value * self.p90) for value in values.tolist())

    def beyond(self, row: Mapping[str, object]) -> tuple[str, ...]:
        """In what a row lies beyond everything that was timed."""
        return self.schema.outside(self.schema.encode([row])[0])

    @property
    def formula(self) -> str:
        """The model as an equation; empty where it has none."""
        text = self.predictor.formula()
        return f"{self.target} = {text}" if text else ""

    @property
    def devices(self) -> tuple[str, ...]:
        """Ids of the devices that were timed."""
        feature = self.schema.with_role(DEVICE)
        if feature is not None:
            return feature.categories
        return tuple(
            known[0]
            for name, value in self.schema.fixed.items()
            if Feature(name).role == DEVICE and (known := device_figures(str(value))) is not None
        )

    def _ranges(self) -> str:
        return ", ".join(f"{each.name} {each.low:g} to {each.high:g}" for each in self.schema.numbers())


def save(model: LearnedModel, file: Path) -> None:
    """Write a model as JSON."""
    content = {
        "format": FORMAT,
        "version": VERSION,
        "technique": model.technique,
        "parameters": dict(model.parameters),
        "target": model.target,
        "features": [asdict(feature) for feature in model.schema.features],
        "fixed": dict(model.schema.fixed),
        "interval": {"p10": model.p10, "p90": model.p90},
        "evidence": asdict(model.evidence),
        "model": model.predictor.to_plain(),
    }
    write_output("`save`", file, json.dumps(content, allow_nan=False) + "\n")


def is_model_file(file: Path) -> bool:
    """Whether a file looks like a model of any format and not like a table."""
    return file.suffix == ".json"


def load(file: Path) -> LearnedModel:
    """The model of a file; a file of something else, of another version or damaged is refused."""
    if not file.is_file():
        raise MissingData(f"no model {file}; `foretrain learn` makes one and writes it with `save`")
    raw = read_json_object(file, "a learned model")
    if raw.get("format") != FORMAT:
        raise InvalidData(
            str(file), f"is not a learned model (format {FORMAT}); `foretrain learn` saves such files"
        )
    if raw.get("version") != VERSION:
        raise InvalidData(
            str(file),
            f"is of version {raw.get('version')}; this foretrain reads version {VERSION}: learn it again",
        )
    try:
        return _model(restore(_Saved, raw))
    except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
        raise InvalidData(str(file), f"is damaged: {error}") from error


@dataclass(frozen=True)
class _Factors:
    """The interval as factors of the prediction."""

    p10: float
    p90: float

    def __post_init__(self) -> None:
        if not 0 <= self.p10 <= 1 <= self.p90:
            raise ValueError(f"an interval from {self.p10} to {self.p90} times the prediction")


@dataclass(frozen=True)
class _Saved:
    """A model as its file has it; `model` is read by its technique."""

    technique: str
    parameters: dict[str, int | float | str]
    target: str
    features: tuple[Feature, ...]
    fixed: dict[str, int | float | str]
    interval: _Factors
    evidence: Evidence
    model: dict[str, Any]


def _model(saved: _Saved) -> LearnedModel:
    schema = Schema(saved.features, saved.fixed)
    technique = techniques()[saved.technique]
    return LearnedModel(
        technique=technique.name,
        parameters=saved.parameters,
        target=saved.target,
        schema=schema,
        predictor=technique.read(saved.model, schema),
        evidence=saved.evidence,
        p10=saved.interval.p10,
        p90=saved.interval.p90,
    )
