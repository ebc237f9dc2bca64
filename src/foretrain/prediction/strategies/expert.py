"""Expert parallelism: experts are distributed over devices, and tokens are sent to their experts.

Each device has its own samples. Before the experts, an all-to-all sends its tokens to the devices of the
experts they are routed to, and a second one returns the results; the backward pass does the same with
gradients. A device thus holds a part of the experts and, if all experts get the same number of tokens, as
many tokens as before: its work is unchanged, its parameters shrink. Gradients of experts are averaged only
between devices with the same experts.

Experts are modules `experts.0`, `experts.1` ... or one stacked weight used in grouped products.

References: D. Lepikhin et al., "GShard", arXiv:2006.16668; W. Fedus et al., "Switch Transformers",
arXiv:2101.03961, section 5.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple

from foretrain.errors import InvalidRequest
from foretrain.prediction.collectives.costs import Verb
from foretrain.prediction.strategies.context import TOKEN_RULES
from foretrain.prediction.strategies.division.flow import Walk, common_degrees, divide, nearest_degrees
from foretrain.prediction.strategies.division.rules import keep_division
from foretrain.prediction.strategies.division.shapes import WHOLE, multiply_spec, outer_at
from foretrain.prediction.strategies.pipeline.stages import prune
from foretrain.prediction.strategies.program import Axis, Exchange, Program
from foretrain.prediction.strategies.strategy import Layout, MixedPrecision, Strategy, divisors, whole_number
from foretrain.workloads.graph import Call, Graph, Phase, Role

NOTE = (
    "experts are assumed to get equal numbers of tokens; their gradients are averaged between devices with "
    "the same experts"
)
_GROUPED = "aten._grouped_mm"
_INPUT_OF_PRODUCT = {"aten.mm": 0, "aten.linear": 0, "aten.addmm": 1}
_EXPERT = re.compile(r"^(?P<layer>.*\bexperts)\.(?P<number>\d+)(\.|$)")


def expert_parallel(program: Program, degree: int) -> Program:
    """The program with experts on `degree` devices; apply tensor and context parallelism first."""
    if degree < 1:
        raise InvalidRequest(f"ep must be at least 1, got {degree}")
    if degree == 1:
        return program
    if Axis.EXPERT in program.degrees:
        raise InvalidRequest("expert parallelism is already applied to the program")
    count = _experts(program.graph)
    if count % degree:
        raise InvalidRequest(
            f"expert parallelism over {degree} devices does not divide the {count} experts of a layer;"
            f" {nearest_degrees([count], degree)}"
        )
    is_stacked = any(call.name == _GROUPED for call in program.graph.calls)
    parallel = (
        _divide_stacked(program, degree) if is_stacked else _divide_listed(program, degree, count // degree)
    )
    return replace(parallel, notes=(*parallel.notes, NOTE))


def feasible_expert_degrees(graph: Graph, most: int) -> tuple[int, ...]:
    """The degrees up to `most` that divide the experts of a model; only 1 if it has none."""
    try:
        count = _experts(graph)
    except InvalidRequest:
        return (1,)
    return common_degrees([count], most)


def expert_parameters(graph: Graph) -> frozenset[str]:
    """Names of the parameters of experts; their gradients differ along the expert axis."""
    weights = (Role.PARAMETER, Role.CAST_WEIGHT)
    stacked = {
        graph.buffers[buffer].name
        for call in graph.calls
        if call.name == _GROUPED
        for buffer in call.reads
        if graph.buffers[buffer].role in weights
    }
    return _parameters_of(graph, 0) | stacked


def _experts(graph: Graph) -> int:
    """The number of experts of a layer; the greatest common divisor if layers differ."""
    sizes: dict[str, set[int]] = {}
    for call in graph.calls:
        match = _EXPERT.match(call.module)
        if match:
            sizes.setdefault(match["layer"], set()).add(int(match["number"]))
    counts = [len(numbers) for numbers in sizes.values()]
    for call in graph.calls:
        if call.name == _GROUPED:
            shapes = [graph.specs[spec].shape for spec in (*call.inputs[:2], *call.outputs)]
            counts.append(max(shape[0] for shape in shapes if len(shape) == 3))
    if not counts:
        raise InvalidRequest(
            "expert parallelism requires experts, and none are recognised in this model: they are modules"
            " `experts.0`, `experts.1` ... or grouped products"
        )
    return math.gcd(*counts)


class _ExpertUse(NamedTuple):
    """One use of the experts of a layer: first and last call, and bytes received and returned."""

    layer: str
    first: int
    last: int
    received: float
    returned: float


def _exchanges(uses: Iterable[_ExpertUse]) -> Iterator[Exchange]:
    for use in uses:
        yield _all_to_all("tokens to experts", use.received, use.first - 1, use.first)
        yield _all_to_all("results from experts", use.returned, use.last, use.last + 1)


def _all_to_all(name: str, size: float, after: int, before: int) -> Exchange:
    return Exchange(name, Verb.ALL_TO_ALL, size, Axis.EXPERT, after, before)


# Experts as separate modules


def _divide_listed(program: Program, degree: int, experts: int) -> Program:
    """A device keeps the first `experts` experts, with the tokens of all devices for them."""
    graph = program.graph
    numbers = [_number(call) for call in graph.calls]
    elsewhere = {index for index, number in enumerate(numbers) if number is not None and number >= experts}
    own, before = prune(graph, elsewhere, _parameters_of(graph, experts))
    uses = _expert_uses(graph, numbers)
    walk = _token_walk(own)
    present = [
        _scale(exchange, numbers, degree)._replace(
            after=before[exchange.after + 1] - 1,
            before=before[min(exchange.before, len(numbers))],
            readers=tuple(before[reader] for reader in exchange.readers),
        )
        for exchange in program.exchanges
        if exchange.after not in elsewhere
    ]
    shifted = [use._replace(first=before[use.first], last=before[use.last + 1] - 1) for use in uses]
    divided = divide(own, walk.flow, degree, multiply_spec)
    return replace(program, exchanges=tuple(present)).with_axis(
        Axis.EXPERT, degree, *_exchanges(shifted), graph=divided
    )


def _number(call: Call) -> int | None:
    match = _EXPERT.match(call.module)
    return int(match["number"]) if match else None


def _parameters_of(graph: Graph, first: int) -> frozenset[str]:
    """Names of the parameters of the experts from number `first` on."""
    names = [buffer.name for buffer in graph.buffers if buffer.role is Role.PARAMETER]
    matches = ((name, _EXPERT.match(name)) for name in names)
    return frozenset(name for name, expert in matches if expert and int(expert["number"]) >= first)


def _scale(exchange: Exchange, numbers: list[int | None], degree: int) -> Exchange:
    """An exchange between tensor-parallel devices; within an expert it grows with its tokens."""
    is_inside = 0 <= exchange.after < len(numbers) and numbers[exchange.after] is not None
    return exchange._replace(bytes=exchange.bytes * degree) if is_inside else exchange


def _expert_uses(graph: Graph, numbers: list[int | None]) -> list[_ExpertUse]:
    """All uses of the experts of each layer; backward, received and returned bytes are swapped."""
    spans: dict[tuple[str, Phase, bool], list[int]] = {}
    for index, (call, number) in enumerate(zip(graph.calls, numbers, strict=True)):
        if number is not None:
            layer = call.module[: call.module.index("experts") + len("experts")]
            spans.setdefault((layer, call.phase, call.recomputed), []).append(index)
    uses = []
    for (layer, phase, recomputed), indices in spans.items():
        received, returned = _crossing(graph, spans.get((layer, Phase.FORWARD, False), indices))
        if phase is Phase.BACKWARD and not recomputed:
            received, returned = returned, received
        uses.append(_ExpertUse(layer, indices[0], indices[-1], received, returned))
    return uses


def _crossing(graph: Graph, indices: list[int]) -> tuple[float, float]:
    """Bytes received and returned by the experts of a layer: inputs of first, results of last products."""
    products: dict[int | None, list[Call]] = {}
    for index in indices:
        call = graph.calls[index]
        if call.name in _INPUT_OF_PRODUCT:
            products.setdefault(_number(call), []).append(call)
    received = sum(
        graph.specs[calls[0].inputs[_INPUT_OF_PRODUCT[calls[0].name]]].bytes for calls in products.values()
    )
    returned = sum(graph.specs[calls[-1].outputs[0]].bytes for calls in products.values())
    return float(received), float(returned)


def _token_walk(graph: Graph) -> Walk:
    """A walk over the device's experts that finds the token axis in each of their calls."""
    walk = Walk(graph, TOKEN_RULES, keep_division, sums_gradients=False)
    mine = [_number(call) is not None for call in graph.calls]
    shared = {
        buffer
        for call, is_mine in zip(graph.calls, mine, strict=True)
        if not is_mine
        for buffer in (*call.reads, *call.writes)
    }
    for index, call in enumerate(graph.calls):
        if not mine[index]:
            continue
        for buffer in call.reads:
            if buffer not in walk.weight_name and buffer not in walk.held and buffer not in walk.partial:
                walk.held[buffer] = 1
                walk.by_tokens.add(buffer)
        walk.visit(index, call)
    for buffer in shared:
        walk.held.pop(buffer, None)
    return walk


