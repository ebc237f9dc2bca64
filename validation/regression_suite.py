"""The two regressions from the literature, in the style of their own tables.

End-to-end regression on PROFET's training steps, one regression for each network and image size: batches of
128 and 256 from those up to 64, and a GPU from the three others (computing power). Per-layer regression on
single operators, of shapes the lines had not seen, and backward passes from the forward line and the ratio
found on other GPUs.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
from calibration.datasets.measurements import rows
from calibration.datasets.profet import DEVICES, FILE

from calibration.datasets import justus
from calibration.kernels import per_layer
from foretrain.errors import MissingData
from foretrain.estimates import Quantiles
from foretrain.facts.devices import device
from foretrain.learning.regression.end_to_end import EndToEndModel, fit
from foretrain.learning.regression.timings import Configuration, Timing
from foretrain.prediction.operators.listing import Floats
from validation.report import Case, Metrics, SuiteReport, metrics

ONE_GPU, ALL_GPUS = "end-to-end, this GPU's timings", "end-to-end, all GPUs' timings"
OTHER_GPUS, PROPORTIONAL = "end-to-end, other GPUs' timings", "proportional to batch"
BY_PEAK, PER_LAYER, BY_RATIO = "inverse to GFLOP/s", "per-layer", "per-layer, backward by ratio"
BATCH, POWER = "batch 128 and 256 from 16 to 64", "computing power"
_SMALL, _LARGE = (16, 32, 64), (128, 256)
_JUDGED = 500
"""Measurements of each layer type on each GPU that are judged, evenly picked; all are fitted to."""
_NOTES = (
    "As published (other networks, frameworks and GPUs): batch size 0.4 to 28 %, computing power 5 to 18 %; "
    "per-layer regression, summed over a network, 4.8 % on the network fitted to, 9.3 % on another.",
    "One regression for each network and image size, from all nine repeats; judged on the median of nine.",
    "A K80 has 10 % fewer GFLOP/s than an M60 and takes 1.8 times as long (median), which no function of "
    "GFLOP/s can express: computing power alone does not transfer a network from one generation to another.",
    "Three choices of the end-to-end regression were made on these PROFET steps, so its figures are "
    "optimistic: one power for a feature of fewer than four values (with x and 1/x both, a GPU left out "
    "was 38 % (K80), 54 % (M60), 272 % (T4) and 2914 % (V100) off); the thresholds of F-tests (four pairs "
    "tried); the degrees of freedom of the interval (three tried, with 68, 82 and 90 % of larger batches "
    "inside; the second was taken).",
    "A regression that predicts a negative time counts as predicting zero, and has no interval.",
    "Per-layer regression cannot predict a GPU that was not measured: hardware is no input of its lines.",
    "A line has one slope: it errs most where efficiency grows with size (convolutions, skinny products).",
    "Justus's layers (TensorFlow 1) are not in the shipped calibration; lines of their own are judged here.",
)

Runs = Mapping[tuple[str, int, str, int], Sequence[float]]
Network = tuple[str, int]


def run(data: Path) -> SuiteReport:
    """Fit, leave out, compare."""
    runs = _read(data)
    networks = sorted({(model, size) for model, size, _, _ in runs})
    batch = [case for network in networks for case in _larger_batches(runs, network)]
    power = [case for network in networks for case in _unseen_powers(runs, network)]
    refused = sum(map(_is_large, runs)) - len(batch) + len(runs) - len(power)
    by_set = {**_sets(BATCH, batch, ONE_GPU), **_sets(POWER, power, OTHER_GPUS)}
    layers: list[Case] = []
    for name, cases in _layer_sets(data):
        by_set[name] = {method: metrics(cases, method) for method in cases[0].predicted}
        layers += cases
    notes = (*_NOTES, f"{refused} configurations are refused for want of timings, and not judged.")
    return SuiteReport("regression", (*batch, *power, *layers), by_set, notes=notes)


def _sets(title: str, cases: Sequence[Case], with_interval: str) -> dict[str, dict[str, Metrics]]:
    """All cases, then by network, then by GPU."""
    groups: dict[str, list[Case]] = {title: list(cases)}
    for case in cases:
        groups.setdefault(f"{title}, {case.name.split(' ')[0]}", []).append(case)
    for case in cases:
        groups.setdefault(f"{title}, on {case.group}", []).append(case)
    return {
        name: {m: metrics(group, m, with_interval=m == with_interval) for m in group[0].predicted}
        for name, group in groups.items()
    }


def _read(data: Path) -> Runs:
    """Seconds of every repeat, by network, image size, GPU and batch."""
    seconds: dict[tuple[str, int, str, int], list[float]] = {}
    for row in rows(data / FILE):
        size = int(row["dataset"].removesuffix("dataset"))
        key = (row["model"], size, DEVICES[row["instance_name"]], int(row["batchsize"]))
        seconds.setdefault(key, []).append(float(row["batch_latency"]))
    return seconds


def _timings(runs: Runs, network: Network, gpus: Iterable[str], batches: Sequence[int]) -> list[Timing]:
    return [
        Timing(Configuration(gpu, batch=batch), seconds)
        for gpu in gpus
        for batch in batches
        for seconds in runs.get((*network, gpu, batch), ())
    ]


def _fitted(timings: Sequence[Timing]) -> EndToEndModel | None:
    try:
        return fit(timings)
    except MissingData:
        return None


def _is_large(key: tuple[str, int, str, int]) -> bool:
    return key[-1] in _LARGE


def _larger_batches(runs: Runs, network: Network) -> Iterator[Case]:
    together = _fitted(_timings(runs, network, DEVICES.values(), _SMALL))
    for gpu in DEVICES.values():
        alone = _fitted(_timings(runs, network, [gpu], _SMALL))
        for batch in _LARGE:
            if (*network, gpu, batch) in runs and alone is not None and together is not None:
                here = Configuration(gpu, batch=batch)
                last = statistics.median(runs[*network, gpu, _SMALL[-1]])
                predicted = {
                    ONE_GPU: _seconds_at(alone, here),
                    ALL_GPUS: _seconds_at(together, here),
                    PROPORTIONAL: last * batch / _SMALL[-1],
                }
                yield _case(runs, network, here, predicted, _interval(alone, here))


def _unseen_powers(runs: Runs, network: Network) -> Iterator[Case]:
    batches = (*_SMALL, *_LARGE)
    for gpu in DEVICES.values():
        others = [other for other in DEVICES.values() if other != gpu]
        model = _fitted(_timings(runs, network, others, batches))
        for batch in batches:
            known = [other for other in others if (*network, other, batch) in runs]
            if (*network, gpu, batch) in runs and known and model is not None:
                here = Configuration(gpu, batch=batch)
                predicted = {
                    OTHER_GPUS: _seconds_at(model, here),
                    BY_PEAK: _by_peak(runs, network, here, known),
                }
                yield _case(runs, network, here, predicted, _interval(model, here))


def _by_peak(runs: Runs, network: Network, here: Configuration, known: Sequence[str]) -> float:
    """The geometric mean of other GPUs' times, each scaled by the ratio of peaks."""
    logs = [
        math.log(statistics.median(runs[*network, other, int(here.batch)]) * _peak(other)) for other in known
    ]
    return math.exp(statistics.fmean(logs)) / _peak(here.device)


def _peak(gpu: str) -> float:
    return device(gpu).sheet.number("fp32_flop_per_second")


def _seconds_at(model: EndToEndModel, here: Configuration) -> float:
    """The time that the regression predicts, at least zero."""
    return max(model.seconds(here), 0.0)


def _interval(model: EndToEndModel, here: Configuration) -> Quantiles | None:
    try:
        return model.predict(here)
    except MissingData:  # below zero, where it gives no interval
        return None


def _case(
    runs: Runs, network: Network, here: Configuration, predicted: dict[str, float], interval: Quantiles | None
) -> Case:
    model, size = network
    measured = statistics.median(runs[model, size, here.device, int(here.batch)])
    name = f"{model} {size} px, batch {here.batch:g} on {here.device}"
    return Case(name, here.device, measured, predicted, interval)


def _layer_sets(data: Path) -> Iterator[tuple[str, list[Case]]]:
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
