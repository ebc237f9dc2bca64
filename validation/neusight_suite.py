"""NeuSight's whole models: FP32 forward and training passes of six transformers on P4, P100, V100, T4, A100.

No whole-model time is ever fitted. Every pass is predicted twice: on a GPU whose single operators were
measured, by corrections fitted without any product that occurs in these models; and on a GPU left out, by
operator models refitted on the other GPUs alone, of which its sheet and published stream bandwidths are
known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache
from pathlib import Path

from calibration.datasets.neusight import MeasuredPass

from calibration.datasets import aiconfigurator, neusight
from calibration.kernels import products, streaming
from foretrain.errors import MissingData
from foretrain.facts.devices import Device, device
from foretrain.prediction.cost_models import NO_HOST, StepEstimate, estimate_step
from foretrain.prediction.operators import matrix
from foretrain.prediction.operators.host import HostModel, host_model
from foretrain.prediction.operators.matrix import MatrixModel
from foretrain.prediction.operators.pricing import OperatorModel, RooflineModel
from foretrain.prediction.operators.streaming import StreamingModel
from foretrain.workloads import cache as graph_cache
from foretrain.workloads.graph import Graph, Phase
from foretrain.workloads.options import ResolvedOptions
from foretrain.workloads.readers import read_model
from foretrain.workloads.rules import operators
from foretrain.workloads.zoo import BuildOptions
from validation.report import Case, Metrics, SuiteReport, metrics
from validation.splitting import by_group, worst

SEEN, UNSEEN, SHARED = (
    "foretrain, GPU seen, shapes unseen",
    "foretrain, GPU unseen",
    "foretrain, GPU unseen, shared constants kept",
)
ROOFLINE = "roofline"
Models = tuple[OperatorModel, ...]

_REASONS = {
    "p4": "in these runs the P4 is up to twice as slow as its single operators show; it may throttle at 75 W",
    "switch-xl-4": "likely T5's position bias, which lies heads-last in memory and costs several times its "
    "bytes to add, and routing that waits for the host: neither is in the graph",
    "compiled": "torch.compile saves more than the fusion modelled here; it may fuse the attention too",
}
_NOTES = (
    "NeuSight itself: 12.4 % on the forward passes, most of them on GPUs and models it was trained on, and "
    "8.9 % on training.",
    "The zoo's models in the mode that was measured: forward passes in inference mode without loss (BERT as "
    "a classifier of two classes), training with dropout. Compiled passes are reported apart and in 'all'.",
    "Training times leave out the loss's own forward pass, which the prediction has: 0.3 %.",
    f"'{SHARED}' forgets all that was measured on a GPU's family but keeps the constants all GPUs share, "
    "fitted with it: the difference to the refit is what they carry of it.",
)


def run(data: Path) -> SuiteReport:
    """Trace, price by each calibration, compare."""
    passes = neusight.read_steps(data)
    graphs = {each: _graph(each) for each in passes}
    calibrations = _Calibrations(data, [shape for graph in graphs.values() for shape in _shapes(graph)])
    seen = [
        _case(each, graphs[each], SEEN, {SEEN: calibrations.seen, ROOFLINE: _roofline}) for each in passes
    ]
    unseen_methods = {UNSEEN: calibrations.unseen, SHARED: calibrations.forgetful, ROOFLINE: _roofline}
    unseen = [_case(each, graphs[each], UNSEEN, unseen_methods) for each in passes]
    report: dict[str, dict[str, Metrics]] = {}
    for cases, methods in ((seen, (SEEN, ROOFLINE)), (unseen, (UNSEEN, SHARED))):
        for name, chosen in _sets(passes, cases).items():
            report.setdefault(name, {}).update(
                {method: metrics(chosen, method, with_interval=method == methods[0]) for method in methods}
            )
    report |= _phases(passes, graphs, calibrations)
    notes = (*_NOTES, *(f"Worst, {m}: {worst(c, m, _reason)}." for c, m in ((seen, SEEN), (unseen, UNSEEN))))
    return SuiteReport("neusight", (*seen, *unseen), report, notes=notes)


class _Calibrations:
    """Operator models by what they may have seen of a device."""

    def __init__(self, data: Path, shapes: Iterable[products.Shape]) -> None:
        self._products = products.corpus(data)
        self._vector = neusight.read_vector_operators(data)
        self._cycles = aiconfigurator.start_cycles(data)
        self._unaware = products.calibration_without_shapes(self._products, frozenset(shapes))
        self._refitted: dict[str, matrix.ProductCalibration] = {}

    def seen(self, target: Device) -> Models:
        """All that was measured, but no product of the models judged."""
        del target
        return _models(self._unaware)

    def unseen(self, target: Device) -> Models:
        """Refitted without the target's family."""
        if target.family not in self._refitted:
            memory = streaming.calibration_without_family(self._vector, self._cycles, target)
            refitted = products.calibration_without_family(self._products, target, memory)
            self._refitted[target.family] = refitted
        return _models(self._refitted[target.family])

    def forgetful(self, target: Device) -> Models:
        """As shipped, without what is the target's own."""
        return _models(matrix.calibration().without(target))