# Experts in one stacked weight


def _divide_stacked(program: Program, degree: int) -> Program:
    """A device keeps a part of the stack; it receives as many rows from all devices as it sends."""
    graph = program.graph
    rules = {**TOKEN_RULES, _GROUPED: _divide_grouped}
    flow = Walk(graph, rules, keep_division, deciders=frozenset({_GROUPED})).run()
    spans: dict[tuple[str, Phase, bool], list[int]] = {}
    for index, call in enumerate(graph.calls):
        if call.name == _GROUPED:
            spans.setdefault((call.module, call.phase, call.recomputed), []).append(index)
    uses = [
        _ExpertUse(
            layer,
            indices[0],
            indices[-1],
            graph.specs[_rows(graph, indices[0])].bytes,
            graph.specs[graph.calls[indices[-1]].outputs[0]].bytes,
        )
        for (layer, _, _), indices in spans.items()
    ]
    divided = divide(graph, flow, degree)
    return program.with_axis(Axis.EXPERT, degree, *_exchanges(uses), graph=divided)


def _rows(graph: Graph, index: int) -> int:
    """The operand of a grouped product with one row per token; the smaller one for gradients of weights."""
    call = graph.calls[index]
    flat = [spec for spec in call.inputs[:2] if len(graph.specs[spec].shape) == 2]
    return min(flat, key=lambda spec: graph.specs[spec].elements)


