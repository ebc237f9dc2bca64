"""Training steps of a guide: global batches shared out over the devices of a machine.

    batch of a device = global batch / replicas

Where that does not fit into memory it is trained in the fewest equal micro-batches that do. The times,
memory and verdicts are those of `foretrain predict` for the same request.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from foretrain.errors import InvalidRequest, MissingData
from foretrain.estimates import Quantiles
from foretrain.facts.hardware import Hardware
from foretrain.prediction.advice.bottleneck import Limit, bottleneck
from foretrain.prediction.cost_models.step_models import CostModel
from foretrain.prediction.evaluation import Evaluation, evaluation_of
from foretrain.prediction.memory.estimate import MemoryEstimate, estimate_memory, memory_options
from foretrain.prediction.operators._base import Knowledge
from foretrain.prediction.scenario import Parallelism, StepConfiguration, StepContext, step_context
from foretrain.prediction.step.input_pipeline import InputOptions
from foretrain.prediction.step.parallel import parallel_step
from foretrain.prediction.strategies.catalogue import AUTO, layout_of
from foretrain.prediction.strategies.layout import Layout
from foretrain.prediction.strategies.memory_options import MemoryOptions
from foretrain.units import format_bytes
from foretrain.workloads.graph import Graph
from foretrain.workloads.workload import Workload, graph_at

STRATEGIES = "ddp, dp, zero1, zero2, zero3, fsdp or hsdp"


class Blank(StrEnum):
    """Why there is no figure."""

    UNEVEN = "does not share out"
    MEMORY = "does not fit"
    UNKNOWN = "not known"


@dataclass(frozen=True, slots=True)
class NoRun:
    """A step that cannot be, or of which nothing can be told, and why."""

    blank: Blank
    reason: str


@dataclass(frozen=True, slots=True)
class Run:
    """A step of a global batch. Memory is of the fullest device; `moved_bytes` of all messages of a step.

    `coordination_ratio` is the time of exchanges, overlapped or not, over that of computing.
    """

    step_seconds: Quantiles
    samples_per_second: float
    memory_bytes: float
    capacity_bytes: float
    micro_batches: int
    moved_bytes: float
    coordination_ratio: float
    limit: Limit
    verdict: str
    knowledge: Knowledge
    notes: tuple[str, ...]


@dataclass(frozen=True)
class Known:
    """Graphs of a workload by batch, and memory by device, batch and options: each worked out once."""

    workload: Workload
    _graphs: dict[int, Graph] = field(default_factory=dict)
    _memory: dict[tuple[str, int, MemoryOptions], MemoryEstimate] = field(default_factory=dict)

    def evaluation(self, context: StepContext, configuration: StepConfiguration) -> Evaluation:
        """What becomes of an attempt, as `outcomes.evaluate` tells it."""
        if configuration.micro_batch not in self._graphs:
            self._graphs[configuration.micro_batch] = graph_at(self.workload, configuration.micro_batch)
        graph = self._graphs[configuration.micro_batch]
        found = parallel_step(graph, configuration.layout, configuration.micro_batches, context.environment)
        evaluation = evaluation_of(context, configuration, graph, found)
        evaluation.__dict__["fullest"] = (
            0,
            self._memory_of(evaluation),
        )  # its own cached property, told already
        return evaluation

    def _memory_of(self, evaluation: Evaluation) -> MemoryEstimate:
        """Memory of a device. Without sharding more than two devices need what two do."""
        run, device = evaluation.step.run, evaluation.context.environment.device
        options = memory_options(run.stages[0], run.in_flight[0], evaluation.configuration.layout)
        if options.zero_stage == 0:
            options = replace(options, data_parallel=min(2, options.data_parallel))
        key = device.id, evaluation.configuration.micro_batch, options
        if key not in self._memory:
            self._memory[key] = estimate_memory(run.stages[0].graph, device, options)
        return self._memory[key]


def layout_on(strategy: str, hardware: Hardware) -> Layout:
    """How the batch is shared out; what divides the model or waits for no one raises `InvalidRequest`."""
    if strategy != AUTO:
        layout = layout_of(strategy, hardware.devices, hardware.devices_per_node)
        if layout.servers is None and layout.replicas == hardware.devices:
            return layout
    raise InvalidRequest(
        f"a guide shares the batch out over all devices: --strategy {STRATEGIES}, not {strategy}"
    )


def runs(
    known: Known, hardware: Hardware, strategy: str, batches: Sequence[int], model: CostModel
) -> Iterator[Run | NoRun]:
    """A step of each global batch, in the order given (rising: a batch too large stays so)."""
    try:
        layout = layout_on(strategy, hardware)
        context = step_context(known.workload, hardware, Parallelism(strategy), model, InputOptions())
    except (InvalidRequest, MissingData) as error:
        yield from (NoRun(Blank.UNKNOWN, str(error)) for _ in batches)
        return
    too_large = math.inf
    refused: NoRun | None = None
    for batch in batches:
        if batch % layout.replicas:
            yield _uneven(batch, layout)
            continue
        if refused is None:
            found, too_large = _or_unknown(known, context, layout, batch // layout.replicas, too_large)
            refused = found if isinstance(found, NoRun) else None
        yield refused or found


def _uneven(batch: int, layout: Layout) -> NoRun:
    near = max(1, round(batch / layout.replicas)) * layout.replicas
    return NoRun(
        Blank.UNEVEN,
        f"a batch of {batch:,} does not share out over {layout.replicas} devices; {near:,} would",
    )


def _or_unknown(
    known: Known, context: StepContext, layout: Layout, batch: int, too_large: float
) -> tuple[Run | NoRun, float]:
    try:
        return _fitting(known, context, layout, batch, too_large)
    except (InvalidRequest, MissingData) as error:
        return NoRun(Blank.UNKNOWN, str(error)), too_large


def _fitting(
    known: Known, context: StepContext, layout: Layout, batch: int, too_large: float
) -> tuple[Run | NoRun, float]:
    """A step of `batch` on each device in the fewest micro-batches that fit; and the least that does not."""
    for parts in (count for count in range(1, batch + 1) if batch % count == 0):
        if batch // parts >= too_large:
            continue
        evaluation = known.evaluation(context, StepConfiguration(layout, batch, parts))
        if evaluation.memory.fits:
            return _run(evaluation), too_large
        too_large = batch // parts
    memory = evaluation.memory
    reason = (
        f"not even a micro-batch of 1 fits into {context.environment.device.id}: it needs "
        f"{format_bytes(memory.bytes)} of {format_bytes(memory.capacity_bytes)}"
    )
    return NoRun(Blank.MEMORY, reason), too_large


def _run(evaluation: Evaluation) -> Run:
    told, memory = bottleneck(evaluation), evaluation.memory
    return Run(
        step_seconds=evaluation.total.quantiles,
        samples_per_second=evaluation.samples_per_second,
        memory_bytes=memory.bytes,
        capacity_bytes=memory.capacity_bytes,
        micro_batches=evaluation.configuration.micro_batches,
        moved_bytes=evaluation.step.moved_bytes,
        coordination_ratio=evaluation.step.coordination_ratio,
        limit=told.kind,
        verdict=told.verdict,
        knowledge=evaluation.step.priced.knowledge,
        notes=(*evaluation.context.environment.network.notes, *evaluation.step.notes),
    )
