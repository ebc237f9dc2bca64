"""Strategy `auto`: all layouts of a workload on given hardware, ranked by time.

Every combination of tensor, pipeline and data degrees, ZeRO stage and micro-batch size, and every layout that
a strategy proposes itself (`Strategy.candidates`), with and without activation checkpointing, is sketched
from the model's blocks; those that would fit are ordered by time, and the first ones predicted in full.
"""

from __future__ import annotations

import gc
from collections.abc import Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product

from foretrain.errors import ForetrainError, Infeasible, InvalidRequest
from foretrain.prediction.evaluation import Evaluation, evaluate
from foretrain.prediction.scenario import StepConfiguration, StepContext
from foretrain.prediction.search.blocks import Blocks, blocks_of
from foretrain.prediction.search.sketch import BlockCosts, Sketch, block_costs, sketch
from foretrain.prediction.strategies.catalogue import replication, strategies
from foretrain.prediction.strategies.context import feasible_context_degrees
from foretrain.prediction.strategies.expert import feasible_expert_degrees
from foretrain.prediction.strategies.layout import Layout
from foretrain.prediction.strategies.tensor import feasible_tensor_degrees
from foretrain.units import format_bytes
from foretrain.workloads.fusion import unfused
from foretrain.workloads.workload import BATCHES, Workload, graph_at, record_family

PREDICTED = 3
"""How many of the best are told."""
_MOST_PREDICTED = 16
"""No more are predicted in full in search of them."""
_CALLS_PREDICTED = 30_000
"""So many calls are walked through in full: of small models more layouts than of large ones."""
_LEANEST = 3
"""How many are predicted in full where no sketch fits."""
_STAGES = (0, 1, 2, 3)
LONG = 8192
"""Sequences from this length on may be divided between devices."""
_MOST_CONTEXT = 16


@dataclass(frozen=True)
class Candidate:
    """A way to spread the workload, and roughly what it would take."""

    configuration: StepConfiguration
    is_checkpointed: bool
    sketch: Sketch

    @property
    def name(self) -> str:
        """The strategy as one would write it, with its micro-batches."""
        said = f"{self.configuration.layout.name}, micro-batch {self.configuration.micro_batch}"
        return f"{said}, checkpointing" if self.is_checkpointed else said


class Shortfalls:
    """How much more memory layouts need than their sketches say, as learnt from those predicted in full."""

    def __init__(self) -> None:
        self._factors: dict[tuple[int, bool], float] = {}

    def bytes(self, candidate: Candidate) -> float:
        """What a candidate would need."""
        return candidate.sketch.bytes * self._factors.get(self._alike(candidate), 1.0)

    def learn(self, candidate: Candidate, needed: float) -> None:
        """A candidate needs so much, as was found in full."""
        key = self._alike(candidate)
        self._factors[key] = max(self._factors.get(key, 1.0), needed / candidate.sketch.bytes)

    @staticmethod
    def _alike(candidate: Candidate) -> tuple[int, bool]:
        return candidate.configuration.layout.zero_stage, candidate.is_checkpointed


@dataclass(frozen=True, eq=False)
class Ranking:
    """What was found: `best` first, all predicted in full; `candidates` are all that were sketched."""

    evaluations: tuple[Evaluation, ...]
    candidates: tuple[Candidate, ...]
    context: StepContext
    shortfalls: Shortfalls

    @property
    def best(self) -> Evaluation:
        """The fastest that fits."""
        return self.evaluations[0]

    @property
    def best_of_families(self) -> dict[str, Candidate]:
        """The fastest sketch that fits, for each family of strategies."""
        capacity = self.context.environment.device.memory_bytes
        best: dict[str, Candidate] = {}
        for each in sorted(self.candidates, key=lambda each: each.sketch.seconds):
            if self.shortfalls.bytes(each) <= capacity:
                best.setdefault(_family(each.configuration.layout), each)
        return best

    @property
    def fitting(self) -> int:
        """How many of the candidates would fit."""
        return sum(candidate.sketch.fits for candidate in self.candidates)


def _family(layout: Layout) -> str:
    """How a layout divides the model; if it does not, what its replicas do."""
    if layout.tensor > 1:
        return "tensor parallelism and a pipeline" if layout.pipeline > 1 else "tensor parallelism"
    if layout.pipeline > 1:
        return "a pipeline"
    if layout.zero_stage > 0:
        return "ZeRO or FSDP alone"
    strategy = replication(layout)
    return "data parallelism alone" if strategy.name == "ddp" else strategy.form


def search(context: StepContext, global_batch: int) -> Ranking | Infeasible:
    """The fastest ways to train with a global batch; `Infeasible` if none fits."""
    with _without_collecting():
        return _search(context, global_batch)


