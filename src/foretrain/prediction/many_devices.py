"""A prediction for many devices: the layout, its outcome, the verdict and what would change it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from foretrain.errors import Infeasible, InvalidRequest
from foretrain.facts.devices import Device
from foretrain.facts.hardware import Hardware
from foretrain.prediction.advice.counterfactuals import counterfactuals, curve
from foretrain.prediction.advice.scaling_curve import ScalingCurve
from foretrain.prediction.advice.verdict import verdict
from foretrain.prediction.answer import (
    BestOfFamily,
    Coverage,
    MemoryAnswer,
    MemoryRemedy,
    ParallelismReport,
    Prediction,
    Runner,
    StepAnswer,
    memory_parts,
    step_parts,
)
from foretrain.prediction.collectives.network import network_of
from foretrain.prediction.cost_models.step_models import CostModel
from foretrain.prediction.evaluation import Evaluation, StepConfiguration, StepContext, evaluate
from foretrain.prediction.memory.estimate import MemoryEstimate, estimate_memory, memory_options
from foretrain.prediction.memory.fitting import largest_batch
from foretrain.prediction.search.search import Ranking, search
from foretrain.prediction.step.input_pipeline import InputOptions
from foretrain.prediction.step.parallel import Environment
from foretrain.prediction.stragglers import usual_jitter
from foretrain.prediction.strategies.layout import layout_of
from foretrain.prediction.timeline import COMPUTE
from foretrain.workloads.graph import Phase
from foretrain.workloads.workload import Workload, graph_at, graph_of

AUTO, SINGLE_PROCESS = "auto", "dp"
_MOST_SUGGESTED = 4
_MANY_CALLS = 5_000
"""The largest batch of a step with more calls is extrapolated: to walk through each takes about a second."""


@dataclass(frozen=True, slots=True)
class Parallelism:
    """How a step is to be spread; what is None is chosen.

    `global_batch` is over all devices, in place of the batch of each; `intra` and `inter` name links in place
    of what is known of the hardware; `jitter` is the coefficient of variation of step times between devices,
    the usual one if None.
    """

    strategy: str = "ddp"
    micro_batches: int | None = None
    global_batch: int | None = None
    intra: str | None = None
    inter: str | None = None
    jitter: float | None = None

    def __post_init__(self) -> None:
        for name in ("micro_batches", "global_batch"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise InvalidRequest(f"{name} must be at least 1, got {value}")
        if self.jitter is not None and not 0 <= self.jitter < 1:
            raise InvalidRequest(f"jitter is a share of the step between 0 and 1, got {self.jitter}")

    def jitter_of(self, device: Device) -> float:
        """How much step times vary between such devices; of devices that one process drives none is known."""
        if self.jitter is not None:
            return self.jitter
        return 0.0 if self.strategy == SINGLE_PROCESS else usual_jitter(device)

    @property
    def is_plain(self) -> bool:
        """Whether nothing was asked that concerns more than one device."""
        return self == Parallelism(self.strategy) and self.strategy in ("ddp", "dp", "auto")


def step_context(
    workload: Workload, hardware: Hardware, parallelism: Parallelism, model: CostModel, samples: InputOptions
) -> StepContext:
    """What is asked about a workload on hardware."""
    network = network_of(hardware, parallelism.intra or hardware.links, parallelism.inter or hardware.network)
    environment = Environment(hardware.device, network, model)
    return StepContext(workload, hardware, environment, samples, parallelism.jitter_of(hardware.device))


def predict_parallel(context: StepContext, parallelism: Parallelism, with_advice: bool) -> Prediction:
    """The prediction of a workload spread over devices."""
    ranking: Ranking | None = None
    if parallelism.strategy == AUTO:
        found = search(context, _global_batch(context, parallelism))
        if isinstance(found, Infeasible):
            raise InvalidRequest(str(found))
        ranking, evaluation = found, found.best
    else:
        evaluation = evaluate(context, step_configuration(context, parallelism))
    return _answer(evaluation, parallelism, ranking, with_advice)


def _global_batch(context: StepContext, parallelism: Parallelism) -> int:
    return parallelism.global_batch or own_batch(context.workload) * context.hardware.devices


def own_batch(workload: Workload) -> int:
    """The batch asked for, or that of the model's own example."""
    return workload.sizes.batch or graph_of(workload).batch


