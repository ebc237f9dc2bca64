"""The parameter of each optimizer state, and the tensors of each update."""

from __future__ import annotations

from foretrain.workloads.graph import NO_TENSOR, Call, Graph, Role


def owners_of_states(graph: Graph) -> dict[int, int]:
    """The parameter of each state: the one with the same name."""
    parameters = {b.name: index for index, b in enumerate(graph.buffers) if b.role is Role.PARAMETER}
    return {
        index: parameters[buffer.name]
        for index, buffer in enumerate(graph.buffers)
        if buffer.role is Role.OPTIMIZER_STATE and buffer.name in parameters
    }


def updated(call: Call) -> list[int]:
    """The buffer of each tensor of an optimizer's call (-1: none). A list that occurs twice, such as
    gradients to be squared, is the last."""
    inputs, reads = call.inputs, call.reads
    extra = len(inputs) - inputs.count(NO_TENSOR) - len(reads)
    buffers = iter([*reads, *reads[len(reads) - extra :]] if 0 < extra <= len(reads) else reads)
    return [-1 if spec == NO_TENSOR else next(buffers, -1) for spec in inputs]
