"""Lambda's benchmarks on 2 to 8 GPUs, predicted from one: six CNNs in TensorFlow, seven tasks in PyTorch.

The judged network is never seen on several GPUs of that machine: what they reach together is learned from
the other networks that ran there. Beside it: the GPU never seen, on any machine; what the shipped links say
of the ring with nothing of the machine known; and perfect scaling.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from pathlib import Path

import numpy as np
from calibration.clusters.machines import Extras, fit_extras
from calibration.datasets.lambda_labs_scaling import TENSORFLOW, ScalingRun, read

from calibration.collectives import jitter
from foretrain.facts.devices import device
from foretrain.prediction.operators.pricing import Floats
from validation.report import Case, Metrics, SuiteReport, metrics
from validation.splitting import intervals, worst

HERE, UNSEEN = "foretrain", "foretrain, GPU left out"
SHEETS, PERFECT = "foretrain, machine not known", "perfect scaling"
JITTER = "foretrain, machine not known, slowest worker"
_NOTES = (
    "Slowest worker: every step waits for the slowest of n. Times that vary between workers by 4.5 to 5 %"
    " explain PyTorch's runs on other GPUs best (all of them: what `predict` takes), by 5.5 to 8 % "
    "TensorFlow's.",
    "TensorFlow without XLA in FP16 is the worst: convolutional networks take twice as long on 8 RTX 2080"
    " Ti, RTX 8000 or V100 as on one, where VGG-16 and AlexNet, with ten times the gradients for their "
    "time, lose nothing, and with XLA all of them lose a tenth. It is the one host that launches for all "
    "GPUs, not the links.",
    "Machines differ more than their sheets: four A100-SXM of one cloud reach 13 to 28 % of perfect "
    "scaling in GNMT and BERT-large, those of another 91 to 98 %.",
    "Left out: NCF (broken), Transformer-XL (reported throughput is one worker's times their number). SSD"
    " of older containers is reported for one worker and counted for all. Runs above 100 % are those of "
    "one GPU that did not reach a steady state: they are kept.",
    "How strongly the three terms are held back was compared on these runs: 6.5 % with 0.01, 7.2 % with "
    "0.03, 8.4 % with 0.1.",
    "Parameters of SSD and WaveGlow and the tokens of a sentence in GNMT are rounded "
    "(`lambda_networks.toml`); what is wrong with them counts as this suite's error.",
)

Key = Callable[[ScalingRun], Hashable]


def run(data: Path) -> SuiteReport:
    """Predict every run on several GPUs."""
    runs = read(data)
    predicted = {HERE: _network_left_out(runs), UNSEEN: _gpu_left_out(runs), SHEETS: jitter.by_links(runs)}
    predicted[PERFECT] = np.array([item.single_seconds for item in runs])
    predicted[JITTER] = predicted[SHEETS] + _waiting_for_the_slowest(runs, predicted[SHEETS])
    cases = _cases(runs, predicted)
    by_set: dict[str, dict[str, Metrics]] = {"all": _metrics(cases)}
    for sort in (_framework, _count, _network, _gpu):
        for name in sorted({sort(item) for item in runs}):
            by_set[name] = _metrics(
                [case for case, item in zip(cases, runs, strict=True) if sort(item) == name]
            )
    return SuiteReport(
        "lambda_multi", tuple(cases), by_set, notes=(*_NOTES, f"Worst: {worst(cases, HERE, _why)}.")
    )


def _framework(item: ScalingRun) -> str:
    return item.framework


def _count(item: ScalingRun) -> str:
    return f"{item.framework}, {item.devices} GPUs"


def _network(item: ScalingRun) -> str:
    return f"{item.framework}, {item.network}"


def _gpu(item: ScalingRun) -> str:
    return item.device_id


def _network_left_out(runs: Sequence[ScalingRun]) -> Floats:
    """From other networks on as many GPUs of the machine; TensorFlow's graphs differ by precision."""

    def group_key(item: ScalingRun) -> Hashable:
        return item.machine, item.devices, item.precision if item.framework == TENSORFLOW else ""

    return _left_out(runs, group_key, lambda item, other: item.network != other.network)


def _gpu_left_out(runs: Sequence[ScalingRun]) -> Floats:
    """From all other GPUs with the same kind of links, under the same framework."""

    def group_key(item: ScalingRun) -> Hashable:
        precision = item.precision if item.framework == TENSORFLOW else ""
        return item.framework, item.devices, precision, item.is_compiled, item.is_bridged, _is_module(item)

    return _left_out(runs, group_key, lambda item, other: item.device_id != other.device_id)


def _is_module(item: ScalingRun) -> bool:
    return device(item.device_id).form != "pcie"


def _left_out(
    runs: Sequence[ScalingRun], group_key: Key, apart: Callable[[ScalingRun, ScalingRun], bool]
) -> Floats:
    """Each run as predicted by the runs with the same `group_key` that are `apart` from it."""
    together: dict[Hashable, list[ScalingRun]] = {}
    for item in runs:
        together.setdefault(group_key(item), []).append(item)
    known: dict[Hashable, Extras] = {}
    seconds = []
    for item in runs:
        key = group_key(item), item.network, item.device_id
        if key not in known:
            known[key] = fit_extras([other for other in together[group_key(item)] if apart(item, other)])
        seconds.append(float(known[key].seconds([item])[0]))
    return np.array(seconds)


def _waiting_for_the_slowest(runs: Sequence[ScalingRun], by_links: Floats) -> Floats:
    """Expected wait for the slowest worker, with the variation that explains the other GPUs' runs best."""
    extra = jitter.waits(runs)
    gpus = np.array([f"{item.framework} {item.device_id}" for item in runs])
    frameworks = np.array([item.framework for item in runs])
    seconds = np.zeros(len(runs))
    for gpu in set(gpus.tolist()):
        here = gpus == gpu
        others = (frameworks == frameworks[here][0]) & ~here
        seconds[here] = extra[jitter.best_candidate(runs, by_links, others), here]
    return seconds


def _cases(runs: Sequence[ScalingRun], predicted: dict[str, Floats]) -> list[Case]:
    measured = np.array([item.seconds for item in runs])
    bounds = intervals(
        [item.network for item in runs], measured, predicted[HERE], [item.framework for item in runs]
    )
    return [
        Case(
            f"{item.framework} {item.network} {item.precision} batch {item.batch:.0f} on {item.devices} of "
            f"{item.machine}",
            item.network,
            item.seconds,
            {name: float(values[index]) for name, values in predicted.items() if values[index] > 0},
            bounds[index],
        )
        for index, item in enumerate(runs)
    ]


def _metrics(cases: Sequence[Case]) -> dict[str, Metrics]:
    by_method = {}
    for name in (HERE, UNSEEN, JITTER, SHEETS, PERFECT):
        some = [case for case in cases if name in case.predicted]
        if some:
            by_method[name] = metrics(some, name, name == HERE)
    return by_method


def _why(case: Case) -> str:
    if "tacotron2" in case.name:
        return "input on the host, shared by all workers"
    if case.measured < case.predicted[PERFECT]:
        return "faster than perfect: the run on one GPU did not reach a steady state"
    return "the machine's other networks scale otherwise"
