"""PyTorch's DataParallel: one process with one thread per device; all exchanges go through the first device.

Each step scatters the samples, copies the parameters from the first device to the others, runs the forward
passes, gathers the outputs and computes the loss on the first device, runs the backward passes, sums the
gradients on the first device and updates the parameters there. All parameters move twice in every step,
nothing overlaps, and the first device holds the outputs of all devices and the optimizer state. The threads
share the interpreter lock, so forward passes are launched one after the other. Before them, the interpreter
copies every module for every device, which takes a time c per parameter:

    replicating = devices · parameters · c,  c fitted (`replication.json`): about 0.1 ms
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache

import numpy as np

from foretrain.errors import InvalidRequest
from foretrain.facts.calibrations import load_calibration
from foretrain.prediction.collectives.costs import Verb
from foretrain.prediction.cost_models import CallTimes
from foretrain.prediction.strategies.program import (
    Axis,
    Exchange,
    MemoryOptions,
    Program,
    gradients,
    optimizer_start,
    parameter_bytes,
)
from foretrain.prediction.strategies.strategy import Layout, Strategy
from foretrain.workloads.graph import Graph, Phase, Role

FILE = "replication.json"


@dataclass(frozen=True, slots=True)
class Replication:
    """Interpreter seconds per parameter and device, and the measurements they are fitted to."""

    seconds_per_parameter: float
    source: str


@cache
def replication() -> Replication:
    """The shipped calibration."""
    return load_calibration(Replication, FILE)


def parameters(graph: Graph) -> int:
    """Number of parameter tensors."""
    return sum(buffer.role is Role.PARAMETER for buffer in graph.buffers)


def replicating_seconds(graph: Graph, degree: int) -> float:
    """Interpreter time to copy the modules for every device; 0 for a single device."""
    return degree * parameters(graph) * replication().seconds_per_parameter if degree > 1 else 0.0


def launch_by_one(times: CallTimes, graph: Graph, degree: int) -> CallTimes:
    """Call times when one interpreter copies the modules and launches all forward passes."""
    if degree == 1 or not len(times.host):
        return times
    forward = np.array([call.phase is Phase.FORWARD for call in graph.calls], bool)
    host = np.where(forward, times.host * degree, times.host)
    host[0] += replicating_seconds(graph, degree)
    return CallTimes(times.device, host)


def single_process(program: Program, degree: int) -> Program:
    """The program of the first of `degree` devices, which is the busiest."""
    if degree == 1:
        return program
    graph = program.graph
    first_backward = _first_backward(graph)
    ready = max((gradient.ready for gradient in gradients(graph)), default=first_backward)
    to_reduce = sum(gradient.bytes for gradient in gradients(graph))
    inputs = _input_bytes(graph) * degree
    outputs = _output_bytes(graph) * degree
    added = (
        Exchange("scatter samples", Verb.ALL_TO_ALL, inputs, Axis.DATA, -1, 0),
        Exchange(
            "copy parameters",
            Verb.BROADCAST,
            parameter_bytes(graph),
            Axis.DATA,
            -1,
            0,
            host_seconds=replicating_seconds(graph, degree),
        ),
        Exchange("gather outputs", Verb.ALL_TO_ALL, outputs, Axis.DATA, first_backward - 1, first_backward),
        Exchange(
            "scatter gradients", Verb.ALL_TO_ALL, outputs, Axis.DATA, first_backward - 1, first_backward
        ),
        Exchange("reduce gradients", Verb.REDUCE, to_reduce, Axis.DATA, ready, optimizer_start(graph)),
    )
    return replace(program.with_axis(Axis.DATA, degree, *added), forward_launchers=degree)


def first_device_bytes(graph: Graph, degree: int) -> float:
    """Bytes of the other devices' outputs, and their gradients, on the first device."""
    return 2.0 * _output_bytes(graph) * (degree - 1)


def _first_backward(graph: Graph) -> int:
    calls = enumerate(graph.calls)
    return next((index for index, call in calls if call.phase is Phase.BACKWARD), optimizer_start(graph))


def _input_bytes(graph: Graph) -> float:
    return sum(graph.specs[buffer.spec].bytes for buffer in graph.buffers if buffer.role is Role.INPUT)


def _output_bytes(graph: Graph) -> float:
    """Bytes of the outputs of the last module, before the loss."""
    if not graph.layers:
        return 0.0
    return float(sum(graph.specs[index].bytes for index in graph.layers[-1].outputs if index >= 0))


class SingleProcess(Strategy):
    """`dp`: PyTorch's DataParallel. The jitter between devices of one process is unknown and taken as 0."""

    name = "dp"
    words = ("dp",)
    form = "dp"
    has_jitter = False
    is_single_process = True
    order = 80

    def parse(self, text: str, devices: int, devices_per_node: int) -> Layout:
        """The devices of one node."""
        if devices > devices_per_node:
            raise InvalidRequest(
                f"dp is PyTorch's DataParallel, one process with the devices of one node; for {devices} "
                f"devices, {devices_per_node} per node, use ddp"
            )
        return Layout(text, data=devices, replication=self.name)

    def replicate(self, program: Program, layout: Layout) -> Program:
        """All exchanges through the first device."""
        return single_process(program, layout.data)

    def call_times(self, times: CallTimes, program: Program, layout: Layout) -> CallTimes:
        """Forward passes launched one after the other."""
        return launch_by_one(times, program.graph, layout.data)

    def memory(self, options: MemoryOptions, program: Program, layout: Layout) -> MemoryOptions:
        """The outputs of all replicas on the first device."""
        gathered = int(first_device_bytes(program.graph, layout.data))
        return replace(options, gathered_bytes=options.gathered_bytes + gathered)
