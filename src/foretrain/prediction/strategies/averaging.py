"""Which devices average which gradients.

Devices along the axes of context, expert, shard and data have gradients of the same parameters. Experts are
the exception: along the expert axis every device has others, and nothing to average (see `expert`).
"""

from __future__ import annotations

from collections.abc import Iterator

from foretrain.prediction.strategies.gradients import Gradient, gradients
from foretrain.prediction.strategies.program import Axis, Program

AVERAGING = (Axis.CONTEXT, Axis.EXPERT, Axis.SHARD, Axis.DATA)


def averaged(
    program: Program, axes: tuple[Axis, ...] = AVERAGING
) -> Iterator[tuple[tuple[Axis, ...], list[Gradient]]]:
    """The gradients that are averaged along the same of some axes, each list in the order they are ready."""
    all_of_them = gradients(program.graph)
    if program.degree(Axis.EXPERT) == 1:
        yield axes, all_of_them
        return
    yield axes, [gradient for gradient in all_of_them if not is_of_expert(gradient.parameter)]
    without = tuple(axis for axis in axes if axis is not Axis.EXPERT)
    yield without, [gradient for gradient in all_of_them if is_of_expert(gradient.parameter)]


def is_of_expert(parameter: str) -> bool:
    """Whether a parameter belongs to one expert, or to the stack of them."""
    return "experts" in parameter.split(".")
