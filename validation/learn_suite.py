"""What `foretrain learn` reaches on public timings: the four extrapolations of Ardagna 2019, cell by cell.

A cell is a network on a GPU, as in its tables (`data/ardagna_cells.toml`), and its error the mean of its
rows that were left out. PROFET has its K80 and M60 and varies batch, GPU and depth; Lambda's
TensorFlow runs vary the number of GPUs and have ten GPU types. Every model is fitted to rows before the
extrapolation only, and so are the constants of the prediction that the gray box starts from.
"""

from __future__ import annotations

import statistics
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from calibration.steps.profet_pricing import GPUS

from foretrain.errors import ForetrainError
from foretrain.learning.regression.selection import Fold, folds
from foretrain.learning.regression.table import Sample, sample_of, table_of
from foretrain.learning.regression.techniques._base import Parameters, techniques
from foretrain.learning.regression.terms import FIGURES
from foretrain.prediction.operators.pricing import Flags, Floats
from validation.learn_layers import layer_sets, profile_cases
from validation.learn_tables import LambdaRow, Profet, read_lambda, read_profet
from validation.report import Case, Metrics, SuiteReport, metrics, quantile

PUBLISHED_FILE = Path(__file__).parent / "data" / "ardagna_cells.toml"
GRAY, LINEAR, PUBLISHED, BASE = "gray-box", "linear", "Ardagna, its own cells", "foretrain's prediction alone"
_PLAIN: Parameters = {"base": "predicted"}
_LINE: Parameters = {"base": "line"}
_BY_FIGURES: Parameters = {"device": FIGURES}
"""Black boxes know a device by its figures, as Ardagna's do: a GPU never timed has no name they know."""
_DEEPER = {"ResNet34": ("ResNet18",), "VGG19": ("VGG11", "VGG13", "VGG16")}
_DEPTHS = {"ResNet18": 8, "ResNet34": 16, "VGG11": 8, "VGG13": 10, "VGG16": 13, "VGG19": 16}
"""Residual blocks and convolutions: the inner modules of PROFET's networks."""
_SMALL = 64

_NOTES = (
    "A cell is one network on one GPU (of Ardagna also one number of GPUs), its error the mean over its "
    "rows left out; PROFET's cells have up to five image sizes. The figures are mean, median and 90th "
    "percentile over cells.",
    "Batch size: batches 128 and 256 from 16, 32 and 64 of the same GPU. Black boxes are fitted to one "
    "network at one image size, as Ardagna's; the gray box to all networks of the GPU.",
    "GPU count: the most GPUs of a machine from the fewer ones, weak scaling, Lambda's TensorFlow runs.",
    "Compute power: a GPU from the others. Ardagna's GPUs are of 2014 to 2017; of PROFET's four, each is "
    "the only one of its generation. A K80 has 10 % fewer GFLOP/s than an M60 and takes 1.8 times as long, "
    "which no property of the sheets explains: cuDNN's kernels for Kepler reach less than half the share "
    "of the peak that those for Maxwell reach. Where another GPU of the generation was timed (Lambda's "
    "Turing and Ampere), the gray box carries its offset over.",
    "Inner modules: ResNet34 from ResNet18, VGG19 from VGG11, 13 and 16, of the same GPU (PROFET), ResNet-"
    "152 from ResNet-50 (Lambda). One depth of ResNet is no basis for a black box in the depth; those "
    "cells have no figure of one.",
)


def run(data: Path) -> SuiteReport:
    """All questions."""
    profet, timed = read_profet(data), read_lambda(data)
    questions = {
        "batch-size": _batch_size(profet),
        "gpu-count": _gpu_count(timed),
        "compute-power, PROFET": _compute_power_profet(profet),
        **_compute_power_lambda(timed),
        "inner-modules": [*_inner_modules(profet), *_deeper_lambda(timed)],
        "per-layer, measured profiles": profile_cases(),
    }
    by_set: dict[str, dict[str, Metrics]] = {}
    for question, cases in questions.items():
        by_set[f"{question}, cells"] = _cell_metrics(cases) | _published_metrics(question.partition(",")[0])
    both = [
        case for name in ("compute-power, PROFET", "compute-power, Lambda FP32") for case in questions[name]
    ]
    by_set["compute-power, both, cells"] = _cell_metrics(both) | _published_metrics("compute-power")
    for question in ("batch-size", "compute-power, PROFET"):
        for name in sorted({case.group.partition(" on ")[0] for case in questions[question]}):
            of_network = [case for case in questions[question] if case.group.startswith(f"{name} on ")]
            by_set[f"{question}, {name}"] = _cell_metrics(of_network)
    layers: list[Case] = []
    for name, cases in layer_sets(data):
        by_set[name] = {method: metrics(cases, method) for method in cases[0].predicted}
        layers += cases
    every = [case for cases in questions.values() for case in cases]
    notes = (*_NOTES, *(_cells_in_words(name, questions[name]) for name in ("batch-size", "gpu-count")))
    return SuiteReport("learn", (*every, *layers), by_set, notes=notes)


