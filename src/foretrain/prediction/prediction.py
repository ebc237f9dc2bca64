"""The whole prediction of a training step on given hardware, as `predict` answers it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from foretrain.errors import InvalidRequest
from foretrain.estimates import Part, Quantiles
from foretrain.facts.hardware import Hardware
from foretrain.prediction.bottleneck import Bottleneck, bottleneck
from foretrain.prediction.fitting import GraphAt, largest_batch
from foretrain.prediction.fitting import advice as remedies
from foretrain.prediction.input_pipeline import InputOptions
from foretrain.prediction.memory import MemoryEstimate, estimate_memory
from foretrain.prediction.operators._base import Knowledge
from foretrain.prediction.operators.catalogue import DEFAULT
from foretrain.prediction.speeding_up import Advice, Situation, faster
from foretrain.prediction.step_models import OperatorSteps, StepModel, TimedSteps
from foretrain.prediction.tenancy import MemoryOptions
from foretrain.prediction.timing import Throughput, Timing, throughput, time_step
from foretrain.workloads.graph import Graph, Phase
from foretrain.workloads.workload import Workload, graph_at, graph_of

ZERO_STAGES = {"ddp": 0, "dp": 0, "zero1": 1, "zero2": 2, "zero3": 3, "fsdp": 3}
"""The data-parallel strategies whose memory is known, by the ZeRO stage they amount to."""
MANY_DEVICES = (
    "the time of a step is told for one device so far: name one to see it; memory is that of each device"
)


@dataclass(frozen=True, slots=True)
class MemoryPart:
    """One use of memory."""

    name: str
    bytes: float


@dataclass(frozen=True, slots=True)
class MemoryRemedy:
    """A change, what the step would then need, and whether that fits."""

    change: str
    bytes: float
    fits: bool


@dataclass(frozen=True, slots=True)
class MemoryAnswer:
    """Memory of the fullest device: how much, of what, whether it fits, and what would make it fit."""

    bytes: Quantiles
    capacity_bytes: float
    fits: bool
    parts: tuple[MemoryPart, ...]
    source: str
    largest_batch: int
    advice: tuple[MemoryRemedy, ...]


@dataclass(frozen=True, slots=True)
class StepPart:
    """One part of a step, and what its time rests on."""

    name: str
    seconds: float
    source: str


@dataclass(frozen=True, slots=True)
class StepAnswer:
    """The time of a step. `parts` sum to the median; `hidden_parts` happen in their shadow.

    Forward, backward and optimizer are the device's time from phase to phase, waits for launches included.
    """

    seconds: Quantiles
    forward_seconds: float
    backward_seconds: float
    optimizer_seconds: float
    input_seconds: float
    communication_seconds: float
    exposed_communication_seconds: float
    waiting_for_launches_seconds: float
    parts: tuple[StepPart, ...]
    hidden_parts: tuple[StepPart, ...]


@dataclass(frozen=True, slots=True)
class Coverage:
    """How much of the device's time is told by a model, and the operators no rule knows."""

    modelled_share: float
    unmodelled: tuple[str, ...]


@dataclass(frozen=True)
class Prediction:
    """What is predicted of a workload on hardware.

    What is said of the step is None where only memory can be told yet; `notes` say why.
    """

    workload: Workload
    hardware: Hardware
    strategy: str
    graph: Graph
    memory: MemoryAnswer
    step: StepAnswer | None
    throughput: Throughput | None
    knowledge: Knowledge | None
    bottleneck: Bottleneck | None
    coverage: Coverage | None
    sources: tuple[str, ...]
    notes: tuple[str, ...]


def predict(
    workload: Workload,
    hardware: Hardware,
    strategy: str = "ddp",
    model: StepModel | str = DEFAULT,
    input_options: InputOptions | None = None,
    with_advice: bool = True,
) -> Prediction:
    """Predict one training step of a workload on hardware.

    `model` tells the time of the step: a name of `operators.catalogue`, or any `StepModel`.
    """
    options = memory_options(strategy, hardware.devices)
    batch = workload.sizes.batch
    graph = graph_of(workload) if batch is None else graph_at(workload, batch)
    memory = _memory(workload, graph, hardware, options)
    blank = Prediction(
        workload, hardware, strategy, graph, memory,
        step=None, throughput=None, knowledge=None, bottleneck=None, coverage=None,
        sources=(memory.source,), notes=(),
    )  # fmt: skip
    if hardware.devices > 1:
        return replace(blank, notes=(MANY_DEVICES,))
    named = _named(model, workload) if isinstance(model, str) else model
    situation = Situation(
        workload=workload,
        graph=graph,
        device=hardware.device,
        model=named,
        input=input_options or InputOptions(),
        memory=options,
        largest_batch=memory.largest_batch,
    )
    return _with_step(blank, situation, with_advice)


