"""The Inspector as a network: graph layers with a GRU between them, a readout, and an MLP for 12 targets.

    h⁰ = 0,  h¹ = GRU(φ_f(x), h⁰),  h^k = GRU(φ_r(h^{k-1}), h^{k-1}) for k = 2 ... K,  g = readout(h^K)
    targets = timeline · exp(MLP(g, setting, log timeline))

φ_r shares its weights over all repetitions. For a transfer the first half of them is frozen, and the second
half and the MLP continue to be trained on the new setting: φ_r is then two layers that start equal.

Reference: Yang et al., Proc. ACM Meas. Anal. Comput. Syst. 6(2), 2022, section 5 (graph convolution with
normalised mean, GRU, set2set) and 6 (transfer learning).
"""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn
from torch_geometric.nn import (
    GATConv,
    GCNConv,
    GINConv,
    MessagePassing,
    NNConv,
    Set2Set,
    global_add_pool,
    global_max_pool,
    global_mean_pool,
)
from torch_geometric.nn.conv.gcn_conv import gcn_norm

from foretrain.learning.resources.options import InspectorOptions
from foretrain.store.runs import Floats

_SET2SET_STEPS = 3
"""Steps of attention of the readout."""
_POOLS = {"mean": global_mean_pool, "sum": global_add_pool, "max": global_max_pool}


class InspectorNetwork(nn.Module):
    """One member of an Inspector."""

    def __init__(
        self,
        options: InspectorOptions,
        repetitions: int,
        nodes: int,
        others: int,
        targets: int,
        dropout: float,
    ) -> None:
        """`nodes` and `others` are the numbers of features of a node and of a setting."""
        super().__init__()
        hidden = options.hidden
        self.options, self.repetitions = options, repetitions
        self.first = _layer(options.network, nodes, hidden)
        self.shared = _layer(options.network, hidden, hidden)
        self.late: nn.Module | None = None
        self.gate = nn.GRUCell(hidden, hidden)
        self.readout = Set2Set(hidden, _SET2SET_STEPS) if options.readout == "set2set" else None
        width = 2 * hidden if self.readout is not None else hidden
        last = nn.Linear(2 * hidden, targets)
        nn.init.zeros_(last.weight)
        nn.init.zeros_(last.bias)
        self.head = nn.Sequential(
            nn.Linear(width + others, 4 * hidden), nn.ReLU(), nn.Dropout(dropout),
            nn.Linear(4 * hidden, 2 * hidden), nn.ReLU(), last,
        )  # fmt: skip

    def forward(self, graphs: Graphs, others: Tensor, graph_of: Tensor) -> Tensor:
        """Logarithms of the targets over those of the timeline, for samples of `graph_of[i]`."""
        hidden = self.gate(torch.relu(self._convolved(self.first, graphs.nodes, graphs)))
        for number in range(1, self.repetitions):
            is_late = self.late is not None and 2 * number >= self.repetitions
            layer = self.late if is_late and self.late is not None else self.shared
            hidden = self.gate(torch.relu(self._convolved(layer, hidden, graphs)), hidden)
        if self.readout is not None:
            embedded = self.readout(hidden, graphs.graph_of)
        else:
            embedded = _POOLS[self.options.readout](hidden, graphs.graph_of)
        output: Tensor = self.head(torch.cat([torch.tanh(embedded)[graph_of], others], dim=1))
        return output

    def _convolved(self, layer: nn.Module, hidden: Tensor, graphs: Graphs) -> Tensor:
        output: Tensor
        if isinstance(layer, GCNConv):
            output = layer(hidden, graphs.normalised_edges, graphs.normalised_weights)
        elif isinstance(layer, NNConv):
            output = layer(hidden, graphs.edges, graphs.edge_features)
        else:
            output = layer(hidden, graphs.edges)
        return output

    def start_at(self, outputs: Floats) -> None:
        """Let the untrained network give these outputs, whatever it sees."""
        with torch.no_grad():
            last = self.head[-1]
            assert isinstance(last, nn.Linear)
            last.bias.copy_(torch.from_numpy(outputs))

    def for_transfer(self) -> InspectorNetwork:
        """A copy of which only the second half of the repetitions and the MLP are trained."""
        other = copy.deepcopy(self)
        other.late = copy.deepcopy(other.shared)
        for parameter in other.parameters():
            parameter.requires_grad_(False)
        for part in (other.late, other.head):
            for parameter in part.parameters():
                parameter.requires_grad_(True)
        return other


class Graphs:
    """Graphs as one graph of disjoint parts: features of nodes, edges (2 x E), and the part of each node.

    Graph convolutions share the edges with their normalised weights, which are computed once.
    """

    def __init__(self, nodes: Tensor, edges: Tensor, edge_features: Tensor, graph_of: Tensor) -> None:
        self.nodes, self.edges, self.edge_features, self.graph_of = nodes, edges, edge_features, graph_of
        self.normalised_edges, self.normalised_weights = gcn_norm(edges, None, len(nodes))


def _layer(name: str, inputs: int, outputs: int) -> MessagePassing:
    if name == "gat":
        return GATConv(inputs, outputs)
    if name == "gin":
        return GINConv(nn.Sequential(nn.Linear(inputs, outputs), nn.ReLU(), nn.Linear(outputs, outputs)))
    if name == "mpnn":
        return NNConv(inputs, outputs, nn.Linear(1, inputs * outputs), aggr="mean")
    return GCNConv(inputs, outputs, normalize=False)
