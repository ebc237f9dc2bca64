"""One stage of a pipeline as a program of its own: its calls, and the memory they use.

A forward call belongs to the stage its position was cut into, a backward call to that of the forward call it
differentiates, an optimizer call to every stage, on that stage's tensors.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from foretrain.prediction.strategies.program import Program
from foretrain.workloads.graph import Buffer, Call, Graph, Phase, Role

Stages = NDArray[np.int64]
"""For each call the stage that runs it; optimizer calls are run by all."""


class Stage(NamedTuple):
    """What one stage runs of a program, and where its calls stand in the whole."""

    program: Program
    calls: Stages


def stage_programs(program: Program, stage_of_call: Stages, stages: int) -> tuple[Stage, ...]:
    """What each of some stages runs of a program."""
    graph = program.graph
    owner = _owners(graph, stage_of_call)
    kept: list[dict[int, Call]] = [{} for _ in range(stages)]
    for index, (call, stage) in enumerate(zip(graph.calls, stage_of_call.tolist(), strict=True)):
        if call.phase is not Phase.OPTIMIZER:
            if stage < stages:
                kept[stage][index] = call
            continue
        for each in range(stages):
            mine = _restricted(call, owner, each)
            if mine is not None:
                kept[each][index] = mine
    return tuple(_stage(program, calls) for calls in kept)


def _stage(program: Program, calls: Mapping[int, Call]) -> Stage:
    """A program of some of the calls, given by their place in the whole."""
    place = {index: number for number, index in enumerate(calls)}
    exchanges = tuple(
        exchange._replace(after=place[exchange.after], before=_next(exchange.before, place, len(calls)))
        for exchange in program.exchanges
        if exchange.after in place
    )
    part = replace(program, graph=_part(program.graph, list(calls.values()), place), exchanges=exchanges)
    return Stage(part, np.array(list(place), np.int64))


def _next(call: int, place: dict[int, int], count: int) -> int:
    """The first kept call that is not before `call`."""
    last = next(reversed(place), -1)
    while call not in place and call <= last:
        call += 1
    return place.get(call, count)


def _owners(graph: Graph, stage_of_call: Stages) -> dict[int, int]:
    """The stage of every parameter, gradient and optimizer state, by its buffer.

    A parameter belongs to the first stage that reads it. State follows the parameters' order, in which the
    optimizer's calls list their tensors.
    """
    owner: dict[int, int] = {}
    stage_of_name: dict[str, int] = {}
    for index, call in enumerate(graph.calls):
        if call.phase is Phase.OPTIMIZER:
            break
        for buffer in call.reads:
            found = graph.buffers[buffer]
            if found.role is Role.PARAMETER and buffer not in owner:
                owner[buffer] = int(stage_of_call[index])
                stage_of_name[found.name] = owner[buffer]
        for buffer in call.writes:
            found = graph.buffers[buffer]
            if found.role is Role.GRADIENT:
                owner[buffer] = stage_of_name.get(found.name, int(stage_of_call[index]))
    trained = [
        stage_of_name.get(buffer.name, 0)
        for buffer in graph.buffers
        if buffer.role is Role.PARAMETER and buffer.name in graph.trained_names
    ]
    for call in graph.calls:
        if call.phase is Phase.OPTIMIZER and trained and len(call.reads) % len(trained) == 0:
            for tensors in (call.reads, call.writes):
                for position, buffer in enumerate(tensors):
                    owner.setdefault(buffer, trained[position % len(trained)])
    return owner


def _restricted(call: Call, owner: Mapping[int, int], stage: int) -> Call | None:
    """An optimizer call on the tensors of one stage, or None if it has none of them."""
    reads = tuple(buffer for buffer in call.reads if owner.get(buffer, stage) == stage)
    if not reads:
        return None
    writes = tuple(buffer for buffer in call.writes if owner.get(buffer, stage) == stage)
    first = [owner.get(buffer, stage) == stage for buffer in call.reads]
    lists = len(call.inputs) / len(call.writes) if call.writes else 0
    if lists and lists == int(lists) and len(call.reads) % len(call.writes) == 0:
        mine = first[: len(call.writes)]
        inputs = tuple(
            index for position, index in enumerate(call.inputs) if mine[position % len(call.writes)]
        )
        aligned = len(call.outputs) == len(call.writes)
        outputs = (
            tuple(index for index, is_mine in zip(call.outputs, mine, strict=True) if is_mine)
            if aligned
            else call.outputs
        )
        return call._replace(reads=reads, writes=writes, inputs=inputs, outputs=outputs)
    return call._replace(reads=reads, writes=writes)


def _part(graph: Graph, kept: list[Call], place: Mapping[int, int]) -> Graph:
    """The graph of some of the calls, with the buffers they touch."""
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    for index, call in enumerate(kept):
        for buffer in (*call.reads, *call.writes):
            first.setdefault(buffer, index)
            last[buffer] = index
    number: dict[int, int] = {}
    buffers: list[Buffer] = []
    for old in sorted(first):
        number[old] = len(buffers)
        life = _life(graph.buffers[old], first[old], last[old], place, (len(graph.calls), len(kept)))
        buffers.append(life)
    calls = tuple(
        call._replace(
            reads=tuple([number[buffer] for buffer in call.reads]),
            writes=tuple([number[buffer] for buffer in call.writes]),
            forward=None if call.forward is None else place.get(call.forward),
        )
        for call in kept
    )
    trained = graph.trained_names & {buffer.name for buffer in buffers if buffer.role is Role.PARAMETER}
    settings = {**graph.settings, "trained": tuple(sorted(trained))}
    return replace(graph, calls=calls, buffers=tuple(buffers), settings=settings)


def _life(buffer: Buffer, first: int, last: int, place: Mapping[int, int], counts: tuple[int, int]) -> Buffer:
    """A buffer's life in the calls of one stage; what comes from another stage lives from its first use.

    `counts` are the calls of the whole step, and of the stage.
    """
    calls, kept = counts
    born = -1 if buffer.born < 0 else place.get(buffer.born, first)
    dies = kept if buffer.dies >= calls else place.get(buffer.dies, last)
    return buffer._replace(born=born, dies=max(dies, born))
