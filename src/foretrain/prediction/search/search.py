"""Search for the fastest layout of a workload on given hardware (strategy `auto`).

1. Enumerate every combination of tensor, context, expert, pipeline and data degrees, ZeRO stage and
   micro-batch, and all layouts that strategies propose (`Strategy.candidates`), with and without activation
   checkpointing.
2. Sketch each from the costs of the model's blocks (`search.sketch`).
3. Evaluate the fastest sketches that fit in full.
4. Rank the evaluations by time.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

from foretrain.answers import Infeasible
from foretrain.encoding import encode
from foretrain.errors import ForetrainError, InvalidRequest
from foretrain.facts.calibrations import has_other_constants
from foretrain.persisted import restore
from foretrain.prediction.corrections.apply import CorrectedCostModel
from foretrain.prediction.cost_models import CostModel, OperatorCostModel
from foretrain.prediction.kept import keep_result, kept_file, read_result
from foretrain.prediction.scenario import (
    Evaluation,
    StepConfiguration,
    StepContext,
    as_stored,
    evaluate,
    fullest_device,
    storage_of,
)
from foretrain.prediction.search.sketch import BlockCosts, Blocks, Sketch, block_costs, blocks_of, sketch
from foretrain.prediction.strategies.context import feasible_context_degrees
from foretrain.prediction.strategies.expert import feasible_expert_degrees
from foretrain.prediction.strategies.strategy import Layout, MixedPrecision, replication, strategies
from foretrain.prediction.strategies.tensor import feasible_tensor_degrees
from foretrain.progress import phase
from foretrain.units import format_bytes
from foretrain.workloads.executed import ExecutedGraph
from foretrain.workloads.family import Family
from foretrain.workloads.graph import garbage_collection_off
from foretrain.workloads.options import ResolvedOptions
from foretrain.workloads.workload import BATCHES, Workload, content_key, executed_graph_at, record_family

RETURNED = 3
"""Evaluations that a ranking holds."""
_MAX_EVALUATIONS = 16
_CALLS_EVALUATED = 30_000
"""Calls of all layouts evaluated in full: small models allow more layouts than large ones."""
_LEANEST = 3
"""Layouts evaluated in full if no sketch fits."""
_ZERO_STAGES = (0, 1, 2, 3)
LONG = 8192
"""Sequence length from which context parallelism is considered."""
_MAX_CONTEXT = 16


@dataclass(frozen=True)
class Candidate:
    """A configuration and its sketch."""

    configuration: StepConfiguration
    is_checkpointed: bool
    sketch: Sketch

    @property
    def name(self) -> str:
        """The strategy as a request would give it, with its micro-batch."""
        name = f"{self.configuration.layout.name}, micro-batch {self.configuration.micro_batch}"
        return f"{name}, checkpointing" if self.is_checkpointed else name

    @property
    def memory_kind(self) -> tuple[int, bool]:
        """What the error of a sketch's memory depends on: the ZeRO stage and checkpointing."""
        return self.configuration.layout.zero_stage, self.is_checkpointed


MemoryFactors = Mapping[tuple[int, bool], float]
"""Memory evaluated in full over that of the sketch, by `Candidate.memory_kind`; 1 where nothing is known."""


class FittingLayout(NamedTuple):
    """A candidate that fits: step time and memory of its evaluation in full."""

    candidate: Candidate
    seconds: float
    bytes: float


