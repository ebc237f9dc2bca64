"""Time of offloading to host memory: copies over the host link, and an optimizer that runs on the host.

    optimizer     gradients to the host during the backward pass; the update on the host; new weights back
    parameters    weights to the device before each block, forward and backward
    paging        state that does not fit, to the device and back, in the optimizer step
    activations   to the host during the forward pass, back during the backward pass

A copy overlaps the pass it belongs to; what exceeds the pass is exposed. The update is bound by host memory,

    update = (2 (4 + state) + 4) · parameters of the node / host bytes per second

which reads and writes FP32 weights and state and reads FP32 gradients. Its rate is derived from two published
pairs of steps with and without offload, which differ by a factor of four: see `offload.toml`.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from foretrain.estimates import Estimate, Part
from foretrain.facts.calibrations import calibration_content
from foretrain.facts.devices import Device
from foretrain.facts.hardware import Hardware
from foretrain.prediction.memory.lifetimes import saved_bytes
from foretrain.prediction.step.compose import ComposedStep
from foretrain.prediction.step.input_pipeline import host_link
from foretrain.prediction.strategies.sharded import gather_units
from foretrain.prediction.strategies.strategy import Layout, replication
from foretrain.workloads.executed import ACTIVATIONS, OPTIMIZER, PARAMETERS, is_offloaded
from foretrain.workloads.graph import Graph, Phase, Role

HOST_UPDATE, HOST_COPIES = "optimizer on the host", "copies to and from the host"
PAGING = "paging of optimizer state"
_FULL_BYTES = 4
"""Bytes of an FP32 number."""


def estimate_offload(
    run: ComposedStep, layout: Layout, micro_batches: int, hardware: Hardware, device: Device
) -> Estimate:
    """What offloading adds to a step; nothing where nothing is offloaded."""
    graph = run.stages[run.busiest].graph
    if not graph.options.offload:
        return Estimate("s", ())
    link, rate = host_link(device)
    sent = {Phase.FORWARD: 0.0, Phase.BACKWARD: 0.0, Phase.OPTIMIZER: 0.0}
    parts = []
    shards = replication(layout).shards(layout)
    if is_offloaded(graph, ACTIVATIONS):
        saved = saved_bytes(graph) * micro_batches
        sent[Phase.FORWARD] += saved
        sent[Phase.BACKWARD] += saved
    if is_offloaded(graph, PARAMETERS):
        gathered = sum(unit.bytes for unit in gather_units(graph)) / shards.parameters * micro_batches
        sent[Phase.FORWARD] += gathered / 2
        sent[Phase.BACKWARD] += gathered / 2
    if is_offloaded(graph, OPTIMIZER):
        gradients = _bytes(graph, Role.GRADIENT) / shards.optimizer
        # Each direction of the link has its own lanes: gradients leave while activations come back.
        sent[Phase.BACKWARD] = max(sent[Phase.BACKWARD], gradients)
        if not is_offloaded(graph, PARAMETERS):
            sent[Phase.OPTIMIZER] += _bytes(graph, Role.PARAMETER) / shards.optimizer
        parts.append(_update(graph, shards.optimizer, hardware, layout))
    exposed = sum(max(0.0, size / rate - run.phases[phase]) for phase, size in sent.items())
    parts.append(_part(HOST_COPIES, "copies", exposed, f"link {link}"))
    return Estimate("s", tuple(part for part in parts if part.value > 0))


def estimate_paging(paged_out_bytes: float, device: Device) -> Estimate:
    """The time to fetch optimizer state from the host and to write it back, in every step."""
    if not paged_out_bytes:
        return Estimate("s", ())
    link, rate = host_link(device)
    return Estimate("s", (_part(PAGING, "copies", 2 * paged_out_bytes / rate, f"link {link}"),))


def _bytes(graph: Graph, role: Role) -> float:
    listed = enumerate(graph.buffers)
    return float(sum(graph.buffer_bytes(index) for index, buffer in listed if buffer.role is role))


def _update(graph: Graph, shards: int, hardware: Hardware, layout: Layout) -> Part:
    """The update of all parameters that the processes of a node hold, bound by the memory of the host."""
    state = graph.offloaded_state_bytes_per_parameter
    on_node = min(hardware.devices_per_node, layout.devices)
    elements = graph.trainable_parameters / shards * on_node
    size = (2 * (_FULL_BYTES + state) + _FULL_BYTES) * elements
    return _part(HOST_UPDATE, "update", size / float(_facts()["update"]["bytes_per_second"]), "offload.toml")


def _part(name: str, kind: str, seconds: float, source: str) -> Part:
    spread = _facts()[kind]
    return Part.within(name, seconds, source, spread["p10"], spread["p90"])


@cache
def _facts() -> dict[str, Any]:
    return calibration_content("offload.toml")
