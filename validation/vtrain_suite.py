"""vTrain's 1,440 iterations of GPT models under Megatron-DeepSpeed on 2, 4 and 8 A100 of one node.

Predicted from the model alone, and with constants of the framework fitted on the other shapes (width and
layers), GPU counts or widths.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
from calibration.datasets.vtrain import DEVICE, MegatronRun, model_of, read_steps
from calibration.frameworks import Framework, LayoutParts, fit_framework, step_seconds

from foretrain.facts.hardware import hardware
from foretrain.prediction.collectives.network import Network, network_of
from foretrain.prediction.cost_models import OperatorCostModel
from foretrain.prediction.operators.pricing import Flags, Floats
from foretrain.prediction.strategies.strategy import Layout
from validation.report import Case, Metrics, SuiteReport, metrics
from validation.splitting import intervals, leave_out
from validation.spread_runs import Bench, Run

ALONE = "foretrain, from the model alone"
PACE = "foretrain, the host's pace fitted"
FITTED = "foretrain, constants fitted"
TIMED = "foretrain, constants fitted, same width and micro-batch timed at other depths"
STEADY = "median FLOP/s of the others"
_CONSTANTS = (
    "products", "others", "outside", "outside_alone", "exchanging_on_node", "launching", "reducing",
    "updating",
)  # fmt: skip
_START = Framework(others=0.5, outside=0.8, outside_alone=2.0, exchanging_on_node=2.0, launching=4.0)
_PEER = 0.0837
_NOTES = (
    f"Peer: vTrain itself reports {_PEER:.2%} for single-node runs (arXiv:2312.12391), after profiling the "
    "same kernels on the same GPU.",
    "The 'iteration times' of this file are no raw measurements: in all 288 groups of three or more rows "
    "that differ in the number of micro-batches alone, they lie on a straight line to the last digit, with "
    "the same slope whatever the data parallelism. They are composed of profiled parts, so agreement with "
    "them is agreement with vTrain's own simulation.",
    "Passes of small micro-batches take about 3 ms a layer whatever the width and the tensor parallelism: "
    "the host of the profiled framework, 4.5 times as slow as that of plain eager PyTorch, which no other "
    "data set shows (nanotron's is 8.6 times as slow). It is most of the error from the model alone.",
    "What constants there are, and where their fit begins, was chosen after looking at all rows; their "
    "values were fitted on the rows that were not left out.",
)

Key = Callable[[MegatronRun], str]


@dataclass(frozen=True)
class PredictedRun:
    """A run as the model alone predicts it."""

    run: MegatronRun
    parts: LayoutParts
    seconds: float


def run(data: Path) -> SuiteReport:
    """All runs from the model alone, then by others."""
    runs = _predicted(read_steps(data))
    splits: dict[str, Key] = {
        "leave shape out": lambda one: one.shape,
        "leave GPU count out": lambda one: f"{one.devices} GPUs",
        "leave width out": lambda one: f"width {one.width}",
    }
    by_set: dict[str, dict[str, Metrics]] = {}
    cases: list[Case] = []
    for name, key in splits.items():
        split_cases = _cases(runs, key)
        by_set[name] = _metrics(split_cases)
        cases = cases or split_cases
    for count in (2, 4, 8):
        chosen = [case for case, each in zip(cases, runs, strict=True) if each.run.devices == count]
        by_set[f"leave shape out, {count} GPUs"] = _metrics(chosen)
    return SuiteReport("vtrain", tuple(cases), by_set, notes=_NOTES)


def _predicted(runs: Sequence[MegatronRun]) -> list[PredictedRun]:
    bench = Bench(hardware(f"{DEVICE}:8").device, OperatorCostModel())
    ordered = sorted(runs, key=lambda one: (one.shape, one.tensor, one.micro_batch, one.pipeline))
    predicted = []
    for one in ordered:
        asked = _asked(one)
        predicted.append(PredictedRun(one, bench.parts(asked), bench.spread(asked).seconds))
    return predicted


def _asked(one: MegatronRun) -> Run:
    """Megatron gives every stage as many layers, and reduces gradients after the backward pass."""
    layout = Layout("megatron", tensor=one.tensor, data=one.data, pipeline=one.pipeline, overlaps=False)
    blocks = one.layers // one.pipeline
    starts = tuple(f"blocks.{blocks * stage}" for stage in range(1, one.pipeline))
    return Run(model_of(one), layout, one.micro_batch, one.micro_batches, _network(one.devices), starts)


@cache
def _network(devices: int) -> Network:
    return network_of(hardware(f"{DEVICE}:{devices}"))


def _cases(runs: Sequence[PredictedRun], key: Key) -> list[Case]:
    groups = [key(each.run) for each in runs]
    measured = np.array([each.run.seconds for each in runs])
    flop = np.array([_flop(each.run) for each in runs])

    def fitted(free: Sequence[str], start: Framework, beside: bool = False) -> Callable[[Flags, str], Floats]:
        def predict(known: Flags, _: str) -> Floats:
            timed = [(runs[i].parts, runs[i].run.seconds) for i in np.flatnonzero(known).tolist()]
            at = fit_framework(timed, start, free)
            predicted = np.array([step_seconds(each.parts, at) for each in runs])
            return predicted * _beside(runs, predicted, known) if beside else predicted

        return predict

    def steady(known: Flags, _: str) -> Floats:
        seconds: Floats = flop / statistics.median((flop / measured)[known].tolist())
        return seconds

    methods = {
        FITTED: leave_out(groups, len(runs), fitted(_CONSTANTS, _START)),
        TIMED: leave_out(groups, len(runs), fitted(_CONSTANTS, _START, beside=True)),
        PACE: leave_out(groups, len(runs), fitted(("launching",), Framework(launching=4.0))),
        ALONE: np.array([each.seconds for each in runs]),
        STEADY: leave_out(groups, len(runs), steady),
    }
    first = TIMED if "layers" in groups[0] else FITTED
    ordered = {first: methods[first], **methods}
    bounds = intervals(groups, measured, methods[first])
    return [
        Case(
            _name(each.run),
            groups[index],
            each.run.seconds,
            {name: float(values[index]) for name, values in ordered.items()},
            bounds[index],
        )
        for index, each in enumerate(runs)
    ]


def _beside(runs: Sequence[PredictedRun], predicted: Floats, known: Flags) -> Floats:
    """How far off the constants are, at the median, on known runs of the same width, layout and micro-batch.

    1 where there are none.
    """
    off: dict[tuple[int, ...], list[float]] = {}
    for index in np.flatnonzero(known).tolist():
        off.setdefault(_layout_key(runs[index].run), []).append(runs[index].run.seconds / predicted[index])
    return np.array([statistics.median(off.get(_layout_key(each.run), [1.0])) for each in runs])


def _layout_key(one: MegatronRun) -> tuple[int, ...]:
    return one.width, one.tensor, one.pipeline, one.micro_batch


def _flop(one: MegatronRun) -> float:
    """FLOP of a step on one device: forward, again, and backward."""
    tokens = one.batch * one.seq_len / one.devices
    return 4 * tokens * one.layers * (24 * one.width**2 + 4 * one.seq_len * one.width)


def _name(one: MegatronRun) -> str:
    return (
        f"{one.shape}, tp={one.tensor} pp={one.pipeline} dp={one.data}, "
        f"{one.micro_batches} x {one.micro_batch} sequences"
    )


def _metrics(cases: Sequence[Case]) -> dict[str, Metrics]:
    first = next(iter(cases[0].predicted))
    return {name: metrics(cases, name, name == first) for name in cases[0].predicted}