def _named(model: str, workload: Workload) -> StepModel:
    """The step model of a name; foretrain's own listens to the user's timings."""
    steps = OperatorSteps(model)
    return TimedSteps(steps, workload.source.name) if model == DEFAULT else steps


def _with_step(known: Prediction, at: Situation, with_advice: bool) -> Prediction:
    timing, memory = time_step(at.graph, at.device, at.model, at.input), known.memory
    advice: tuple[Advice, ...] = ()
    if with_advice:
        advice = faster(at, timing) if memory.fits else _fitting(memory)
    return replace(
        known,
        step=_step(timing),
        throughput=throughput(at.graph, at.device, timing.seconds),
        knowledge=timing.computing.knowledge,
        bottleneck=bottleneck(timing, memory.bytes.p50, memory.capacity_bytes, memory.fits, advice),
        coverage=Coverage(timing.computing.modelled_share, timing.computing.unmodelled),
        sources=tuple(dict.fromkeys((*timing.total.sources, memory.source))),
        notes=(f"corrected by {timing.computing.basis}",) if timing.computing.basis else (),
    )


def _step(timing: Timing) -> StepAnswer:
    phases, total = timing.computing.phases, timing.total
    return StepAnswer(
        seconds=total.quantiles,
        forward_seconds=phases[Phase.FORWARD],
        backward_seconds=phases[Phase.BACKWARD],
        optimizer_seconds=phases[Phase.OPTIMIZER],
        input_seconds=timing.input.seconds,
        communication_seconds=0.0,
        exposed_communication_seconds=0.0,
        waiting_for_launches_seconds=timing.computing.waiting_seconds,
        parts=_step_parts(total.visible),
        hidden_parts=_step_parts(total.hidden),
    )


def _step_parts(parts: tuple[Part, ...]) -> tuple[StepPart, ...]:
    """The parts that take time, longest first."""
    ordered = sorted(parts, key=lambda part: -part.value)
    return tuple(StepPart(part.name, part.value, part.source) for part in ordered if part.value > 0)


def _fitting(memory: MemoryAnswer) -> tuple[Advice, ...]:
    """What would make a step fit, as advice."""
    return tuple(
        Advice(remedy.change, None, None, None, remedy.bytes, remedy.fits) for remedy in memory.advice
    )


def memory_options(strategy: str, devices: int) -> MemoryOptions:
    """How a strategy over some devices spends memory."""
    if strategy not in ZERO_STAGES:
        raise InvalidRequest(f"strategy {strategy!r} is not one of {', '.join(ZERO_STAGES)}")
    return MemoryOptions(data_parallel=devices, zero_stage=ZERO_STAGES[strategy])


def _memory(workload: Workload, graph: Graph, hardware: Hardware, options: MemoryOptions) -> MemoryAnswer:
    estimate = estimate_memory(graph, hardware.device, options)
    found = () if estimate.fits else _remedies(workload, graph, hardware, options)
    return MemoryAnswer(
        bytes=estimate.estimate.quantiles,
        capacity_bytes=estimate.capacity_bytes,
        fits=estimate.fits,
        parts=_parts(estimate),
        source=", ".join(estimate.estimate.sources),
        largest_batch=largest_batch(lambda batch: graph_at(workload, batch), hardware.device, options),
        advice=found,
    )


def _parts(estimate: MemoryEstimate) -> tuple[MemoryPart, ...]:
    """Parts of one name together, largest first."""
    by_name: dict[str, float] = {}
    for part in estimate.estimate.visible:
        by_name[part.name] = by_name.get(part.name, 0.0) + part.value
    ordered = sorted(by_name.items(), key=lambda item: -item[1])
    return tuple(MemoryPart(name, size) for name, size in ordered if size > 0)


def _remedies(
    workload: Workload, graph: Graph, hardware: Hardware, options: MemoryOptions
) -> tuple[MemoryRemedy, ...]:
    found = remedies(
        lambda batch: graph_at(workload, batch),
        graph.batch,
        hardware.device,
        options,
        checkpointed_at=_checkpointed(workload),
    )
    return tuple(MemoryRemedy(item.change, item.memory.bytes, item.fits) for item in found)


def _checkpointed(workload: Workload) -> GraphAt | None:
    """The same workload with activation checkpointing, if it is not on already and the model has blocks."""
    if workload.options.checkpoint_activations or workload.options.forward_only:
        return None
    lean = replace(workload, options=replace(workload.options, checkpoint_activations=True))
    try:
        graph_of(lean)
    except InvalidRequest:
        return None
    return lambda batch: graph_at(lean, batch)
