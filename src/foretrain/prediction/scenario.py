"""What is predicted, and its prediction: a workload on a cluster, in one configuration of the step.

A `Scenario` says how a step is parallelised, priced and fed. On equal nodes it becomes a `StepContext`, which
stays the same while configurations are compared, and a `StepConfiguration`; `evaluate` predicts time, memory
and throughput of that configuration together.

What a workload leaves open is decided as people train in it on such devices: BF16 on devices with BF16 tensor
cores, else FP16 on those with tensor cores, else FP32; autocast in DistributedDataParallel, FP32 master
weights of modules in half precision in FSDP and DeepSpeed, those and FP32 gradients in Megatron. A scenario
is resolved once, before it is predicted (`resolve`): all that follows from its devices is then decided. What
follows from the layout is decided where a layout becomes an evaluation (`as_stored`), because a search
compares layouts that store weights differently. What was given stays.

References: PyTorch `fsdp.MixedPrecision`; DeepSpeed `bf16`; Megatron-LM `bf16`, which sets
`accumulate_allreduce_grads_in_fp32`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, cast

from foretrain.errors import InvalidRequest, MissingData
from foretrain.estimates import Estimate, longest, sequence
from foretrain.facts.devices import Device
from foretrain.facts.frameworks import PLAIN, frameworks
from foretrain.facts.hardware import Cluster, Hardware
from foretrain.prediction.collectives.network import network_of
from foretrain.prediction.corrections.apply import CorrectedCostModel, correct_workers, with_timings
from foretrain.prediction.corrections.files import measurements_file
from foretrain.prediction.cost_models import CostModel
from foretrain.prediction.memory.estimate import (
    MemoryEstimate,
    estimate_memory,
    fullest_stage,
    fullest_stage_fits,
    memory_options,
    out_of_memory_probability,
    peaks_by_phase,
    tensors_fit,
)
from foretrain.prediction.operators.pricing import DEFAULT, listing_of, only_precision, peak_flop_per_second
from foretrain.prediction.options import InputOptions, Parallelism
from foretrain.prediction.spread import KnowledgeClass, SpreadTraits, traits_of, with_spread
from foretrain.prediction.step.input_pipeline import InputPipeline, estimate_input
from foretrain.prediction.step.parallel import (
    ParallelStep,
    StepEnvironment,
    predict_step,
    replicated_program,
)
from foretrain.prediction.stragglers import default_jitter, with_slowest
from foretrain.prediction.strategies.program import MemoryOptions
from foretrain.prediction.strategies.strategy import (
    AUTO,
    Layout,
    MixedPrecision,
    active_strategies,
    layout_of,
    strategy_of,
)
from foretrain.workloads.executed import PARAMETERS, ExecutedGraph
from foretrain.workloads.graph import Graph, Phase, once_per_graph
from foretrain.workloads.ops import MATRIX_KINDS
from foretrain.workloads.options import HALF_WEIGHTS, ResolvedOptions, is_paged, usual_attention
from foretrain.workloads.workload import Workload, default_batch, executed_graph_at

if TYPE_CHECKING:
    from foretrain.prediction.corrections.error_model import StepError
    from foretrain.workloads.zoo import AttentionKind


_DTYPES = {
    "fp32": "float32", "tf32": "tf32", "fp16": "float16", "bf16": "bfloat16", "fp8": "float8_e4m3fn",
}  # fmt: skip
_SHARDS_PARAMETERS = 3
"""The ZeRO stage that shards parameters."""
PRECISION, WEIGHTS, FRAMEWORK, OPTIMIZER = "precision", "weights", "framework", "optimizer"
ATTENTION, FROZEN_WEIGHTS = "attention", "frozen_weights"
MEGATRON = "megatron"


@dataclass(frozen=True)
class Scenario:
    """A training step to predict. `advice` False leaves out what would change it, which takes most time."""

    workload: Workload
    cluster: Cluster
    parallelism: Parallelism = field(default_factory=Parallelism)
    cost_model: CostModel | str = DEFAULT
    input: InputOptions = field(default_factory=InputOptions)
    advice: bool = True


@dataclass(frozen=True)
class StepContext:
    """What stays the same while configurations of a step are compared on equal nodes."""

    workload: Workload
    hardware: Hardware
    environment: StepEnvironment
    input: InputOptions
    jitter: float = 0.0


@dataclass(frozen=True)
class StepConfiguration:
    """A layout, with `batch` samples for each replica in a step, in `micro_batches` equal parts."""

    layout: Layout
    batch: int
    micro_batches: int = 1

    def __post_init__(self) -> None:
        if self.batch % self.micro_batches:
            divisors = [m for m in range(1, self.batch + 1) if self.batch % m == 0]
            raise InvalidRequest(
                f"a batch of {self.batch} samples per replica does not split into {self.micro_batches} equal "
                f"micro-batches; micro_batches can be {', '.join(map(str, divisors[:12]))}"
            )

    @property
    def micro_batch(self) -> int:
        """Samples of one micro-batch."""
        return self.batch // self.micro_batches

    @property
    def global_batch(self) -> int:
        """Samples of a step on all devices together."""
        return self.batch * self.layout.replicas

    @property
    def update_batch(self) -> int:
        """Samples that enter the model in one step: of all replicas, or of those that servers wait for."""
        return self.batch * self.layout.contributions


@dataclass(frozen=True, slots=True)
class Throughput:
    """Work per second. `tokens_per_second` is None for models without tokens.

    `mfu` is model FLOP utilisation: the FLOP/s of matrix products, convolutions, attention and recurrent
    layers, without recomputation, over the dense peak of all devices at the precision of the workload.
    """

    samples_per_second: float
    tokens_per_second: float | None
    mfu: float


@dataclass(frozen=True, eq=False)
class FullestDevice:
    """A device of the fullest stage: its graph and how it spends memory.

    `whole` is the undivided model, `evaluation` that of the step if it was needed to find the stage.
    """

    graph: Graph
    options: MemoryOptions
    device: Device
    whole: Graph
    evaluation: Evaluation | None = None

    @cached_property
    def memory(self) -> MemoryEstimate:
        """What it needs."""
        return estimate_memory(self.graph, self.device, self.options)


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
        return _error_traits(self.context, self.configuration, self.graph, self.step).known

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
    def fits(self) -> bool:
        """Whether the fullest device has the memory: `memory.fits`, with less work where that is unknown."""
        # A cached property is in `vars` once it was asked for; asking here would simulate the allocator.
        if self.known_memory is not None or "fullest" in vars(self):
            return self.memory.fits
        run, at = self.step.run, self.context.environment
        return fullest_stage_fits(run.stages, run.in_flight, self.configuration.layout, at.device, at.network)

    @cached_property
    def out_of_memory_probability(self) -> float:
        """The probability that the fullest device runs out of memory."""
        fullest = self.fullest_device
        return out_of_memory_probability(self.memory, fullest.graph, fullest.device, fullest.options)

    @property
    def fullest_device(self) -> FullestDevice:
        """A device of the fullest stage."""
        run, stage = self.step.run, self.fullest[0]
        at, layout = self.context.environment, self.configuration.layout
        options = memory_options(run.stages[stage], run.in_flight[stage], layout, at.network)
        return FullestDevice(run.stages[stage].graph, options, at.device, self.graph, self)

    @property
    def phase_bytes(self) -> dict[Phase, float]:
        """Memory of the fullest device at the peak of each phase."""
        fullest = self.fullest_device
        return peaks_by_phase(fullest.graph, fullest.device, fullest.options)

    @property
    def throughput(self) -> Throughput:
        """Work per second of all devices together; MFU is of their joint peak."""
        rounds = self.configuration.micro_batches * self.configuration.layout.contributions
        joint = peak_of(self.graph, self.context.environment.device) * self.configuration.layout.devices
        return Throughput(
            self.samples_per_second,
            self.graph.tokens * rounds / self.seconds if self.graph.tokens else None,
            model_flop(self.graph) * rounds / self.seconds / joint,
        )


def resolve(scenario: Scenario) -> Scenario:
    """The scenario in the precision it is trained in: as given, or as is usual on its devices.

    A cost model with measurements of one precision only decides it where it is not given; one learned from
    timings of whole steps does not know theirs, so that it stays open: memory is of the device default.
    """
    devices = [group.device for group in scenario.cluster.groups]
    only = only_precision(scenario.cost_model, devices[0])
    usual = in_usual_precision(scenario.workload, devices) if only is None else scenario.workload
    if not knows_precision(scenario.cost_model):
        return replace(scenario, workload=usual)
    return replace(scenario, workload=fix_precision(usual, only))


def knows_precision(cost_model: CostModel | str) -> bool:
    """Whether the times of a cost model are of the precision of the step: all but those of whole timings."""
    return isinstance(cost_model, str) or cost_model.knows_operators


def in_usual_precision(workload: Workload, devices: Iterable[Device]) -> Workload:
    """The workload in what people train in on these devices, where it leaves its precision open.

    Devices of different kinds train in the lowest common precision: FP32 if one of them has no tensor cores.
    The precision stays open, so that other devices may change it.
    """
    if PRECISION not in workload.left_open:
        return workload
    usual = {usual_precision(device) for device in devices}
    # From the lowest: all devices of a step exchange gradients of one type.
    common = next(name for name in ("fp32", "fp16", "bf16") if name in usual)
    return _with_options(workload, _in_precision(workload, common))


def fix_precision(workload: Workload, precision: str | None = None) -> Workload:
    """The workload in its present precision on all devices, or in another one where it leaves that open."""
    if PRECISION not in workload.left_open:
        return workload
    options = _in_precision(workload, precision or workload.options.precision)
    return replace(workload, options=options, left_open=workload.left_open - {PRECISION})


def usual_precision(device: Device) -> str:
    """What people train in on a device."""
    if not device.is_gpu:
        return "fp32"
    has = (name for name in ("bf16", "fp16") if device.sheet.has(f"{name}_tensor_flop_per_second"))
    return next(has, "fp32")


def refuse_precision(device: Device, precision: str) -> None:
    """Raise `MissingData` for a precision that a GPU has no units for, with one that it has.

    PyTorch emulates BF16 on such GPUs, more slowly than FP32, or refuses to train in it.
    """
    if device.is_gpu and precision in ("bf16", "fp8"):
        units = (f"{precision}_tensor_flop_per_second", f"{precision}_flop_per_second")
        if not any(map(device.sheet.has, units)):
            raise MissingData(
                f"{device.id} has no {precision.upper()}; use `precision` {usual_precision(device)}"
            )


def _in_precision(workload: Workload, precision: str) -> ResolvedOptions:
    options, half = workload.options, HALF_WEIGHTS.get(precision)
    if precision == options.precision:
        return options
    if half is not None and FROZEN_WEIGHTS in workload.left_open:  # of LoRA's base: stored in half precision
        return replace(options, precision=precision, weights=half)
    return replace(options, precision=precision)


def as_stored(workload: Workload, storage: MixedPrecision) -> Workload:
    """The workload in the framework, and with weights stored, as is usual with a layout (`storage_of`)."""
    options = _in_framework(workload, workload.options, storage)
    return _with_options(workload, _store_weights(workload, options, storage))


def storage_of(layout: Layout) -> MixedPrecision:
    """How a layout usually stores weights in half precision."""
    return max(each.mixed_precision(layout) for each in active_strategies(layout))


def _in_framework(workload: Workload, options: ResolvedOptions, storage: MixedPrecision) -> ResolvedOptions:
    """Options in the framework that people use for such layouts.

    Tensor, pipeline, context and expert parallelism are Megatron's; all else is plain PyTorch. A framework
    that was named brings its optimizer; one that follows from the layout leaves it, so that layouts compare.
    """
    if FRAMEWORK in workload.left_open:
        usual = MEGATRON if storage is MixedPrecision.FP32_GRADIENTS else PLAIN
        return _with_attention(workload, replace(options, framework=usual))
    own = frameworks()[options.framework].optimizer
    if own is None or OPTIMIZER not in workload.left_open or options.optimizer is None or options.offload:
        return options
    return replace(options, optimizer=own)


def _with_attention(workload: Workload, options: ResolvedOptions) -> ResolvedOptions:
    """Options with the attention of their framework in the year of its software."""
    if options.software_year is None or ATTENTION not in workload.left_open:
        return options
    if not workload.source.has_attention:
        return options
    return replace(options, attention=usual_attention(None, options.framework, options.software_year))


def _store_weights(workload: Workload, options: ResolvedOptions, storage: MixedPrecision) -> ResolvedOptions:
    """Options with weights stored as the layout does it, or the framework where that keeps more."""
    own = frameworks()[options.framework].mixed_precision
    how = max(storage, MixedPrecision[own]) if own else storage
    if WEIGHTS not in workload.left_open:
        return options
    half = HALF_WEIGHTS.get(options.precision)
    if half is None or how is MixedPrecision.AUTOCAST:
        return replace(options, weights="fp32", master_weights=False, gradients=None, half_outputs=False)
    return replace(
        options,
        weights=half,
        master_weights=True,
        gradients="fp32" if how is MixedPrecision.FP32_GRADIENTS and half == "bf16" else None,
        half_outputs=how is MixedPrecision.MASTER_WEIGHTS,
    )


def _with_options(workload: Workload, options: ResolvedOptions) -> Workload:
    if options == workload.options:
        return workload
    sizes = replace(workload.sizes, attention=cast("AttentionKind", options.attention))
    return replace(workload, sizes=sizes, options=options)


def jitter_on(parallelism: Parallelism, device: Device) -> float:
    """The coefficient of variation of step times across such devices."""
    if parallelism.jitter is not None:
        return parallelism.jitter
    varies = parallelism.strategy == AUTO or strategy_of(parallelism.strategy).has_jitter
    return default_jitter(device) if varies else 0.0


def step_context(
    workload: Workload,
    hardware: Hardware,
    parallelism: Parallelism,
    cost_model: CostModel,
    input_options: InputOptions,
) -> StepContext:
    """A workload on equal nodes."""
    refuse_precision(hardware.device, workload.options.precision)
    links, network = parallelism.links or hardware.links, parallelism.network or hardware.network
    environment = StepEnvironment(hardware.device, network_of(hardware, links, network), cost_model)
    jitter = jitter_on(parallelism, hardware.device)
    return StepContext(workload, hardware, environment, input_options, jitter)


def refuse_before_reading(cluster: Cluster, parallelism: Parallelism, precision: str) -> None:
    """Raise what a prediction would raise for its hardware, strategy and precision, whatever the model is.

    Reading and tracing a model may take a minute, which a misspelt name should not cost.
    """
    for group in cluster.groups:
        refuse_precision(group.device, precision)
    if not cluster.is_homogeneous:
        return
    hardware = cluster.groups[0]
    refuse_unread(hardware, parallelism)
    network_of(hardware, parallelism.links or hardware.links, parallelism.network or hardware.network)
    if parallelism.strategy != AUTO:
        layout_of(parallelism.strategy, hardware.devices, hardware.devices_per_node)


def refuse_unread(hardware: Hardware, parallelism: Parallelism) -> None:
    """Raise `InvalidRequest` for links, a network or a smallest batch that equal nodes do not use."""
    if parallelism.min_batch is not None:
        raise InvalidRequest("`min_batch` is for heterogeneous clusters; equal nodes all get the same batch")
    many = f"{hardware.device.id}:2"
    if parallelism.links and hardware.devices_per_node == 1:
        raise InvalidRequest(
            f"`links` {parallelism.links} has no effect: {hardware.name} has one device per node; use "
            f"several, such as {many}"
        )
    if parallelism.network and hardware.nodes == 1:
        raise InvalidRequest(
            f"`network` {parallelism.network} has no effect: {hardware.name} is one node; use several, "
            f"such as {hardware.device.id}:{hardware.devices_per_node}x2"
        )


def global_batch(workload: Workload, devices: int, parallelism: Parallelism) -> int:
    """Samples of a step on all devices, where each device is a replica.

    `batch` and `global_batch` may both be given if they agree.
    """
    if parallelism.global_batch is None:
        return default_batch(workload) * devices
    given = workload.sizes.batch
    if given is not None and given * devices != parallelism.global_batch:
        raise InvalidRequest(_disagreement(given, devices, "device", parallelism.global_batch))
    return parallelism.global_batch


def replica_batch(workload: Workload, parallelism: Parallelism, replicas: int) -> int:
    """The batch of each replica. `batch` and `global_batch` may both be given if they agree."""
    if parallelism.global_batch is None:
        return default_batch(workload)
    batch, left = divmod(parallelism.global_batch, replicas)
    if left or not batch:
        near = max(1, round(parallelism.global_batch / replicas)) * replicas
        raise InvalidRequest(
            f"global_batch {parallelism.global_batch} does not divide over {replicas} replicas; "
            f"use a multiple of {replicas}, such as {near}"
        )
    given = workload.sizes.batch
    if given is not None and given != batch:
        raise InvalidRequest(_disagreement(given, replicas, "replica", parallelism.global_batch))
    return batch


def _disagreement(batch: int, count: int, unit: str, global_batch: int) -> str:
    return (
        f"batch {batch} on {count} {unit}{'s' if count > 1 else ''} is a global batch of {batch * count}, "
        f"but global_batch is {global_batch}; give one of them"
    )


def evaluate(
    context: StepContext, configuration: StepConfiguration, executed: ExecutedGraph | None = None
) -> Evaluation:
    """The step of a workload in one configuration; `executed`, if given, is its micro-batch."""
    context, executed = _as_run(context, configuration, executed)
    graph = executed.graph
    layout, environment = configuration.layout, context.environment
    if layout.servers is None:
        step = predict_step(executed, layout, configuration.micro_batches, environment)
    else:
        from foretrain.prediction.step.parameter_servers import predict_server_step

        step = predict_server_step(executed, layout, configuration.micro_batches, environment, context.jitter)
    step = correct_workers(step, graph, configuration.micro_batches, context.hardware, environment)
    return _with_timings(evaluation_of(context, configuration, executed, step))


def fullest_device(context: StepContext, configuration: StepConfiguration) -> FullestDevice:
    """The fullest device of a configuration; its step is not priced where memory does not depend on times."""
    layout, at = configuration.layout, context.environment
    if layout.pipeline > 1 or layout.servers is not None:
        return evaluate(context, configuration).fullest_device
    context, executed = _as_run(context, configuration)
    program = replicated_program(executed, layout, configuration.micro_batches, at)
    options = memory_options(program, 1.0, layout, at.network)
    return FullestDevice(program.graph, options, at.device, executed.graph)


def may_fit(context: StepContext, configuration: StepConfiguration) -> bool:
    """Whether the tensors of a device alone, without gaps, fit its memory; its step is not priced.

    If not, nothing fits. True where memory depends on times.
    """
    layout = configuration.layout
    if layout.pipeline > 1 or layout.servers is not None:
        return True
    fullest = fullest_device(context, configuration)
    return tensors_fit(fullest.graph, fullest.device, fullest.options)


def _as_run(
    context: StepContext, configuration: StepConfiguration, executed: ExecutedGraph | None = None
) -> tuple[StepContext, ExecutedGraph]:
    """The context with weights as the layout stores them, and one micro-batch of the workload."""
    layout = configuration.layout
    # Before the graph is made: its casts, buffers and updates depend on how weights are stored.
    context = replace(context, workload=as_stored(context.workload, storage_of(layout)))
    _refuse_impossible(context.workload.options, configuration)
    executed = executed or executed_graph_at(context.workload, configuration.micro_batch)
    if executed.graph.is_whole_step and (layout.devices > 1 or configuration.micro_batches > 1):
        raise InvalidRequest(
            "a step function is predicted on one device and in one piece, not with strategy "
            f"{layout.name} on {layout.devices} devices in {configuration.micro_batches} micro-batches"
        )
    return context, executed


@once_per_graph
def model_flop(graph: Graph) -> float:
    """FLOP of a step that count for MFU: no recomputation, no elementwise operators."""
    listed = listing_of(graph).ops
    counted = (op for op in listed if op.work.kind in MATRIX_KINDS and not op.recomputed)
    return sum(op.work.flop for op in counted)


def peak_of(graph: Graph, device: Device) -> float:
    """The device's dense peak at the precision of a graph."""
    dtype = _DTYPES[graph.options.precision]
    return peak_flop_per_second(device, dtype, matrix=True)


