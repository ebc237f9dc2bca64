"""Driple's input builder: a graph of m operators as an adjacency and a feature matrix of M grouped nodes.

Nodes are grouped by asynchronous fluid communities. Uniform grouping takes the same M for every graph;
proportional grouping takes M from the size of the graphs in a batch, M = ⌈10 · log₁₀ v⌉ of their mean size v.
Each node has three features: its operator type, encoded by how frequent the type is in the graph; the size of
the tensors it writes; and how many operators it groups.

Reference: G. Yang et al., "Prediction of the Resource Consumption of Distributed Deep Learning Systems",
Proc. ACM Meas. Anal. Comput. Syst. 6 (2), 2022, section 4. The paper's M = log₁₀ v leaves two or three nodes
for any graph in practice; the factor keeps its proportionality with enough nodes to distinguish graphs.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foretrain.errors import InvalidRequest, MissingData
from foretrain.workloads.graph import Graph, Nature

FEATURES = ("type frequency", "tensor bytes", "operators")
NODES_PER_DECADE = 10


@dataclass(frozen=True, eq=False)
class GroupedGraph:
    """M grouped nodes: who feeds whom (M x M, row to column), features (M x 3), each operator's group."""

    adjacency: NDArray[np.float64]
    features: NDArray[np.float64]
    group_of: NDArray[np.int64]


def nodes_in_proportion(operator_counts: Sequence[int]) -> int:
    """M for a batch of graphs, in proportion to the logarithm of their mean size."""
    if not operator_counts or min(operator_counts) < 1:
        raise InvalidRequest("proportional grouping needs at least one graph, none of them empty")
    mean = sum(operator_counts) / len(operator_counts)
    wanted = math.ceil(NODES_PER_DECADE * math.log10(max(mean, 1.3)))
    return max(1, min(wanted, *operator_counts))


def group(graph: Graph, nodes: int, seed: int = 0) -> GroupedGraph:
    """Reduce a graph to `nodes` grouped nodes."""
    kept = [index for index, call in enumerate(graph.calls) if call.nature is not Nature.VIEW]
    if not 1 <= nodes <= len(kept):
        raise InvalidRequest(
            f"cannot group {len(kept)} operators into {nodes} nodes; ask for 1 to {len(kept)}"
        )
    edges = _edges(graph, kept)
    group_of = _communities(len(kept), edges, nodes, seed)
    adjacency = np.zeros((nodes, nodes))
    for source, target in edges:
        if group_of[source] != group_of[target]:
            adjacency[group_of[source], group_of[target]] = 1.0
    return GroupedGraph(adjacency, _features(graph, kept, group_of, nodes), group_of)


def _edges(graph: Graph, kept: list[int]) -> list[tuple[int, int]]:
    """Data flow between the kept calls. Views write no memory, so they never are a buffer's last writer."""
    number = {call: position for position, call in enumerate(kept)}
    last_writer: dict[int, int] = {}
    edges: dict[tuple[int, int], None] = {}
    for index in kept:
        call = graph.calls[index]
        for buffer in call.reads:
            writer = last_writer.get(buffer)
            if writer is not None and writer != index:
                edges[number[writer], number[index]] = None
        last_writer.update(dict.fromkeys(call.writes, index))
    return list(edges)


def _communities(count: int, edges: list[tuple[int, int]], nodes: int, seed: int) -> NDArray[np.int64]:
    """Fluid communities in every connected part, in shares by size; what is left joins a neighbour."""
    networkx = _networkx()
    network = networkx.Graph()
    network.add_nodes_from(range(count))
    network.add_edges_from(edges)
    parts = sorted(networkx.connected_components(network), key=lambda part: (-len(part), min(part)))
    group_of = np.full(count, -1, dtype=np.int64)
    free = nodes
    for position, part in enumerate(parts):
        left = parts[position:]
        share = min(len(part), _share(len(part), sum(map(len, left)), free, len(left)))
        if share == 0:
            break
        communities = networkx.community.asyn_fluidc(network.subgraph(sorted(part)), share, seed=seed)
        for members in communities:
            group_of[list(members)] = nodes - free
            free -= 1
    return _filled(group_of)


def _share(size: int, total: int, free: int, parts_left: int) -> int:
    """How many communities a part gets: in proportion to its size, at least one while any are free."""
    if free == 0:
        return 0
    wanted = max(1, round(free * size / total))
    return free if parts_left == 1 else min(wanted, max(1, free - 1))


def _filled(group_of: NDArray[np.int64]) -> NDArray[np.int64]:
    """Operators of parts that got no community of their own join the one before them in execution order."""
    known = np.flatnonzero(group_of >= 0)
    for index in np.flatnonzero(group_of < 0):
        position = max(0, int(np.searchsorted(known, index)) - 1)
        group_of[index] = group_of[known[position]]
    return group_of


def _features(graph: Graph, kept: list[int], group_of: NDArray[np.int64], nodes: int) -> NDArray[np.float64]:
    calls = [graph.calls[index] for index in kept]
    frequency = Counter(call.name for call in calls)
    features = np.zeros((nodes, len(FEATURES)))
    for call, node in zip(calls, group_of, strict=True):
        features[node, 0] += frequency[call.name] / len(calls)
        features[node, 1] += sum(graph.specs[index].bytes for index in call.outputs if index >= 0)
        features[node, 2] += 1
    features[:, 0] /= np.maximum(features[:, 2], 1)
    return features


def _networkx() -> Any:
    try:
        import networkx
    except ImportError as error:
        raise MissingData("grouping graphs needs networkx: pip install 'foretrain[gnn]'") from error
    return networkx
