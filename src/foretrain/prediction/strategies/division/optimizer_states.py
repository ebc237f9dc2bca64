"""Which optimizer state belongs to which parameter, and which tensors an update works on."""

from __future__ import annotations

from foretrain.workloads.graph import NO_TENSOR, Call, Graph, Role


def owners_of_states(graph: Graph) -> dict[int, int]:
    """The parameter each state belongs to. Each parameter's states follow one another, in the order of the
    trained parameters, and begin with the same name."""
    states = [i for i, buffer in enumerate(graph.buffers) if buffer.role is Role.OPTIMIZER_STATE]
    trained = [
        index
        for index, buffer in enumerate(graph.buffers)
        if buffer.role is Role.PARAMETER and buffer.name in graph.trained_names
    ]
    first = graph.buffers[states[0]].name if states else ""
    found: dict[int, int] = {}
    owner = -1
    for state in states:
        owner += graph.buffers[state].name == first
        if owner < len(trained):
            found[state] = trained[owner]
    return found


def updated(call: Call) -> list[int]:
    """The buffer behind each tensor of an optimizer's call (-1: none). A list that is given twice, such as
    gradients to be squared, comes last."""
    inputs, reads = call.inputs, call.reads
    extra = len(inputs) - inputs.count(NO_TENSOR) - len(reads)
    behind = iter([*reads, *reads[len(reads) - extra :]] if 0 < extra <= len(reads) else reads)
    return [-1 if spec == NO_TENSOR else next(behind, -1) for spec in inputs]