def whole_error(evaluation: Evaluation, model: str) -> StepError:
    """A step as the model of errors sees it, all devices and micro-batches together."""
    from foretrain.prediction.corrections.timings import priced_error

    step, on = evaluation.step, evaluation.context.environment.device
    if not _is_divided(evaluation.configuration):
        return priced_error(model, on, step.priced)
    share = min(1.0, step.run.exposed_seconds / evaluation.seconds) if evaluation.seconds else 0.0
    axes = [str(axis) for axis, degree in step.layout.degrees.items() if degree > 1]
    return priced_error(model, on, step.priced, evaluation.seconds, share, axes)


def _is_divided(configuration: StepConfiguration) -> bool:
    return configuration.layout.devices > 1 or configuration.micro_batches > 1


def _with_timings(evaluation: Evaluation) -> Evaluation:
    """A step on several devices, corrected as a whole where the user timed steps on several.

    Without such timings only its computing is corrected, by the cost model.
    """
    context, configuration = evaluation.context, evaluation.configuration
    environment, model = context.environment, context.environment.model
    if not (_is_divided(configuration) and isinstance(model, CorrectedCostModel)):
        return evaluation
    if not measurements_file().exists():
        return evaluation
    from foretrain.prediction.corrections.timings import timings_on_several

    if not timings_on_several():
        return evaluation
    uncorrected = replace(context, environment=replace(environment, model=model.inner))
    plain = evaluate(uncorrected, configuration, evaluation.executed)
    step = with_timings(plain.step, whole_error(plain, model.model), environment.device)
    return evaluation if step is None else evaluation_of(context, configuration, evaluation.executed, step)


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