@dataclass(frozen=True, eq=False)
class Ranking:
    """The fastest layouts, all evaluated in full, and all candidates of the search by their sketches.

    `evaluated` are the evaluations of the fastest where they are at hand.
    """

    fastest: tuple[FittingLayout, ...]
    candidates: tuple[Candidate, ...]
    context: StepContext
    memory_factors: MemoryFactors
    evaluated: tuple[Evaluation, ...] = ()

    @cached_property
    def best(self) -> Evaluation:
        """The fastest layout that fits."""
        return self.evaluated[0] if self.evaluated else self._evaluate(self.fastest[0])

    @cached_property
    def evaluations(self) -> tuple[Evaluation, ...]:
        """The fastest layouts in full."""
        return self.evaluated or (self.best, *map(self._evaluate, self.fastest[1:]))

    def _evaluate(self, layout: FittingLayout) -> Evaluation:
        within = _with_checkpointing(self.context, layout.candidate.is_checkpointed)
        return evaluate(within, layout.candidate.configuration)

    @property
    def best_of_families(self) -> dict[str, Candidate]:
        """The fastest sketch that fits of each family of layouts."""
        capacity = self.context.environment.device.memory_bytes
        best: dict[str, Candidate] = {}
        for each in sorted(self.candidates, key=lambda each: each.sketch.seconds):
            if _corrected_bytes(each, self.memory_factors) <= capacity:
                best.setdefault(_family(each.configuration.layout), each)
        return best

    @property
    def fitting(self) -> int:
        """Number of candidates whose sketch fits."""
        return sum(candidate.sketch.fits for candidate in self.candidates)


def _family(layout: Layout) -> str:
    """How a layout divides the model; if it does not, the strategy of its replicas."""
    if layout.tensor > 1:
        return "tensor parallelism and a pipeline" if layout.pipeline > 1 else "tensor parallelism"
    if layout.pipeline > 1:
        return "a pipeline"
    strategy = replication(layout)
    return strategy.alone or strategy.form


def search(context: StepContext, global_batch: int) -> Ranking | Infeasible:
    """The fastest layouts for a global batch; `Infeasible` if none fits."""
    with garbage_collection_off(), phase(f"searching layouts of {context.hardware.devices} devices"):
        file = kept_beside("searches", context, global_batch)
        kept = None if file is None else _restore(context, read_result(file))
        if kept is not None:
            return kept
        candidates = sorted(_candidates(context, global_batch), key=lambda each: each.sketch.seconds)
        if not candidates:
            raise InvalidRequest(
                f"global_batch {global_batch} cannot be divided over {context.hardware.devices} devices by "
                f"any layout; use a multiple of {context.hardware.devices}"
            )
        ranking = _rank(context, candidates)
        if file is not None:
            keep_result(file, _plain(ranking))
        return ranking


# Keep: a later search for the same evaluates only the best layout.


def kept_beside(kind: str, context: StepContext, *asked: object) -> Path | None:
    """Where a result of a context is kept; None where what it depends on cannot be written down."""
    content = step_content(context.workload, context.environment.model)
    if content is None:
        return None
    at = (context.hardware, context.environment, context.input, context.jitter)
    return kept_file(kind, content, *at, *asked)


def step_content(workload: Workload, model: CostModel) -> tuple[object, ...] | None:
    """What steps of a workload depend on beside the hardware; None where it cannot be written down."""
    key = content_key(workload)
    inner = model.inner if isinstance(model, CorrectedCostModel) else model
    is_shipped = all(type(each).__module__.startswith("foretrain.") for each in strategies().values())
    if key is None or not is_shipped or inner != OperatorCostModel() or has_other_constants():
        return None
    return key, sorted(workload.left_open), workload.options, model, tuple(strategies())


def _plain(ranking: Ranking | Infeasible) -> Any:
    if isinstance(ranking, Infeasible):
        return {"infeasible": encode(ranking)}
    place = {id(each): index for index, each in enumerate(ranking.candidates)}
    layouts: dict[Layout, int] = {}
    return {
        "candidates": [
            (
                layouts.setdefault(each.configuration.layout, len(layouts)),
                each.configuration.batch,
                each.configuration.micro_batches,
                each.is_checkpointed,
                (each.sketch.seconds, each.sketch.bytes, each.sketch.fits),
            )
            for each in ranking.candidates
        ],
        "layouts": [asdict(layout) for layout in layouts],
        "fastest": [(place[id(each.candidate)], each.seconds, each.bytes) for each in ranking.fastest],
        "factors": list(ranking.memory_factors.items()),
    }