def _models(known: matrix.ProductCalibration) -> Models:
    return (MatrixModel(known), StreamingModel(known.memory), RooflineModel())


def _roofline(target: Device) -> Models:
    del target
    return (RooflineModel(),)


def _graph(measured: MeasuredPass) -> Graph:
    """The graph of what was measured, from the cache or traced."""
    options = ResolvedOptions(
        precision="fp32",
        optimizer=None,
        attention="eager",
        forward_only=not measured.is_training,
        compile=measured.is_compiled,
    )
    sizes = BuildOptions(batch=measured.batch, seq_len=measured.seq_len, attention="eager")
    source = read_model(measured.model)
    key = graph_cache.key(what="pass", source=source.fingerprint(), sizes=sizes, options=options)
    stored = graph_cache.find(key)
    if isinstance(stored, Graph):
        return stored
    from foretrain.workloads.fusion import fuse
    from foretrain.workloads.tracing.step import trace

    example = source.example(sizes)
    if not measured.is_training:
        example = replace(example, module=example.module.eval(), loss=None)
    graph = trace(example, options)
    graph = fuse(graph) if measured.is_compiled else graph
    graph_cache.keep(key, graph)
    return graph


def _shapes(graph: Graph) -> Iterable[products.Shape]:
    for op in operators(graph):
        if op.work.kind in MatrixModel.kinds:
            batch, m, n, k = (float(op.work.dims.get(name, 1)) for name in ("batch", "m", "n", "k"))
            yield batch, m, n, k


@cache
def _host(target: Device) -> HostModel:
    """The calibrated host; where none is shipped, one that costs nothing: these models are large."""
    with suppress(MissingData):
        return host_model(target)
    return NO_HOST


def _estimate(measured: MeasuredPass, graph: Graph, models: Callable[[Device], Models]) -> StepEstimate:
    target = device(measured.device_id)
    return estimate_step(graph, target, models(target), _host(target), synchronised=True)


def _case(
    measured: MeasuredPass, graph: Graph, main: str, methods: Mapping[str, Callable[[Device], Models]]
) -> Case:
    estimates = {method: _estimate(measured, graph, models) for method, models in methods.items()}
    mode = "training" if measured.is_training else "compiled" if measured.is_compiled else "forward"
    return Case(
        name=f"{measured.model} {mode} {measured.batch} x {measured.seq_len} on {measured.device_id}",
        group=measured.device_id,
        measured=measured.seconds,
        predicted={method: each.seconds for method, each in estimates.items()},
        interval=estimates[main].estimate.quantiles,
    )


def _sets(passes: Sequence[MeasuredPass], cases: Sequence[Case]) -> dict[str, list[Case]]:
    """The sets of cases reported: forward and training apart, by GPU, by model."""
    forward = [case for each, case in zip(passes, cases, strict=True) if not each.is_training]
    sets = {
        "forward, all": forward,
        "forward, eager": _where(passes, cases, lambda each: not (each.is_training or each.is_compiled)),
        "forward, compiled": _where(passes, cases, lambda each: each.is_compiled),
        "training": _where(passes, cases, lambda each: each.is_training),
    }
    sets |= {f"forward on {name}": group for name, group in by_group(forward).items()}
    for model in sorted({each.model for each in passes}):
        sets[model] = [case for each, case in zip(passes, cases, strict=True) if each.model == model]
    return sets


def _where(
    passes: Sequence[MeasuredPass], cases: Sequence[Case], keep: Callable[[MeasuredPass], bool]
) -> list[Case]:
    return [case for each, case in zip(passes, cases, strict=True) if keep(each)]


def _phases(
    passes: Sequence[MeasuredPass], graphs: Mapping[MeasuredPass, Graph], known: _Calibrations
) -> dict[str, dict[str, Metrics]]:
    """Forward and backward of the training passes apart."""
    report = {}
    methods = {SEEN: known.seen, UNSEEN: known.unseen, ROOFLINE: _roofline}
    for phase in (Phase.FORWARD, Phase.BACKWARD):
        cases = []
        for each in passes:
            if each.is_training:
                measured = each.forward_seconds if phase is Phase.FORWARD else each.backward_seconds
                predicted = {
                    m: _estimate(each, graphs[each], models).phases[phase] for m, models in methods.items()
                }
                cases.append(Case(each.model, each.device_id, measured, predicted))
        report[f"training, {phase} pass"] = {method: metrics(cases, method) for method in methods}
    return report


def _reason(case: Case) -> str:
    reasons = [reason for name, reason in _REASONS.items() if name in case.name.replace("forward", "")]
    return reasons[0] if reasons else "the share of its peak the GPU reaches in layers"
