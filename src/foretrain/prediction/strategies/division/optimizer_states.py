"""Which optimizer state belongs to which parameter, and which tensors an update works on."""

from __future__ import annotations

from foretrain.workloads.graph import NO_TENSOR, Call, Graph, Role


def owners_of_states(graph: Graph) -> dict[int, int]:
    """The parameter each state belongs to: the one it is named after."""
    parameters = {b.name: index for index, b in enumerate(graph.buffers) if b.role is Role.PARAMETER}
    return {
        index: parameters[buffer.name]
        for index, buffer in enumerate(graph.buffers)
        if buffer.role is Role.OPTIMIZER_STATE and buffer.name in parameters
    }


def updated(call: Call) -> list[int]:
    """The buffer behind each tensor of an optimizer's call (-1: none). A list that is given twice, such as
    gradients to be squared, comes last."""
    inputs, reads = call.inputs, call.reads
    extra = len(inputs) - inputs.count(NO_TENSOR) - len(reads)
    behind = iter([*reads, *reads[len(reads) - extra :]] if 0 < extra <= len(reads) else reads)
    return [-1 if spec == NO_TENSOR else next(behind, -1) for spec in inputs]
