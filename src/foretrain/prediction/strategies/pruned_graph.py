"""A step's graph without some of its calls and parameters, which other devices have."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from itertools import accumulate
from typing import NamedTuple

from foretrain.prediction.strategies.optimizer_states import owners_of_states, updated
from foretrain.workloads.graph import Buffer, Call, Graph, Phase, Role


class Pruned(NamedTuple):
    """The graph that is left, and how many of its calls come before each one of the former (and the end)."""

    graph: Graph
    before: tuple[int, ...]


def pruned(graph: Graph, calls: Collection[int], parameters: Collection[str]) -> Pruned:
    """Leave out calls and parameters, the memory only they need, and the parameters' part of updates.

    What the calls left read stays, also if it was made by one left out: it then comes from elsewhere.
    """
    gone = _needless(graph, calls, parameters)
    kept = [
        (index, _without_operands(call, gone) if call.phase is Phase.OPTIMIZER else call)
        for index, call in enumerate(graph.calls)
        if index not in calls
    ]
    before = tuple(accumulate((index not in calls for index in range(len(graph.calls))), initial=0))
    number = {old: new for new, old in enumerate(i for i in range(len(graph.buffers)) if i not in gone)}
    left = replace(
        graph,
        calls=tuple(_renumbered(call, number, before) for _, call in kept),
        buffers=tuple(_moved(graph.buffers[old], before, len(graph.calls)) for old in number),
        layers=tuple(layer for layer in graph.layers if not _is_of(layer.path, parameters)),
        settings={
            **graph.settings,
            "trained": [name for name in graph.settings.get("trained", ()) if name not in parameters],
        },
    )
    return Pruned(left, before)


def _needless(graph: Graph, calls: Collection[int], parameters: Collection[str]) -> set[int]:
    """Buffers that go: the parameters' own, and those only calls that go have to do with."""
    weights = (Role.PARAMETER, Role.CAST_WEIGHT, Role.GRADIENT)
    gone = {i for i, b in enumerate(graph.buffers) if b.role in weights and b.name in parameters}
    gone |= {state for state, owner in owners_of_states(graph).items() if owner in gone}
    touched: set[int] = set()
    used: set[int] = set()
    for index, call in enumerate(graph.calls):
        if call.phase is not Phase.OPTIMIZER:
            (touched if index in calls else used).update(call.reads, call.writes)
    return gone | (touched - used)


def _without_operands(call: Call, gone: set[int]) -> Call:
    """An update of fewer tensors; what it writes for those left out goes too."""
    behind = updated(call)
    places = [place for place, buffer in enumerate(behind) if buffer not in gone]
    if len(places) == len(behind):
        return call
    outputs = call.outputs
    if len(call.writes) == len(outputs):
        gone.update(call.writes[place] for place in range(len(outputs)) if behind[place] in gone)
        outputs = tuple(outputs[place] for place in places if place < len(outputs))
    return call._replace(inputs=tuple(call.inputs[place] for place in places), outputs=outputs)


def _renumbered(call: Call, number: dict[int, int], before: tuple[int, ...]) -> Call:
    return call._replace(
        reads=tuple(number[buffer] for buffer in call.reads if buffer in number),
        writes=tuple(number[buffer] for buffer in call.writes if buffer in number),
        forward=None if call.forward is None else before[call.forward],
    )


def _moved(buffer: Buffer, before: tuple[int, ...], calls: int) -> Buffer:
    """A buffer's life, counted in the calls that are left."""
    born = buffer.born if buffer.born < 0 else before[buffer.born]
    dies = before[calls] if buffer.dies >= calls else max(born, before[buffer.dies + 1] - 1)
    return buffer._replace(born=born, dies=dies)


def _is_of(path: str, parameters: Collection[str]) -> bool:
    return f"{path}.weight" in parameters
