"""Tensor parallelism: the matrices of every layer are divided between devices, as in Megatron-LM.

A linear layer that reads whole activations is divided by its outputs (column parallel), one that reads
divided activations by its inputs (row parallel): attention and feed-forward blocks then need one sum over the
devices each, forward and backward. Embedding, output layer and loss are divided by vocabulary. With sequence
parallelism each sum is a reduce-scatter that leaves activations divided by tokens; they are gathered before
the next layer, and norms, dropout and residuals between layers are divided, too.

A device holds whole heads of queries, keys and values. Vocabularies are padded.

Megatron starts the weights' gradient last: in the backward pass of a column-parallel layer, its input is
gathered again beside the product of the input's gradient, which is then summed beside that of the weights.
With `tp-overlap` the other exchanges run beside their own products, too, piece by piece.

References: M. Shoeybi et al., "Megatron-LM", arXiv:1909.08053, section 3; V. Korthikanti et al., "Reducing
Activation Recomputation in Large Transformer Models", arXiv:2205.05198, section 4.2 (sequence parallelism);
NVIDIA, Transformer Engine, `initialize_ub` (user buffers), and Megatron-Bridge, "Communication Overlap".
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace

from foretrain.errors import InvalidRequest
from foretrain.facts.frameworks import frameworks
from foretrain.prediction.collectives.costs import Verb
from foretrain.prediction.strategies.division.flow import (
    GATHER,
    SUM,
    SUM_TO_SHARES,
    Constraint,
    Flow,
    common_degrees,
    divide,
    nearest_degrees,
)
from foretrain.prediction.strategies.division.megatron import Megatron
from foretrain.prediction.strategies.program import (
    Axis,
    Exchange,
    MemoryOptions,
    Program,
    forward_end,
    unit_of,
)
from foretrain.prediction.strategies.strategy import Layout, MixedPrecision, Strategy, one_of, whole_number
from foretrain.workloads.fused_kernels import PRODUCTS
from foretrain.workloads.graph import Graph, once_per_graph

_VERBS = {SUM: Verb.ALL_REDUCE, SUM_TO_SHARES: Verb.REDUCE_SCATTER, GATHER: Verb.ALL_GATHER}


def tensor_parallel(program: Program, degree: int, sequence_parallel: bool = False) -> Program:
    """The program with each layer divided between `degree` devices."""
    if degree < 1:
        raise InvalidRequest(f"tp must be at least 1, got {degree}")
    if degree == 1:
        return program
    if Axis.TENSOR in program.degrees:
        raise InvalidRequest("tensor parallelism is already applied to the program")
    flow = tensor_flow(program.graph, sequence_parallel)
    _check(flow, degree)
    exchanges = [
        Exchange(
            move.name,
            _VERBS[move.kind],
            move.bytes,
            Axis.TENSOR,
            move.after,
            move.before,
            readers=move.readers,
        )
        for move in flow.movements
    ]
    parallel = program.with_axis(Axis.TENSOR, degree, *exchanges, graph=divide(program.graph, flow, degree))
    return replace(parallel, notes=(*parallel.notes, *_notes(flow, degree)))


def feasible_tensor_degrees(graph: Graph, most: int) -> tuple[int, ...]:
    """The degrees up to `most` that divide a model; only 1 if it has no linear layers."""
    try:
        sizes = [constraint.size for constraint in _binding(tensor_flow(graph))]
    except InvalidRequest:
        return (1,)
    return common_degrees(sizes, most)


def divides_sequence(graph: Graph, degree: int) -> bool:
    """Whether the operators between layers can be divided by tokens, and the framework does so."""
    if not frameworks()[graph.options.framework].sequence_parallel:
        return False
    try:
        _check(tensor_flow(graph, sequence_parallel=True), degree)
    except InvalidRequest:
        return False
    return True


def tensor_flow(graph: Graph, sequence_parallel: bool = False) -> Flow:
    """The tensors of a step that tensor parallelism divides, for any degree; derived once per graph."""
    return _flow_with_divided_sequence(graph) if sequence_parallel else _flow(graph)


@once_per_graph
def _flow(graph: Graph) -> Flow:
    return Megatron(graph, False).flow()


@once_per_graph
def _flow_with_divided_sequence(graph: Graph) -> Flow:
    return Megatron(graph, True).flow()


def _beside_product(program: Program, exchange: Exchange) -> Exchange:
    """A gather or reduce-scatter of a block's activations that runs beside the product it belongs to.

    Devices multiply their own tokens first, and those of the others as they arrive; sums are sent as soon as
    the rows of one device are complete. What runs beside another product already stays there.
    """
    calls = program.graph.calls
    if exchange.axes != (Axis.TENSOR,) or exchange.after < 0 or exchange.before >= len(calls):
        return exchange
    first = calls[exchange.after if exchange.verb is Verb.REDUCE_SCATTER else exchange.before]
    if exchange.verb not in _PIPELINED or first.name not in _PRODUCTS or not unit_of(f"{first.module}."):
        return exchange
    beside = exchange._replace(by_copies=True)
    if any(call.name in _PRODUCTS for call in calls[exchange.after + 1 : exchange.before]):
        return beside
    if exchange.verb is Verb.REDUCE_SCATTER:
        return beside._replace(after=exchange.after - 1)
    return beside._replace(before=exchange.before + 1)


_PIPELINED = frozenset({Verb.ALL_GATHER, Verb.REDUCE_SCATTER})
_PRODUCTS = frozenset({"aten.mm", "aten.addmm", "aten.linear", PRODUCTS})


def _binding(flow: Flow) -> list[Constraint]:
    """The sizes that a degree must divide, smallest first; vocabularies are padded instead."""
    return sorted(each for each in flow.constraints.values() if each.size not in flow.padded)


def _check(flow: Flow, degree: int) -> None:
    broken = [constraint for constraint in _binding(flow) if constraint.size % degree]
    if not broken:
        return
    tightest = broken[0]
    sizes = [constraint.size for constraint in _binding(flow)]
    raise InvalidRequest(
        f"tensor parallelism over {degree} devices does not divide the {tightest.size} {tightest.what}"
        f" of {tightest.module or 'the model'}; it must divide all of "
        + ", ".join(f"{constraint.size} {constraint.what}" for constraint in _binding(flow))
        + f"; {nearest_degrees(sizes, degree)}"
    )


def _notes(flow: Flow, degree: int) -> Iterable[str]:
    for size in sorted(flow.padded):
        if size % degree:
            padded = math.ceil(size / degree) * degree
            yield f"vocabulary (or classes) padded from {size} to {padded} to be divided by {degree}"
    yield from flow.notes


class TensorParallel(Strategy):
    """`tp=T` divides every layer between T devices, and the operators between layers unless `sp=no`."""

    name = "tensor"
    keys = ("tp", "sp", "tp-overlap")
    form = "tp=T"
    axis = Axis.TENSOR
    order = 10

    def read(self, given: Mapping[str, str], layout: Layout) -> Layout:
        """`tp`; `sp` (the default), `sp=keep`, which keeps gathered activations, or `sp=no`; and
        `tp-overlap=yes|no` (default: as the framework has it)."""
        tensor = whole_number("tp", given.get("tp", "1"))
        sequence = one_of("sp", given.get("sp", ""), ("", "keep", "no"))
        if "sp" in given and sequence != "no" and tensor == 1:
            raise InvalidRequest("sp requires tensor parallelism: give tp=2 or more, or leave sp out")
        overlap = one_of("tp-overlap", given.get("tp-overlap", ""), ("", "yes", "no"))
        if "tp-overlap" in given and tensor == 1:
            raise InvalidRequest("tp-overlap requires tensor parallelism: give tp=2 or more, or leave it out")
        return replace(
            layout,
            tensor=tensor,
            tensor_overlap=overlap or "yes" * ("tp-overlap" in given),
            sequence_parallel=tensor > 1 and sequence != "no",
            assumes_sequence_parallel=tensor > 1 and "sp" not in given,
            keeps_gathered=sequence == "keep",
        )

    def divide(self, program: Program, layout: Layout) -> Program:
        """Layers divided as in Megatron-LM; along the sequence unless that is assumed and impossible."""
        sequence = layout.sequence_parallel
        if sequence and layout.assumes_sequence_parallel:
            sequence = divides_sequence(program.graph, layout.tensor)
        return tensor_parallel(program, layout.tensor, sequence)

    def overlap(self, program: Program, layout: Layout) -> Program:
        """Exchanges of layers beside their own products, if asked for or usual with the framework."""
        own = frameworks()[program.graph.options.framework]
        by_default = own.overlaps_tensor_exchanges and layout.sequence_parallel
        if layout.tensor == 1 or not (
            layout.tensor_overlap == "yes" or (not layout.tensor_overlap and by_default)
        ):
            return program
        return replace(program, exchanges=tuple(_beside_product(program, each) for each in program.exchanges))

    def memory(self, options: MemoryOptions, program: Program, layout: Layout) -> MemoryOptions:
        """Gathered activations of the other devices, if they are kept."""
        if not layout.keeps_gathered or layout.tensor == 1:
            return options
        end = forward_end(program.graph)
        gathered = sum(
            exchange.bytes
            for exchange in program.exchanges
            if exchange.verb is Verb.ALL_GATHER and exchange.axis is Axis.TENSOR and exchange.after < end
        )
        of_others = options.in_flight * gathered * (1 - 1 / layout.tensor)
        return replace(options, gathered_bytes=options.gathered_bytes + int(of_others))

    def mixed_precision(self, layout: Layout) -> MixedPrecision:
        """As Megatron does."""
        return MixedPrecision.FP32_GRADIENTS if layout.tensor > 1 else MixedPrecision.AUTOCAST

    def environment(self, layout: Layout) -> tuple[tuple[str, str, str], ...]:
        """Degrees above 1."""
        if layout.tensor == 1:
            return ()
        degree = (("TENSOR_PARALLEL", str(layout.tensor), "devices each layer is divided over"),)
        divided = ("SEQUENCE_PARALLEL", "1", "norms and dropouts are divided along the sequence")
        return (*degree, divided) if layout.sequence_parallel else degree