def step_configuration(context: StepContext, parallelism: Parallelism) -> StepConfiguration:
    """The layout a strategy stands for, with the batch of each replica and its micro-batches."""
    hardware = context.hardware
    layout = layout_of(parallelism.strategy, hardware.devices, hardware.devices_per_node)
    if parallelism.global_batch is None:
        batch = own_batch(context.workload)
    else:
        batch, left = divmod(parallelism.global_batch, layout.replicas)
        if left or not batch:
            near = max(1, round(parallelism.global_batch / layout.replicas)) * layout.replicas
            raise InvalidRequest(
                f"a global batch of {parallelism.global_batch} does not share out over {layout.replicas} "
                f"replicas; {near} would"
            )
    if parallelism.micro_batches is not None:
        return StepConfiguration(layout, batch, parallelism.micro_batches)
    if layout.pipeline == 1:
        return StepConfiguration(layout, batch)
    return _best_split(context, StepConfiguration(layout, batch))


def _best_split(context: StepContext, whole: StepConfiguration) -> StepConfiguration:
    """The micro-batches that make a pipeline fastest within memory: all powers of two are tried."""
    layout, batch = whole.layout, whole.batch
    sizes = [1 << power for power in range(batch.bit_length()) if batch % (1 << power) == 0]
    tried = [
        evaluate(context, StepConfiguration(layout, batch, batch // size))
        for size in sizes
        if layout.chunks == 1 or (batch // size) % layout.pipeline == 0
    ]
    if not tried:
        return whole
    fitting = [evaluation for evaluation in tried if evaluation.memory.fits] or tried
    return min(fitting, key=lambda evaluation: evaluation.seconds).configuration


def _answer(
    evaluation: Evaluation, parallelism: Parallelism, ranking: Ranking | None, with_advice: bool
) -> Prediction:
    context, spread, configuration = evaluation.context, evaluation.spread, evaluation.configuration
    is_batch_fixed = parallelism.global_batch is not None
    advice = counterfactuals(evaluation, is_batch_fixed) if with_advice and evaluation.memory.fits else ()
    found_curve = curve(evaluation, is_batch_fixed) if with_advice else None
    memory = _memory(evaluation, with_advice)
    notes = [*context.environment.network.notes, *spread.notes]
    if spread.priced.basis:
        notes.append(f"corrected by {spread.priced.basis}")
    return Prediction(
        workload=context.workload,
        hardware=context.hardware,
        strategy=configuration.layout.name,
        graph=evaluation.graph,
        batch=configuration.batch,
        memory=memory,
        step=step_answer(evaluation),
        throughput=evaluation.throughput,
        knowledge=spread.priced.knowledge,
        bottleneck=verdict(evaluation, advice, found_curve),
        coverage=Coverage(spread.modelled_share, spread.unmodelled),
        sources=tuple(dict.fromkeys((*evaluation.total.sources, memory.source))),
        notes=tuple(dict.fromkeys(notes)),
        spread=_spread_answer(evaluation, ranking, found_curve),
        timeline=spread.run.timeline,
    )


def step_answer(evaluation: Evaluation) -> StepAnswer:
    """The time of a step, as it is answered."""
    run, total = evaluation.spread.run, evaluation.total
    return StepAnswer(
        seconds=total.quantiles,
        forward_seconds=run.phases[Phase.FORWARD],
        backward_seconds=run.phases[Phase.BACKWARD],
        optimizer_seconds=run.phases[Phase.OPTIMIZER],
        input_seconds=evaluation.input.seconds,
        communication_seconds=evaluation.spread.communication_seconds,
        exposed_communication_seconds=run.exposed_seconds,
        waiting_for_launches_seconds=run.waiting_seconds,
        parts=step_parts(total.visible),
        hidden_parts=step_parts(total.hidden),
    )


def _memory(evaluation: Evaluation, with_advice: bool) -> MemoryAnswer:
    memory = evaluation.memory
    remedies: tuple[MemoryRemedy, ...] = ()
    if with_advice and not memory.fits:
        remedies = tuple(_what_fits(evaluation))
    return MemoryAnswer(
        bytes=memory.estimate.quantiles,
        capacity_bytes=memory.capacity_bytes,
        fits=memory.fits,
        parts=memory_parts(memory),
        source=", ".join(memory.estimate.sources),
        largest_batch=_largest_batch(evaluation),
        advice=remedies,
    )


def _largest_batch(evaluation: Evaluation) -> int:
    """The largest batch of a replica that fits, trained in as many micro-batches."""
    configuration, context = evaluation.configuration, evaluation.context
    layout = configuration.layout
    if layout.tensor * layout.context * layout.expert * layout.pipeline > 1:
        larger = evaluate(context, replace(configuration, batch=4 * configuration.batch)).memory
        return _extrapolated(evaluation, larger) * configuration.micro_batches
    options = memory_options(evaluation.spread.run.stages[0], 1.0, layout)
    device = context.environment.device

    def memory_at(size: int) -> MemoryEstimate:
        return estimate_memory(graph_at(context.workload, size), device, options)

    if len(evaluation.graph.calls) > _MANY_CALLS:
        found = _extrapolated(evaluation, memory_at(4 * configuration.micro_batch))
        return (
            found + memory_at(found + 1).fits
        ) * configuration.micro_batches  # a full device fragments less
    return (
        largest_batch(lambda size: graph_at(context.workload, size), device, options)
        * configuration.micro_batches
    )


def _extrapolated(evaluation: Evaluation, larger: MemoryEstimate) -> int:
    """The largest micro-batch that fits, from what four times as large a one needs: memory grows evenly."""
    configuration, memory = evaluation.configuration, evaluation.memory
    per_sample = (larger.bytes - memory.bytes) / (3 * configuration.micro_batch)
    if per_sample <= 0:
        return configuration.micro_batch if memory.fits else 0
    return max(0, configuration.micro_batch + math.floor((memory.capacity_bytes - memory.bytes) / per_sample))


def _what_fits(evaluation: Evaluation) -> Iterator[MemoryRemedy]:
    """Layouts of the same devices and global batch that do fit, the fastest first."""
    found = search(evaluation.context, evaluation.configuration.global_batch)
    if isinstance(found, Infeasible):
        yield MemoryRemedy(str(found), evaluation.memory.bytes, fits=False)
        return
    for other in found.evaluations[:_MOST_SUGGESTED]:
        yield MemoryRemedy(_named(other), other.memory.bytes, fits=True)


def _named(evaluation: Evaluation) -> str:
    said = f"--strategy {evaluation.configuration.layout.name} --micro-batches {evaluation.configuration.micro_batches}"
    if evaluation.context.workload.options.checkpoint_activations:
        said += " --checkpoint-activations"
    return said


def _spread_answer(
    evaluation: Evaluation, ranking: Ranking | None, scaling: ScalingCurve | None
) -> ParallelismReport:
    spread, configuration = evaluation.spread, evaluation.configuration
    network = evaluation.context.environment.network
    tiers = {"inside a node": network.intra, "between nodes": network.inter}
    return ParallelismReport(
        strategy=configuration.layout.name,
        degrees={axis.value: degree for axis, degree in configuration.layout.degrees.items()},
        replicas=configuration.layout.replicas,
        global_batch=configuration.global_batch,
        update_batch=evaluation.update_batch,
        micro_batches=configuration.micro_batches,
        network={where: tier.name for where, tier in tiers.items() if tier is not None},
        coordination_ratio=spread.coordination_ratio,
        moved_bytes=spread.moved_bytes,
        bubble_seconds=spread.run.bubble_seconds,
        utilisation=_utilisation(evaluation),
        exchanges=spread.traffic,
        stages=spread.run.stage_names,
        fullest_stage=evaluation.fullest[0],
        staleness=spread.staleness,
        scaling=scaling,
        searched=len(ranking.candidates) if ranking else 0,
        fitting=ranking.fitting if ranking else 0,
        runners_up=tuple(_runners_up(ranking)) if ranking else (),
        families=tuple(_families(ranking)) if ranking else (),
    )


def _utilisation(evaluation: Evaluation) -> dict[str, float]:
    """The share of the step that each kind of stream works, on the busiest device."""
    run = evaluation.spread.run
    found = {COMPUTE: run.computing_seconds / evaluation.seconds}
    found["exchange"] = min(1.0, evaluation.spread.communication_seconds / evaluation.seconds)
    return found


def _families(ranking: Ranking) -> Iterator[BestOfFamily]:
    found = ranking.best_with
    quickest = min((each.sketch.seconds for each in found.values()), default=1.0)
    for family, candidate in sorted(found.items(), key=lambda item: item[1].sketch.seconds):
        yield BestOfFamily(family, candidate.name, candidate.sketch.seconds / quickest)


def _runners_up(ranking: Ranking) -> Iterator[Runner]:
    for other in ranking.evaluations[1:]:
        yield Runner(
            strategy=_named(other),
            micro_batch=other.configuration.micro_batch,
            step_seconds=other.seconds,
            memory_bytes=other.memory.bytes,
            slower=other.seconds / ranking.best.seconds,
        )
