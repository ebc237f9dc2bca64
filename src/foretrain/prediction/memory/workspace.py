"""Workspaces of GPU libraries: permanent ones of cuBLAS and temporary ones of cuDNN convolutions.

cuBLAS: PyTorch allocates a workspace for every handle at its first matrix product. The forward pass and the
autograd thread have one handle each, so there are two permanent workspaces.

cuDNN: tensor-core kernels for convolutions larger than 1×1 work on channels-last data. For channels-first
tensors they first transpose input, weight and output into a workspace, which is freed after the call.
Depthwise convolutions run in PyTorch's own kernels, grouped and 1×1 ones in kernels that need almost none.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from foretrain.workloads.graph import Call, Graph, Phase, Spec

_PRODUCTS = frozenset({"aten.mm", "aten.addmm", "aten.bmm", "aten.baddbmm"})
_FORWARD, _BACKWARD = "aten.convolution", "aten.convolution_backward"


class Convolution(NamedTuple):
    """The tensors of a convolution call, from the view of the forward pass."""

    input: Spec
    weight: Spec
    output: Spec
    groups: int

    @property
    def depthwise(self) -> bool:
        """One input channel per group."""
        return self.groups > 1 and self.weight.shape[1] == 1

    @property
    def pointwise(self) -> bool:
        """A kernel of size one."""
        return all(size == 1 for size in self.weight.shape[2:])


def convolution_workspaces(graph: Graph) -> Mapping[int, tuple[int, ...]]:
    """Workspace bytes of each convolution call: one entry forward, one for each gradient."""
    if graph.settings.get("channels_last"):
        return {}
    return {
        index: (transposed,) * _kernels(call)
        for index, call, convolution in _convolutions(graph)
        if (transposed := _transposed_bytes(convolution)) > 0
    }


def tuned_calls(graph: Graph) -> frozenset[int]:
    """The calls that cuDNN's benchmark mode tunes: the first of each size, except depthwise ones.

    After tuning a call, PyTorch empties the allocator's cache (Conv_v8.cpp).
    """
    first: dict[tuple[object, ...], int] = {}
    for index, call, convolution in _convolutions(graph):
        if not convolution.depthwise:
            first.setdefault((call.name, call.inputs, repr(call.settings)), index)
    return frozenset(first.values())


def first_products(graph: Graph) -> tuple[int, ...]:
    """The calls at which cuBLAS allocates its workspaces: the first products forward and backward."""
    first: dict[Phase, int] = {}
    for index, call in enumerate(graph.calls):
        if call.name in _PRODUCTS and call.phase is not Phase.OPTIMIZER:
            first.setdefault(call.phase, index)
    return tuple(first.values())


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
