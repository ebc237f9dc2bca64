"""Expert parallelism: the experts of each layer lie with different devices, tokens travel to theirs.

Each device trains on samples of its own. Before the experts, its tokens go to the devices that have the
experts they were routed to (an all-to-all), and their results come back after; backward likewise with the
gradients. A device thus has a part of the experts and, if all are used alike, as many tokens as before: its
work stays, its parameters shrink. Gradients of experts are averaged only between devices with the same ones.

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
from foretrain.prediction.collectives._base import Verb
from foretrain.prediction.strategies._base import Strategy
from foretrain.prediction.strategies.context import TOKEN_RULES
from foretrain.prediction.strategies.division.flow import Walk
from foretrain.prediction.strategies.division.graph import common_degrees, divide, nearest_degrees
from foretrain.prediction.strategies.division.rules import keep_division
from foretrain.prediction.strategies.division.shapes import WHOLE, multiplied, outer_at
from foretrain.prediction.strategies.layout import Layout, divisors, whole_number
from foretrain.prediction.strategies.pipeline.stages import pruned
from foretrain.prediction.strategies.program import Axis, Exchange, Program
from foretrain.workloads.graph import Call, Graph, Phase, Role

NOTE = "experts are assumed to be used alike; their gradients are averaged between devices with the same ones"
_GROUPED = "aten._grouped_mm"
_INPUT_OF_PRODUCT = {"aten.mm": 0, "aten.linear": 0, "aten.addmm": 1}
_EXPERT = re.compile(r"^(?P<layer>.*\bexperts)\.(?P<number>\d+)(\.|$)")


def expert_parallel(program: Program, degree: int) -> Program:
    """The program with each layer's experts divided between `degree` devices; after tensor and context
    parallelism, if any."""
    if degree < 1:
        raise InvalidRequest(f"expert parallelism over {degree} devices: give at least 1")
    if degree == 1:
        return program
    if Axis.EXPERT in program.degrees:
        raise InvalidRequest("the program is divided by expert parallelism already")
    count = _experts(program.graph)
    if count % degree:
        raise InvalidRequest(
            f"expert parallelism over {degree} devices does not divide the {count} experts of a layer;"
            f" {nearest_degrees([count], degree)}"
        )
    is_stacked = any(call.name == _GROUPED for call in program.graph.calls)
    spread = _stacked(program, degree) if is_stacked else _listed(program, degree, count // degree)
    return replace(spread, notes=(*spread.notes, NOTE))


def feasible_expert_degrees(graph: Graph, most: int) -> tuple[int, ...]:
    """The degrees up to `most` that the experts of a model can be divided by; only 1 if it has none."""
    try:
        count = _experts(graph)
    except InvalidRequest:
        return (1,)
    return common_degrees([count], most)


def expert_parameters(graph: Graph) -> frozenset[str]:
    """Names of the parameters that belong to experts: their gradients differ along the expert axis."""
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
    """How many experts a layer has; of layers that differ, what divides all."""
    sizes: dict[str, set[int]] = {}
    for call in graph.calls:
        found = _EXPERT.match(call.module)
        if found:
            sizes.setdefault(found["layer"], set()).add(int(found["number"]))
    counts = [len(numbers) for numbers in sizes.values()]
    for call in graph.calls:
        if call.name == _GROUPED:
            shapes = [graph.specs[spec].shape for spec in (*call.inputs[:2], *call.outputs)]
            counts.append(max(shape[0] for shape in shapes if len(shape) == 3))
    if not counts:
        raise InvalidRequest(
            "expert parallelism divides experts, and this model has none it knows: modules `experts.0`,"
            " `experts.1` ... or grouped products"
        )
    return math.gcd(*counts)


class _Visit(NamedTuple):
    """One time the experts of a layer are at work: their first and last call, and the bytes that come in
    and go out."""

    layer: str
    first: int
    last: int
    received: float
    returned: float


def _exchanges(visits: Iterable[_Visit]) -> Iterator[Exchange]:
    for visit in visits:
        yield _all_to_all("tokens to experts", visit.received, visit.first - 1, visit.first)
        yield _all_to_all("results from experts", visit.returned, visit.last, visit.last + 1)


def _all_to_all(name: str, size: float, after: int, before: int) -> Exchange:
    return Exchange(name, Verb.ALL_TO_ALL, size, Axis.EXPERT, after, before)


# Experts that are modules of their own


def _listed(program: Program, degree: int, experts: int) -> Program:
    """A device keeps the first `experts`, with the tokens all devices have for them."""
    graph = program.graph
    numbers = [_number(call) for call in graph.calls]
    away = {index for index, number in enumerate(numbers) if number is not None and number >= experts}
    left, before = pruned(graph, away, _parameters_of(graph, experts))
    visits = _visits(graph, numbers)
    walk = _token_walk(left)
    kept = [
        _scaled(exchange, numbers, degree)._replace(
            after=before[exchange.after + 1] - 1, before=before[min(exchange.before, len(numbers))]
        )
        for exchange in program.exchanges
        if exchange.after not in away
    ]
    here = [visit._replace(first=before[visit.first], last=before[visit.last + 1] - 1) for visit in visits]
    divided = divide(left, walk.flow, degree, multiplied)
    return replace(program, exchanges=tuple(kept)).spread(
        Axis.EXPERT, degree, *_exchanges(here), graph=divided
    )


def _number(call: Call) -> int | None:
    found = _EXPERT.match(call.module)
    return int(found["number"]) if found else None


def _parameters_of(graph: Graph, first: int) -> frozenset[str]:
    """Names of the parameters of the experts from number `first` on."""
    names = [buffer.name for buffer in graph.buffers if buffer.role is Role.PARAMETER]
    found = ((name, _EXPERT.match(name)) for name in names)
    return frozenset(name for name, expert in found if expert and int(expert["number"]) >= first)


def _scaled(exchange: Exchange, numbers: list[int | None], degree: int) -> Exchange:
    """What tensor-parallel devices exchange within an expert grows with its tokens."""
    inside = 0 <= exchange.after < len(numbers) and numbers[exchange.after] is not None
    return exchange._replace(bytes=exchange.bytes * degree) if inside else exchange


def _visits(graph: Graph, numbers: list[int | None]) -> list[_Visit]:
    """When the experts of each layer are at work. Gradients that come in are those of what went out."""
    spans: dict[tuple[str, Phase, bool], list[int]] = {}
    for index, (call, number) in enumerate(zip(graph.calls, numbers, strict=True)):
        if number is not None:
            layer = call.module[: call.module.index("experts") + len("experts")]
            spans.setdefault((layer, call.phase, call.recomputed), []).append(index)
    found = []
    for (layer, phase, recomputed), indices in spans.items():
        received, returned = _crossing(graph, spans.get((layer, Phase.FORWARD, False), indices))
        if phase is Phase.BACKWARD and not recomputed:
            received, returned = returned, received
        found.append(_Visit(layer, indices[0], indices[-1], received, returned))
    return found


def _crossing(graph: Graph, indices: list[int]) -> tuple[float, float]:
    """Bytes that a layer's experts take in and give out: the input of each one's first product, and the
    result of its last."""
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
    """The experts that are left, with the tokens of all devices: where the tokens' axis is in each call."""
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


