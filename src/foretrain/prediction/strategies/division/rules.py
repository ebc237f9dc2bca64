"""Rules common to all strategies: how calls with divided operands propagate the division.

Views and elementwise operators keep a division. A reduction over the divided axis produces a partial sum.
Softmax and loss over it exchange the maximum and sum of each row (Megatron-LM's vocabulary-parallel loss).
Matrix products outside layers, such as attention scores, stay divided or produce partial sums. All other
operators gather their operands first.
"""

from __future__ import annotations

from collections.abc import Mapping

from foretrain.prediction.strategies.division.flow import SUM, Rule, Walk
from foretrain.prediction.strategies.division.shapes import (
    WHOLE,
    axis_of,
    broadcast,
    outer_at,
    resize,
    size_at,
    through_view,
)
from foretrain.workloads.fused_kernels import FUSED
from foretrain.workloads.graph import NO_TENSOR, Call, Nature, Phase


def matrix_product(walk: Walk, index: int, call: Call, behind: list[int], first: int) -> None:
    """(batch x m x k) times (batch x k x n): by batch, m or n it stays divided; by k, a partial sum."""
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
            walk.reduce_partial(call.writes[0], index, index + 1)


def keep_division(walk: Walk, index: int, call: Call) -> None:
    """The rule of calls that have no rule of their own."""
    if call.nature is Nature.VIEW:
        _view(walk, index, call)
    elif call.nature is Nature.REDUCTION:
        _reduce(walk, index, call)
    elif call.nature is Nature.POINTWISE or call.name in _ALONG_OTHER_AXES:
        _combine(walk, index, call)
    else:
        work_on_whole(walk, index, call)


def work_on_whole(walk: Walk, index: int, call: Call) -> None:
    """Gather all divided operands."""
    for buffer in call.reads:
        walk.gather(buffer, index)


def _view(walk: Walk, index: int, call: Call) -> None:
    if not call.inputs or call.inputs[0] == NO_TENSOR:
        return
    spec = call.inputs[0]
    outer = walk.mark(call.reads[0], spec)
    shapes = walk.shapes
    outputs = [
        through_view(call.name, shapes[spec], shapes[out], outer) if outer else WHOLE for out in call.outputs
    ]
    walk.flow.inputs[index], walk.flow.outputs[index] = (outer,), tuple(outputs)
    for out, mark in zip(call.outputs, outputs, strict=True):
        if out != spec:
            walk.views[call.reads[0], out] = mark


def _reduce(walk: Walk, index: int, call: Call) -> None:
    spec = call.inputs[0]
    outer = walk.mark(call.reads[0], spec) if call.reads else WHOLE
    shape = walk.shapes[spec]
    axis = axis_of(shape, outer) if outer else -1
    if axis < 0:
        return
    along = call.settings.get("dim")
    along = [along] if isinstance(along, int) else along
    reduced = {size % len(shape) for size in along} if along else set(range(len(shape)))
    if axis in reduced:
        walk.emit(index, [outer], [WHOLE] * len(call.outputs))
        walk.leave_partial(index)
        if call.phase is Phase.FORWARD or call.recomputed:
            walk.reduce_partial(call.writes[0], index, index + 1, scatters=False)
        return
    kept = axis if call.settings.get("keepdim") else axis - sum(other < axis for other in reduced)
    inside = outer // outer_at(shape, axis)
    marks = [outer_at(walk.shapes[out], kept, inside) for out in call.outputs]
    walk.emit(index, [outer], marks, call.reads[0] in walk.by_tokens)


def _combine(walk: Walk, index: int, call: Call) -> None:
    """Operators that are elementwise or work along other axes: results are divided as the operands are."""
    behind = walk.operands(call)
    shapes, inputs = walk.shapes, call.inputs
    marks = [walk.mark(b, spec) if b >= 0 else WHOLE for b, spec in zip(behind, inputs, strict=True)]
    lead = max(
        (position for position, mark in enumerate(marks) if mark),
        key=lambda position: (walk.specs[inputs[position]].elements, len(shapes[inputs[position]])),
        default=-1,
    )
    if lead < 0:
        return
    shape, outer, tokens = shapes[inputs[lead]], marks[lead], behind[lead] in walk.by_tokens
    for position, mark in enumerate(marks):
        if inputs[position] == NO_TENSOR or position == lead:
            continue
        required = broadcast(shape, shapes[inputs[position]], outer)
        if (required == WHOLE and not mark) or required == mark:
            continue
        if mark:  # divided along another axis
            walk.gather(behind[position], index)
        if required == WHOLE:
            marks[position] = WHOLE
            continue
        if len(shapes[inputs[position]]) == 1 and behind[position] in walk.weight_name:
            walk.divide_vector(behind[position])
        elif not tokens and shapes[inputs[position]] == shape and walk.is_stored(behind[position], shape):
            work_on_whole(walk, index, call)  # a residual: both operands or none
            return
        marks[position] = required
    across = resize if call.name in _RESIZING else broadcast
    outputs = [across(shape, shapes[out], outer) if out != NO_TENSOR else WHOLE for out in call.outputs]
    walk.emit(index, marks, outputs, tokens)
    if call.phase is Phase.BACKWARD and not call.recomputed:
        for position, mark in enumerate(outputs):
            if (
                mark == WHOLE
                and call.outputs[position] != NO_TENSOR
                and walk.specs[call.outputs[position]].elements > 1
            ):
                walk.leave_partial(index, position)