def _cells(cases: Sequence[Case], method: str) -> dict[str, float]:
    """The mean error of every cell a method predicts."""
    errors: dict[str, list[float]] = {}
    for case in cases:
        if method in case.predicted:
            errors.setdefault(case.group, []).append(abs(case.predicted[method] / case.measured - 1))
    return {name: statistics.fmean(values) for name, values in errors.items()}


def _cell_metrics(cases: Sequence[Case]) -> dict[str, Metrics]:
    methods = dict.fromkeys(method for case in cases for method in case.predicted)
    return {method: _over_cells(list(_cells(cases, method).values())) for method in methods}


def _over_cells(errors: Sequence[float]) -> Metrics:
    return Metrics(
        len(errors), statistics.fmean(errors), statistics.median(errors), quantile(errors, 0.9), 0.0
    )


def _published_metrics(question: str) -> dict[str, Metrics]:
    cells = published_cells().get(question)
    return {} if cells is None else {PUBLISHED: _over_cells(cells)}


def published_cells() -> dict[str, list[float]]:
    """Ardagna's cells by question, as shares."""
    raw = tomllib.loads(PUBLISHED_FILE.read_text(encoding="utf-8"))
    return {
        question: [value / 100 for row in table.values() for value in row]
        for question, table in raw.items()
        if isinstance(table, dict)
    }


def _cells_in_words(question: str, cases: Sequence[Case]) -> str:
    method = next(iter(cases[0].predicted))
    listed = (f"{name} {error:.1%}" for name, error in sorted(_cells(cases, method).items()))
    return f"Cells of {question} ({method}): {'; '.join(listed)}."


def _predict(sample: Sample, fold: Fold, technique: str, parameters: Parameters | None = None) -> Floats:
    """Rows left out by a technique fitted to the others; NaN where it refuses."""
    known = techniques()[technique]
    chosen = {**known.grid()[0], **_BY_FIGURES} if parameters is None else parameters
    try:
        return known.fit(sample.take(fold.train), chosen).predict(sample.rows[fold.test])
    except (ForetrainError, np.linalg.LinAlgError):
        return np.full(len(fold.test), np.nan)


def _case(cell: str, row: str, measured: float, predicted: Mapping[str, float]) -> Case:
    usable = {name: value for name, value in predicted.items() if np.isfinite(value) and value >= 0}
    return Case(f"{row} on {cell.partition(' on ')[2]}", cell, measured, usable)


def _text(sample: Sample, index: int, name: str) -> str:
    if name not in sample.schema.names:
        return str(sample.schema.fixed[name])
    feature = sample.schema.features[sample.schema.place(name)]
    return feature.categories[int(sample.column(name)[index])]


def _batch_size(profet: Profet) -> list[Case]:
    small = np.array([item.step.batch <= _SMALL for item in profet.steps])
    predicted = profet.predicted(small)
    cases = []
    for gpu in GPUS:
        here = profet.where("device_id", gpu)
        names = ("model", "dataset", "batch", "predicted_seconds")
        sample = sample_of(table_of(profet.rows(here, predicted, names)), "seconds", names)
        fold = folds(sample, "batch-size")[0]
        gray = _predict(sample, fold, GRAY, _PLAIN)
        lines = {name: _one_by_one(sample, fold, name) for name in (LINEAR, "nnls", "ridge")}
        for place, index in enumerate(fold.test.tolist()):
            model, dataset = _text(sample, index, "model"), _text(sample, index, "dataset")
            by_method = {
                GRAY: float(gray[place]),
                **{name: float(values[place]) for name, values in lines.items()},
                BASE: float(sample.column("predicted_seconds")[index]),
            }
            row = f"{model} {dataset}, batch {sample.column('batch')[index]:g}"
            cases.append(_case(f"{model} on {gpu}", row, float(sample.measured[index]), by_method))
    return cases


