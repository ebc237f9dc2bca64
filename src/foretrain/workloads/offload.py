"""Offload to host memory: what a graph keeps on the device.

An offloaded optimizer runs on the host: its calls and its state leave the graph. Offloaded parameters and
activations stay in the graph, since the device computes with them; `prediction.memory` gives them shorter
lifetimes, and `prediction.step.offload` the time of their copies.

References: J. Ren et al., "ZeRO-Offload", arXiv:2101.06840; PyTorch `fsdp.CPUOffload` and
`autograd.graph.save_on_cpu`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from foretrain.workloads.graph import Graph, Phase, Role

OPTIMIZER, PARAMETERS, ACTIVATIONS = "optimizer", "parameters", "activations"


def is_offloaded(graph: Graph, what: str) -> bool:
    """Whether a graph leaves something to the host."""
    return what in graph.options.offload


def offloaded(graph: Graph) -> Graph:
    """The graph without its optimizer, if that is offloaded."""
    has_update = any(call.phase is Phase.OPTIMIZER for call in graph.calls)
    if not is_offloaded(graph, OPTIMIZER) or not has_update:
        return graph
    return _without_optimizer(graph)


def _without_optimizer(graph: Graph) -> Graph:
    end = next(index for index, call in enumerate(graph.calls) if call.phase is Phase.OPTIMIZER)
    kept = [
        index
        for index, buffer in enumerate(graph.buffers)
        if buffer.role is not Role.OPTIMIZER_STATE and buffer.born < end
    ]
    number = {old: new for new, old in enumerate(kept)}

    def renumbered(buffers: Iterable[int]) -> tuple[int, ...]:
        return tuple(number[buffer] for buffer in buffers if buffer in number)

    state = sum(
        graph.buffer_bytes(index)
        for index, buffer in enumerate(graph.buffers)
        if buffer.role is Role.OPTIMIZER_STATE
    )
    return replace(
        graph,
        calls=tuple(
            call._replace(reads=renumbered(call.reads), writes=renumbered(call.writes))
            for call in graph.calls[:end]
        ),
        buffers=tuple(graph.buffers[index] for index in kept),
        offloaded_state_bytes_per_parameter=state / max(1, graph.trainable_parameters),
    )
