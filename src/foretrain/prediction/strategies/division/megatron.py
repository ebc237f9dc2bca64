"""Megatron-LM's rules of tensor parallelism: layers divided by columns, rows, heads or vocabulary."""

from __future__ import annotations

import math
from collections.abc import Mapping

from foretrain.errors import InvalidRequest
from foretrain.prediction.strategies.division.flow import (
    Flow,
    Rule,
    Walk,
)
from foretrain.prediction.strategies.division.rules import (
    COMMON_RULES,
    keep_division,
    matrix_product,
    work_on_whole,
)
from foretrain.prediction.strategies.division.shapes import WHOLE, Shape, axis_of, outer_at, size_at
from foretrain.workloads.graph import NO_TENSOR, Call, Graph, Phase
from foretrain.workloads.ops import MATRIX_KINDS, Kind
from foretrain.workloads.rules import operators
from foretrain.workloads.rules.fp8 import gathered_share

_COLUMN, _ROW, _UNDIVIDED = "column", "row", "whole"
_PRODUCTS = {"aten.mm": 0, "aten.linear": 0, "aten.addmm": 1, "aten.addmm_": 1}
"""Products of linear layers, with the position of the input argument."""
_GROUPED = "aten._grouped_mm"
_NARROW = 256
_NARROW_SHARE = 8
"""Layers with at most `_NARROW` outputs and at least `_NARROW_SHARE` times as many inputs are not divided:
routers, low-rank adapters, classifiers with few classes."""
_LEAST_SHARE = 0.5
"""Minimum share of FLOP in linear layers and attention for tensor parallelism."""
_NOT_LINEAR = frozenset({"aten.convolution", "foretrain.rnn"})
_LARGE_SHARE = 0.5
"""Embedding tables with at least this share of the rows of the largest one are divided by rows."""


