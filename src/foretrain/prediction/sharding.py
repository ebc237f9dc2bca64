"""Sharded parameters: which of them a device gathers together, and for which calls."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from foretrain.workloads.graph import ITEM_BYTES, Graph, Phase, Role, Spec

ROOT = ""
"""The unit of the parameters outside any repeated block; it stays gathered throughout."""

_HALF = {"fp16": "float16", "bf16": "bfloat16", "fp8": "bfloat16"}


class Gathered(NamedTuple):
    """A unit's whole parameters, from the call they are gathered before to the last that needs them.

    `needed` is the first call that needs them.
    """

    unit: str
    bytes: int
    start: int
    end: int
    needed: int


def unit_of(parameter: str) -> str:
    """The block a parameter belongs to: its path up to the first number, `layers.3` of `layers.3.mlp.up`."""
    components = parameter.split(".")
    for position, component in enumerate(components[:-1]):
        if component.isdigit():
            return ".".join(components[: position + 1])
    return ROOT


def item_bytes(graph: Graph, spec: Spec | None) -> int:
    """Bytes of one element of a parameter as it is sent: half precision under mixed precision.

    Without a spec: those of half precision, or 0 where parameters are sent as they are.
    """
    half = ITEM_BYTES.get(_HALF.get(str(graph.settings.get("precision")), ""), 0)
    return half or (ITEM_BYTES[spec.dtype] if spec else 0)


def gathered_units(graph: Graph) -> list[Gathered]:
    """Every gathering of a step: each block once forward and once backward, one block prefetched.

    Under mixed precision units are gathered in half precision, as FSDP does with a `param_dtype`.
    """
    sizes: dict[str, int] = {}
    unit_of_buffer: dict[int, str] = {}
    for index, buffer in enumerate(graph.buffers):
        if buffer.role is Role.PARAMETER:
            unit = unit_of(buffer.name)
            unit_of_buffer[index] = unit
            spec = graph.specs[buffer.spec]
            sizes[unit] = sizes.get(unit, 0) + spec.elements * item_bytes(graph, spec)
    return _prefetched(_uses(graph, unit_of_buffer), sizes)


def _uses(graph: Graph, unit_of_buffer: dict[int, str]) -> dict[tuple[str, Phase], tuple[int, int]]:
    """First and last call that reads each unit, forward and backward, or makes gradients of it.

    A first block may make gradients without reading its weights; it is gathered for its backward pass too.
    """
    found: dict[tuple[str, Phase], tuple[int, int]] = {}
    gradient_of = {
        index: unit_of(buffer.name)
        for index, buffer in enumerate(graph.buffers)
        if buffer.role is Role.GRADIENT
    }
    for index, call in enumerate(graph.calls):
        if call.phase is Phase.OPTIMIZER:
            break
        units = {unit_of_buffer[buffer] for buffer in call.reads if buffer in unit_of_buffer}
        if call.phase is Phase.BACKWARD:
            units |= {gradient_of[buffer] for buffer in call.writes if buffer in gradient_of} - {ROOT}
        for unit in units:
            phase = Phase.FORWARD if unit == ROOT else call.phase
            start, _ = found.get((unit, phase), (index, index))
            found[unit, phase] = (start, index)
    return found


def _prefetched(uses: dict[tuple[str, Phase], tuple[int, int]], sizes: dict[str, int]) -> list[Gathered]:
    """Each unit is gathered when the one before it starts."""
    gathered: list[Gathered] = []
    for phase in (Phase.FORWARD, Phase.BACKWARD):
        blocks: Iterable[tuple[str, tuple[int, int]]] = sorted(
            ((unit, span) for (unit, at), span in uses.items() if at is phase and unit != ROOT),
            key=lambda item: item[1],
        )
        previous: int | None = None
        for unit, (start, end) in blocks:
            gathered.append(Gathered(unit, sizes[unit], start if previous is None else previous, end, start))
            previous = start
    if (ROOT, Phase.FORWARD) in uses:
        start, end = uses[ROOT, Phase.FORWARD]
        gathered.append(Gathered(ROOT, sizes[ROOT], start, end, start))
    return gathered
