"""Programs.

What one device runs of a training step, and what it exchanges with the others.

A `Program` begins as the whole step on one device. A strategy turns it into that of one device among many:
it divides dimensions of the graph's tensors, and adds exchanges between calls. A strategy of degree 1
returns the program it was given; of degree d it leaves each of d devices its share of the work.

Which devices exchange data along an axis, and how many of them share a node.

Devices are numbered with the first axis of `Axis` fastest, node by node: tensor-parallel neighbours sit
together, pipeline stages farthest apart. Along an axis of stride s (the product of the degrees before it),
a node of N devices holds min(degree, N / s) members of a group, at least one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import NamedTuple

from foretrain.prediction.collectives._base import Group, Verb
from foretrain.workloads.fusion import fused, fusion, is_fused
from foretrain.workloads.graph import Graph


class Axis(StrEnum):
    """A way to divide a step. Neighbouring devices belong to the first axis of this order, and so on."""

    TENSOR = "tp"
    CONTEXT = "cp"
    EXPERT = "ep"
    SHARD = "fsdp"
    DATA = "dp"
    PIPELINE = "pp"


REPLICAS = (Axis.EXPERT, Axis.SHARD, Axis.DATA)
"""The axes whose devices train on samples of their own."""


class When(StrEnum):
    """In which micro-batches of a step an exchange happens."""

    EVERY = "every micro-batch"
    FIRST = "the first micro-batch"
    LAST = "the last micro-batch"


class Exchange(NamedTuple):
    """A collective at its place in the step.

    It starts once call `after` has ended (-1: at once), and call `before` waits for it (the number of calls:
    nothing but the end of the step does). `bytes` is the whole message of the group along `axis` (and `also`
    along others): the full tensor, also where each member holds only a part of it. `host_seconds` is what the
    host does for it that everything waits for.
    """

    name: str
    verb: Verb
    bytes: float
    axis: Axis
    after: int
    before: int
    when: When = When.EVERY
    also: tuple[Axis, ...] = ()
    host_seconds: float = 0.0

    @property
    def axes(self) -> tuple[Axis, ...]:
        """The axes its group spans."""
        return (self.axis, *self.also)


@dataclass(frozen=True)
class Program:
    """One device's part of a training step, for one micro-batch.

    `graph` is the step with its dimensions divided; `degrees` says over how many devices each axis spreads
    it (an axis that is not named: 1). `zero_stage` 1 shards optimizer state over the shard axis, 2 also
    gradients, 3 also parameters. Experts live on devices that train on samples of their own.
    `forward_launchers` devices have their forward passes launched by one interpreter, in turn.
    """

    graph: Graph
    exchanges: tuple[Exchange, ...] = ()
    degrees: Mapping[Axis, int] = field(default_factory=dict)
    zero_stage: int = 0
    micro_batches: int = 1
    forward_launchers: int = 1
    notes: tuple[str, ...] = ()

    def degree(self, axis: Axis) -> int:
        """Over how many devices an axis spreads the step."""
        return self.degrees.get(axis, 1)

    @property
    def devices(self) -> int:
        """All devices of the program."""
        return math.prod(self.degrees.values())

    @property
    def replicas(self) -> int:
        """How many devices, or groups of them, train on samples of their own."""
        return math.prod(self.degree(axis) for axis in REPLICAS)

    def spread(self, axis: Axis, degree: int, *added: Exchange, graph: Graph | None = None) -> Program:
        """The program spread along one more axis, with exchanges added and perhaps the graph divided."""
        return replace(
            self,
            graph=self.graph if graph is None else graph,
            exchanges=(*self.exchanges, *added),
            degrees={**self.degrees, axis: degree},
        )


def compiled(program: Program) -> Program:
    """The program with its kernels fused, where its step is compiled: none spans an exchange."""
    graph = program.graph
    if not graph.settings.get("compile") or is_fused(graph):
        return program
    if not program.exchanges:
        return replace(program, graph=fused(graph))
    breaks = {call for exchange in program.exchanges for call in (exchange.after + 1, exchange.before)}
    found = fusion(graph, breaks)
    exchanges = tuple(
        exchange._replace(
            after=found.place[exchange.after] if exchange.after >= 0 else exchange.after,
            before=found.place[exchange.before],
        )
        for exchange in program.exchanges
    )
    return replace(program, graph=found.graph, exchanges=exchanges)


def group_along(axes: tuple[Axis, ...], degrees: Mapping[Axis, int], devices_per_node: int) -> Group:
    """The group that spans some axes, seen from one of its members."""
    size = members = 1
    for axis in axes:
        degree = degrees.get(axis, 1)
        size *= degree
        members *= min(degree, max(1, devices_per_node // stride(axis, degrees)))
    on_node = min(devices_per_node, math.prod(degrees.values()))
    return Group(size, min(members, size), max(1, on_node // members))


def stride(axis: Axis, degrees: Mapping[Axis, int]) -> int:
    """How far apart neighbours along an axis are numbered."""
    before = list(Axis)[: list(Axis).index(axis)]
    return math.prod(degrees.get(other, 1) for other in before)


def neighbours(axis: Axis, degrees: Mapping[Axis, int], devices_per_node: int) -> Group:
    """Two devices next to each other along an axis, as pipeline stages are."""
    apart = stride(axis, degrees)
    together = apart < devices_per_node
    on_node = min(devices_per_node, math.prod(degrees.values()))
    return Group(2, 2 if together else 1, min(apart, on_node))


ROOT = ""
"""The unit of the parameters outside any repeated block; it stays gathered throughout."""


def unit_of(parameter: str) -> str:
    """The block a parameter belongs to: its path up to the first number, `layers.3` of `layers.3.mlp.up`."""
    components = parameter.split(".")
    for position, component in enumerate(components[:-1]):
        if component.isdigit():
            return ".".join(components[: position + 1])
    return ROOT
