"""PROFET: training steps of 15 CNNs in Keras on M60, T4, K80 and V100, FP32, batch 16-256, 32-256 px.

Three questions, each answered by a harness fitted on the other cases only: a GPU none of whose steps were
seen; a network none of whose steps were seen; batches 128 and 256 of a network timed at up to 64 on the same
GPU.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np
from calibration.steps.few_timings import KNOWN_UP_TO, fit_spreads, harness_seconds, predict_sizes, sequences
from calibration.steps.generation_speed import GenerationSpeed, generation_speed
from calibration.steps.keras_harness import fit_harness
from calibration.steps.profet_pricing import GPUS, OTHER_MODELS, PricedStep, measured, priced_steps, table

from foretrain.errors import ForetrainError
from foretrain.estimates import Quantiles
from foretrain.facts.devices import device
from foretrain.learning.regression.table import sample_of, table_of
from foretrain.learning.regression.techniques._base import techniques
from foretrain.prediction.operators.pricing import Flags, Floats
from validation.report import Case, Metrics, SuiteReport, metrics
from validation.splitting import by_group, intervals, leave_out, worst

HERE, STRICT = "foretrain", "foretrain, GPU forgotten"
END_TO_END, SCALED, LINE = "end-to-end regression", "roofline, scaled", "straight line in the batch"
_LARGEST = 256
_FAMILIES = ("AlexNet", "Inception", "ResNet", "VGG")
_NOTES = (
    "Every case is the median of 9 repeats, which scatter by 1.3 %; 1,304 cases.",
    "A GPU left out has none of its steps in the harness's fit. The operator models know T4 and V100 from "
    "other data sets (NeuSight, DeepBench), Maxwell from an M40 and a Titan X, and Kepler not at all: its "
    "slowness is taken from single layers Justus timed on a K40 and a K80. 'GPU forgotten' does without all "
    "of it: no share of peak or bandwidth measured on the GPU's family, and Kepler from the K40 alone.",
    "The end-to-end regression is of one network and image size: fitted on its steps on the other GPUs (on "
    "the smaller batches); it cannot predict a network without timings. Cases it refuses (below zero) are "
    "not counted in its row. The per-layer regression predicts only GPUs it was fitted to.",
    "What no method here can know: cuDNN picks other algorithms from one batch to the next (ResNetSmall's "
    "1x1 gradients on K80 and M60 take as long at batch 256 as at 128), and falls back to slow ones when "
    "memory runs out (AlexNet and VGG at the largest batch that fits).",
)


def run(data: Path) -> SuiteReport:
    """Fit, leave out, compare."""
    steps = priced_steps(data)
    speed = generation_speed(data)
    by_set: dict[str, dict[str, Metrics]] = {}
    notes = list(_NOTES)
    cases = [
        *_gpu_out(steps, speed, by_set, notes),
        *_model_out(steps, speed, by_set, notes),
        *_larger_batches(steps, data, by_set, notes),
    ]
    return SuiteReport("profet", tuple(cases), by_set, notes=tuple(notes))


def _gpu_out(
    steps: Sequence[PricedStep],
    speed: GenerationSpeed,
    by_set: dict[str, dict[str, Metrics]],
    notes: list[str],
) -> list[Case]:
    gpus = [item.step.device_id for item in steps]
    predicted = {HERE: _leave_out(steps, gpus, speed), STRICT: _forgotten(steps, speed)}
    predicted |= _peers(steps, gpus) | {END_TO_END: _regression_on_other_gpus(steps)}
    cases = _cases(steps, gpus, predicted)
    by_set["leave GPU out"] = _metrics(cases)
    for gpu, group in by_group(cases).items():
        by_set[f"leave GPU out, {gpu}"] = _metrics(group)
    notes.append(f"Worst, GPU left out: {worst(cases, HERE, _why)}.")
    return cases


def _model_out(
    steps: Sequence[PricedStep],
    speed: GenerationSpeed,
    by_set: dict[str, dict[str, Metrics]],
    notes: list[str],
) -> list[Case]:
    model_cases: list[Case] = []
    for name, groups in (
        ("leave model out", [item.step.model for item in steps]),
        ("leave family of models out", [_family(item.step.model) for item in steps]),
    ):
        cases = _cases(steps, groups, {HERE: _leave_out(steps, groups, speed), **_peers(steps, groups)})
        by_set[name] = _metrics(cases)
        model_cases = model_cases or cases
        notes.append(f"Worst, {name}: {worst(cases, HERE, _why)}.")
    return model_cases


def _larger_batches(
    steps: Sequence[PricedStep], data: Path, by_set: dict[str, dict[str, Metrics]], notes: list[str]
) -> list[Case]:
    predicted = harness_seconds(steps, data)
    spreads = fit_spreads(steps, predicted)
    predictions = predict_sizes(steps, predicted, KNOWN_UP_TO, KNOWN_UP_TO + 1, _LARGEST, spreads)
    regression = _regression_on_small_batches(steps)
    line = _straight_line(steps)
    cases = []
    for prediction in predictions:
        step = steps[prediction.index].step
        by_method = {
            HERE: prediction.p50 * step.seconds,
            "foretrain without the timings": float(predicted[prediction.index]),
            END_TO_END: float(regression[prediction.index]),
            LINE: float(line[prediction.index]),
        }
        interval = Quantiles(
            prediction.p10 * step.seconds, prediction.p50 * step.seconds, prediction.p90 * step.seconds
        )
        cases.append(
            Case(_name(steps[prediction.index]), step.device_id, step.seconds, _known(by_method), interval)
        )
    by_set["batch 128 and 256 from up to 64"] = _metrics(cases)
    for gpu, group in by_group(cases).items():
        by_set[f"batch 128 and 256 from up to 64, {gpu}"] = _metrics(group)
    notes.append(f"Worst, larger batches: {worst(cases, HERE, _why_batch)}.")
    return cases


def _leave_out(steps: Sequence[PricedStep], groups: Sequence[str], speed: GenerationSpeed) -> Floats:
    columns, seconds = table(steps, {name: speed.of(device(name)) for name in GPUS}), measured(steps)

    def predict(others: Flags, group: str) -> Floats:
        del group
        return fit_harness(columns.where(others), seconds[others], len(GPUS)).seconds(columns)

    return leave_out(groups, len(steps), predict)


def _forgotten(steps: Sequence[PricedStep], speed: GenerationSpeed) -> Floats:
    """With nothing from any data set on the GPU's family but its published bandwidth."""
    predicted = np.zeros(len(steps))
    for gpu in GPUS:
        here = np.array([item.step.device_id == gpu for item in steps])
        slowness = {name: speed.of(device(name), gpu) for name in GPUS}
        columns, seconds = table(steps, slowness, gpu), measured(steps)
        predicted[here] = fit_harness(columns.where(~here), seconds[~here], len(GPUS)).seconds(columns)[here]
    return predicted


