"""Sharded data parallelism: ZeRO stages 1 to 3, FSDP and hybrid sharding.

Stage 1 shards the optimizer state: gradients are reduce-scattered, each device updates its share, and the new
parameters are all-gathered. Stage 2 also shards the gradients. Stage 3 (FSDP) also shards the parameters:
each block is all-gathered before it is used, forward and backward, one block ahead, and its gradients are
reduce-scattered afterwards. Hybrid sharding shards within groups of devices and all-reduces the shares
between the groups.

References: S. Rajbhandari et al., "ZeRO", arXiv:1910.02054; Y. Zhao et al., "PyTorch FSDP", arXiv:2304.11277.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from foretrain.errors import InvalidRequest
from foretrain.prediction.collectives.costs import Verb
from foretrain.prediction.operators.pricing import Floats, listing_of
from foretrain.prediction.strategies.program import (
    AVERAGING,
    BUCKET_BYTES,
    ROOT,
    Axis,
    Exchange,
    Gradient,
    MemoryOptions,
    Program,
    When,
    fill_buckets,
    gradients,
    is_of_expert,
    optimizer_start,
    reduce_last,
    unit_of,
)
from foretrain.prediction.strategies.strategy import (
    SHARDED,
    ExchangeSeconds,
    Layout,
    MixedPrecision,
    Shards,
    Strategy,
    divisors,
    one_of,
    whole_number,
)
from foretrain.workloads.graph import (
    ITEM_BYTES,
    NO_TENSOR,
    Buffer,
    Call,
    Graph,
    Phase,
    Role,
    Spec,
    Structure,
    once_per_graph,
    once_per_structure,
)
from foretrain.workloads.ops import MATRIX_KINDS, Kind

_HALF = {"fp16": "float16", "bf16": "bfloat16", "fp8": "bfloat16"}


class Gathered(NamedTuple):
    """The gathered parameters of a unit, from the call their gather precedes to the last that reads them.

    `needed` is the first call that reads them.
    """

    unit: str
    bytes: int
    start: int
    end: int
    needed: int


def item_bytes(graph: Graph, spec: Spec | None) -> int:
    """Bytes per element of a parameter in an exchange: half precision under mixed precision.

    Without a spec: those of half precision, or 0 if parameters are sent in their own type.
    """
    half = ITEM_BYTES.get(_HALF.get(graph.options.precision, ""), 0)
    return half or (ITEM_BYTES[spec.dtype] if spec else 0)


def _is_any(_: str) -> bool:
    return True


def gather_units(graph: Graph, is_member: Callable[[str], bool] = _is_any) -> list[Gathered]:
    """All gathers of a step: each block once forward and once backward, one block prefetched.

    Under mixed precision, units are gathered in half precision, as FSDP does with a `param_dtype`. Parameters
    are filtered by `is_member`.
    """
    units, structure = _units(graph.structure), graph.structure
    if is_member is not _is_any:
        units = {index: unit for index, unit in units.items() if is_member(graph.buffers[index].name)}
    sizes: dict[str, int] = {}
    for index, unit in units.items():
        spec = graph.specs[graph.buffers[index].spec]
        sizes[unit] = sizes.get(unit, 0) + spec.elements * item_bytes(graph, spec)
    return _prefetch(_all_uses(structure) if is_member is _is_any else _uses(structure, units), sizes)


@once_per_structure
def _units(structure: Structure) -> dict[int, str]:
    """The unit of each parameter."""
    buffers = enumerate(structure.buffers)
    return {index: unit_of(buffer.name) for index, buffer in buffers if buffer.role is Role.PARAMETER}


_Uses = dict[tuple[str, Phase], tuple[int, int]]


@once_per_structure
def _all_uses(structure: Structure) -> _Uses:
    return _uses(structure, _units(structure))


def _uses(structure: Structure, unit_of_buffer: dict[int, str]) -> _Uses:
    """First and last call that reads each unit, forward and backward, or writes its gradients.

    The first block may write gradients without reading its weights; it is gathered backward, too.
    """
    spans: _Uses = {}
    units_gathered = set(unit_of_buffer.values())
    gradient_of = {
        index: unit_of(buffer.name)
        for index, buffer in enumerate(structure.buffers)
        if buffer.role is Role.GRADIENT and unit_of(buffer.name) in units_gathered
    }
    for index, call in enumerate(structure.calls):
        if call.phase is Phase.OPTIMIZER:
            break
        units = {unit_of_buffer[buffer] for buffer in call.reads if buffer in unit_of_buffer}
        if call.phase is Phase.BACKWARD:
            units |= {gradient_of[buffer] for buffer in call.writes if buffer in gradient_of} - {ROOT}
        for unit in units:
            # FSDP keeps its root gathered after the forward pass: the backward pass needs it at once.
            phase = Phase.FORWARD if unit == ROOT else call.phase
            start, _ = spans.get((unit, phase), (index, index))
            spans[unit, phase] = (start, index)
    return spans


def _prefetch(uses: _Uses, sizes: dict[str, int]) -> list[Gathered]:
    """The gathers of units, each started when the unit before it starts."""
    gathered: list[Gathered] = []
    for phase in (Phase.FORWARD, Phase.BACKWARD):
        blocks: Iterable[tuple[str, tuple[int, int]]] = sorted(
            ((unit, span) for (unit, at), span in uses.items() if at is phase and unit != ROOT),
            key=lambda item: item[1],
        )
        previous: int | None = None
        for unit, (start, end) in blocks:
            gathered.append(Gathered(unit, sizes[unit], start if previous is None else previous, end, start))
            previous = start
    if (ROOT, Phase.FORWARD) in uses:
        start, end = uses[ROOT, Phase.FORWARD]
        gathered.append(Gathered(ROOT, sizes[ROOT], start, end, start))
    return gathered


SHARING = (Axis.SHARD, Axis.CONTEXT, Axis.EXPERT)
"""The axes along which devices hold equal parameters and shard their state; experts: all but the last."""


def shard_program(program: Program, degree: int, stage: int, replicas: int = 1) -> Program:
    """The program of one of `degree` devices that shard their state; there are `replicas` such groups.

    State is also sharded along the context axis and, outside experts, along the expert axis.
    """
    if degree == 1 and replicas == 1 and math.prod(program.degree(axis) for axis in AVERAGING) == 1:
        return program
    parallel = program.with_axis(Axis.SHARD, degree).with_axis(Axis.DATA, replicas)
    graph = program.graph
    added: list[Exchange] = []
    for axes, is_member in _groups(parallel):
        gathers, reductions = _exchanges_of(graph, axes, is_member, stage)
        added += gathers
        added += reductions
        if replicas > 1:
            members = math.prod(parallel.degree(axis) for axis in axes)
            added += [_between_parts(reduction, members) for reduction in reductions]
    return replace(parallel, exchanges=(*parallel.exchanges, *added), zero_stage=stage)


def _groups(program: Program) -> Iterator[tuple[tuple[Axis, ...], Callable[[str], bool]]]:
    """The axes along which state is sharded, and a filter of parameters: experts and others are separate."""
    axes = tuple(axis for axis in SHARING if axis is Axis.SHARD or program.degree(axis) > 1)
    if program.degree(Axis.EXPERT) == 1:
        yield axes, _is_any
        return
    yield axes, _is_of_no_expert
    yield tuple(axis for axis in axes if axis is not Axis.EXPERT), is_of_expert


def _is_of_no_expert(parameter: str) -> bool:
    return not is_of_expert(parameter)


_Exchanges = tuple[tuple[Exchange, ...], tuple[Exchange, ...]]


def _exchanges_of(
    graph: Graph, axes: tuple[Axis, ...], is_member: Callable[[str], bool], stage: int
) -> _Exchanges:
    """The gathers of parameters and the reductions of gradients. They do not depend on degrees, and a plan
    shards one graph over every machine there is, so the graph keeps them.
    """
    known = _known_exchanges(graph)
    key = axes, is_member, stage
    if key not in known:
        gathers = _gather_blocks(graph, axes, is_member) if stage == 3 else ()
        own = [gradient for gradient in gradients(graph) if is_member(gradient.parameter)]
        reductions = tuple(_reductions(graph, own, stage, axes))
        known[key] = gathers or _gather_parameters(graph, axes, is_member), reductions
    return known[key]


@once_per_graph
def _known_exchanges(
    graph: Graph,
) -> dict[tuple[tuple[Axis, ...], Callable[[str], bool], int], _Exchanges]:
    del graph
    return {}


def _gather_blocks(
    graph: Graph, axes: tuple[Axis, ...], is_member: Callable[[str], bool]
) -> tuple[Exchange, ...]:
    """All-gathers of blocks, each started with the block before it."""
    return tuple(
        Exchange(
            name=f"all-gather {unit.unit or 'other parameters'}",
            verb=Verb.ALL_GATHER,
            bytes=unit.bytes,
            axis=axes[0],
            after=unit.start - 1,
            before=unit.needed,
            when=When.EVERY,
            also=axes[1:],
        )
        for unit in gather_units(graph, is_member)
    )


def _gather_parameters(
    graph: Graph, axes: tuple[Axis, ...], is_member: Callable[[str], bool]
) -> tuple[Exchange, ...]:
    """The all-gather of the updated parameters."""
    size = sum(
        _count_sent_bytes(graph, buffer)
        for buffer in graph.buffers
        if buffer.role is Role.PARAMETER and is_member(buffer.name)
    )
    end = len(graph.calls)
    name = "all-gather parameters"
    return (Exchange(name, Verb.ALL_GATHER, size, axes[0], end - 1, end, When.LAST, axes[1:]),)


def _count_sent_bytes(graph: Graph, buffer: Buffer) -> float:
    spec = graph.specs[buffer.spec]
    return spec.elements * item_bytes(graph, spec)


def _reductions(
    graph: Graph, ready_gradients: list[Gradient], stage: int, axes: tuple[Axis, ...]
) -> Iterator[Exchange]:
    """Reduce-scatters of gradients, by bucket or, in stage 3, by block."""
    waiting = optimizer_start(graph)
    sent = [_in_sent_precision(graph, gradient) for gradient in ready_gradients]
    for name, size, ready in _by_block(sent) if stage == 3 else _by_bucket(sent):
        yield Exchange(
            name=f"reduce-scatter gradients {name}",
            verb=Verb.REDUCE_SCATTER,
            bytes=size,
            axis=axes[0],
            after=ready,
            before=waiting,
            when=When.LAST if stage < 2 else When.EVERY,
            also=axes[1:],
        )


def _by_bucket(sent: list[Gradient]) -> Iterator[tuple[str, float, int]]:
    for number, bucket in enumerate(fill_buckets(sent, BUCKET_BYTES, BUCKET_BYTES), start=1):
        yield str(number), bucket.bytes, bucket.ready


def _by_block(sent: list[Gradient]) -> Iterator[tuple[str, float, int]]:
    sizes: dict[str, float] = {}
    ready: dict[str, int] = {}
    for gradient in sent:
        unit = unit_of(gradient.parameter)
        sizes[unit] = sizes.get(unit, 0.0) + gradient.bytes
        ready[unit] = max(ready.get(unit, -1), gradient.ready)
    for unit in sorted(sizes, key=lambda unit: ready[unit]):
        yield unit or "of other parameters", sizes[unit], ready[unit]


def _in_sent_precision(graph: Graph, gradient: Gradient) -> Gradient:
    """A gradient in the precision that parameters are gathered in; in FP32 if it is accumulated in FP32."""
    half = 0 if graph.options.adds_up_in_fp32 else item_bytes(graph, None)
    return gradient._replace(bytes=gradient.elements * half) if half else gradient


def _between_parts(reduction: Exchange, members: int) -> Exchange:
    """The all-reduce of the shares of a reduction between replicas, on its own stream."""
    return reduction._replace(
        name=reduction.name.replace("reduce-scatter", "all-reduce shares of"),
        verb=Verb.ALL_REDUCE,
        bytes=reduction.bytes / members,
        axis=Axis.DATA,
        also=(),
        when=When.LAST,
    )


def with_sharded_optimizer(graph: Graph, degree: int) -> Graph:
    """The step with optimizer calls on shares of their tensors, to price them.

    Updates work on a share of the elements; products and means (of Adafactor) on a share of the rows.
    """
    if degree == 1:
        return graph
    shares = _Shares(graph, degree)
    by_rows = {op.call for op in listing_of(graph).ops if op.work.kind in _BY_ROWS}
    calls = tuple(
        shares.call(call, index in by_rows) if call.phase is Phase.OPTIMIZER else call
        for index, call in enumerate(graph.calls)
    )
    return replace(graph, calls=calls, specs=tuple(shares.specs), buffers=tuple(shares.buffers))


_BY_ROWS = frozenset({*MATRIX_KINDS, Kind.REDUCTION})


class _Shares:
    """Builds the specs and buffers of shares, each once."""

    def __init__(self, graph: Graph, degree: int) -> None:
        self.specs, self.buffers = list(graph.specs), list(graph.buffers)
        self._degree = degree
        self._number: dict[Spec, int] = {}
        self._of_spec = {(NO_TENSOR, False): NO_TENSOR, (NO_TENSOR, True): NO_TENSOR}
        self._of_buffer: dict[tuple[int, bool], int] = {}

    def call(self, call: Call, by_rows: bool) -> Call:
        """A call on shares of its tensors."""
        return call._replace(
            inputs=tuple([self._spec(index, by_rows) for index in call.inputs]),
            outputs=tuple([self._spec(index, by_rows) for index in call.outputs]),
            reads=tuple([self._buffer(index, by_rows) for index in call.reads]),
            writes=tuple([self._buffer(index, by_rows) for index in call.writes]),
        )

    def _spec(self, index: int, by_rows: bool) -> int:
        key = index, by_rows
        if key not in self._of_spec:
            self._of_spec[key] = self._add_spec(index, by_rows)
        return self._of_spec[key]

    def _add_spec(self, index: int, by_rows: bool) -> int:
        whole = self.specs[index]
        shape: tuple[int, ...] = (math.ceil(whole.elements / self._degree),)
        if by_rows and whole.shape:
            shape = (math.ceil(whole.shape[0] / self._degree), *whole.shape[1:])
        part = Spec(shape, whole.dtype)
        if part not in self._number:
            self._number[part] = len(self.specs)
            self.specs.append(part)
        return self._number[part]

    def _buffer(self, index: int, by_rows: bool) -> int:
        key = index, by_rows
        if key not in self._of_buffer:
            self._of_buffer[key] = len(self.buffers)
            buffer = self.buffers[index]
            self.buffers.append(buffer._replace(spec=self._spec(buffer.spec, by_rows)))
        return self._of_buffer[key]


STAGES = {"zero1": 1, "zero2": 2, "zero3": 3, "fsdp": 3}
HYBRID = "hsdp"


class Sharded(Strategy):
    """`zero1` to `zero3`, `fsdp`, `hsdp`, or `zero=S[,shard=N]` in a list: replicas that shard state."""

    name = SHARDED
    words = (*STAGES, HYBRID)
    keys = ("zero", "shard")
    form = "zero1, zero2, zero3, fsdp, hsdp"
    alone = "ZeRO or FSDP alone"
    plan_words = ("zero1", "zero2", "zero3")
    order = 70

    def planned_as(self, text: str) -> str:
        """The stage: the words of one stage are one plan."""
        return next((word for word in self.plan_words if STAGES[word] == STAGES.get(text)), text)

    def replicates(self, given: Mapping[str, str]) -> bool:
        """Of a stage above 0."""
        return given.get("zero", "0") != "0"

    def parse(self, text: str, devices: int, devices_per_node: int) -> Layout:
        """Over all devices; `hsdp` within each node."""
        if text == HYBRID:
            nodes = devices // devices_per_node
            return Layout(text, shard=devices_per_node, data=nodes, zero_stage=3, replication=self.name)
        return Layout(text, shard=devices, zero_stage=STAGES[text], replication=self.name)

    def read(self, given: Mapping[str, str], layout: Layout) -> Layout:
        """`zero`, and `shard`, the devices that shard state (by default all data-parallel devices)."""
        stage = int(one_of("zero", given.get("zero", "0"), ("0", "1", "2", "3")))
        if not stage:
            if "shard" in given:
                raise InvalidRequest("shard=N requires zero=1, zero=2 or zero=3")
            return layout
        shard = whole_number("shard", given["shard"]) if "shard" in given else layout.data
        if layout.data % shard:
            raise InvalidRequest(
                f"shard={shard} does not divide {layout.data} data-parallel devices ({divisors(layout.data)})"
            )
        return replace(
            layout, shard=shard, data=layout.data // shard, zero_stage=stage, replication=self.name
        )

    def replicate(self, program: Program, layout: Layout) -> Program:
        """Gathers of state and scatters of gradients, during the backward pass or after it."""
        replicated = shard_program(program, layout.shard, layout.zero_stage, layout.data)
        return replicated if layout.overlaps else reduce_last(replicated)

    def shards(self, layout: Layout) -> Shards:
        """By stage: optimizer state, gradients, parameters."""
        members = layout.shard * layout.context
        parameters, gradients, optimizer = (
            members if layout.zero_stage >= stage else 1 for stage in (3, 2, 1)
        )
        return Shards(parameters, gradients, optimizer, dense=layout.expert)

    def memory(self, options: MemoryOptions, program: Program, layout: Layout) -> MemoryOptions:
        """State divided by stage."""
        del program
        members = layout.shard * layout.context
        return replace(
            options, data_parallel=members, zero_stage=layout.zero_stage, dense_shards=layout.expert
        )

    def mixed_precision(self, layout: Layout) -> MixedPrecision:
        """FSDP's `MixedPrecision` and DeepSpeed's `bf16`."""
        is_sharded = layout.zero_stage and layout.shard > 1
        return MixedPrecision.MASTER_WEIGHTS if is_sharded else MixedPrecision.AUTOCAST

    def exposed_seconds(
        self,
        layout: Layout,
        sent_bytes: Floats,
        forward: Floats,
        backward: Floats,
        micro_batches: int,
        exchange: ExchangeSeconds,
    ) -> Floats:
        """By stage: the gather after the update, or the excess of gathers and scatters over the passes."""
        gather = exchange(Verb.ALL_GATHER, sent_bytes, SHARING)
        scatter = exchange(Verb.REDUCE_SCATTER, sent_bytes, SHARING)
        between = exchange(Verb.ALL_REDUCE, sent_bytes / (layout.shard * layout.context), (Axis.DATA,))
        if layout.zero_stage < 3:
            scatters = micro_batches if layout.zero_stage > 1 else 1
            late: Floats = np.maximum(0.0, scatter - backward) * (scatters - 1)
            last: Floats = np.maximum(0.0, scatter + between - backward)
            return gather + last + late
        each: Floats = np.maximum(0.0, gather - forward) + np.maximum(0.0, gather + scatter - backward)
        after_all: Floats = np.maximum(0.0, between - backward)
        return micro_batches * each + after_all

    def environment(self, layout: Layout) -> tuple[tuple[str, str, str], ...]:
        """The stage, and the devices that shard state."""
        stage = "what is sharded: 1 optimizer state, 2 and gradients, 3 and parameters (FSDP)"
        return (
            (
                ("ZERO_STAGE", str(layout.zero_stage), stage),
                ("SHARD", str(layout.shard), "devices that share parameters, gradients or optimizer state"),
            )
            if layout.zero_stage
            else ()
        )
