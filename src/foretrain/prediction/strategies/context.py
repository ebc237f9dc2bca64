"""Context parallelism: each sequence is divided between devices; keys and values pass around a ring.

All operators but attention work on a device's own tokens. In attention a device has the queries of its tokens
and processes all keys and values: first its own, while the next arrive (ring attention). In the backward pass
they circulate again, with the gradients of keys and values. Each device has two slices of a causal sequence,
one from each end, so that all have the same work: twice the degree must divide the sequence. Gradients of
parameters are summed together with those of the data-parallel replicas.

References: H. Liu, M. Zaharia, P. Abbeel, "Ring Attention with Blockwise Transformers", arXiv:2310.01889;
W. Brandon et al., "Striped Attention", arXiv:2311.09431 (the balance of causal work).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from foretrain.errors import InvalidRequest
from foretrain.prediction.collectives.costs import Verb
from foretrain.prediction.strategies.division.flow import (
    GATHER,
    GRADIENTS_OF_WHOLE,
    RING,
    SUM,
    Flow,
    Movement,
    Rule,
    Walk,
    common_degrees,
    divide,
    nearest_degrees,
)
from foretrain.prediction.strategies.division.rules import (
    COMMON_RULES,
    keep_division,
    matrix_product,
    work_on_whole,
)
from foretrain.prediction.strategies.division.shapes import WHOLE, outer_at, size_at
from foretrain.prediction.strategies.program import Axis, Exchange, Program
from foretrain.prediction.strategies.strategy import Layout, MixedPrecision, Strategy, whole_number
from foretrain.workloads.graph import NO_TENSOR, Call, Graph, Phase, Role, once_per_graph

_ATTENTION = "foretrain.attention"
_VERBS = {SUM: Verb.ALL_REDUCE, GATHER: Verb.ALL_GATHER}
NOTE = "gradients are summed over context- and data-parallel devices together"


def context_parallel(program: Program, degree: int) -> Program:
    """The program with each sequence divided between `degree` devices; apply tensor parallelism first."""
    if degree < 1:
        raise InvalidRequest(f"cp must be at least 1, got {degree}")
    if degree == 1:
        return program
    if Axis.CONTEXT in program.degrees:
        raise InvalidRequest("context parallelism is already applied to the program")
    flow = context_flow(program.graph)
    _check(flow, degree)
    added = [exchange for move in flow.movements for exchange in _exchanges(move, degree)]
    present = tuple(_of_fewer_tokens(exchange, degree) for exchange in program.exchanges)
    parallel = replace(program, exchanges=present).with_axis(
        Axis.CONTEXT, degree, *added, graph=divide(program.graph, flow, degree)
    )
    return replace(parallel, notes=(*parallel.notes, NOTE, *flow.notes))


def feasible_context_degrees(graph: Graph, most: int) -> tuple[int, ...]:
    """The degrees up to `most` that divide the sequences of a model; only 1 if it has none."""
    try:
        flow = context_flow(graph)
    except InvalidRequest:
        return (1,)
    sizes = [constraint.size for constraint in flow.constraints.values()]
    return common_degrees(sizes, most)


@once_per_graph
def context_flow(graph: Graph) -> Flow:
    """The tensors of a step that context parallelism divides, for any degree; derived once per graph."""
    return _walk(graph).run()


def _walk(graph: Graph) -> Walk:
    lengths = {
        graph.specs[spec].shape[-2]
        for call in graph.calls
        if call.name == _ATTENTION
        for spec in call.inputs[:2]
    }
    if not lengths:
        raise InvalidRequest(
            "context parallelism requires fused attention, and this model has none; set `attention` to sdpa"
            " or flash if it is a transformer, otherwise use data parallelism"
        )
    walk = Walk(graph, _RULES, keep_division, sums_gradients=False)
    for index, buffer in enumerate(graph.buffers):
        shape = graph.specs[buffer.spec].shape
        if buffer.role is Role.INPUT and len(shape) > 1 and shape[1] in lengths:
            walk.held[index] = outer_at(shape, 1)
            walk.by_tokens.add(index)
    if not walk.held:
        raise InvalidRequest(
            "context parallelism divides input sequences, and no input of this model has the"
            f" {' or '.join(map(str, sorted(lengths)))} tokens of its attention"
        )
    return walk


def _check(flow: Flow, degree: int) -> None:
    broken = sorted(constraint for constraint in flow.constraints.values() if constraint.size % degree)
    if not broken:
        return
    sizes = [constraint.size for constraint in flow.constraints.values()]
    raise InvalidRequest(
        f"context parallelism over {degree} devices does not divide the {broken[0].size} {broken[0].what};"
        f" {nearest_degrees(sizes, degree)}"
    )


def _exchanges(move: Movement, degree: int) -> Iterator[Exchange]:
    """The exchanges of a movement; a ring is degree - 1 messages to the next device, one after the other."""
    if move.kind != RING:
        yield Exchange(move.name, _VERBS[move.kind], move.bytes, Axis.CONTEXT, move.after, move.before)
        return
    for step in range(1, degree):
        yield Exchange(
            f"{move.name} {step}", Verb.SEND, move.bytes / degree, Axis.CONTEXT, move.after, move.before
        )


def _of_fewer_tokens(exchange: Exchange, degree: int) -> Exchange:
    """An exchange of activations between tensor-parallel devices, with this device's share of the tokens."""
    if exchange.axis is not Axis.TENSOR or exchange.name == GRADIENTS_OF_WHOLE:
        return exchange
    return exchange._replace(bytes=exchange.bytes / degree)