def evaluation_of(
    context: StepContext, configuration: StepConfiguration, executed: ExecutedGraph, step: ParallelStep
) -> Evaluation:
    """A step with its input and the wait for the slowest device.

    step = max(computing, input) where loading overlaps training, their sum where it does not.
    """
    graph, layout, device = executed.graph, configuration.layout, context.environment.device
    readers = min(context.hardware.devices_per_node, layout.devices)  # they read from one storage
    loading = estimate_input(graph, device, context.input, readers=readers).times(configuration.micro_batches)
    traits = _error_traits(context, configuration, graph, step)
    total = with_spread(step.estimate, step.priced, traits, device)
    if layout.servers is None and not step.includes_waits:  # servers have waited already
        total = with_slowest(total, layout.devices, context.jitter)
    if graph.options.offload:
        from foretrain.prediction.step.offload import estimate_offload

        copies = estimate_offload(step.run, layout, configuration.micro_batches, context.hardware, device)
        total = sequence((total, copies)) if copies.parts else total
    # Last, since a loader that prefetches works beside all else, copies of offloading included.
    if loading.estimate.parts:
        total = longest(total, loading.estimate) if loading.overlaps else sequence((total, loading.estimate))
    evaluation = Evaluation(configuration, executed, step, loading, total, context)
    if not is_paged(context.workload.options.optimizer):
        return evaluation
    from foretrain.prediction.step.offload import estimate_paging

    paging = estimate_paging(evaluation.memory.paged_out_bytes, device)
    return replace(evaluation, total=sequence((total, paging))) if paging.parts else evaluation


def _error_traits(
    context: StepContext, configuration: StepConfiguration, graph: Graph, step: ParallelStep
) -> SpreadTraits:
    seconds = step.estimate.value
    share = step.run.waiting_seconds / seconds if seconds else 0.0
    return traits_of(graph, step.priced, context.environment.device, configuration.layout.devices, share)