def _divide_grouped(walk: Walk, index: int, call: Call) -> None:
    """The stack and its gradient are divided by experts; the number of rows is unchanged."""
    behind = walk.operands(call)
    for place in (0, 1):
        name = walk.weight_name.get(behind[place])
        if name is not None and behind[place] not in walk.held:
            walk.divide_weight(name, lambda _: 0)
    marks = [outer_at(walk.shapes[spec], 0) if len(walk.shapes[spec]) == 3 else WHOLE for spec in call.inputs]
    if len(marks) > 2:
        marks[2] = 1
    outputs = [1 if len(walk.shapes[out]) == 3 else WHOLE for out in call.outputs]
    walk.emit(index, marks, outputs)


class ExpertParallel(Strategy):
    """`ep=E` gives each of E data-parallel devices some of the experts."""

    name = "expert"
    keys = ("ep",)
    form = "ep=E"
    axis = Axis.EXPERT
    order = 60

    def read(self, given: Mapping[str, str], layout: Layout) -> Layout:
        """`ep`, which divides the data-parallel devices."""
        expert = whole_number("ep", given.get("ep", "1"))
        if layout.data % expert:
            raise InvalidRequest(
                f"ep={expert} must divide the {layout.data} data-parallel devices ({divisors(layout.data)})"
            )
        return replace(layout, expert=expert, data=layout.data // expert)

    def divide(self, program: Program, layout: Layout) -> Program:
        """Experts divided, tokens exchanged."""
        return expert_parallel(program, layout.expert)

    def mixed_precision(self, layout: Layout) -> MixedPrecision:
        """As Megatron does."""
        return MixedPrecision.FP32_GRADIENTS if layout.expert > 1 else MixedPrecision.AUTOCAST

    def environment(self, layout: Layout) -> tuple[tuple[str, str, str], ...]:
        """The degree, if above 1."""
        purpose = "devices the experts are divided over"
        return () if layout.expert == 1 else (("EXPERT_PARALLEL", str(layout.expert), purpose),)