class Megatron:
    """The rules of one walk, and the division of each layer (`divisions` by weight, `layers` by call)."""

    def __init__(self, graph: Graph, sequence_parallel: bool) -> None:
        rules: Mapping[str, Rule] = {
            **COMMON_RULES,
            **dict.fromkeys(_PRODUCTS, self._product),
            _GROUPED: self._grouped,
            "aten.bmm": self._batched,
            "aten.baddbmm": self._batched,
            "foretrain.attention": self._attention,
            "foretrain.attention_backward": self._attention_backward,
            "aten.embedding": self._embedding,
            "aten.embedding_dense_backward": self._embedding_backward,
        }
        deciders = frozenset(
            {*_PRODUCTS, _GROUPED, "foretrain.attention", "aten.embedding", "aten.embedding_dense_backward"}
        )
        self.graph = graph
        self.walk = Walk(graph, rules, keep_division, deciders=deciders, scatters=sequence_parallel)
        self.divisions: dict[str, str] = {}
        self.layers: dict[int, str] = {}
        self.sources: dict[int, int] = {}
        self.table_rows = max(
            (graph.specs[call.inputs[0]].shape[0] for call in graph.calls if call.name == "aten.embedding"),
            default=0,
        )

    def flow(self) -> Flow:
        """The result of the walk."""
        flow = self.walk.run()
        share = (
            self._linear_share() if any(division != _UNDIVIDED for division in self.layers.values()) else 0.0
        )
        if share < _LEAST_SHARE:
            raise InvalidRequest(
                f"tensor parallelism requires linear layers, and they are only {share:.0%} of this model's"
                " FLOP; use data or pipeline parallelism"
            )
        if share < 1.0:
            flow.notes.append(
                f"{1 - share:.1%} of the model's FLOP (convolutions, recurrent layers) are not divided"
            )
        return flow

    def _linear_share(self) -> float:
        """Share of the model's FLOP outside convolutions and recurrent layers."""
        if not any(call.name in _NOT_LINEAR for call in self.graph.calls):
            return 1.0
        work = {True: 0.0, False: 0.0}
        for op in operators(self.graph):
            if op.work.kind in MATRIX_KINDS:
                work[op.work.kind in (Kind.CONVOLUTION, Kind.RNN)] += op.work.flop
        return work[False] / (sum(work.values()) or 1.0)

    # Linear layers

    def _product(self, walk: Walk, index: int, call: Call) -> None:
        behind = walk.operands(call)
        first = _PRODUCTS[call.name]
        if call.phase is Phase.FORWARD or call.recomputed:
            if len(behind) > first + 1 and behind[first + 1] in walk.weight_name:
                self._forward(index, call, behind, first)
            else:
                matrix_product(walk, index, call, behind, first)
        elif call.forward in self.layers:
            division = self.layers[call.forward]
            if behind[first + 1] in walk.weight_name:
                self._input_gradient(index, call, behind, division)
            else:
                self._weight_gradient(index, call, behind, division)
        else:
            matrix_product(walk, index, call, behind, first)

    def _forward(self, index: int, call: Call, behind: list[int], first: int) -> None:
        walk = self.walk
        source, weight, spec = behind[first], behind[first + 1], call.inputs[first]
        shape = walk.shapes[spec]
        ins, tokens = shape[-1], math.prod(shape[:-1])
        outs = walk.shapes[call.outputs[0]][-1]
        mark = walk.mark(source, spec)
        is_inner = mark != WHOLE and source not in walk.by_tokens
        division = self._division(walk.weight_name[weight], ins, outs, is_inner, call.module)
        self.layers[index] = division
        bias = self._bias(behind, first)
        if division == _ROW:
            marks = {first: tokens, first + 1: self._weight_mark(call, first, ins)}
            walk.emit(index, self._marks(call, marks), [WHOLE])
            walk.leave_partial(index)
            walk.reduce_partial(call.writes[0], index, index + 1)
            return
        if is_inner:
            walk.gather(source, index)
            mark = WHOLE
        if division == _UNDIVIDED:
            if mark:
                walk.emit(index, self._marks(call, {first: mark}), [mark], by_tokens=True)
            return
        if mark:
            walk.gather_for(source, index, gathered_share(self.graph, call))
        marks = {first + 1: self._weight_mark(call, first, outs)}
        if bias is not None:
            walk.divide_vector(behind[bias])
            marks[bias] = 1
        walk.emit(index, self._marks(call, marks), [tokens])
        root = walk.root.get(source, source)
        self.sources[index] = root
        walk.awaited[root] = walk.awaited.get(root, 0) + 1

    def _division(self, name: str, ins: int, outs: int, is_inner: bool, module: str) -> str:
        """The division of a layer, decided at its first call."""
        division = self.divisions.get(name)
        if division is None:
            if is_inner:
                division = _ROW
            elif outs <= _NARROW and outs * _NARROW_SHARE <= ins:
                division = _UNDIVIDED
            else:
                division = _COLUMN
                self.walk.require(outs, "outputs", module)
            self.divisions[name] = division
            size = {_ROW: ins, _COLUMN: outs}.get(division)
            if size is not None:
                self.walk.divide_weight(name, lambda shape: _axis_of_size(shape, size, division == _COLUMN))
        return division

    @staticmethod
    def _bias(behind: list[int], first: int) -> int | None:
        place = 0 if first else 2
        return place if place < len(behind) and behind[place] >= 0 and place != first else None

    def _weight_mark(self, call: Call, first: int, size: int) -> int:
        """The mark of a weight in a call, which may read it transposed."""
        shape = self.walk.shapes[call.inputs[first + 1]]
        is_lying = call.name == "aten.linear"
        outs = self.walk.shapes[call.outputs[0]][-1]
        wants_outs = size == outs if shape[0] != shape[1] else self._is_column(call)
        return outer_at(shape, int(wants_outs != is_lying))

    def _is_column(self, call: Call) -> bool:
        """Whether the layer of a call with a square weight is divided by its outputs."""
        behind = self.walk.operands(call)
        return self.divisions.get(self.walk.weight_name[behind[_PRODUCTS[call.name] + 1]]) == _COLUMN

    @staticmethod
    def _marks(call: Call, marks: Mapping[int, int]) -> list[int]:
        return [marks.get(position, WHOLE) for position in range(len(call.inputs))]

    def _input_gradient(self, index: int, call: Call, behind: list[int], division: str) -> None:
        """Column parallel: a partial sum. Row parallel: divided as the input was."""
        walk = self.walk
        rows, outs = walk.shapes[call.inputs[0]][-2:]
        mark = walk.mark(behind[0], call.inputs[0])
        is_inner = mark != WHOLE and behind[0] not in walk.by_tokens
        if division == _COLUMN:
            if mark and not is_inner:
                walk.gather_for(behind[0], index, gathered_share(self.graph, call, copies=2))
            walk.emit(index, [rows, 1], [WHOLE])
            walk.leave_partial(index, source=self.sources.get(call.forward or 0))
        elif division == _ROW:
            if mark and is_inner:
                walk.gather(behind[0], index)
            elif mark:
                walk.gather_for(behind[0], index, gathered_share(self.graph, call, copies=2))
            walk.emit(index, [WHOLE, outs], [rows])
        elif mark and is_inner:
            walk.gather(behind[0], index)
        elif mark:
            walk.emit(index, [mark, WHOLE], [mark], by_tokens=True)

    def _weight_gradient(self, index: int, call: Call, behind: list[int], division: str) -> None:
        """Divided as the weight is. The gradient of the output is the first operand, unless the weight is
        stored with inputs before outputs."""
        walk = self.walk
        forward = self.graph.calls[call.forward if call.forward is not None else 0]
        ins = walk.shapes[forward.inputs[_PRODUCTS[forward.name]]][-1]
        outs = walk.shapes[forward.outputs[0]][-1]
        left, right = walk.shapes[call.inputs[0]], walk.shapes[call.inputs[1]]
        is_usual = (left[0], right[1]) == (outs, ins)
        gradient, source = (0, 1) if is_usual else (1, 0)
        divided, other = (gradient, source) if division == _COLUMN else (source, gradient)
        tokens = [buffer in walk.by_tokens and buffer in walk.held for buffer in behind[:2]]
        if division == _UNDIVIDED:
            if any(tokens):
                walk.emit(index, [left[0], 1], [WHOLE])
                walk.leave_partial(index)
            else:
                work_on_whole(walk, index, call)
            return
        if tokens[other]:
            copies = 2 if other == gradient else 1
            walk.gather_for(behind[other], index, gathered_share(self.graph, call, copies))
        marks = [WHOLE, WHOLE]
        marks[divided] = 1 if divided == 0 else right[0]
        walk.emit(index, marks, [1 if divided == 0 else left[0]])

    # Experts in one stacked weight

    def _grouped(self, walk: Walk, index: int, call: Call) -> None:
        """Each expert of the stack is divided as a layer is."""
        behind = walk.operands(call)
        left, right = (walk.shapes[spec] for spec in call.inputs[:2])
        name = walk.weight_name.get(behind[1])
        mark = walk.mark(behind[0], call.inputs[0])
        if name is not None and (call.phase is Phase.FORWARD or call.recomputed):
            is_inner = mark != WHOLE and behind[0] not in walk.by_tokens
            division = self._division(name, left[-1], right[-1], is_inner, call.module)
        else:
            division = self.layers.get(-1 if call.forward is None else call.forward, _UNDIVIDED)
        if division == _UNDIVIDED or behind[0] in walk.by_tokens:
            work_on_whole(walk, index, call)
        elif call.phase is Phase.FORWARD or call.recomputed:
            self.layers[index] = division
            by_rows = division == _ROW
            marks = [left[0] if by_rows else WHOLE, outer_at(right, 1 if by_rows else 2)]
            walk.emit(index, self._marks(call, dict(enumerate(marks))), [WHOLE if by_rows else left[0]])
            if by_rows:
                walk.leave_partial(index)
                walk.reduce_partial(call.writes[0], index, index + 1, scatters=False)
        elif name is not None:
            is_column = division == _COLUMN
            marks = [left[0] if is_column else WHOLE, outer_at(right, 1 if is_column else 2)]
            walk.emit(index, self._marks(call, dict(enumerate(marks))), [WHOLE if is_column else left[0]])
            if is_column:
                walk.leave_partial(index)
        else:
            self._grouped_weight_gradient(index, call, division)

    def _grouped_weight_gradient(self, index: int, call: Call, division: str) -> None:
        """Divided as the weight is, along the operand that has the divided axis."""
        walk = self.walk
        forward = self.graph.calls[call.forward if call.forward is not None else 0]
        size = walk.shapes[forward.inputs[1]][2 if division == _COLUMN else 1]
        left, right = (walk.shapes[spec] for spec in call.inputs[:2])
        is_left = left[0] == size if left[0] != right[1] else division == _COLUMN
        marks = {0: 1} if is_left else {1: right[0]}
        walk.emit(
            index, self._marks(call, marks), [outer_at(walk.shapes[call.outputs[0]], 1 if is_left else 2)]
        )

    # Attention

    def _attention(self, walk: Walk, index: int, call: Call) -> None:
        """Divided by heads."""
        behind = walk.operands(call)
        marks = [walk.mark(b, spec) if b >= 0 else WHOLE for b, spec in zip(behind, call.inputs, strict=True)]
        if not self._by_heads(call, marks, first=0):
            walk.remark("attention is not divided where its layers are not divided by heads")
            work_on_whole(walk, index, call)
            return
        for position, what in ((0, "attention heads"), (1, "key-value heads")):
            if marks[position]:
                size = size_at(walk.shapes[call.inputs[position]], marks[position])
                walk.require(size, what, call.module)
        outputs = [_heads(walk.shapes[out]) for out in call.outputs]
        outputs[1:] = [outer_at(walk.shapes[out], 1) for out in call.outputs[1:]]
        walk.emit(index, marks, outputs)

    def _attention_backward(self, walk: Walk, index: int, call: Call) -> None:
        behind = walk.operands(call)
        marks = [walk.mark(b, spec) if b >= 0 else WHOLE for b, spec in zip(behind, call.inputs, strict=True)]
        if not self._by_heads(call, marks, first=1):
            work_on_whole(walk, index, call)
            return
        marks[0] = _heads(walk.shapes[call.inputs[0]])
        outputs = [marks[position + 1] for position in range(3)]
        walk.emit(index, marks, outputs)
        for position, mark in enumerate(outputs):
            if not mark:
                walk.leave_partial(index, position)

    def _by_heads(self, call: Call, marks: list[int], first: int) -> bool:
        """Whether the queries are divided by heads. All devices use keys and values that are not divided; a
        mask is divided by its heads."""
        shapes = self.walk.shapes
        behind = self.walk.operands(call)
        if not marks[first] or behind[first] in self.walk.by_tokens:
            return False
        for position in range(first, first + 3):
            if marks[position]:
                marks[position] = _heads(shapes[call.inputs[position]])
        heads = shapes[call.inputs[first]][1]
        for position, spec in enumerate(call.inputs):
            if spec != NO_TENSOR and not marks[position] and position not in (first + 1, first + 2):
                shape = shapes[spec]
                if len(shape) > 2 and shape[-3] == heads:
                    marks[position] = _heads(shape)
        return True

    def _batched(self, walk: Walk, index: int, call: Call) -> None:
        behind = walk.operands(call)
        first = 1 if call.name == "aten.baddbmm" else 0
        mark = walk.mark(behind[first], call.inputs[first])
        if mark and axis_of(walk.shapes[call.inputs[first]], mark) == 0 and call.phase is Phase.FORWARD:
            walk.require(size_at(walk.shapes[call.inputs[first]], mark), "attention heads", call.module)
        matrix_product(walk, index, call, behind, first)

    # Embedding

    def _embedding(self, walk: Walk, index: int, call: Call) -> None:
        """A large table is divided by rows; each device looks up its own rows, and the results are summed."""
        table = call.reads[0]
        name = walk.weight_name.get(table)
        rows = walk.shapes[call.inputs[0]][0]
        if name is None or rows < self.table_rows * _LARGE_SHARE or self.divisions.get(name) == _ROW:
            if any(buffer in walk.held for buffer in call.reads):
                keep_division(walk, index, call)
            return
        if name not in self.divisions:
            self.divisions[name] = _COLUMN
            walk.divide_weight(name, lambda _: 0)
        walk.flow.padded.add(rows)
        walk.emit(index, [1, WHOLE], [WHOLE])
        walk.leave_partial(index)
        walk.reduce_partial(call.writes[0], index, index + 1)

    def _embedding_backward(self, walk: Walk, index: int, call: Call) -> None:
        forward = self.graph.calls[call.forward if call.forward is not None else 0]
        name = walk.weight_name.get(forward.reads[0]) if forward.reads else None
        gradient = call.reads[0]
        is_divided = name is not None and self.divisions.get(name) == _COLUMN
        if gradient in walk.held and is_divided:
            (walk.gather_for if gradient in walk.by_tokens else walk.gather)(gradient, index)
        if is_divided:
            walk.emit(index, [WHOLE] * len(call.inputs), [1])
        elif gradient in walk.by_tokens and gradient in walk.held:
            mark = walk.mark(gradient, call.inputs[0])
            walk.emit(index, [mark, mark, *[WHOLE] * (len(call.inputs) - 2)], [WHOLE])
            walk.leave_partial(index)
        elif gradient in walk.held:
            mark = walk.mark(gradient, call.inputs[0])
            outs = walk.shapes[call.outputs[0]]
            walk.emit(index, [mark, *[WHOLE] * (len(call.inputs) - 1)], [outer_at(outs, len(outs) - 1)])


def _heads(shape: Shape) -> int:
    return outer_at(shape, len(shape) - 3)


def _axis_of_size(shape: Shape, size: int, is_column: bool) -> int:
    """The one of the last two axes of a weight that has the divided size; in a square weight the first axis
    is that of the outputs. A stack of experts has one more axis before."""
    first = max(0, len(shape) - 2)
    if shape[first] == shape[-1]:
        return first if is_column else len(shape) - 1
    return next((axis for axis in range(first, len(shape)) if shape[axis] == size), first)