# Experts that are one stacked weight


def _stacked(program: Program, degree: int) -> Program:
    """A device keeps some of the stack; as many rows come from all devices as it had."""
    graph = program.graph
    rules = {**TOKEN_RULES, _GROUPED: _grouped}
    flow = Walk(graph, rules, keep_division, deciders=frozenset({_GROUPED})).run()
    spans: dict[tuple[str, Phase, bool], list[int]] = {}
    for index, call in enumerate(graph.calls):
        if call.name == _GROUPED:
            spans.setdefault((call.module, call.phase, call.recomputed), []).append(index)
    visits = [
        _Visit(
            layer,
            indices[0],
            indices[-1],
            graph.specs[_rows(graph, indices[0])].bytes,
            graph.specs[graph.calls[indices[-1]].outputs[0]].bytes,
        )
        for (layer, _, _), indices in spans.items()
    ]
    divided = divide(graph, flow, degree)
    return program.spread(Axis.EXPERT, degree, *_exchanges(visits), graph=divided)


def _rows(graph: Graph, index: int) -> int:
    """The operand of a grouped product with a row for each token; of a weight's gradient, the narrower."""
    call = graph.calls[index]
    flat = [spec for spec in call.inputs[:2] if len(graph.specs[spec].shape) == 2]
    return min(flat, key=lambda spec: graph.specs[spec].elements)


def _grouped(walk: Walk, index: int, call: Call) -> None:
    """The stack is divided by experts, its gradient too; rows stay as many."""
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
    order = 60

    def read(self, given: Mapping[str, str], layout: Layout) -> Layout:
        """`ep`, which takes its devices from the data-parallel ones."""
        expert = whole_number("ep", given.get("ep", "1"))
        if layout.data % expert:
            raise InvalidRequest(
                f"ep={expert} must divide the {layout.data} data-parallel devices ({divisors(layout.data)})"
            )
        return replace(layout, expert=expert, data=layout.data // expert)

    def divide(self, program: Program, layout: Layout) -> Program:
        """Experts divided, tokens exchanged."""
        return expert_parallel(program, layout.expert)

    def environment(self, layout: Layout) -> tuple[tuple[str, str, str], ...]:
        """The degree, if above 1."""
        purpose = "devices the experts are divided over"
        return () if layout.expert == 1 else (("EXPERT_PARALLEL", str(layout.expert), purpose),)
