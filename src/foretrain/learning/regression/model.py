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
from foretrain.facts.user_data import write_atomically
from foretrain.learning.regression.columns import DEVICE, Feature, Schema, device_figures
from foretrain.learning.regression.techniques._base import Parameters, Predictor, techniques

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
    write_atomically(file, json.dumps(content, allow_nan=False) + "\n")


def is_model_file(file: Path) -> bool:
    """Whether a file looks like a model of any format and not like a table."""
    return file.suffix == ".json"


def load(file: Path) -> LearnedModel:
    """The model of a file; a file of something else, of another version or damaged is refused."""
    if not file.is_file():
        raise MissingData(f"no model {file}; `foretrain learn` makes one and writes it with `save`")
    try:
        raw = json.loads(file.read_text(encoding="utf-8"))
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise InvalidData(str(file), f"is not a learned model: {error}") from error
    if not isinstance(raw, dict) or raw.get("format") != FORMAT:
        raise InvalidData(
            str(file), f"is not a learned model (format {FORMAT}); `foretrain learn` saves such files"
        )
    if raw.get("version") != VERSION:
        raise InvalidData(
            str(file),
            f"is of version {raw.get('version')}; this foretrain reads version {VERSION}: learn it again",
        )
    try:
        return _model(raw)
    except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
        raise InvalidData(str(file), f"is damaged: {error}") from error


def _model(raw: Mapping[str, Any]) -> LearnedModel:
    features = tuple(
        Feature(
            str(each["name"]), tuple(str(name) for name in each["categories"]), float(each["low"]),
            float(each["high"]), bool(each["of_device"]),
        )
        for each in raw["features"]
    )  # fmt: skip
    schema = Schema(features, dict(raw["fixed"]))
    technique = techniques()[raw["technique"]]
    p10, p90 = float(raw["interval"]["p10"]), float(raw["interval"]["p90"])
    if not 0 <= p10 <= 1 <= p90:
        raise ValueError(f"an interval from {p10} to {p90} times the prediction")
    return LearnedModel(
        technique=technique.name,
        parameters=dict(raw["parameters"]),
        target=str(raw["target"]),
        schema=schema,
        predictor=technique.read(raw["model"], schema),
        evidence=Evidence(**raw["evidence"]),
        p10=p10,
        p90=p90,
    )