def _peers(steps: Sequence[PricedStep], groups: Sequence[str]) -> dict[str, Floats]:
    """The models of the literature as they are, and the roofline with a factor and a constant fitted."""
    seconds = measured(steps)
    peers = {name: np.array([item.others.get(name, np.nan) for item in steps]) for name in OTHER_MODELS}
    rows = np.stack([peers["roofline"], np.ones(len(steps))], axis=1)

    def predict(others: Flags, group: str) -> Floats:
        del group
        weighted = rows[others] / seconds[others][:, None]
        scaled: Floats = rows @ np.linalg.lstsq(weighted, np.ones(int(others.sum())), rcond=None)[0]
        return scaled

    return peers | {SCALED: leave_out(groups, len(steps), predict)}


def _regression_on_other_gpus(steps: Sequence[PricedStep]) -> Floats:
    """Ardagna's regression of each network on the other GPUs."""
    predicted = np.full(len(steps), np.nan)
    networks = {(item.step.model, item.step.image_size) for item in steps}
    for network in sorted(networks):
        same_network = [
            index for index, item in enumerate(steps) if (item.step.model, item.step.image_size) == network
        ]
        for gpu in GPUS:
            here = [index for index in same_network if steps[index].step.device_id == gpu]
            _regress(steps, [index for index in same_network if index not in here], here, predicted)
    return predicted


