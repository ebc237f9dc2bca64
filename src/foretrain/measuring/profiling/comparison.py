"""Measured and predicted times of a step side by side: by phase, by kind of operator, by layer."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar, final

from foretrain.answers import Answer
from foretrain.encoding import encode
from foretrain.errors import MissingData
from foretrain.facts.devices import Device
from foretrain.measuring.profiling.attribution import Key, MeasuredOperators
from foretrain.measuring.profiling.running import ProfiledRun
from foretrain.prediction.cost_models import CostModel, StepEstimate, step_estimate
from foretrain.prediction.operators.per_layer import ROWS, complexity
from foretrain.prediction.operators.pricing import Knowledge, table
from foretrain.units import format_duration
from foretrain.workloads.graph import Graph, Phase
from foretrain.workloads.ops import Kind, Work
from foretrain.workloads.rules import operators

_Name = TypeVar("_Name", bound=Hashable)
_MICROSECOND = 1e-6
_BUSY_CORES = 0.3
"""Cores used by others from which on a profile of CPU times is doubtful."""


@dataclass(frozen=True, slots=True)
class Compared:
    """Measured and predicted seconds of a part of a step; predicted is None without a prediction.

    `measured_share` and `predicted_share` are shares of the whole step, `ratio` is measured over predicted,
    None where one of them is missing or below a microsecond.
    """

    measured_seconds: float
    predicted_seconds: float | None
    measured_share: float
    predicted_share: float | None

    @property
    def ratio(self) -> float | None:
        """Measured over predicted."""
        predicted = self.predicted_seconds or 0.0
        if predicted < _MICROSECOND or not self.measured_seconds:
            return None
        return self.measured_seconds / predicted


@dataclass(frozen=True, slots=True)
class OperatorRow:
    """One kind of operator in one phase; `calls` is how often it was measured in a step."""

    phase: Phase
    kind: Kind
    calls: int
    compared: Compared


@dataclass(frozen=True, slots=True)
class LayerRow:
    """One layer, forward and backward."""

    path: str
    type: str
    forward: Compared
    backward: Compared

    @property
    def measured_seconds(self) -> float:
        """Both passes."""
        return self.forward.measured_seconds + self.backward.measured_seconds


@dataclass(frozen=True, slots=True)
class LayerWork:
    """The operators of one kind in one phase of one layer, for regressions per layer.

    `operations` is the complexity of the published table (`prediction/operators/per_layer.py`), `works` how
    many operators the recorded graph has there.
    """

    layer: str
    phase: Phase
    kind: Kind
    works: int
    operations: float
    measured_seconds: float
    predicted_seconds: float | None


@final
@dataclass(frozen=True)
class Profile(Answer):
    """A measured step beside its prediction.

    `step_seconds` is a step without the profiler if it was run here, else the traced one. `idle` is the part
    of the traced step outside all operators (on a GPU: without a running kernel).
    """

    model: str
    device: str
    batch: int
    step_seconds: float
    traced_step_seconds: float
    predicted_seconds: float | None
    knowledge: Knowledge | None
    steps: int
    idle: Compared
    phases: Mapping[Phase, Compared]
    operators: tuple[OperatorRow, ...]
    layers: tuple[LayerRow, ...]
    works: tuple[LayerWork, ...] = ()
    run: ProfiledRun | None = None
    notes: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """As plain data, with the ratios."""
        content: dict[str, Any] = encode(self)
        content["ratio"] = (
            self.step_seconds / self.predicted_seconds if self.predicted_seconds is not None else None
        )
        content["phases"] = {phase.value: _plain(compared) for phase, compared in self.phases.items()}
        content["idle"] = _plain(self.idle)
        content["operators"] = [
            {"phase": row.phase.value, "kind": row.kind.value, "calls": row.calls, **_plain(row.compared)}
            for row in self.operators
        ]
        content["layers"] = [
            {"path": row.path, "type": row.type, "forward": _plain(row.forward),
             "backward": _plain(row.backward)}
            for row in self.layers
        ]  # fmt: skip
        return content

    def summary(self) -> tuple[tuple[str, str], ...]:
        """The measured and the predicted step."""
        rows = (("measured", self.step_seconds), ("predicted", self.predicted_seconds))
        return tuple((name, format_duration(seconds)) for name, seconds in rows if seconds is not None)


def _plain(compared: Compared) -> dict[str, Any]:
    return {**encode(compared), "ratio": compared.ratio}


def predict_operators(
    graph: Graph, device: Device, model: CostModel
) -> tuple[StepEstimate, Mapping[Key, float]]:
    """The prediction of a step, and its seconds by phase, kind and layer as a profile measures them."""
    step = model.price(graph, device)
    seconds: dict[Key, float] = defaultdict(float)
    for op, taken in zip(step.priced.ops, step.priced.seconds.tolist(), strict=True):
        if taken > 0:
            kind = Kind.OPTIMIZER if op.phase is Phase.OPTIMIZER else op.work.kind
            module = "" if op.phase is Phase.OPTIMIZER else op.module
            seconds[op.phase, kind, module] += taken
    return step_estimate(step), seconds


def compare(
    name: str,
    graph: Graph,
    device: Device,
    model: CostModel,
    measured: MeasuredOperators,
    run: ProfiledRun | None = None,
) -> Profile:
    """Measured operators beside the prediction of the same graph on the device."""
    notes = list(_measurement_notes(measured, run))
    estimate, predicted = None, None
    try:
        estimate, predicted = predict_operators(graph, device, model)
    except MissingData as error:
        notes.append(f"no prediction: {error}")
    whole = measured.step_seconds
    total = None if estimate is None else estimate.seconds

    def compared(taken: float, expected: float | None) -> Compared:
        share = expected / total if expected is not None and total else None
        return Compared(taken, expected, taken / whole if whole else 0.0, share)

    def by(name_of: Callable[[Key], _Name]) -> dict[_Name, Compared]:
        measured_sums = _sums(measured.seconds, name_of)
        predicted_sums = None if predicted is None else _sums(predicted, name_of)
        names = dict.fromkeys((*(predicted_sums or {}), *measured_sums))
        return {
            each: compared(
                measured_sums.get(each, 0.0),
                None if predicted_sums is None else predicted_sums.get(each, 0.0),
            )
            for each in names
        }

    calls = _sums(measured.calls, lambda key: key[:2])
    kinds = by(lambda key: key[:2])
    return Profile(
        model=name,
        device=device.id,
        batch=graph.batch,
        step_seconds=run.step_seconds if run is not None else whole,
        traced_step_seconds=whole,
        predicted_seconds=total,
        knowledge=None if estimate is None else estimate.knowledge,
        steps=measured.steps,
        idle=compared(measured.idle_seconds, None if estimate is None else estimate.waiting_seconds),
        phases=by(lambda key: key[0]),
        operators=tuple(
            OperatorRow(phase, kind, round(calls.get((phase, kind), 0)), each)
            for (phase, kind), each in sorted(kinds.items(), key=_by_phase_and_time)
        ),
        layers=_layers(graph, by(lambda key: (key[2], key[0])), compared),
        works=_works(graph, measured, predicted),
        run=run,
        notes=tuple(notes),
    )


def _works(
    graph: Graph, measured: MeasuredOperators, predicted: Mapping[Key, float] | None
) -> tuple[LayerWork, ...]:
    """What the graph does in each layer, phase and kind that was measured or predicted."""
    by_key: dict[Key, list[Work]] = defaultdict(list)
    for op in operators(graph):
        if op.work.kind in ROWS and op.work.kernels:
            is_update = op.phase is Phase.OPTIMIZER
            kind = Kind.OPTIMIZER if is_update else op.work.kind
            by_key[op.phase, kind, "" if is_update else op.module].append(op.work)
    keys = dict.fromkeys((*by_key, *measured.seconds))
    return tuple(
        LayerWork(
            layer=layer,
            phase=phase,
            kind=kind,
            works=len(by_key[phase, kind, layer]),
            operations=_operations(by_key[phase, kind, layer]),
            measured_seconds=measured.seconds.get((phase, kind, layer), 0.0),
            predicted_seconds=None if predicted is None else predicted.get((phase, kind, layer), 0.0),
        )
        for phase, kind, layer in keys
    )


def _operations(works: Sequence[Work]) -> float:
    return float(sum(complexity(table([work]), work.kind).sum() for work in works))


def _by_phase_and_time(item: tuple[tuple[Phase, Kind], Compared]) -> tuple[int, float]:
    (phase, _), compared = item
    return list(Phase).index(phase), -compared.measured_seconds


def _sums(seconds: Mapping[Key, float], name_of: Callable[[Key], _Name]) -> dict[_Name, float]:
    sums: dict[_Name, float] = defaultdict(float)
    for key, taken in seconds.items():
        sums[name_of(key)] += taken
    return dict(sums)


def _layers(
    graph: Graph,
    passes: Mapping[tuple[str, Phase], Compared],
    compared: Callable[[float, float | None], Compared],
) -> tuple[LayerRow, ...]:
    """Layers in the order of execution; operators outside layers are in the row of the parent's path."""
    types = {layer.path: layer.type for layer in graph.layers}
    ordered = dict.fromkeys((*types, *(path for path, phase in passes if phase is not Phase.OPTIMIZER)))
    is_predicted = any(each.predicted_seconds is not None for each in passes.values())
    nothing = compared(0.0, 0.0 if is_predicted else None)
    rows = (
        LayerRow(
            path,
            types.get(path, ""),
            passes.get((path, Phase.FORWARD), nothing),
            passes.get((path, Phase.BACKWARD), nothing),
        )
        for path in ordered
    )
    return tuple(row for row in rows if row.measured_seconds or _has_prediction(row))


def _has_prediction(row: LayerRow) -> bool:
    return bool(row.forward.predicted_seconds or row.backward.predicted_seconds)


def _measurement_notes(measured: MeasuredOperators, run: ProfiledRun | None) -> list[str]:
    dropped = f", {measured.dropped_steps} dropped as warm-up" if measured.dropped_steps else ""
    notes = [f"medians of {measured.steps} profiled steps{dropped}"]
    if run is not None:
        notes.append(
            f"the profiler lengthens a step by {run.overhead_share:.0%}: the step is timed without it, the "
            "operators with it"
        )
        if run.other_cores >= _BUSY_CORES:
            notes.append(
                f"other processes kept {run.other_cores:.1f} cores busy: times on a quiet machine are shorter"
            )
    if measured.unlinked_kernels:
        notes.append(f"{measured.unlinked_kernels} kernels of the trace belong to no operator")
    return notes
