"""`predict`: what a training step takes on a cluster, from one scenario to one answer.

A heterogeneous cluster splits its batch over its groups of equal nodes, and every group is evaluated as equal
nodes are; on those a strategy is parsed, or searched for, and one device is the case in which all degrees are
1. Whatever the cluster, the answer is built from the evaluation of the device that all others wait for.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import lru_cache, partial
from typing import TYPE_CHECKING, TypeVar

from foretrain.answers import Infeasible
from foretrain.errors import ForetrainError
from foretrain.estimates import Estimate
from foretrain.facts.devices import Device
from foretrain.prediction.advice.bottleneck import Advice, Bottleneck, find_bottleneck, list_advice
from foretrain.prediction.advice.scaling_curve import ResizedStep, ScalingCurve, curve_of, resize
from foretrain.prediction.answer import (
    BestOfFamily,
    Coverage,
    FitAnswer,
    MemoryAnswer,
    ParallelismReport,
    Prediction,
    RankedLayout,
    StepAnswer,
    memory_parts,
    step_parts,
)
from foretrain.prediction.corrections.apply import resolve_cost_model
from foretrain.prediction.memory.estimate import (
    MemoryEstimate,
    estimate_memory,
    largest_batch,
    memory_options,
)
from foretrain.prediction.operators.pricing import Knowledge, only_precision
from foretrain.prediction.options import Parallelism
from foretrain.prediction.scenario import (
    PRECISION,
    WEIGHTS,
    Evaluation,
    Scenario,
    StepConfiguration,
    StepContext,
    evaluate,
    global_batch,
    knows_precision,
    refuse_unread,
    replica_batch,
    resolve,
    step_context,
)
from foretrain.prediction.spread import KnowledgeClass
from foretrain.prediction.strategies.program import MemoryOptions
from foretrain.prediction.strategies.strategy import AUTO, layout_of
from foretrain.prediction.timeline import COMPUTE
from foretrain.progress import phase
from foretrain.workloads.graph import Phase, checkpoint_bytes, garbage_collection_off
from foretrain.workloads.workload import family_key, graph_at, smallest_batch

if TYPE_CHECKING:
    from foretrain.prediction.advice.remedies import MemoryRemedy
    from foretrain.prediction.heterogeneous.choice import SplitStep
    from foretrain.prediction.search.search import Ranking

_MANY_CALLS = 5_000
"""Graphs with more calls: on many devices the largest batch is extrapolated; simulating takes seconds."""
_NEARBY = 16
"""Batches up to this multiple of the present one are extrapolated unchecked."""
_MAX_REFINEMENTS = 4  # each estimates the memory of another batch
_CLOSE = 0.02
"""Bounds of the largest batch this close together are close enough."""
_MAX_DEVICE_DOUBLINGS = 3
"""Doublings of the devices that are tried where no layout fits."""


AnyPrediction = TypeVar("AnyPrediction", bound=Prediction)


def predict(scenario: Scenario) -> Prediction | Infeasible:
    """What a training step takes; `Infeasible` if no configuration satisfies the scenario."""
    return predict_as(Prediction, scenario)


@garbage_collection_off()
def predict_as(kind: type[AnyPrediction], scenario: Scenario) -> AnyPrediction | Infeasible:
    """`predict` with an answer of a class that may have more fields, which are left at their defaults."""
    complete = resolve(scenario)
    outcome = _outcome(complete)
    if isinstance(outcome, Infeasible):
        return outcome
    if isinstance(outcome, Evaluation):
        answer = _answer(kind, complete, outcome)
    else:
        answer = _answer_of_several(kind, complete, outcome)
    if PRECISION not in scenario.workload.left_open:
        return answer
    return replace(answer, notes=(_note_on_precision(complete), *answer.notes))


@garbage_collection_off()
def fit(scenario: Scenario) -> FitAnswer | Infeasible:
    """Whether a training step fits into memory, and what would make it fit; no advice on its time."""
    complete = resolve(scenario)
    outcome = _outcome(complete)
    if isinstance(outcome, Infeasible):
        return outcome
    if isinstance(outcome, Evaluation):
        return _fit_answer(complete, outcome)
    from foretrain.prediction.search.search import Ranking

    if isinstance(outcome, Ranking):
        return _fit_answer(complete, outcome.best)
    division = outcome.division
    answer = _fit_answer(complete, division.fullest, outcome.largest_batch, outcome.notes)
    return replace(
        answer, batch=division.global_batch, tokens=answer.tokens * division.global_batch // answer.batch
    )


def _fit_answer(
    scenario: Scenario, fullest: Evaluation, largest: int | None = None, notes: tuple[str, ...] = ()
) -> FitAnswer:
    """The answer of the fullest device; `largest` is the largest batch where it is known."""
    fitting: tuple[MemoryRemedy, ...] = ()
    if largest is None:
        with phase("finding the largest batch"):
            largest = _largest_batch(fullest)
        if not fullest.memory.fits:
            from foretrain.prediction.advice.remedies import find_remedies

            with phase("trying what would make it fit"):
                fitting = find_remedies(fullest, largest)
    graph, configuration = fullest.graph, fullest.configuration
    if PRECISION in scenario.workload.left_open:
        notes = (_note_on_precision(scenario), *notes)
    return FitAnswer(
        workload=fullest.context.workload,
        cluster=scenario.cluster,
        strategy=configuration.layout.name,
        batch=configuration.batch,
        tokens=graph.tokens * configuration.batch // graph.batch,
        memory=_memory(fullest, largest, fitting),
        device=fullest.context.hardware.device.id,
        notes=tuple(dict.fromkeys((*notes, *graph.notes))),
    )


def pace_of(scenario: Scenario) -> Evaluation | Infeasible:
    """The evaluated step of the device that all others wait for, without an answer around it."""
    outcome = _outcome(resolve(scenario))
    if isinstance(outcome, Evaluation | Infeasible):
        return outcome
    from foretrain.prediction.search.search import Ranking

    return outcome.best if isinstance(outcome, Ranking) else outcome.division.pace


def _note_on_precision(scenario: Scenario) -> str:
    devices = [group.device for group in scenario.cluster.groups]
    on = " and ".join(dict.fromkeys(device.id for device in devices))
    why = f"which is usual on {on}"
    if not knows_precision(scenario.cost_model):
        return (
            f"memory is of `precision` {scenario.workload.options.precision}, {why}; the time is of whatever "
            "your timings were trained in"
        )
    if only_precision(scenario.cost_model, devices[0]) is not None:
        why = f"of which {scenario.cost_model} has measurements"
    return f"`precision` {scenario.workload.options.precision} is assumed, {why}"


def _outcome(scenario: Scenario) -> Evaluation | Ranking | SplitStep | Infeasible:
    """The evaluated step: in the layout given, in the best ones of a search, or split over unequal nodes."""
    model = resolve_cost_model(scenario.cost_model, scenario.workload)
    if not scenario.cluster.is_homogeneous:
        from foretrain.prediction.heterogeneous.choice import split_step

        return split_step(scenario, model)
    hardware = scenario.cluster.groups[0]
    refuse_unread(hardware, scenario.parallelism)
    context = step_context(scenario.workload, hardware, scenario.parallelism, model, scenario.input)
    if scenario.parallelism.strategy != AUTO:
        return evaluate(context, configure(context, scenario.parallelism))
    ranking = _ranking(scenario, context)
    return _with_alternative(scenario, context, ranking) if isinstance(ranking, Infeasible) else ranking


def _ranking(scenario: Scenario, context: StepContext) -> Ranking | Infeasible:
    """The fastest layouts at the global batch of the request."""
    from foretrain.prediction.search.search import search

    batch = global_batch(scenario.workload, context.hardware.devices, scenario.parallelism)
    return search(context, batch)


def _with_alternative(scenario: Scenario, context: StepContext, nothing: Infeasible) -> Infeasible:
    """The same answer with the fewest devices on which a layout fits, if a few doublings are enough."""
    from foretrain.prediction.advice.remedies import layout_text

    for doubling in range(1, _MAX_DEVICE_DOUBLINGS + 1):
        try:
            larger = resize(context, context.hardware.devices << doubling)
            ranking = _ranking(scenario, larger)
        except ForetrainError:  # unknown network, or a global batch that does not divide
            break
        if not isinstance(ranking, Infeasible):
            best = ranking.fastest[0].candidate
            fitting = layout_text(best.configuration, best.is_checkpointed)
            return replace(nothing, alternative=f"use {larger.hardware.name} with {fitting}")
    return nothing


def configure(context: StepContext, parallelism: Parallelism) -> StepConfiguration:
    """The configuration a strategy stands for, with the batch of each replica and its micro-batches."""
    hardware = context.hardware
    layout = layout_of(parallelism.strategy, hardware.devices, hardware.devices_per_node)
    batch = replica_batch(context.workload, parallelism, layout.replicas)
    if parallelism.micro_batches is not None:
        return StepConfiguration(layout, batch, parallelism.micro_batches)
    whole = StepConfiguration(layout, batch)
    return whole if layout.pipeline == 1 else _best_micro_batches(context, whole)


def _best_micro_batches(context: StepContext, whole: StepConfiguration) -> StepConfiguration:
    """The micro-batches that make a pipeline fastest within memory: all powers of two are tried."""
    layout, batch = whole.layout, whole.batch
    least = min(batch, smallest_batch(context.workload))
    sizes = [1 << power for power in range(batch.bit_length()) if batch % (1 << power) == 0]
    tried = [
        evaluate(context, StepConfiguration(layout, batch, batch // size))
        for size in sizes
        if size >= least
        if layout.chunks == 1 or (batch // size) % layout.pipeline == 0
    ]
    if not tried:
        return whole
    fitting = [evaluation for evaluation in tried if evaluation.memory.fits] or tried
    return min(fitting, key=lambda evaluation: evaluation.seconds).configuration


def _answer_of_several(
    kind: type[AnyPrediction], scenario: Scenario, outcome: Ranking | SplitStep
) -> AnyPrediction:
    """The answer where several steps were evaluated: layouts of a search, or shares of unequal nodes."""
    from foretrain.prediction.search.search import Ranking

    if isinstance(outcome, Ranking):
        return _answer(kind, scenario, outcome.best, outcome)
    return _split_answer(kind, scenario, outcome)


def _answer(
    kind: type[AnyPrediction], scenario: Scenario, now: Evaluation, ranking: Ranking | None = None
) -> AnyPrediction:
    """The answer for equal nodes, with what would change it."""
    resized = ResizedStep(now, scenario.parallelism.global_batch is not None)
    with phase("finding the largest batch"):
        largest = _largest_batch(now)
    fitting: tuple[MemoryRemedy, ...] = ()
    changes: tuple[Advice, ...] = ()
    scaling: ScalingCurve | None = None
    if scenario.advice:
        if now.memory.fits:
            with phase("trying changes"):
                changes = list_advice(resized, largest)
        else:  # remedies have no gain: there is no step that fits to compare them with
            from foretrain.prediction.advice.remedies import find_remedies

            with phase("trying what would make it fit"):
                fitting = find_remedies(now, largest)
            changes = tuple(Advice(each.change, None, None, None, each.bytes, each.fits) for each in fitting)
        if now.configuration.layout.devices > 1:
            with phase("trying other numbers of devices"):
                scaling = curve_of(resized)
    memory, limit = _memory(now, largest, fitting), find_bottleneck(now, changes, scaling)
    return _prediction(kind, scenario, now, now.total, memory, limit, _report(now, scaling, ranking))


def _split_answer(kind: type[AnyPrediction], scenario: Scenario, split: SplitStep) -> AnyPrediction:
    """The answer for a heterogeneous cluster: that of the device all others wait for, and of all together."""
    division, pace, evaluations = split.division, split.division.pace, split.division.evaluations
    batch = division.global_batch
    report = replace(_report(pace), global_batch=batch, update_batch=batch)
    limit = replace(find_bottleneck(pace), advice=split.advice)
    memory = _memory(division.fullest, split.largest_batch)
    knowledge = [each.step.priced.knowledge for each in evaluations]
    return replace(
        _prediction(kind, scenario, pace, division.total, memory, limit, report, split.notes),
        batch=batch,
        tokens=pace.graph.tokens * batch // pace.graph.batch,
        throughput=division.throughput,
        knowledge=max(knowledge, key=list(Knowledge).index),
        knowledge_class=max((each.knowledge_class for each in evaluations), key=list(KnowledgeClass).index),
        coverage=Coverage(min(each.step.modelled_share for each in evaluations), pace.step.unmodelled),
        split=split.report,
        fullest_device=division.fullest.context.hardware.device.id,
    )


def _prediction(
    kind: type[AnyPrediction],
    scenario: Scenario,
    pace: Evaluation,
    total: Estimate,
    memory: MemoryAnswer,
    limit: Bottleneck,
    report: ParallelismReport,
    notes_on_split: tuple[str, ...] = (),
) -> AnyPrediction:
    """The answer from the evaluation of the device that all others wait for."""
    graph, step, workload = pace.graph, pace.step, pace.context.workload
    layout, batch = pace.configuration.layout, pace.configuration.batch
    notes = [*graph.notes, *pace.context.environment.network.notes, *step.notes, *notes_on_split]
    if step.priced.basis:
        notes.append(f"corrected by {step.priced.basis}")
    if WEIGHTS in workload.left_open and workload.options.master_weights:
        notes.append(
            f"`weights` {workload.options.weights} with FP32 master weights are assumed, which is usual with "
            f"{layout.name}"
        )
    return kind(
        workload=workload,
        cluster=scenario.cluster,
        strategy=layout.name,
        batch=batch,
        tokens=graph.tokens * batch // graph.batch,
        state_bytes=checkpoint_bytes(graph),
        step=StepAnswer(
            seconds=total.quantiles,
            forward_seconds=step.run.phases[Phase.FORWARD],
            backward_seconds=step.run.phases[Phase.BACKWARD],
            optimizer_seconds=step.run.phases[Phase.OPTIMIZER],
            input_seconds=pace.input.seconds,
            communication_seconds=step.communication_seconds,
            exposed_communication_seconds=step.run.exposed_seconds,
            waiting_for_launches_seconds=step.run.waiting_seconds,
            parts=step_parts(total.visible),
            hidden_parts=step_parts(total.hidden),
        ),
        throughput=pace.throughput,
        memory=memory,
        knowledge=step.priced.knowledge,
        knowledge_class=pace.knowledge_class,
        bottleneck=limit,
        coverage=Coverage(step.modelled_share, step.unmodelled),
        parallelism=report,
        split=None,
        fullest_device=pace.context.hardware.device.id,
        pacing_device=pace.context.hardware.device.id,
        sources=tuple(dict.fromkeys((*total.sources, memory.source))),
        notes=tuple(dict.fromkeys(notes)),
        timeline=step.run.timeline,
    )


def _largest_batch(now: Evaluation) -> int:
    """The largest batch of a replica that fits, trained in the same number of micro-batches."""
    configuration, context = now.configuration, now.context
    if context.workload.sizes.real:  # run at one batch only
        return configuration.batch if now.memory.fits else 0
    layout, device = configuration.layout, context.environment.device
    rounds = configuration.micro_batches
    options = memory_options(now.step.run.stages[0], 1.0, layout, context.environment.network)
    is_divided = layout.model_degree * layout.expert > 1

    def memory_at(size: int) -> MemoryEstimate:
        if is_divided:
            return evaluate(context, replace(configuration, batch=size * rounds)).memory
        return estimate_memory(graph_at(context.workload, size), device, options)

    if is_divided:
        largest = _extrapolate(now, memory_at)
    elif layout.devices > 1 and len(now.graph.calls) > _MANY_CALLS:
        largest = _extrapolate(now, memory_at)
        largest += memory_at(largest + 1).fits  # a full device fragments less
    else:
        known = _fitting_batches(family_key(context.workload), device, options)
        largest = largest_batch(
            partial(graph_at, context.workload), device, options, start=now.graph.batch, known=known
        )
    return largest * rounds


@lru_cache(maxsize=256)
def _fitting_batches(step: str, device: Device, options: MemoryOptions) -> dict[int, bool]:
    """Which batches of a step fit a device, as far as they were tried: predictions in a loop share them."""
    del step, device, options
    return {}


def _extrapolate(now: Evaluation, memory_at: Callable[[int], MemoryEstimate]) -> int:
    """The largest micro-batch that fits, on the line through the present one and four times it.

    Memory is convex in the batch: state may set the peak of small batches and activations that of large ones.
    A batch far beyond those evaluated is therefore checked, and the line drawn to it where it does not fit.
    """
    micro_batch, capacity = now.configuration.micro_batch, now.memory.capacity_bytes
    low, high = (micro_batch, now.memory.bytes), (4 * micro_batch, memory_at(4 * micro_batch).bytes)
    if high[1] <= low[1]:
        return micro_batch if now.memory.fits else 0
    largest = max(0, _crossing(low, high, capacity))
    if largest <= _NEARBY * micro_batch:
        return largest
    low, high = high, (largest, memory_at(largest).bytes)
    for _ in range(_MAX_REFINEMENTS):
        if high[1] <= capacity or high[0] - low[0] < _CLOSE * high[0]:
            break
        middle = min(max(_crossing(low, high, capacity), low[0] + 1), high[0] - 1)
        point = (middle, memory_at(middle).bytes)
        low, high = (point, high) if point[1] <= capacity else (low, point)
    return high[0] if high[1] <= capacity else low[0]


def _crossing(low: tuple[int, float], high: tuple[int, float], capacity: float) -> int:
    """The batch at which the line through two points of (batch, bytes) reaches the capacity."""
    per_sample = (high[1] - low[1]) / (high[0] - low[0])
    return low[0] + math.floor((capacity - low[1]) / per_sample)


def _memory(fullest: Evaluation, largest: int, fitting: tuple[MemoryRemedy, ...] = ()) -> MemoryAnswer:
    memory = fullest.memory
    return MemoryAnswer(
        bytes=memory.estimate.quantiles,
        capacity_bytes=memory.capacity_bytes,
        fits=memory.fits,
        out_of_memory_probability=fullest.out_of_memory_probability,
        parts=memory_parts(memory),
        source=", ".join(memory.estimate.sources),
        largest_batch=largest,
        advice=fitting,
        phase_bytes={phase.value: size for phase, size in fullest.phase_bytes.items()},
    )


def _report(
    pace: Evaluation, scaling: ScalingCurve | None = None, ranking: Ranking | None = None
) -> ParallelismReport:
    step, layout, network = pace.step, pace.configuration.layout, pace.context.environment.network
    tiers = {"inside a node": network.intra, "between nodes": network.inter}
    return ParallelismReport(
        strategy=layout.name,
        degrees={axis.value: degree for axis, degree in layout.degrees.items()},
        replicas=layout.replicas,
        global_batch=pace.configuration.global_batch,
        update_batch=pace.configuration.update_batch,
        micro_batches=pace.configuration.micro_batches,
        network={where: tier.name for where, tier in tiers.items() if tier is not None},
        coordination_ratio=step.coordination_ratio,
        moved_bytes=step.moved_bytes,
        bubble_seconds=step.run.bubble_seconds,
        utilisation={
            COMPUTE: step.run.computing_seconds / pace.seconds,
            "communication": min(1.0, step.communication_seconds / pace.seconds),
        },
        exchanges=step.traffic,
        stages=step.run.stage_names,
        fullest_stage=pace.fullest[0],
        staleness=step.staleness,
        scaling=scaling,
        searched=len(ranking.candidates) if ranking else 0,
        fitting=ranking.fitting if ranking else 0,
        runners_up=tuple(_runners_up(ranking)) if ranking else (),
        families=tuple(_families(ranking)) if ranking else (),
    )


def _families(ranking: Ranking) -> Iterator[BestOfFamily]:
    best = ranking.best_of_families
    fastest = min((each.sketch.seconds for each in best.values()), default=1.0)
    for family, candidate in sorted(best.items(), key=lambda item: item[1].sketch.seconds):
        yield BestOfFamily(family, candidate.name, candidate.sketch.seconds / fastest)


def _runners_up(ranking: Ranking) -> Iterator[RankedLayout]:
    from foretrain.prediction.advice.remedies import layout_text

    best = ranking.fastest[0]
    for candidate, seconds, size in ranking.fastest[1:]:
        yield RankedLayout(
            strategy=layout_text(candidate.configuration, candidate.is_checkpointed),
            micro_batch=candidate.configuration.micro_batch,
            step_seconds=seconds,
            memory_bytes=size,
            slower=seconds / best.seconds,
        )
