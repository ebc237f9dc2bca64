"""A configuration of a step evaluated on equal nodes: time, memory and throughput together."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

from foretrain.errors import InvalidRequest
from foretrain.estimates import Estimate, longest, sequence
from foretrain.prediction.cost_models.error_model import StepError
from foretrain.prediction.cost_models.priced_step import narrowed
from foretrain.prediction.cost_models.step_models import CorrectedCostModel, timing_evidence
from foretrain.prediction.cost_models.user_timings import corrections_of, priced_error, timings_on_several
from foretrain.prediction.memory.estimate import (
    MemoryEstimate,
    fullest_stage,
    memory_options,
    out_of_memory_probability,
)
from foretrain.prediction.scenario import StepConfiguration, StepContext
from foretrain.prediction.spread import KnowledgeClass, StepTraits, traits_of, with_spread
from foretrain.prediction.step.calibrated_workers import calibrated_step
from foretrain.prediction.step.input_pipeline import InputPipeline, input_pipeline
from foretrain.prediction.step.offload import offload_estimate, paging_estimate
from foretrain.prediction.step.parallel import ParallelStep, parallel_step
from foretrain.prediction.step.parameter_servers import parameter_server_step
from foretrain.prediction.step.throughput import Throughput, model_flop, peak
from foretrain.prediction.stragglers import with_slowest
from foretrain.prediction.strategies.mixed_precision import under
from foretrain.workloads.fusion import ExecutedGraph
from foretrain.workloads.graph import Graph
from foretrain.workloads.offload import PARAMETERS
from foretrain.workloads.options import ResolvedOptions, is_paged
from foretrain.workloads.workload import executed_graph_at


@dataclass(frozen=True, eq=False)
class Evaluation:
    """An evaluated configuration. `executed` is one micro-batch of the whole model.

    `known_memory`, if given, is the memory of a device of the only stage, which is then not simulated again.
    """

    configuration: StepConfiguration
    executed: ExecutedGraph
    step: ParallelStep
    input: InputPipeline
    total: Estimate
    context: StepContext
    known_memory: MemoryEstimate | None = None

    @property
    def graph(self) -> Graph:
        """One micro-batch of the whole model, as it runs on one device."""
        return self.executed.graph

    @property
    def seconds(self) -> float:
        """The median of a step."""
        return self.total.value

    @property
    def knowledge_class(self) -> KnowledgeClass:
        """How well the device is known in this precision."""
        return _traits(self.context, self.configuration, self.graph, self.step).known

    @property
    def samples_per_second(self) -> float:
        """Samples of all devices together that enter the model."""
        return self.configuration.update_batch / self.seconds

    @cached_property
    def fullest(self) -> tuple[int, MemoryEstimate]:
        """The stage whose devices need most memory, and what they need."""
        if self.known_memory is not None:
            return 0, self.known_memory
        run, at = self.step.run, self.context.environment
        return fullest_stage(run.stages, run.in_flight, self.configuration.layout, at.device, at.network)

    @property
    def memory(self) -> MemoryEstimate:
        """Memory of the fullest device."""
        return self.fullest[1]

    @cached_property
    def out_of_memory_probability(self) -> float:
        """The probability that the fullest device runs out of memory."""
        run, stage = self.step.run, self.fullest[0]
        at, layout = self.context.environment, self.configuration.layout
        options = memory_options(run.stages[stage], run.in_flight[stage], layout, at.network)
        return out_of_memory_probability(self.memory, run.stages[stage].graph, at.device, options)

    @property
    def throughput(self) -> Throughput:
        """Work per second of all devices together; MFU is of their joint peak."""
        rounds = self.configuration.micro_batches * self.configuration.layout.contributions
        joint = peak(self.graph, self.context.environment.device) * self.configuration.layout.devices
        return Throughput(
            self.samples_per_second,
            self.graph.tokens * rounds / self.seconds if self.graph.tokens else None,
            model_flop(self.graph) * rounds / self.seconds / joint,
        )


def evaluate(
    context: StepContext, configuration: StepConfiguration, executed: ExecutedGraph | None = None
) -> Evaluation:
    """The step of a workload in one configuration; `executed`, if given, is its micro-batch."""
    context = replace(context, workload=under(context.workload, configuration.layout))
    _refuse_impossible(context.workload.options, configuration)
    executed = executed or executed_graph_at(context.workload, configuration.micro_batch)
    graph = executed.graph
    layout, environment = configuration.layout, context.environment
    if graph.is_whole_step and (layout.devices > 1 or configuration.micro_batches > 1):
        raise InvalidRequest(
            "a step function is predicted on one device and in one piece, not with strategy "
            f"{layout.name} on {layout.devices} devices in {configuration.micro_batches} micro-batches"
        )
    if layout.servers is None:
        step = parallel_step(executed, layout, configuration.micro_batches, environment)
    else:
        step = parameter_server_step(
            executed, layout, configuration.micro_batches, environment, context.jitter
        )
    step = calibrated_step(step, graph, configuration.micro_batches, context.hardware, environment)
    return _timed(evaluation_of(context, configuration, executed, step))


def whole_error(evaluation: Evaluation, model: str) -> StepError:
    """A step as the model of errors sees it, all devices and micro-batches together."""
    step, on = evaluation.step, evaluation.context.environment.device
    if not _is_divided(evaluation.configuration):
        return priced_error(model, on, step.priced)
    share = min(1.0, step.run.exposed_seconds / evaluation.seconds) if evaluation.seconds else 0.0
    axes = [str(axis) for axis, degree in step.layout.degrees.items() if degree > 1]
    return priced_error(model, on, step.priced, evaluation.seconds, share, axes)


def _is_divided(configuration: StepConfiguration) -> bool:
    return configuration.layout.devices > 1 or configuration.micro_batches > 1


def _timed(evaluation: Evaluation) -> Evaluation:
    """A step on several devices, corrected as a whole where the user timed steps on several.

    Without such timings only its computing is corrected, by the cost model.
    """
    context, configuration = evaluation.context, evaluation.configuration
    environment, model = context.environment, context.environment.model
    if not (_is_divided(configuration) and isinstance(model, CorrectedCostModel) and timings_on_several()):
        return evaluation
    uncorrected = replace(context, environment=replace(environment, model=model.inner))
    plain = evaluate(uncorrected, configuration, evaluation.executed)
    known = corrections_of([whole_error(plain, model.model)], environment.device)
    if known is None:
        return evaluation
    factor, evidence, run = known[0].factor, timing_evidence(known[0]), plain.step.run
    parts = narrowed([part.scale(factor) for part in plain.step.estimate.parts], evidence)
    step = replace(
        plain.step,
        estimate=Estimate("s", parts),
        run=replace(
            run,
            seconds=run.seconds * factor,
            phases={phase: seconds * factor for phase, seconds in run.phases.items()},
            computing_seconds=run.computing_seconds * factor,
            exposed_seconds=run.exposed_seconds * factor,
            bubble_seconds=run.bubble_seconds * factor,
            waiting_seconds=run.waiting_seconds * factor,
        ),
        priced=replace(plain.step.priced, evidence=evidence),
    )
    return evaluation_of(context, configuration, evaluation.executed, step)


def _refuse_impossible(options: ResolvedOptions, configuration: StepConfiguration) -> None:
    """Raise `InvalidRequest` where gradients or parameters would have to stay that options give away."""
    layout = configuration.layout
    if options.gradient_release and layout.devices > 1:
        raise InvalidRequest("`gradient_release` leaves no gradients for other devices; it is for one device")
    if options.gradient_release and configuration.micro_batches > 1:
        raise InvalidRequest("`gradient_release` cannot add up gradients; give one of `micro_batches`")
    if PARAMETERS in options.offload and layout.devices > 1 and layout.zero_stage < _SHARDS_PARAMETERS:
        raise InvalidRequest(
            f"`offload` parameters on several devices requires `strategy` fsdp or zero3, not {layout.name}"
        )


_SHARDS_PARAMETERS = 3
"""The ZeRO stage that shards parameters."""


def evaluation_of(
    context: StepContext, configuration: StepConfiguration, executed: ExecutedGraph, step: ParallelStep
) -> Evaluation:
    """A step with its input and the wait for the slowest device.

    step = max(computing, input) where loading overlaps training, their sum where it does not.
    """
    graph = executed.graph
    loading = _loading(context, configuration, graph)
    traits = _traits(context, configuration, graph, step)
    total = with_spread(step.estimate, step.priced, traits, context.environment.device)
    if configuration.layout.servers is None and not step.includes_waits:  # servers have waited already
        total = with_slowest(total, configuration.layout.devices, context.jitter)
    layout, device = configuration.layout, context.environment.device
    copies = offload_estimate(step.run, layout, configuration.micro_batches, context.hardware, device)
    if copies.parts:
        total = sequence((total, copies))
    if loading.estimate.parts:
        total = longest(total, loading.estimate) if loading.overlaps else sequence((total, loading.estimate))
    evaluation = Evaluation(configuration, executed, step, loading, total, context)
    if not is_paged(context.workload.options.optimizer):
        return evaluation
    paging = paging_estimate(evaluation.memory.paged_out_bytes, device)
    return replace(evaluation, total=sequence((total, paging))) if paging.parts else evaluation


def _traits(
    context: StepContext, configuration: StepConfiguration, graph: Graph, step: ParallelStep
) -> StepTraits:
    seconds = step.estimate.value
    share = step.run.waiting_seconds / seconds if seconds else 0.0
    return traits_of(graph, step.priced, context.environment.device, configuration.layout.devices, share)


def _loading(context: StepContext, configuration: StepConfiguration, graph: Graph) -> InputPipeline:
    """Samples of one device in a step; the devices of a node read from one storage."""
    on_node = min(context.hardware.devices_per_node, configuration.layout.devices)
    each = input_pipeline(graph, context.environment.device, context.input, readers=on_node)
    return each.times(configuration.micro_batches)
