"""What an Inspector sees, as arrays: grouped graphs, features of settings and of the timeline, scaled."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from foretrain.learning.resources.grouping import FEATURES, GroupedGraph, group, nodes_in_proportion
from foretrain.learning.resources.options import InspectorOptions, need_torch_geometric
from foretrain.learning.resources.samples import RESOURCES, SETTING, TARGETS, WorkerScene
from foretrain.prediction.step.cpu_workers import WorkerConstants
from foretrain.store.runs import Floats
from foretrain.workloads.graph import Graph, Nature, once_per_graph

if TYPE_CHECKING:
    from torch import Tensor

    from foretrain.learning.resources.network import Graphs

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