def _one_by_one(sample: Sample, fold: Fold, technique: str) -> Floats:
    """Each network and data set by a black box of its own, as Ardagna's."""
    keys = sample.rows[:, [sample.schema.place("model"), sample.schema.place("dataset")]]
    predicted = np.full(len(sample), np.nan)
    for key in np.unique(keys, axis=0):
        same = np.all(keys == key, axis=1)
        train = np.array([index for index in fold.train if same[index]], int)
        test = np.array([index for index in fold.test if same[index]], int)
        if len(train) >= 2 and len(test):
            predicted[test] = _predict(sample, Fold(train, test, ""), technique)
    return predicted[fold.test]


def _gpu_count(timed: Sequence[LambdaRow]) -> list[Case]:
    series: dict[tuple[str, str, str], dict[int, LambdaRow]] = {}
    for row in timed:
        series.setdefault((row.machine, row.precision, row.model), {})[row.gpus] = row
    long = {key: rows for key, rows in series.items() if len(rows) >= 3}
    cases = []
    for machine in sorted({(key[0], key[1]) for key in long}):
        chosen = [row for key, rows in sorted(long.items()) if key[:2] == machine for row in rows.values()]
        plain = [
            {"model": row.model, "gpus": row.gpus, "predicted_seconds": row.predicted_seconds,
             "seconds": row.seconds}
            for row in chosen
        ]  # fmt: skip
        sample = sample_of(table_of(plain), "seconds", ("model", "gpus", "predicted_seconds"))
        fold = folds(sample, "gpu-count")[0]
        gray = _predict(sample, fold, GRAY, _PLAIN)
        ernest = _per_model(sample, fold, "ernest")
        line = _per_model(sample, fold, LINEAR)
        for place, index in enumerate(fold.test.tolist()):
            model = _text(sample, index, "model")
            cell = f"{model} on {chosen[0].device}"
            label = f"{model} {machine[1]}, {sample.column('gpus')[index]:g} GPUs of {machine[0]}"
            by_method = {
                GRAY: float(gray[place]), "ernest": float(ernest[place]), LINEAR: float(line[place]),
                "same as with fewer GPUs": _nearest_fewer(sample, fold, index),
            }  # fmt: skip
            cases.append(_case(cell, label, float(sample.measured[index]), by_method))
    return cases


def _per_model(sample: Sample, fold: Fold, technique: str) -> Floats:
    models = sample.column("model")
    predicted = np.full(len(sample), np.nan)
    for model in np.unique(models):
        train = np.array([index for index in fold.train if models[index] == model], int)
        test = np.array([index for index in fold.test if models[index] == model], int)
        if len(train) >= 2 and len(test):
            predicted[test] = _predict(sample, Fold(train, test, ""), technique)
    return predicted[fold.test]


def _nearest_fewer(sample: Sample, fold: Fold, index: int) -> float:
    same = [
        each for each in fold.train.tolist() if sample.column("model")[each] == sample.column("model")[index]
    ]
    if not same:
        return float("nan")
    return float(sample.measured[max(same, key=lambda each: float(sample.column("gpus")[each]))])


def _compute_power_profet(profet: Profet) -> list[Case]:
    cases = []
    names = ("model", "dataset", "batch", "device", "predicted_seconds")
    for gpu in GPUS:
        here = profet.where("device_id", gpu)
        predicted = profet.predicted(~here)
        sample = sample_of(table_of(profet.rows(here | ~here, predicted, names)), "seconds", names)
        is_out = np.array([_text(sample, index, "device") == gpu for index in range(len(sample))])
        fold = Fold(np.flatnonzero(~is_out), np.flatnonzero(is_out), gpu)
        gray = _predict(sample, fold, GRAY, _PLAIN)
        black = {name: _one_by_one(sample, fold, name) for name in (LINEAR, "ridge")}
        for place, index in enumerate(fold.test.tolist()):
            model = _text(sample, index, "model")
            by_method = {
                GRAY: float(gray[place]),
                **{name: float(values[place]) for name, values in black.items()},
                BASE: float(sample.column("predicted_seconds")[index]),
            }
            row = f"{model} {_text(sample, index, 'dataset')}, batch {sample.column('batch')[index]:g}"
            cases.append(_case(f"{model} on {gpu}", row, float(sample.measured[index]), by_method))
    return cases


