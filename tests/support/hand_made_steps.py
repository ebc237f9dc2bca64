"""Steps of a few calls with given times, and steps of small models on real devices."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import numpy as np

from foretrain.facts.hardware import hardware
from foretrain.prediction.collectives.costs import Verb
from foretrain.prediction.collectives.network import network_of
from foretrain.prediction.cost_models import CallTimes, OperatorCostModel
from foretrain.prediction.step.parallel import ParallelStep, StepEnvironment, predict_step
from foretrain.prediction.strategies.program import Axis, Exchange, Program, When
from foretrain.prediction.strategies.strategy import layout_of
from foretrain.workloads.executed import ExecutedGraph
from foretrain.workloads.graph import Buffer, Call, Graph, Phase, Role, Spec
from foretrain.workloads.options import WorkloadRequest
from foretrain.workloads.workload import trace_workload, workload_of

PHASES = {"f": Phase.FORWARD, "b": Phase.BACKWARD, "o": Phase.OPTIMIZER}


def step_of(spelled: str, gradient_elements: Sequence[int] = ()) -> Graph:
    """A step of calls such as "ffbbo"; its backward calls write gradients of these sizes, in their order."""
    specs = tuple(Spec((elements,), "float32") for elements in gradient_elements)
    backward = [index for index, letter in enumerate(spelled) if letter == "b"]
    writes = dict(zip(backward, range(len(specs)), strict=False))
    calls = tuple(
        Call("aten.relu", PHASES[letter], "", (), (), (), (writes[index],) if index in writes else (), {})
        for index, letter in enumerate(spelled)
    )
    buffers = tuple(
        Buffer(number, backward[number], len(calls), Role.GRADIENT, f"layers.{number}.weight")
        for number in range(len(specs))
    )
    return Graph(specs, calls, buffers, (), 1, 1, 0)


def times(*device: float) -> CallTimes:
    """Calls of given seconds, launched in no time."""
    return CallTimes(np.array(device, float), np.zeros(len(device)))


def program(spelled: str, *exchanges: Exchange, micro_batches: int = 1) -> Program:
    """A program of hand-made calls."""
    return Program(step_of(spelled), tuple(exchanges), micro_batches=micro_batches)


def exchange(
    after: int, before: int, seconds: float, axis: Axis = Axis.DATA, when: When = When.EVERY
) -> Exchange:
    """An exchange of one byte per second it takes."""
    return Exchange("exchange", Verb.ALL_REDUCE, seconds, axis, after, before, when)


def by_bytes(of: Exchange) -> float:
    """A network that moves a byte in a second."""
    return of.bytes


@cache
def graph(model: str, batch: int = 2, **options: object) -> Graph:
    """A model of the zoo, traced once."""
    return trace_workload(workload_of(WorkloadRequest(model, batch=batch, **options)))  # type: ignore[arg-type]


def gpt2() -> Graph:
    """A small language model."""
    return graph("gpt2", seq_len=64)


@cache
def environment(on: str, intra: str | None = None, inter: str | None = None) -> StepEnvironment:
    """Real devices on real links."""
    machine = hardware(on)
    return StepEnvironment(machine.device, network_of(machine, intra, inter), OperatorCostModel())


def parallel_step_on(
    of: Graph, strategy: str, on: str, micro_batches: int = 1, inter: str | None = None
) -> ParallelStep:
    """A step on real devices."""
    machine = hardware(on)
    layout = layout_of(strategy, machine.devices, machine.devices_per_node)
    return predict_step(ExecutedGraph(of), layout, micro_batches, environment(on, inter=inter))
