"""Lambda's benchmarks on 2 to 8 GPUs, told from one: six CNNs in TensorFlow, seven tasks in PyTorch.

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
from foretrain.prediction.operators.listing import Floats
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
    "one GPU that did not settle: they are kept.",
    "How strongly the three terms are held back was compared on these runs: 6.5 % with 0.01, 7.2 % with "
    "0.03, 8.4 % with 0.1.",
    "Parameters of SSD and WaveGlow and the tokens of a sentence in GNMT are rounded "
    "(`lambda_networks.toml`); what is wrong with them counts as this suite's error.",
)

Key = Callable[[ScalingRun], Hashable]


def run(data: Path) -> SuiteReport:
    """Tell every run on several GPUs."""
    runs = read(data)
    told = {HERE: _network_left_out(runs), UNSEEN: _gpu_left_out(runs), SHEETS: jitter.by_links(runs)}
    told[PERFECT] = np.array([item.single_seconds for item in runs])
    told[JITTER] = told[SHEETS] + _waiting_for_the_slowest(runs, told[SHEETS])
    cases = _cases(runs, told)
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

    def alike(item: ScalingRun) -> Hashable:
        return item.machine, item.devices, item.precision if item.framework == TENSORFLOW else ""

    return _left_out(runs, alike, lambda item, other: item.network != other.network)


def _gpu_left_out(runs: Sequence[ScalingRun]) -> Floats:
    """From all other GPUs that are joined alike, under the same framework."""

    def alike(item: ScalingRun) -> Hashable:
        precision = item.precision if item.framework == TENSORFLOW else ""
        return item.framework, item.devices, precision, item.is_compiled, item.is_bridged, _is_module(item)

    return _left_out(runs, alike, lambda item, other: item.device_id != other.device_id)


def _is_module(item: ScalingRun) -> bool:
    return device(item.device_id).form != "pcie"


def _left_out(
    runs: Sequence[ScalingRun], alike: Key, apart: Callable[[ScalingRun, ScalingRun], bool]
) -> Floats:
    """Each run told by those alike, but only the ones apart from it."""
    together: dict[Hashable, list[ScalingRun]] = {}
    for item in runs:
        together.setdefault(alike(item), []).append(item)
    known: dict[Hashable, Extras] = {}
    found = []
    for item in runs:
        key = alike(item), item.network, item.device_id
        if key not in known:
            known[key] = fit_extras([other for other in together[alike(item)] if apart(item, other)])
        found.append(float(known[key].seconds([item])[0]))
    return np.array(found)


def _waiting_for_the_slowest(runs: Sequence[ScalingRun], told: Floats) -> Floats:
    """Expected beyond the mean of so many workers, whose times vary as explains the other GPUs' runs best."""
    extra = jitter.waits(runs)
    gpus = np.array([f"{item.framework} {item.device_id}" for item in runs])
    frameworks = np.array([item.framework for item in runs])
    found = np.zeros(len(runs))
    for gpu in set(gpus.tolist()):
        here = gpus == gpu
        others = (frameworks == frameworks[here][0]) & ~here
        found[here] = extra[jitter.best_candidate(runs, told, others), here]
    return found


def _cases(runs: Sequence[ScalingRun], told: dict[str, Floats]) -> list[Case]:
    measured = np.array([item.seconds for item in runs])
    bounds = intervals(
        [item.network for item in runs], measured, told[HERE], [item.framework for item in runs]
    )
    return [
        Case(
            f"{item.framework} {item.network} {item.precision} batch {item.batch:.0f} on {item.devices} of "
            f"{item.machine}",
            item.network,
            item.seconds,
            {name: float(values[index]) for name, values in told.items() if values[index] > 0},
            bounds[index],
        )
        for index, item in enumerate(runs)
    ]


def _metrics(cases: Sequence[Case]) -> dict[str, Metrics]:
    found = {}
    for name in (HERE, UNSEEN, JITTER, SHEETS, PERFECT):
        some = [case for case in cases if name in case.predicted]
        if some:
            found[name] = metrics(some, name, name == HERE)
    return found


def _why(case: Case) -> str:
    if "tacotron2" in case.name:
        return "input on the host, shared by all workers"
    if case.measured < case.predicted[PERFECT]:
        return "faster than perfect: the run on one GPU did not settle"
    return "the machine's other networks scale otherwise"