def _compute_power_lambda(timed: Sequence[LambdaRow]) -> dict[str, list[Case]]:
    questions = {}
    for precision in ("fp32", "fp16"):
        for is_compiled in (False, True):
            chosen = [
                row for row in timed
                if row.gpus == 1 and row.precision == precision and row.is_compiled == is_compiled
            ]  # fmt: skip
            name = f"compute-power, Lambda {precision.upper()}{' with XLA' if is_compiled else ''}"
            questions[name] = _unseen_devices(chosen)
    return questions


def _unseen_devices(chosen: Sequence[LambdaRow]) -> list[Case]:
    names = ("model", "device", "batch", "predicted_seconds")
    plain = [{**{name: getattr(row, name) for name in names}, "seconds": row.seconds} for row in chosen]
    sample = sample_of(table_of(plain), "seconds", names)
    cases = []
    for fold in folds(sample, "compute-power"):
        by_name = {
            GRAY: _predict(sample, fold, GRAY, _LINE),
            "ridge": _predict(sample, fold, "ridge"),
            LINEAR: _per_model(sample, fold, LINEAR),
        }
        for place, index in enumerate(fold.test.tolist()):
            model, device_id = _text(sample, index, "model"), _text(sample, index, "device")
            by_method = {name: float(values[place]) for name, values in by_name.items()}
            by_method[BASE] = float(sample.column("predicted_seconds")[index])
            row = f"{model}, batch {sample.column('batch')[index]:g}"
            cases.append(_case(f"{model} on {device_id}", row, float(sample.measured[index]), by_method))
    return cases


def _inner_modules(profet: Profet) -> list[Case]:
    deeper = np.array([item.step.model in _DEEPER for item in profet.steps])
    predicted = profet.predicted(~deeper)
    cases = []
    for gpu in GPUS:
        for model, shallower in _DEEPER.items():
            here = profet.where("device_id", gpu) & np.array(
                [item.step.model in (model, *shallower) for item in profet.steps]
            )
            cases += _deeper_cases(profet, here, predicted, model, gpu)
    return cases


def _deeper_cases(profet: Profet, here: Flags, predicted: Floats, model: str, gpu: str) -> list[Case]:
    names = ("model", "dataset", "batch", "predicted_seconds")
    rows = [{**row, "depth": _DEPTHS[row.pop("model")]} for row in profet.rows(here, predicted, names)]
    columns = ("dataset", "batch", "depth", "predicted_seconds")
    sample = sample_of(table_of(rows), "seconds", columns)
    is_out = sample.column("depth") == _DEPTHS[model]
    fold = Fold(np.flatnonzero(~is_out), np.flatnonzero(is_out), model)
    by_name = {GRAY: _predict(sample, fold, GRAY, _PLAIN)}
    if len(np.unique(sample.column("depth")[fold.train])) > 1:
        by_name |= {name: _predict(sample, fold, name) for name in (LINEAR, "nnls", "ridge")}
    cases = []
    for place, index in enumerate(fold.test.tolist()):
        by_method = {name: float(values[place]) for name, values in by_name.items()}
        by_method[BASE] = float(sample.column("predicted_seconds")[index])
        row = f"{model} {_text(sample, index, 'dataset')}, batch {sample.column('batch')[index]:g}"
        cases.append(_case(f"{model} on {gpu}", row, float(sample.measured[index]), by_method))
    return cases


def _deeper_lambda(timed: Sequence[LambdaRow]) -> list[Case]:
    """ResNet-152 from ResNet-50 of the same machine: with one depth, the gray box is a ratio."""
    cases = []
    shallow = {
        (row.machine, row.precision): row.seconds / row.predicted_seconds
        for row in timed
        if row.gpus == 1 and row.model == "resnet50"
    }
    for row in timed:
        ratio = shallow.get((row.machine, row.precision))
        if row.gpus == 1 and row.model == "resnet152" and row.precision == "fp32" and ratio is not None:
            by_method = {GRAY: row.predicted_seconds * ratio, BASE: row.predicted_seconds}
            name = f"resnet152, batch {row.batch}, {row.machine}"
            cases.append(_case(f"resnet152 on {row.device}", name, row.seconds, by_method))
    return cases