def softmax_rule(walk: Walk, index: int, call: Call) -> None:
    """Softmax over a divided axis exchanges each row's maximum and sum (vocabulary-parallel loss)."""
    behind = walk.operands(call)
    outer = walk.mark(behind[0], call.inputs[0])
    shape = walk.shapes[call.inputs[0]]
    axis = call.settings.get("dim", -1) % max(1, len(shape))
    if outer and axis_of(shape, outer) == axis == len(shape) - 1:
        _exchange_rows(walk, index, call, call.inputs[0])
    elif outer and axis_of(shape, outer) == axis:
        work_on_whole(walk, index, call)
        return
    _combine(walk, index, call)


def loss_rule(walk: Walk, index: int, call: Call) -> None:
    """One device has each target's probability; the gradient is divided as the probabilities are."""
    behind = walk.operands(call)
    backward = "backward" in call.name
    place = 1 if backward else 0
    outer = walk.mark(behind[place], call.inputs[place])
    if not outer:
        return
    shape = walk.shapes[call.inputs[place]]
    tokens = behind[place] in walk.by_tokens
    marks = [WHOLE] * len(call.inputs)
    marks[place : place + 2] = outer, outer if tokens else WHOLE
    if backward:
        walk.emit(index, marks, [outer], tokens)
        return
    if axis_of(shape, outer) == 1:
        walk.flow.padded.add(size_at(shape, outer))
        walk.move(
            "probabilities of the targets", SUM, walk.specs[call.inputs[1]].elements * 4.0, index, index + 1
        )
    walk.emit(index, marks, [WHOLE] * len(call.outputs))


def fused_rule(walk: Walk, index: int, call: Call) -> None:
    """A fused kernel is elementwise, except for a norm, softmax or reduction in it."""
    parts = call.settings["fused"]
    whole = [part for part in parts if part in _OVER_THE_LAST_AXIS]
    for buffer, spec in zip(walk.operands(call), call.inputs, strict=True):
        shape = walk.shapes[spec]
        if whole and walk.mark(buffer, spec) and axis_of(shape, walk.mark(buffer, spec)) == len(shape) - 1:
            if "softmax" not in whole[0]:
                work_on_whole(walk, index, call)
                return
            _exchange_rows(walk, index, call, spec)
            break
    _combine(walk, index, call)


def _exchange_rows(walk: Walk, index: int, call: Call, spec: int) -> None:
    """Exchange the maxima and sums of rows that are divided between devices."""
    if call.phase is Phase.BACKWARD and not call.recomputed:
        return
    shape = walk.shapes[spec]
    walk.flow.padded.add(shape[-1])
    rows = walk.specs[spec].elements // shape[-1]
    walk.move("maxima of the loss", SUM, rows * 4.0, index - 1, index)
    walk.move("sums of the loss", SUM, rows * 4.0, index, index + 1)


def norm_rule(walk: Walk, index: int, call: Call) -> None:
    """A norm over the divided axis needs whole operands; batch norms are independent by channel."""
    behind = walk.operands(call)
    lead = next((p for p, b in enumerate(behind) if b >= 0 and walk.mark(b, call.inputs[p])), None)
    if lead is None:
        return
    shape = walk.shapes[call.inputs[lead]]
    axis = axis_of(shape, walk.mark(behind[lead], call.inputs[lead]))
    over = call.settings.get("normalized_shape") or shape[-1:]
    is_batch = "batch_norm" in call.name
    if (is_batch and axis != 1) or (not is_batch and axis >= len(shape) - len(over)) or "group" in call.name:
        work_on_whole(walk, index, call)
    else:
        _combine(walk, index, call)


_RESIZING = frozenset({"aten.cat", "aten.slice_backward", "aten.constant_pad_nd", "aten.repeat"})
_ALONG_OTHER_AXES = frozenset(
    "aten._to_copy aten.clone aten.copy_ aten.cat aten.stack aten.native_dropout "
    "aten.native_dropout_backward aten.zeros_like aten.ones_like aten.full_like aten.empty_like "
    "aten.new_zeros aten.new_ones aten.new_full "
    "aten.new_empty aten.rand_like aten.bernoulli aten.bernoulli_ aten.fill_ aten.zero_ aten.slice_backward "
    "aten.select_backward aten.triu aten.tril aten.constant_pad_nd aten.roll aten.repeat aten.cumsum "
    "aten.gelu_backward aten.silu_backward aten.threshold_backward aten.tanh_backward aten.sigmoid_backward "
    "aten.masked_fill_ aten.relu_ aten.hardtanh_backward aten.leaky_relu_backward aten.elu_backward "
    "aten.embedding_dense_backward aten.mse_loss_backward aten.empty aten.contiguous aten.flip "
    "aten._fused_dropout aten.native_batch_norm aten.native_batch_norm_backward".split()
)
NORMS = (
    "aten.native_layer_norm",
    "aten.native_layer_norm_backward",
    "aten._fused_rms_norm",
    "aten._fused_rms_norm_backward",
    "aten.native_batch_norm",
    "aten.native_batch_norm_backward",
    "aten.native_group_norm",
    "aten.native_group_norm_backward",
)
_OVER_THE_LAST_AXIS = frozenset(
    {*NORMS, "aten.mean", "aten._softmax", "aten._log_softmax", "foretrain.softmax", "aten.amax"}
)
COMMON_RULES: Mapping[str, Rule] = {
    FUSED: fused_rule,
    **dict.fromkeys(NORMS, norm_rule),
    **dict.fromkeys(
        (
            "aten._softmax",
            "aten._log_softmax",
            "aten._safe_softmax",
            "aten._softmax_backward_data",
            "aten._log_softmax_backward_data",
            "foretrain.softmax",
            "foretrain.softmax_backward",
        ),
        softmax_rule,
    ),
    "aten.nll_loss_forward": loss_rule,
    "aten.nll_loss_backward": loss_rule,
    "aten.nll_loss2d_forward": loss_rule,
    "aten.nll_loss2d_backward": loss_rule,
}
