"""Pipeline parallelism: a model cut into parts, the parts assigned to stages, and a schedule.

With v chunks per device the model is cut into v · stages parts, and part i is on stage i mod stages. A model
of equal blocks gives every part as many of them, as Megatron does: what precedes the blocks is on the first
part, head and loss are on the last. The numbers of blocks may be given instead (`layers=9+10+10+9`).

Other cuts (`cuts`) minimise the time of the slowest part with its traffic, within the memory of each stage if
possible: on request (`layers=balanced`), where the blocks are unequal, and where their number is not a
multiple of the parts. They are between blocks, as in training frameworks; a model with fewer blocks than
parts is cut between any two layers.

`step.pipeline` composes the step of the stages.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from foretrain.answers import Infeasible
from foretrain.errors import InvalidRequest
from foretrain.prediction.operators.pricing import Floats
from foretrain.prediction.strategies.pipeline.cuts import (
    UNLIMITED,
    Chain,
    Cuts,
    StageLink,
    StageMemory,
    block_starts,
    chain_of,
    cut,
    equal_blocks,
    even_bounds,
    given_bounds,
    merge_positions,
    numbered_blocks,
    position_of_every_call,
)
from foretrain.prediction.strategies.pipeline.schedules import (
    INTERLEAVED,
    ONE_FORWARD_ONE_BACKWARD,
    SCHEDULES,
    PipelineSchedule,
    peak_in_flight,
    schedule,
)
from foretrain.prediction.strategies.pipeline.stages import Stage, stage_programs
from foretrain.prediction.strategies.program import Axis, Program, unit_of
from foretrain.prediction.strategies.strategy import Layout, MixedPrecision, Strategy, one_of, whole_number
from foretrain.workloads.graph import Graph, Role


@dataclass(frozen=True, eq=False)
class Pipeline:
    """The parts of a model in order, and the stages that hold them.

    `update_shares` are the shares of the parameters each part updates; `cut_bytes` cross between neighbouring
    parts.
    """

    parts: tuple[Stage, ...]
    stages: tuple[Stage, ...]
    update_shares: tuple[float, ...]
    cut_bytes: tuple[float, ...]
    schedule: PipelineSchedule

    @property
    def in_flight(self) -> tuple[float, ...]:
        """Micro-batches with activations on each stage, in units of all its parts."""
        return tuple(count / self.schedule.chunks for count in peak_in_flight(self.schedule))

    def under(self, order: PipelineSchedule) -> Pipeline:
        """The same parts with another schedule of as many stages."""
        count = order.micro_batches

        def updated(stage: Stage) -> Stage:
            return stage._replace(program=replace(stage.program, micro_batches=count))

        parts = tuple(updated(part) for part in self.parts)
        stages = parts if self.stages is self.parts else tuple(updated(stage) for stage in self.stages)
        return replace(self, parts=parts, stages=stages, schedule=order)

    def of_stage(self, stage: int) -> Sequence[int]:
        """The indices of the parts on a stage."""
        return range(stage, len(self.parts), self.schedule.stages)


@dataclass(frozen=True, slots=True)
class MemoryBudget:
    """Memory of a device, and how the state of its parameters is sharded."""

    capacity_bytes: float
    zero_stage: int = 0
    shards: int = 1


@dataclass(frozen=True, slots=True)
class StageLayers:
    """Which blocks each part gets: given `counts`, or as many for all, or `balanced` by their time."""

    counts: tuple[int, ...] = ()
    balanced: bool = False


EVEN = StageLayers()


def cut_program(
    program: Program,
    call_seconds: Floats,
    order: PipelineSchedule,
    link: StageLink,
    budget: MemoryBudget | None = None,
    layers: StageLayers = EVEN,
) -> Pipeline:
    """A program cut into the parts of a schedule, from the times of its calls."""
    chain = chain_of(program.graph, call_seconds.tolist())
    if order.parts > len(chain):
        raise InvalidRequest(
            f"{order.parts} stages for a model with {len(chain)} layers that can be separated; use at most "
            f"{len(chain)} stages"
        )
    bounds = _bounds_of_blocks(chain, order, layers)
    if bounds is None:
        bounds = _balance_bounds(chain, order, link, program.graph, budget, layers)
    return _parts(program, chain, order, bounds)


def cut_program_before(
    program: Program, call_seconds: Floats, order: PipelineSchedule, modules: Sequence[str]
) -> Pipeline:
    """A program cut before the first call of each named module, as frameworks assign whole blocks.

    For calls outside of modules, give the name of the operator.
    """
    chain = chain_of(program.graph, call_seconds.tolist())
    if len(modules) != order.parts - 1:
        raise InvalidRequest(
            f"{order.parts} stages need {order.parts - 1} modules to start at, got {len(modules)}"
        )
    position = position_of_every_call(program.graph)
    bounds = [0]
    for module in modules:
        bounds.append(_start(program.graph, position, module, bounds[-1]))
    return _parts(program, chain, order, (*bounds, len(chain)))


def _start(graph: Graph, position: NDArray[np.int64], module: str, after: int) -> int:
    """The position of the first call of a module, or of that name outside all modules, after another."""
    for call, place in zip(graph.calls, position.tolist(), strict=True):
        is_inside = call.module == module or call.module.startswith(module + ".")
        if place > after and (is_inside or (not call.module and call.name == module)):
            return int(place)
    raise InvalidRequest(
        f"no call of {module!r} follows the start of the previous stage; stages start in order"
    )


def _parts(program: Program, chain: Chain, order: PipelineSchedule, bounds: Sequence[int]) -> Pipeline:
    position = position_of_every_call(program.graph)
    part_of_position = np.repeat(np.arange(order.parts), np.diff(bounds))
    part_of_call = np.where(position < 0, -1, part_of_position[position])
    parallel = program.with_axis(Axis.PIPELINE, order.stages)
    parts = stage_programs(parallel, part_of_call, order.parts)
    stages = parts
    if order.chunks > 1:
        stage_of_call = np.where(part_of_call < 0, -1, part_of_call % order.stages)
        stages = stage_programs(parallel, stage_of_call, order.stages)
    parameters = np.add.reduceat(chain.parameter_bytes, bounds[:-1])
    total = parameters.sum() or 1.0
    return Pipeline(
        parts=parts,
        stages=stages,
        update_shares=tuple(float(each / total) for each in parameters),
        cut_bytes=tuple(float(chain.crossing_bytes[bound - 1]) for bound in bounds[1:-1]),
        schedule=order,
    )


def _bounds_of_blocks(chain: Chain, order: PipelineSchedule, layers: StageLayers) -> tuple[int, ...] | None:
    """Given numbers of blocks, or as many for every part; None where blocks are to be balanced by time."""
    if layers.balanced:
        return None
    if layers.counts:
        blocks = numbered_blocks(chain)
        if not blocks:
            raise InvalidRequest("the model has no numbered layers to give to stages; omit layers=")
        return given_bounds(blocks, len(chain), layers.counts)
    return even_bounds(_equal_blocks(chain), len(chain), order.parts)


def _equal_blocks(chain: Chain) -> tuple[int, ...]:
    """The first position of each block of a model of equal blocks."""
    starts = block_starts(chain)
    whole = merge_positions(chain, starts)
    units = [unit_of(f"{name}.") for name in whole.names]
    return tuple(starts[block] for block in equal_blocks(units, whole.parameter_bytes))


def _balance_bounds(
    chain: Chain,
    order: PipelineSchedule,
    link: StageLink,
    graph: Graph,
    budget: MemoryBudget | None,
    layers: StageLayers,
) -> tuple[int, ...]:
    memory = UNLIMITED
    if budget is not None and order.chunks == 1:
        memory = StageMemory(
            budget.capacity_bytes,
            _state_ratio(graph, budget),
            lambda stages: peak_in_flight(schedule(order.name, stages, order.micro_batches)),
        )
    starts = block_starts(chain)
    blocks = () if layers.balanced else _equal_blocks(chain)
    if len(blocks) >= order.parts:  # every part has a block, also the first and the last
        starts = (0, *blocks[1:])
    whole = chain if len(starts) < order.parts else merge_positions(chain, starts)
    cuts = cut(whole, order.parts, link, memory)
    if isinstance(cuts, Infeasible):  # the memory estimate reports that it does not fit
        cuts = cut(whole, order.parts, link, UNLIMITED)
    assert isinstance(cuts, Cuts)
    if whole is chain:
        return cuts.bounds
    ends = (*starts, len(chain))
    return tuple(ends[bound] for bound in cuts.bounds)


def _state_ratio(graph: Graph, budget: MemoryBudget) -> float:
    """Bytes of parameters, gradients and optimizer state per byte of parameters."""
    sizes = dict.fromkeys((Role.PARAMETER, Role.GRADIENT, Role.OPTIMIZER_STATE), 0)
    for buffer in graph.buffers:
        if buffer.role in sizes:
            sizes[buffer.role] += graph.specs[buffer.spec].bytes
    shards = [budget.shards if budget.zero_stage >= stage else 1 for stage in (3, 2, 1)]
    held = sum(size / share for size, share in zip(sizes.values(), shards, strict=True))
    return held / sizes[Role.PARAMETER] if sizes[Role.PARAMETER] else 1.0


_BALANCED = "balanced"


class PipelineParallel(Strategy):
    """`pp=P` cuts the model into P stages, run by a `schedule`, with one or more `chunks` per device.

    `layers=9+10+10+9` gives the numbers of layers, `layers=balanced` balances their times.
    """

    name = "pipeline"
    keys = ("pp", "schedule", "chunks", "layers")
    form = "pp=P"
    axis = Axis.PIPELINE
    order = 30

    def read(self, given: Mapping[str, str], layout: Layout) -> Layout:
        """`pp`, `schedule`, `chunks` and `layers`."""
        stages = whole_number("pp", given.get("pp", "1"))
        chunks = whole_number("chunks", given.get("chunks", "1"))
        default = INTERLEAVED if "chunks" in given else ONE_FORWARD_ONE_BACKWARD
        schedule = one_of("schedule", given.get("schedule", default), tuple(SCHEDULES))
        if chunks > 1 and schedule != INTERLEAVED:
            raise InvalidRequest(
                f"schedule={schedule} runs one chunk per device, got chunks={chunks}; use "
                f"schedule={INTERLEAVED}, or omit chunks"
            )
        if chunks > 1 and stages == 1:
            raise InvalidRequest(f"chunks={chunks} requires a pipeline: give pp=2 or more")
        layers = given.get("layers", "")
        counts = () if layers in ("", _BALANCED) else _layer_counts(layers, stages, chunks)
        if layers and stages == 1:
            raise InvalidRequest(f"layers={layers} requires a pipeline: give pp=2 or more")
        return replace(
            layout,
            pipeline=stages,
            schedule=schedule,
            chunks=chunks,
            stage_layers=counts,
            balances_stages=layers == _BALANCED,
        )

    def mixed_precision(self, layout: Layout) -> MixedPrecision:
        """As Megatron does."""
        return MixedPrecision.FP32_GRADIENTS if layout.pipeline > 1 else MixedPrecision.AUTOCAST

    def environment(self, layout: Layout) -> tuple[tuple[str, str, str], ...]:
        """Stages, chunks and schedule."""
        if layout.pipeline == 1:
            return ()
        chunks = ("PIPELINE_CHUNKS", str(layout.chunks), "parts of the model on each stage")
        return (
            ("PIPELINE_PARALLEL", str(layout.pipeline), "stages the layers are divided into"),
            *((chunks,) if layout.chunks > 1 else ()),
            ("PIPELINE_SCHEDULE", layout.schedule, "order of micro-batches in the pipeline"),
        )


def _layer_counts(text: str, stages: int, chunks: int) -> tuple[int, ...]:
    """The numbers of layers of all parts, in order."""
    given = text.split("+")
    if not all(count.isascii() and count.isdigit() and int(count) >= 1 for count in given):
        example = "+".join(["10"] * stages)
        raise InvalidRequest(
            f"layers={text} is neither whole numbers of at least 1, such as layers={example}, nor "
            f"layers={_BALANCED}"
        )
    parts = stages * chunks
    if len(given) != parts:
        several = f"{stages} stages of {chunks} chunks" if chunks > 1 else f"{stages} stages"
        raise InvalidRequest(f"layers={text} gives {len(given)} numbers for {several}; give {parts}")
    return tuple(map(int, given))
