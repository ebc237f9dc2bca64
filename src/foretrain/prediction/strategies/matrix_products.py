"""Products of divided matrices that are no layers: scores and values of attention written out."""

from __future__ import annotations

from foretrain.prediction.strategies.divided_shapes import WHOLE, axis_of, outer_at
from foretrain.prediction.strategies.division_rules import work_on_whole
from foretrain.prediction.strategies.sharding_flow import Walk
from foretrain.workloads.graph import Call, Phase


def matrix_product(walk: Walk, index: int, call: Call, behind: list[int], first: int) -> None:
    """(batch x m x k) times (batch x k x n): divided by batch, m or n it stays so; by k, a partial sum."""
    specs = call.inputs[first], call.inputs[first + 1]
    left, right = (walk.shapes[spec] for spec in specs)
    marks = [walk.mark(behind[first + place], spec) for place, spec in enumerate(specs)]
    axes = [
        axis_of(shape, mark) - len(shape) if mark else 0
        for shape, mark in zip((left, right), marks, strict=True)
    ]
    result = walk.shapes[call.outputs[0]]
    if -3 in axes:
        marks = [marks[0] if axes[0] == -3 else marks[1], marks[1] if axes[1] == -3 else marks[0]]
        output = marks[0]
    elif axes in ([-1, -2], [-1, 0], [0, -2]):
        marks = [outer_at(left, len(left) - 1), outer_at(right, len(right) - 2)]
        output = WHOLE
    elif axes == [-2, 0]:
        output = outer_at(result, len(result) - 2, marks[0] // outer_at(left, len(left) - 2))
    elif axes == [0, -1]:
        output = outer_at(result, len(result) - 1)
    else:
        work_on_whole(walk, index, call)
        return
    given = [WHOLE] * len(call.inputs)
    given[first : first + 2] = marks
    if first and axes[0] != -1:
        given[0] = output if walk.shapes[call.inputs[0]] == result else WHOLE
    walk.emit(index, given, [output], any(b in walk.by_tokens for b in behind if b >= 0))
    if output == WHOLE:
        walk.leave_partial(index)
        if call.phase is Phase.FORWARD or call.recomputed:
            walk.settle(call.writes[0], index, index + 1)
