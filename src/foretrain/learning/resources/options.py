"""The design of an Inspector: network, grouping of the graph, repetitions, readout and size."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

from foretrain.decoding import choice, option, whole_number
from foretrain.errors import InvalidRequest, MissingData
from foretrain.panels import FIT

NETWORKS = ("gcn", "gat", "gin", "mpnn")
READOUTS = ("set2set", "mean", "sum", "max")
GROUPINGS = ("proportional", "uniform", "none")


@dataclass(frozen=True, kw_only=True)
class InspectorOptions:
    """`repetitions_per_node` times the nodes of a graph is K, how often the shared layer is repeated.

    `nodes` are those of uniform grouping. Without grouping graphs have hundreds of nodes, and K is that of
    grouped ones. `uses_timeline` False leaves out the figures of the timeline: the graph network alone.
    """

    network: str = option(choice(*NETWORKS), "Type of graph network.", default="gcn", panel=FIT)
    readout: str = option(choice(*READOUTS), "Graph readout.", default="set2set", panel=FIT)
    grouping: str = option(choice(*GROUPINGS), "Operator grouping.", default="proportional", panel=FIT)
    nodes: int = 28
    repetitions_per_node: float = 0.5
    hidden: int = 16
    uses_timeline: bool = True

    def __post_init__(self) -> None:
        for name, known in (("network", NETWORKS), ("readout", READOUTS), ("grouping", GROUPINGS)):
            if getattr(self, name) not in known:
                raise InvalidRequest(f"{name} {getattr(self, name)!r} is not one of {', '.join(known)}")
        if self.nodes < 1 or self.hidden < 1 or not 0 < self.repetitions_per_node <= 2:
            raise InvalidRequest(
                f"an Inspector needs nodes and hidden of at least 1 and repetitions_per_node in (0, 2], got "
                f"{self.nodes}, {self.hidden} and {self.repetitions_per_node}"
            )


@dataclass(frozen=True, kw_only=True)
class InspectorTraining:
    """How an Inspector is trained: at most `epochs`, until `patience` epochs bring no better validation."""

    epochs: int = option(
        whole_number(1), "Maximum number of epochs per ensemble member.", default=400, panel=FIT
    )
    patience: int = 60
    learning_rate: float = 5e-3
    weight_decay: float = 1e-3
    dropout: float = 0.1
    members: int = option(whole_number(1), "Number of ensemble members.", default=3, panel=FIT)
    folds: int = option(
        whole_number(2),
        "Number of cross-validation folds; each holds out whole models.",
        default=5,
        panel=FIT,
    )
    seed: int = option(whole_number(0), "Random seed.", default=0, panel=FIT)

    def __post_init__(self) -> None:
        for name in ("epochs", "patience", "members"):
            if getattr(self, name) < 1:
                raise InvalidRequest(f"{name} must be at least 1, got {getattr(self, name)}")
        if self.folds < 2:
            raise InvalidRequest(f"folds must be at least 2, got {self.folds}")


def need_torch_geometric() -> None:
    """Import PyTorch Geometric without the deprecations that it warns of; an error where it is absent."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            import torch_geometric.nn  # noqa: F401
    except ImportError as error:
        raise MissingData("an Inspector needs PyTorch Geometric: pip install 'foretrain[gnn]'") from error