def _regression_on_small_batches(steps: Sequence[PricedStep]) -> Floats:
    """Ardagna's regression of each network and GPU on its small batches."""
    predicted = np.full(len(steps), np.nan)
    for group in sequences(steps):
        small = [index for index in group if steps[index].step.batch <= KNOWN_UP_TO]
        _regress(steps, small, [index for index in group if index not in small], predicted)
    return predicted


def _regress(
    steps: Sequence[PricedStep], known: Sequence[int], wanted: Sequence[int], predicted: Floats
) -> None:
    linear = techniques()["linear"]
    with suppress(ForetrainError):
        sample = sample_of(table_of([_row(steps[index]) for index in known]), "seconds", ("device", "batch"))
        model = linear.fit(sample, linear.grid()[0])
        for index in wanted:
            row = {name: value for name, value in _row(steps[index]).items() if name != "seconds"}
            with suppress(ForetrainError):
                seconds = float(model.predict(sample.schema.encode([row]))[0])
                predicted[index] = seconds if seconds > 0 else np.nan


def _row(item: PricedStep) -> dict[str, object]:
    return {"device": item.step.device_id, "batch": item.step.batch, "seconds": item.step.seconds}


def _straight_line(steps: Sequence[PricedStep]) -> Floats:
    """A line in the batch through the small batches of each network and GPU, relative errors least."""
    predicted = np.full(len(steps), np.nan)
    for group in sequences(steps):
        small = [index for index in group if steps[index].step.batch <= KNOWN_UP_TO]
        if len(small) < 2:
            continue
        sizes = np.array([steps[index].step.batch for index in small], float)
        seconds = np.array([steps[index].step.seconds for index in small])
        line = np.polyfit(sizes, seconds, 1, w=1 / seconds)
        for index in group:
            predicted[index] = float(np.polyval(line, steps[index].step.batch))
    return predicted


def _cases(steps: Sequence[PricedStep], groups: Sequence[str], predicted: dict[str, Floats]) -> list[Case]:
    bounds = intervals(groups, measured(steps), predicted[HERE])
    return [
        Case(
            _name(item),
            groups[index],
            item.step.seconds,
            _known({method: float(values[index]) for method, values in predicted.items()}),
            bounds[index],
        )
        for index, item in enumerate(steps)
    ]


def _known(by_method: dict[str, float]) -> dict[str, float]:
    return {method: value for method, value in by_method.items() if value > 0}


def _metrics(cases: Sequence[Case]) -> dict[str, Metrics]:
    """Each method on the cases it predicts."""
    methods = dict.fromkeys(method for case in cases for method in case.predicted)
    return {
        method: metrics([case for case in cases if method in case.predicted], method, method == HERE)
        for method in methods
    }


def _name(item: PricedStep) -> str:
    step = item.step
    return f"{step.model} {step.image_size} px batch {step.batch} on {step.device_id}"


def _family(model: str) -> str:
    return next((name for name in _FAMILIES if model.startswith(name) and model != "ResNetSmall"), model)


def _why(case: Case) -> str:
    model, size, *_ = case.name.split()
    if model == "MobileNetV2":
        return "depthwise kernels of TensorFlow's own, in no other network"
    if "k80" in case.name and int(size) <= 64:
        return "turning filters around on Kepler"
    if int(size) <= 64:
        return "kernels of microseconds: their start and the host decide"
    return "an algorithm cuDNN chose"


def _why_batch(case: Case) -> str:
    if case.predicted[HERE] < case.measured:
        return "memory nearly full, or launches hid the growth at small batches"
    return "another algorithm chosen at the larger batch"