@contextmanager
def _without_collecting() -> Iterator[None]:
    """Graphs are large and form no cycles: looking for some in all of them, again and again, takes long."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _search(context: StepContext, global_batch: int) -> Ranking | Infeasible:
    candidates = sorted(_candidates(context, global_batch), key=lambda each: each.sketch.seconds)
    if not candidates:
        raise InvalidRequest(
            f"a global batch of {global_batch} cannot be shared out over {context.hardware.devices} devices "
            f"in any way; {context.hardware.devices} or a multiple of it would do"
        )
    shortfalls = Shortfalls()
    sketched = [candidate for candidate in candidates if candidate.sketch.fits]
    found = _predicted(context, sketched, shortfalls)
    if not found:  # sketches may be too careful
        leanest = sorted(candidates, key=lambda each: each.sketch.bytes)[:_LEANEST]
        tried = [evaluation for evaluation in (_in_full(context, each) for each in leanest) if evaluation]
        found = [evaluation for evaluation in tried if evaluation.memory.fits]
        if not found:
            return _nothing_fits(candidates, context, tried)
    fastest = sorted(found, key=lambda evaluation: evaluation.seconds)[:PREDICTED]
    return Ranking(tuple(fastest), tuple(candidates), context, shortfalls)


def _predicted(
    context: StepContext, candidates: Sequence[Candidate], shortfalls: Shortfalls
) -> list[Evaluation]:
    """The first few that fit, predicted in full. What sketches leave out of memory is learnt on the way."""
    found: list[Evaluation] = []
    tried = 0
    for candidate in candidates:
        if shortfalls.bytes(candidate) > context.environment.device.memory_bytes:
            continue
        tried += 1
        evaluation = _in_full(context, candidate)
        if evaluation is None:
            continue
        shortfalls.learn(candidate, evaluation.memory.bytes)
        if evaluation.memory.fits:
            found.append(evaluation)
        enough = max(PREDICTED, min(_MOST_PREDICTED, _CALLS_PREDICTED // len(evaluation.graph.calls)))
        if len(found) >= enough or tried >= _MOST_PREDICTED:
            break
    return found


def _in_full(context: StepContext, candidate: Candidate) -> Evaluation | None:
    """A candidate predicted in full; None if the whole model cannot be spread so though its blocks could."""
    try:
        return evaluate(_asked(context, candidate.is_checkpointed), candidate.configuration)
    except ForetrainError:
        return None


def _nothing_fits(
    candidates: Sequence[Candidate], context: StepContext, tried: Sequence[Evaluation]
) -> Infeasible:
    leanest = min(candidates, key=lambda each: each.sketch.bytes)
    needed = min((evaluation.memory.bytes for evaluation in tried), default=leanest.sketch.bytes)
    capacity = context.environment.device.memory_bytes
    return Infeasible(
        f"the leanest of {len(candidates)} layouts ({leanest.name})",
        f"{format_bytes(needed)} on each device",
        format_bytes(capacity),
        "use more devices, a smaller global batch, or devices with more memory",
    )


def _asked(context: StepContext, is_checkpointed: bool) -> StepContext:
    return replace(context, workload=_checkpointed(context.workload, is_checkpointed))


def _checkpointed(workload: Workload, yes: bool) -> Workload:
    return replace(workload, options=replace(workload.options, checkpoint_activations=yes))


def _candidates(context: StepContext, global_batch: int) -> Iterator[Candidate]:
    devices = context.hardware.devices
    for is_checkpointed in _checkpointing(context.workload):
        pricing = _Pricing(_asked(context, is_checkpointed))
        for layout in _layouts(devices, pricing, context):
            if global_batch % layout.replicas:
                continue
            batch = global_batch // layout.replicas
            for micro_batch in _powers(batch):
                costs = pricing.costs(layout, micro_batch)
                if costs is None:
                    break
                configuration = StepConfiguration(layout, batch, batch // micro_batch)
                told = sketch(costs, layout, configuration.micro_batches, context.environment)
                yield Candidate(configuration, is_checkpointed, told)
                if not told.fits:  # nor would larger ones
                    break


def _checkpointing(workload: Workload) -> tuple[bool, ...]:
    """Both, unless checkpointing was asked for or the model has no blocks to checkpoint."""
    if workload.options.checkpoint_activations or workload.options.forward_only:
        return (workload.options.checkpoint_activations,)
    try:
        graph_at(_checkpointed(workload, True), 1 if workload.sizes.batch == 1 else 2)
    except ForetrainError:
        return (False,)
    return (False, True)


def _layouts(devices: int, pricing: _Pricing, at: StepContext) -> Iterator[Layout]:
    """All combinations of degrees, and what strategies propose beyond them."""
    yield from _degrees(devices, pricing, at)
    for strategy in strategies().values():
        yield from strategy.candidates(devices, at.hardware.devices_per_node)


def _degrees(devices: int, pricing: _Pricing, at: StepContext) -> Iterator[Layout]:
    per_node = at.hardware.devices_per_node
    degrees = product(pricing.tensor_degrees(per_node), pricing.context_degrees, pricing.expert_degrees)
    for tensor, context, expert in degrees:
        for pipeline in _divisors(devices // (tensor * context)):
            model = tensor * context * pipeline
            if devices % (model * expert) or pipeline > max(1, pricing.repeated_blocks):
                continue
            data = devices // model
            for stage in _STAGES if data > expert else (0,):
                name = _name(tensor, context, expert, pipeline, data, stage, pricing.divides_sequence)
                yield Layout(
                    name,
                    tensor=tensor,
                    context=context,
                    expert=expert,
                    pipeline=pipeline,
                    data=1 if stage else data // expert,
                    shard=data // expert if stage else 1,
                    zero_stage=stage,
                    sequence_parallel=pricing.divides_sequence and tensor > 1,
                )


def _name(
    tensor: int, context: int, expert: int, pipeline: int, data: int, stage: int, divides_sequence: bool
) -> str:
    """The layout as one would write it."""
    degrees = {"tp": tensor, "cp": context, "pp": pipeline, "dp": data, "ep": expert}
    said = [f"{name}={degree}" for name, degree in degrees.items() if degree > 1] or ["dp=1"]
    if tensor > 1 and divides_sequence:
        said.insert(1, "sp")
    return ",".join(said + ([f"zero={stage}"] if stage else []))


def _divisors(number: int) -> list[int]:
    return [each for each in range(1, number + 1) if number % each == 0]


def _powers(batch: int) -> list[int]:
    """Micro-batches of 1, 2, 4 ... samples that divide a batch."""
    found, size = [], 1
    while size <= batch:
        if batch % size == 0:
            found.append(size)
        size *= 2
    return found


def _several(degrees: Sequence[int]) -> list[int]:
    """Powers of two above 1."""
    return [degree for degree in degrees if degree > 1 and degree & (degree - 1) == 0]


class _Pricing:
    """The costs of a workload's blocks, each way of dividing them priced once."""

    def __init__(self, context: StepContext) -> None:
        self._question = context
        self._family = record_family(context.workload)
        self._blocks = blocks_of(unfused(graph_at(context.workload, BATCHES[0])))
        self._costs: dict[Hashable, BlockCosts | None] = {}
        self._degrees = feasible_tensor_degrees(self._blocks.condensed, context.hardware.devices_per_node)
        self.divides_sequence = self._can_divide_sequence()

    @property
    def repeated_blocks(self) -> int:
        """Blocks a pipeline may be cut between."""
        return len(self._blocks)

    def tensor_degrees(self, most: int) -> list[int]:
        """Powers of two that tensor parallelism can take within a node."""
        return [1, *(degree for degree in _several(self._degrees) if degree <= most)]

    @cached_property
    def context_degrees(self) -> list[int]:
        """Powers of two that long sequences can be divided by; short ones are left whole."""
        graph = self._blocks.condensed
        if graph.tokens < LONG * graph.samples:
            return [1]
        return [1, *_several(feasible_context_degrees(graph, _MOST_CONTEXT))]

    @cached_property
    def expert_degrees(self) -> list[int]:
        """Powers of two that experts can be shared out to."""
        return [
            1,
            *_several(feasible_expert_degrees(self._blocks.condensed, self._question.hardware.devices)),
        ]

    def costs(self, layout: Layout, micro_batch: int) -> BlockCosts | None:
        """The costs of one micro-batch; None if the model cannot be divided so."""
        degrees = layout.tensor, layout.sequence_parallel, layout.context, layout.expert
        key = (*degrees, layout.options, micro_batch)
        if key not in self._costs:
            only = replace(layout, pipeline=1, data=1, shard=1, zero_stage=0)
            try:
                blocks = self._at(micro_batch)
                self._costs[key] = block_costs(blocks, blocks.condensed, only, self._question.environment)
            except ForetrainError:
                self._costs[key] = None
        return self._costs[key]

    def _at(self, micro_batch: int) -> Blocks:
        """The same blocks at another size, where a family says how their tensors change with it."""
        if self._family is None:
            return blocks_of(unfused(graph_at(self._question.workload, micro_batch)))
        sized = self._family.at({"batch": micro_batch})
        condensed = self._blocks.condensed.with_specs(
            sized.specs, batch=sized.batch, samples=sized.samples, tokens=sized.tokens
        )
        return replace(self._blocks, condensed=condensed)

    def _can_divide_sequence(self) -> bool:
        several = [degree for degree in self._degrees if degree > 1]
        layout = Layout("", tensor=several[0], sequence_parallel=True) if several else None
        return layout is not None and self.costs(layout, BATCHES[0]) is not None