def _restore(context: StepContext, plain: Any) -> Ranking | Infeasible | None:
    """The outcome of an earlier search; None if it cannot be read."""
    if plain is None:
        return None
    try:
        if "infeasible" in plain:
            return restore(Infeasible, plain["infeasible"])
        layouts = [restore(Layout, each) for each in plain["layouts"]]
        candidates = tuple(
            Candidate(StepConfiguration(layouts[layout], batch, parts), checkpointed, Sketch(*estimate))
            for layout, batch, parts, checkpointed, estimate in plain["candidates"]
        )
        fastest = tuple(FittingLayout(candidates[place], *figures) for place, *figures in plain["fastest"])
        factors = {(stage, checkpointed): factor for (stage, checkpointed), factor in plain["factors"]}
    except (KeyError, TypeError, ValueError, IndexError):
        return None
    return Ranking(fastest, candidates, context, factors)


# Enumerate: configurations of a workload and their sketches.


def _candidates(context: StepContext, global_batch: int) -> Iterator[Candidate]:
    for is_checkpointed in _checkpointing(context.workload):
        models = _Models(_with_checkpointing(context, is_checkpointed))
        for layout in _layouts(models.of_divided):
            if global_batch % layout.replicas:
                continue
            model = models.of(layout)
            batch = global_batch // layout.replicas
            for micro_batch in _power_of_two_divisors(batch):
                costs = model.costs(layout, micro_batch)
                if costs is None:
                    break
                configuration = StepConfiguration(layout, batch, batch // micro_batch)
                estimate = sketch(costs, layout, configuration.micro_batches, context.environment)
                yield Candidate(configuration, is_checkpointed, estimate)
                if not estimate.fits:  # larger micro-batches do not fit either
                    break


def _checkpointing(workload: Workload) -> tuple[bool, ...]:
    """Both, unless checkpointing is requested or the model has no blocks to checkpoint."""
    if workload.options.checkpoint_activations or workload.options.forward_only:
        return (workload.options.checkpoint_activations,)
    try:
        divided = as_stored(_checkpoint_workload(workload, True), MixedPrecision.FP32_GRADIENTS)
        executed_graph_at(divided, 1 if workload.sizes.batch == 1 else 2)
    except ForetrainError:
        return (False,)
    return (False, True)


def _with_checkpointing(context: StepContext, is_checkpointed: bool) -> StepContext:
    return replace(context, workload=_checkpoint_workload(context.workload, is_checkpointed))


def _checkpoint_workload(workload: Workload, is_checkpointed: bool) -> Workload:
    return replace(workload, options=replace(workload.options, checkpoint_activations=is_checkpointed))


def _layouts(model: _DivisibleModel) -> Iterator[Layout]:
    """All combinations of degrees, and all layouts that strategies propose."""
    yield from _combinations(model)
    hardware = model.context.hardware
    for strategy in strategies().values():
        yield from strategy.candidates(hardware.devices, hardware.devices_per_node)


def _combinations(model: _DivisibleModel) -> Iterator[Layout]:
    devices = model.context.hardware.devices
    for tensor, context, expert in product(model.tensor_degrees, model.context_degrees, model.expert_degrees):
        for pipeline in _divisors(devices // (tensor * context)):
            model_degree = tensor * context * pipeline
            if devices % (model_degree * expert) or pipeline > max(1, len(model.blocks)):
                continue
            data = devices // model_degree
            for stage in _ZERO_STAGES if data > expert else (0,):
                layout = Layout(
                    "",
                    tensor=tensor,
                    context=context,
                    expert=expert,
                    pipeline=pipeline,
                    data=1 if stage else data // expert,
                    shard=data // expert if stage else 1,
                    zero_stage=stage,
                    sequence_parallel=model.divides_sequence and tensor > 1,
                )
                yield replace(layout, name=_strategy(layout, data))


def _strategy(layout: Layout, data: int) -> str:
    """The layout as a request would give it."""
    degrees = {
        "tp": layout.tensor,
        "cp": layout.context,
        "pp": layout.pipeline,
        "dp": data,
        "ep": layout.expert,
    }
    terms = [f"{name}={degree}" for name, degree in degrees.items() if degree > 1] or ["dp=1"]
    if layout.sequence_parallel:
        terms.insert(1, "sp")
    return ",".join(terms + ([f"zero={layout.zero_stage}"] if layout.zero_stage else []))


def _divisors(number: int) -> list[int]:
    return [each for each in range(1, number + 1) if number % each == 0]


def _power_of_two_divisors(batch: int) -> list[int]:
    return [1 << power for power in range(batch.bit_length()) if batch % (1 << power) == 0]


def _powers_of_two(degrees: Sequence[int]) -> list[int]:
    """The powers of two above 1."""
    return [degree for degree in degrees if degree > 1 and degree & (degree - 1) == 0]


@dataclass(frozen=True, eq=False)
class _DivisibleModel:
    """A workload's blocks, the degrees they can be divided by, and their costs; each division priced once."""

    context: StepContext
    family: Family | None
    blocks: Blocks
    cached_costs: dict[Hashable, BlockCosts | None] = field(default_factory=dict)

    @cached_property
    def tensor_degrees(self) -> list[int]:
        """Powers of two up to the devices of a node."""
        return [1, *_powers_of_two(self._feasible_tensor_degrees)]

    @cached_property
    def _feasible_tensor_degrees(self) -> Sequence[int]:
        return feasible_tensor_degrees(self.blocks.condensed.source, self.context.hardware.devices_per_node)

    @cached_property
    def context_degrees(self) -> list[int]:
        """Powers of two that long sequences can be divided by; short sequences are not divided."""
        graph = self.blocks.condensed.source
        if graph.tokens < LONG * graph.samples:
            return [1]
        return [1, *_powers_of_two(feasible_context_degrees(graph, _MAX_CONTEXT))]

    @cached_property
    def expert_degrees(self) -> list[int]:
        """Powers of two that experts can be distributed over."""
        feasible = feasible_expert_degrees(self.blocks.condensed.source, self.context.hardware.devices)
        return [1, *_powers_of_two(feasible)]

    @cached_property
    def divides_sequence(self) -> bool:
        """Whether sequence parallelism can be combined with tensor parallelism."""
        several = [degree for degree in self._feasible_tensor_degrees if degree > 1]
        layout = Layout("", tensor=several[0], sequence_parallel=True) if several else None
        return layout is not None and self.costs(layout, BATCHES[0]) is not None

    def costs(self, layout: Layout, micro_batch: int) -> BlockCosts | None:
        """The costs of one micro-batch; None if the model cannot be divided like this."""
        degrees = layout.tensor, layout.sequence_parallel, layout.context, layout.expert
        key = (*degrees, layout.options, micro_batch)
        if key not in self.cached_costs:
            divided = replace(layout, pipeline=1, data=1, shard=1, zero_stage=0)
            try:
                blocks = self._blocks_at(micro_batch)
                costs = block_costs(blocks, divided, self.context.environment)
                self.cached_costs[key] = costs
            except ForetrainError:
                self.cached_costs[key] = None
        return self.cached_costs[key]

    def _blocks_at(self, micro_batch: int) -> Blocks:
        """The blocks at another batch size; from the family of graphs where there is one."""
        if self.family is None:
            return blocks_of(executed_graph_at(self.context.workload, micro_batch).source)
        sized = self.family.at({"batch": micro_batch})
        first = self.blocks.condensed
        return replace(self.blocks, condensed=ExecutedGraph(first.source.with_sizes_of(sized), first))


@dataclass(frozen=True, eq=False)
class _Models:
    """The model as layouts store its weights, which divided or sharded ones may do differently."""

    context: StepContext
    made: dict[ResolvedOptions, _DivisibleModel] = field(default_factory=dict)

    @property
    def of_divided(self) -> _DivisibleModel:
        """The model as layouts that divide it store it."""
        return self._as(MixedPrecision.FP32_GRADIENTS)

    def of(self, layout: Layout) -> _DivisibleModel:
        """The model as a layout stores it."""
        return self._as(storage_of(layout))

    def _as(self, how: MixedPrecision) -> _DivisibleModel:
        workload = as_stored(self.context.workload, how)
        if workload.options not in self.made:
            self.made[workload.options] = _divisible_model(replace(self.context, workload=workload))
        return self.made[workload.options]


def _divisible_model(context: StepContext) -> _DivisibleModel:
    blocks = blocks_of(executed_graph_at(context.workload, BATCHES[0]).source)
    return _DivisibleModel(context, record_family(context.workload), blocks)


# Evaluate and rank: the fastest candidates in full.


def _rank(context: StepContext, candidates: Sequence[Candidate]) -> Ranking | Infeasible:
    evaluated, factors = _evaluate_candidates(context, [each for each in candidates if each.sketch.fits])
    if not evaluated:  # sketches may overestimate memory
        leanest = sorted(candidates, key=lambda each: each.sketch.bytes)[:_LEANEST]
        tried = [(each, _evaluation(context, each)) for each in leanest]
        known = [(each, evaluation) for each, evaluation in tried if evaluation is not None]
        evaluated = [(each, evaluation) for each, evaluation in known if evaluation.memory.fits]
        if not evaluated:
            return _infeasible(context, candidates, [evaluation for _, evaluation in known])
    fastest = sorted(evaluated, key=lambda each: each[1].seconds)[:RETURNED]
    return Ranking(
        tuple(FittingLayout(each, result.seconds, result.memory.bytes) for each, result in fastest),
        tuple(candidates),
        context,
        factors,
        tuple(evaluation for _, evaluation in fastest),
    )


def _evaluate_candidates(
    context: StepContext, candidates: Sequence[Candidate]
) -> tuple[list[tuple[Candidate, Evaluation]], MemoryFactors]:
    """The first candidates that fit, evaluated in full, and the memory they need over that of their sketches.

    Candidates that would not fit by the factors known so far are skipped.
    """
    evaluated: list[tuple[Candidate, Evaluation]] = []
    factors: dict[tuple[int, bool], float] = {}
    tried = 0
    for candidate in candidates:
        if _corrected_bytes(candidate, factors) > context.environment.device.memory_bytes:
            continue
        tried += 1
        within = _with_checkpointing(context, candidate.is_checkpointed)
        try:
            fullest = fullest_device(within, candidate.configuration)
        except ForetrainError:  # the whole model cannot be divided, though its blocks can
            continue
        factor = fullest.memory.bytes / candidate.sketch.bytes
        factors[candidate.memory_kind] = max(factors.get(candidate.memory_kind, 1.0), factor)
        if fullest.memory.fits:
            evaluation = fullest.evaluation or evaluate(within, candidate.configuration)
            evaluated.append((candidate, evaluation))
        enough = max(RETURNED, min(_MAX_EVALUATIONS, _CALLS_EVALUATED // len(fullest.whole.calls)))
        if len(evaluated) >= enough or tried >= _MAX_EVALUATIONS:
            break
    return evaluated, factors


def _corrected_bytes(candidate: Candidate, factors: MemoryFactors) -> float:
    return candidate.sketch.bytes * factors.get(candidate.memory_kind, 1.0)


def _evaluation(context: StepContext, candidate: Candidate) -> Evaluation | None:
    """A candidate evaluated in full; None if the whole model cannot be divided, though its blocks can."""
    try:
        return evaluate(_with_checkpointing(context, candidate.is_checkpointed), candidate.configuration)
    except ForetrainError:
        return None


def _infeasible(
    context: StepContext, candidates: Sequence[Candidate], tried: Sequence[Evaluation]
) -> Infeasible:
    leanest = min(candidates, key=lambda each: each.sketch.bytes)
    needed = min((evaluation.memory.bytes for evaluation in tried), default=leanest.sketch.bytes)
    capacity = context.environment.device.memory_bytes
    return Infeasible(
        f"the leanest of {len(candidates)} layouts ({leanest.name})",
        f"{format_bytes(needed)} on each device",
        format_bytes(capacity),
        f"use more devices, or devices with at least {format_bytes(needed)} each",
    )
