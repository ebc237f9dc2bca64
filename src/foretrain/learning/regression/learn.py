"""`learn`: from a table of timings to the model that predicts rows it has not seen best."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from foretrain.answers import Answer
from foretrain.encoding import encode
from foretrain.errors import InvalidRequest
from foretrain.learning.regression.model import Evidence, LearnedModel
from foretrain.learning.regression.selection import (
    ALL,
    RANDOM,
    Judged,
    conformal_factors,
    folds,
    judge,
    possible_splits,
)
from foretrain.learning.regression.table import Sample
from foretrain.learning.regression.techniques._base import Parameters, Technique, techniques

Progress = Callable[[str], None]
LEAST_TO_CHOOSE = 5
"""With fewer rows a technique cannot be chosen by rows that are left out."""


@dataclass(frozen=True, kw_only=True)
class SplitError:
    """Relative errors of a technique on the rows that a split leaves out.

    `selection` is the mean inside the training rows, by which techniques are ranked.
    """

    selection: float
    mean: float
    median: float
    p90: float
    rows: int


@dataclass(frozen=True, kw_only=True)
class Ranked:
    """A technique with its errors on each split; `formula` is that of the fit to all rows."""

    technique: str
    about: str
    parameters: Parameters
    errors: Mapping[str, SplitError]
    formula: str


@dataclass(frozen=True, kw_only=True)
class HeldOut:
    """A row that was left out: what it is, what was measured and what was predicted of it."""

    row: Mapping[str, object]
    measured: float
    predicted: float


@dataclass(frozen=True, kw_only=True)
class LearnAnswer(Answer):
    """Techniques ranked on the first split, the best fitted to all rows, and its rows left out.

    `left_out` says what each split leaves out, `skipped` why a technique took no part.
    """

    source: str
    target: str
    timings: int
    configurations: int
    features: tuple[str, ...]
    splits: tuple[str, ...]
    left_out: Mapping[str, str]
    ranking: tuple[Ranked, ...]
    model: LearnedModel = field(repr=False)
    coverage: float
    held_out: tuple[HeldOut, ...] = field(repr=False)
    skipped: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def best(self) -> Ranked:
        """The technique that was chosen."""
        return self.ranking[0]

    def to_dict(self) -> dict[str, Any]:
        """The answer as plain data; of the model its technique, formula and interval."""
        names = ("source", "target", "timings", "configurations", "features", "splits", "left_out", "ranking",
                 "coverage", "held_out", "skipped", "notes")  # fmt: skip
        content: dict[str, Any] = {name: encode(getattr(self, name)) for name in names}
        content["model"] = {
            "technique": self.model.technique,
            "parameters": dict(self.model.parameters),
            "formula": self.model.formula,
            "interval": {"p10": self.model.p10, "p90": self.model.p90},
        }
        return content

    def summary(self) -> tuple[tuple[str, str], ...]:
        """The choice, its errors and its formula."""
        errors = [
            (f"error, {split}", f"{error.mean:.1%} (median {error.median:.1%}) of {error.rows} rows")
            for split, error in self.best.errors.items()
        ]
        formula = [("formula", self.model.formula)] if self.model.formula else []
        interval = f"{self.model.p10:.2f} to {self.model.p90:.2f} of the prediction"
        return (("technique", self.best.technique), *errors, ("80 % interval", interval), *formula)


def learn(
    sample: Sample,
    splits: Sequence[str] = (RANDOM,),
    names: Sequence[str] = (),
    progress: Progress = lambda _: None,
) -> LearnAnswer:
    """Judge all techniques (or those named) on every split; choose by the first, fit to all rows."""
    if len(sample) < LEAST_TO_CHOOSE:
        raise InvalidRequest(
            f"{sample.source}: {len(sample)} configurations are too few to judge a model on rows left out: "
            f"give at least {LEAST_TO_CHOOSE}"
        )
    wanted = possible_splits(sample) if ALL in splits else tuple(dict.fromkeys(splits))
    described = {split: _describe_split(sample, split) for split in wanted}
    chosen, skipped = _applicable(sample, names)
    judged = {split: judge(sample, split, chosen, progress) for split in wanted}
    first = judged[wanted[0]]
    ranking = tuple(_rank_techniques(sample, each, judged) for each in first)
    best = first[0]
    progress(f"fitting {best.technique} to all rows")
    model = fit_technique(sample, best, first_error=float(best.errors(sample).mean()))
    out = np.flatnonzero(np.isfinite(best.predicted))
    ratios = sample.measured[out] / np.maximum(best.predicted[out], 1e-300)
    return LearnAnswer(
        source=sample.source,
        target=sample.target,
        timings=sample.timings,
        configurations=len(sample),
        features=sample.schema.names,
        splits=wanted,
        left_out=described,
        ranking=ranking,
        model=model,
        coverage=float(np.mean((ratios >= model.p10) & (ratios <= model.p90))),
        held_out=tuple(
            HeldOut(
                row=_row(sample, index),
                measured=float(sample.measured[index]),
                predicted=float(best.predicted[index]),
            )
            for index in out.tolist()
        ),
        skipped=skipped,
        notes=sample.notes,
    )


def fit_technique(sample: Sample, chosen: Judged, first_error: float | None = None) -> LearnedModel:
    """The technique of a judgement fitted to all rows, with the interval of its rows left out."""
    p10, p90 = conformal_factors(sample.measured, chosen.predicted)
    return LearnedModel(
        technique=chosen.technique,
        parameters=chosen.parameters,
        target=sample.target,
        schema=sample.schema,
        predictor=techniques()[chosen.technique].fit(sample, chosen.parameters),
        evidence=Evidence(sample.source, sample.timings, len(sample), chosen.split, first_error),
        p10=p10,
        p90=p90,
    )


def _applicable(sample: Sample, names: Sequence[str]) -> tuple[tuple[Technique, ...], dict[str, str]]:
    wanted = [techniques()[name] for name in names] or list(techniques().values())
    skipped = {each.name: each.lacks(sample.schema) for each in wanted if each.lacks(sample.schema)}
    kept = tuple(each for each in wanted if each.name not in skipped)
    if not kept:
        listed = "; ".join(f"{name} needs {reason}" for name, reason in skipped.items())
        raise InvalidRequest(f"no technique can learn from {sample.source}: {listed}")
    return kept, skipped


def _rank_techniques(sample: Sample, judged: Judged, by_split: Mapping[str, Sequence[Judged]]) -> Ranked:
    technique = techniques()[judged.technique]
    errors = {}
    for split, results in by_split.items():
        result = next(each for each in results if each.technique == judged.technique)
        off = result.errors(sample)
        errors[split] = SplitError(
            selection=result.selection_error,
            mean=float(off.mean()),
            median=float(np.median(off)),
            p90=float(np.quantile(off, 0.9)),
            rows=len(off),
        )
    return Ranked(
        technique=judged.technique,
        about=technique.about,
        parameters=judged.parameters,
        errors=errors,
        formula=technique.fit(sample, judged.parameters).formula(),
    )


def _describe_split(sample: Sample, split: str) -> str:
    made = folds(sample, split)
    if split == RANDOM:
        return f"each row once, in {len(made)} parts"
    return ", ".join(fold.left_out for fold in made)


def _row(sample: Sample, index: int) -> dict[str, object]:
    row: dict[str, object] = {}
    for feature, value in zip(sample.schema.features, sample.rows[index].tolist(), strict=True):
        if not feature.of_device:
            row[feature.name] = feature.categories[int(value)] if feature.is_text else value
    return row
