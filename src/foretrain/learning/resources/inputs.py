"""What an Inspector sees, as arrays: grouped graphs, features of settings and of the timeline, scaled.

Graphs are those of Driple's input builder: m operators become an adjacency and a feature matrix of M nodes.
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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from foretrain.errors import InvalidRequest, MissingData
from foretrain.learning.resources.options import InspectorOptions, need_torch_geometric
from foretrain.learning.resources.samples import RESOURCES, SETTING, TARGETS, WorkerScene
from foretrain.prediction.step.cpu_workers import WorkerConstants
from foretrain.store.runs import Floats
from foretrain.workloads.graph import Graph, Nature, once_per_graph

if TYPE_CHECKING:
    from torch import Tensor

    from foretrain.learning.resources.network import Graphs


# ---------------------------------------------------------------- grouped graphs

FEATURES = ("type frequency", "tensor bytes", "operators")
NODES_PER_DECADE = 10


class GroupedGraph(NamedTuple):
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


# ---------------------------------------------------------------- arrays

NODE_FEATURES = len(FEATURES)
OTHER_FEATURES = len(SETTING) + len(TARGETS) + len(RESOURCES)
_LARGEST = 6.0
"""Features are cut off at this many standard deviations, so that an unusual one cannot dominate."""


@dataclass(frozen=True, eq=False)
class Scaling:
    """Means and standard deviations of features, over the samples an Inspector was trained on."""

    node_means: Floats
    node_deviations: Floats
    other_means: Floats
    other_deviations: Floats

    def nodes(self, features: Floats) -> Floats:
        """Features of nodes, scaled."""
        return _scale(features, self.node_means, self.node_deviations)

    def others(self, features: Floats) -> Floats:
        """Features of settings and of the timeline, scaled."""
        return _scale(features, self.other_means, self.other_deviations)


def _scale(values: Floats, means: Floats, deviations: Floats) -> Floats:
    scaled: Floats = np.clip((values - means) / deviations, -_LARGEST, _LARGEST)
    return scaled


@dataclass(frozen=True, eq=False)
class SampleTable:
    """Samples in rows: the graph of each, other features, and the targets by the timeline."""

    graphs: tuple[GroupedGraph, ...]
    graph_of: NDArray[np.int64]
    others: Floats
    figures: Floats
    alternates: Floats

    def rows(self, chosen: NDArray[np.int64]) -> SampleTable:
        """Some of the samples, with their graphs."""
        kept, graph_of = np.unique(self.graph_of[chosen], return_inverse=True)
        return SampleTable(
            tuple(self.graphs[place] for place in kept),
            graph_of,
            self.others[chosen],
            self.figures[chosen],
            self.alternates[chosen],
        )


def table_of(
    scenes: Sequence[WorkerScene],
    options: InspectorOptions,
    constants: WorkerConstants,
    interval_seconds: float,
) -> SampleTable:
    """The samples of scenes; a graph that several of them share is there once."""
    places: dict[int, int] = {}
    graphs: list[GroupedGraph] = []
    for scene in scenes:
        if id(scene.graph) not in places:
            places[id(scene.graph)] = len(graphs)
            graphs.append(group_operators(scene.graph, options))
    pairs = [scene.figures(constants, interval_seconds) for scene in scenes]
    figures, alternates = (np.array(column) for column in zip(*pairs, strict=True))
    timeline = np.concatenate([np.log(figures), alternates], axis=1) * options.uses_timeline
    settings = np.array([scene.features for scene in scenes])
    return SampleTable(
        graphs=tuple(graphs),
        graph_of=np.array([places[id(scene.graph)] for scene in scenes]),
        others=np.concatenate([settings, timeline], axis=1),
        figures=figures if options.uses_timeline else np.ones_like(figures),
        alternates=alternates,
    )


def group_operators(graph: Graph, options: InspectorOptions) -> GroupedGraph:
    """The grouped graph; each is computed once."""
    operators = sum(call.nature is not Nature.VIEW for call in graph.calls)
    nodes = {
        "none": operators,
        "uniform": min(options.nodes, operators),
        "proportional": nodes_in_proportion([operators]),
    }[options.grouping]
    known = _grouped_by_nodes(graph)
    if nodes not in known:
        known[nodes] = group(graph, nodes)
    return known[nodes]


@once_per_graph
def _grouped_by_nodes(graph: Graph) -> dict[int, GroupedGraph]:
    """Where the grouped graphs of a graph are kept, by their number of nodes."""
    del graph
    return {}


def scaling_of(table: SampleTable) -> Scaling:
    """The scaling of the samples an Inspector is trained on."""
    used = np.unique(table.graph_of)
    nodes = np.concatenate([node_features(table.graphs[place]) for place in used])
    return Scaling(*_moments(nodes), *_moments(table.others))


def _moments(values: Floats) -> tuple[Floats, Floats]:
    deviations = values.std(axis=0)
    return values.mean(axis=0), np.where(deviations > 1e-9, deviations, 1.0)


def node_features(graph: GroupedGraph) -> Floats:
    """Type frequency, and the logarithms of bytes and operators."""
    features = graph.features.copy()
    features[:, 1:] = np.log1p(features[:, 1:])
    return features


def repetitions_of(table: SampleTable, options: InspectorOptions) -> int:
    """K: repetitions of the shared layer, from the mean number of nodes."""
    nodes = [len(graph.features) for graph in table.graphs]
    mean = float(np.mean(nodes)) if options.grouping != "none" else float(options.nodes)
    return max(1, round(mean * options.repetitions_per_node))


def tensors_of(table: SampleTable, scaling: Scaling) -> tuple[Graphs, Mapping[str, Tensor]]:
    """Graphs and other features as tensors."""
    need_torch_geometric()
    import torch

    from foretrain.learning.resources.network import Graphs

    nodes, edges, sizes, graph_of, offset = [], [], [], [], 0
    for place, graph in enumerate(table.graphs):
        features = scaling.nodes(node_features(graph))
        sources, ends = np.nonzero(graph.adjacency)
        both = np.concatenate([[sources, ends], [ends, sources]], axis=1)
        nodes.append(features)
        edges.append(both + offset)
        sizes.append(features[both[0], 1:2])
        graph_of.append(np.full(len(features), place))
        offset += len(features)
    graphs = Graphs(
        torch.tensor(np.concatenate(nodes), dtype=torch.float32),
        torch.tensor(np.concatenate(edges, axis=1), dtype=torch.long),
        torch.tensor(np.concatenate(sizes), dtype=torch.float32),
        torch.tensor(np.concatenate(graph_of), dtype=torch.long),
    )
    others = torch.tensor(scaling.others(table.others), dtype=torch.float32)
    return graphs, {"others": others, "graph_of": torch.tensor(table.graph_of, dtype=torch.long)}
