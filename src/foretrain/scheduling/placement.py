"""Which node takes which load: jobs that go on stay where they are, and nodes keep their type.

Loads are matched greedily: first those with jobs that run on a node of the same group and type (the node with
most GPUs in common first), then any node of that type that is on, then nodes that are off or switched over.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from foretrain.scheduling.decision import Decision, NodeLoad, fixed_jobs, unchanged_nodes
from foretrain.scheduling.state import Running, State


def placed(state: State, decision: Decision) -> dict[int, NodeLoad]:
    """The load of each node that is on; decisions that break the rules of `violations` are not accepted."""
    same = unchanged_nodes(state, decision.loads)
    result = {node: decision.loads[position] for position, node in same.items()}
    changed = [load for position, load in enumerate(decision.loads) if position not in same]
    matched: set[int] = set()
    for (_, _, position, _), load, node in sorted(_overlaps(state, changed), key=lambda each: each[0]):
        if node not in result and position not in matched:
            result[node] = load
            matched.add(position)
    _fill(state, [load for position, load in enumerate(changed) if position not in matched], result)
    return result


def nodes_of(loads: Mapping[int, NodeLoad]) -> dict[str, tuple[int, ...]]:
    """The nodes of each job that runs."""
    nodes: dict[str, list[int]] = {}
    for node in sorted(loads):
        for name, _ in loads[node].shares:
            nodes.setdefault(name, []).append(node)
    return {name: tuple(numbers) for name, numbers in nodes.items()}


def goes_on(running: Running, name: str, loads: Mapping[int, NodeLoad]) -> bool:
    """Whether a job that keeps its nodes also keeps their type and its GPUs."""
    load = loads[running.nodes[0]]
    same_type = load.node_type == running.configuration.node_type
    return same_type and (name, running.configuration.gpus) in load.shares


def _overlaps(
    state: State, loads: Sequence[NodeLoad]
) -> Iterator[tuple[tuple[bool, int, int, int], NodeLoad, int]]:
    """Loads and nodes that have jobs in common, the most important matches first."""
    fixed = fixed_jobs(state)
    numbers = [state.fleet.nodes_of(group) for group in range(len(state.fleet.groups))]
    for position, load in enumerate(loads):
        common: dict[int, int] = {}
        stays: set[int] = set()
        for name, gpus in load.shares:
            running = state.jobs[name].running
            if running is None:
                continue
            for node in running.nodes:
                if state.nodes[node].node_type == load.node_type:
                    common[node] = common.get(node, 0) + gpus
                    if name in fixed:
                        stays.add(node)
        for node, gpus in common.items():
            if node in numbers[load.group]:
                yield (node not in stays, -gpus, position, node), load, node


def _fill(state: State, waiting: Sequence[NodeLoad], result: dict[int, NodeLoad]) -> None:
    """Give the loads without a match a node: one of the same type that is on, else any free one."""
    for index in range(len(state.fleet.groups)):
        loads = [load for load in waiting if load.group == index]
        if not loads:
            continue
        free = [node for node in state.fleet.nodes_of(index) if node not in result and node not in state.lost]
        on: dict[str, list[int]] = {}
        for node in reversed(free):
            if node in state.nodes:
                on.setdefault(state.nodes[node].node_type, []).append(node)
        others = [load for load in loads if not _reuse(load, on, result)]
        left = [node for node in free if node not in result]
        off_first = sorted(left, key=lambda node: node in state.nodes)
        result.update(zip(off_first, others, strict=False))


def _reuse(load: NodeLoad, on: dict[str, list[int]], result: dict[int, NodeLoad]) -> bool:
    nodes = on.get(load.node_type)
    if not nodes:
        return False
    result[nodes.pop()] = load
    return True
