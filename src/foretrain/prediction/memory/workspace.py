"""Scratch memory of the GPU libraries: what cuBLAS keeps and what a cuDNN convolution borrows.

cuBLAS: PyTorch gives every handle a workspace through the caching allocator at its first matrix product. The
forward pass and the autograd thread have a handle each, so there are two, and they stay.

cuDNN: tensor-core kernels for convolutions larger than 1×1 work on channels-last data. Given channels-first
tensors they first transpose input, weight and output into a workspace, which is freed right after the call.
Depthwise convolutions run in PyTorch's own kernels, grouped and 1×1 ones in kernels that need next to none.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from foretrain.workloads.graph import Call, Graph, Phase, Spec

_PRODUCTS = frozenset({"aten.mm", "aten.addmm", "aten.bmm", "aten.baddbmm"})
_FORWARD, _BACKWARD = "aten.convolution", "aten.convolution_backward"


class Convolution(NamedTuple):
    """The tensors of a convolution call: what goes in, the weight, what comes out (forward view)."""

    input: Spec
    weight: Spec
    output: Spec
    groups: int

    @property
    def depthwise(self) -> bool:
        """One input channel a group."""
        return self.groups > 1 and self.weight.shape[1] == 1

    @property
    def pointwise(self) -> bool:
        """A kernel of size one."""
        return all(size == 1 for size in self.weight.shape[2:])


def convolution_workspaces(graph: Graph) -> Mapping[int, tuple[int, ...]]:
    """Bytes each convolution call borrows, one after the other: one piece forward, one for each gradient."""
    if graph.settings.get("channels_last"):
        return {}
    return {
        index: (transposed,) * _kernels(call)
        for index, call, convolution in _convolutions(graph)
        if (transposed := _transposed_bytes(convolution)) > 0
    }


def tuned_calls(graph: Graph) -> frozenset[int]:
    """The calls cuDNN's benchmark mode tunes: the first of each size, apart from depthwise ones.

    After trying its algorithms on a call, PyTorch empties the allocator's cache (Conv_v8.cpp).
    """
    first: dict[tuple[object, ...], int] = {}
    for index, call, convolution in _convolutions(graph):
        if not convolution.depthwise:
            first.setdefault((call.name, call.inputs, repr(call.settings)), index)
    return frozenset(first.values())


def first_products(graph: Graph) -> tuple[int, ...]:
    """The calls at which cuBLAS gets its workspaces: the first product forward and the first backward."""
    found: dict[Phase, int] = {}
    for index, call in enumerate(graph.calls):
        if call.name in _PRODUCTS and call.phase is not Phase.OPTIMIZER:
            found.setdefault(call.phase, index)
    return tuple(found.values())


def uses_convolutions(graph: Graph) -> bool:
    """Whether the step loads cuDNN's convolution kernels."""
    return any(call.name == _FORWARD for call in graph.calls)


def _transposed_bytes(convolution: Convolution) -> int:
    if convolution.groups > 1 or convolution.pointwise:
        return 0
    return convolution.input.bytes + convolution.weight.bytes + convolution.output.bytes


def _kernels(call: Call) -> int:
    return 1 if call.name == _FORWARD else sum(map(bool, call.settings.get("output_mask", (True, True))[:2]))


def _convolutions(graph: Graph) -> Iterator[tuple[int, Call, Convolution]]:
    for index, call in enumerate(graph.calls):
        if call.name == _FORWARD:
            operands = (call.inputs[0], call.inputs[1], call.outputs[0])
        elif call.name == _BACKWARD:
            operands = (call.inputs[1], call.inputs[2], call.inputs[0])
        else:
            continue
        source, weight, target = (graph.specs[operand] for operand in operands)
        yield index, call, Convolution(source, weight, target, call.settings["groups"])