# Rules of the walk


def _product(walk: Walk, index: int, call: Call) -> None:
    """Layers work on the tokens of the device; gradients of their weights are partial sums."""
    first = 1 if call.name.startswith("aten.addmm") else 0
    behind = walk.operands(call)
    weighted = behind[first + 1] in walk.weight_name
    if weighted:
        mark = walk.mark(behind[first], call.inputs[first])
        walk.emit(index, _only(call, {first: mark}), [mark], by_tokens=True)
        return
    forward = walk.graph.calls[call.forward] if call.forward is not None else None
    if forward is not None and walk.graph.reads_weight(forward) and call.phase is Phase.BACKWARD:
        left = walk.shapes[call.inputs[first]]
        tokens = walk.held[next(b for b in behind if b in walk.held)]
        walk.emit(index, _only(call, {first: left[0] * tokens, first + 1: tokens}), [WHOLE])
        walk.leave_partial(index)
        return
    matrix_product(walk, index, call, behind, first)


def _embedding(walk: Walk, index: int, call: Call) -> None:
    """Looks up the tokens of the device."""
    mark = walk.mark(call.reads[-1], call.inputs[1])
    walk.emit(index, [WHOLE, mark], [mark], by_tokens=True)


def _embedding_backward(walk: Walk, index: int, call: Call) -> None:
    mark = walk.mark(call.reads[0], call.inputs[0])
    walk.emit(index, _only(call, {0: mark, 1: mark}), [WHOLE])
    walk.leave_partial(index)


def _attention(walk: Walk, index: int, call: Call) -> None:
    """The device's own queries with all keys and values."""
    behind = walk.operands(call)
    if not all(walk.mark(behind[place], call.inputs[place]) for place in range(3)):
        walk.remark("attention is not divided where queries, keys and values are not all divided by tokens")
        work_on_whole(walk, index, call)
        return
    query = _tokens(walk, call.inputs[0])
    marks = {0: query}
    if call.inputs[3] != NO_TENSOR:
        marks[3] = _tokens(walk, call.inputs[3])
    walk.emit(index, _only(call, marks), [_tokens(walk, call.outputs[0]), query], by_tokens=True)
    size = sum(walk.specs[spec].bytes for spec in call.inputs[1:3])
    written = max(walk.last_write.get(buffer, -1) for buffer in behind[1:3])
    walk.move("keys and values", RING, size, written, index + 1)
    length = size_at(walk.shapes[call.inputs[0]], query)
    if call.settings["causal"]:
        walk.require(
            length // 2 if length % 2 == 0 else 1, "pairs of tokens of a causal sequence", call.module
        )
    else:
        walk.require(length, "tokens of a sequence", call.module)
    walk.require(walk.shapes[call.inputs[1]][-2], "keys and values", call.module)


def _attention_backward(walk: Walk, index: int, call: Call) -> None:
    """Keys, values and their gradients circulate; the gradients return to their device."""
    if call.forward is None or walk.flow.inputs[call.forward] is None:
        work_on_whole(walk, index, call)
        return
    marks = {place: _tokens(walk, call.inputs[place]) for place in (0, 1, 4)}
    marks[5] = marks[1]
    if len(call.inputs) > 6 and call.inputs[6] != NO_TENSOR:
        marks[6] = _tokens(walk, call.inputs[6])
    outputs = [_tokens(walk, spec) for spec in call.outputs]
    walk.emit(index, _only(call, marks), outputs, by_tokens=True)
    size = 2 * sum(walk.specs[spec].bytes for spec in call.inputs[2:4])
    walk.move("keys, values and their gradients", RING, size, index - 1, index + 1)


def _tokens(walk: Walk, spec: int) -> int:
    """The mark of the token axis, the second to last."""
    shape = walk.shapes[spec]
    return outer_at(shape, len(shape) - 2) if shape[-2] > 1 else WHOLE


def _only(call: Call, marks: Mapping[int, int]) -> list[int]:
    return [marks.get(position, WHOLE) for position in range(len(call.inputs))]


TOKEN_RULES: Mapping[str, Rule] = {
    **COMMON_RULES,
    **dict.fromkeys(("aten.mm", "aten.addmm", "aten.linear", "aten.bmm", "aten.addmm_"), _product),
}
"""Rules of layers on some of the tokens."""
_RULES: Mapping[str, Rule] = {
    **TOKEN_RULES,
    "aten.embedding": _embedding,
    "aten.embedding_dense_backward": _embedding_backward,
    _ATTENTION: _attention,
    f"{_ATTENTION}_backward": _attention_backward,
}


class ContextParallel(Strategy):
    """`cp=C` divides every sequence between C devices."""

    name = "context"
    keys = ("cp",)
    form = "cp=C"
    axis = Axis.CONTEXT
    order = 20

    def read(self, given: Mapping[str, str], layout: Layout) -> Layout:
        """`cp`."""
        return replace(layout, context=whole_number("cp", given.get("cp", "1")))

    def divide(self, program: Program, layout: Layout) -> Program:
        """Sequences divided, keys and values exchanged."""
        return context_parallel(program, layout.context)

    def mixed_precision(self, layout: Layout) -> MixedPrecision:
        """As Megatron does."""
        return MixedPrecision.FP32_GRADIENTS if layout.context > 1 else MixedPrecision.AUTOCAST

    def environment(self, layout: Layout) -> tuple[tuple[str, str, str], ...]:
        """The degree, if above 1."""
        purpose = "devices each sequence is divided over"
        return () if layout.context == 1 else (("CONTEXT_PARALLEL", str(layout.context), purpose),)
