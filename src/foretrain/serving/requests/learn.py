"""The requests of `learn layers` and `learn resources`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from foretrain.decoding import FILE, TEXT, choice, option, texts, whole_number
from foretrain.learning.resources.options import GROUPINGS, NETWORKS, READOUTS
from foretrain.panels import FIT, OUTPUT, STORED
from foretrain.serving.requests.base import Request


@dataclass(frozen=True, kw_only=True)
class LearnLayersRequest(Request):
    """Lines of layers from profiles."""

    VERB = "learn layers"

    profiles: tuple[str, ...] = option(
        texts("profiles", by_comma=False),
        "Files of `foretrain profile MODEL --json`, all of one device.",
        required=True,
        positional=True,
        metavar="PROFILE",
    )
    predict: tuple[str, ...] = option(
        texts("profiles", by_comma=False),
        "Profiles of other models to predict by the lines of the first ones.",
        default=(),
    )
    complexity: str = option(
        choice("operations", "predicted"),
        "What c is: operations of the published table, or foretrain's own prediction of the layer.",
        default="operations",
    )


@dataclass(frozen=True, kw_only=True)
class LearnResourcesRequest(Request):
    """Which runs an Inspector is trained on, and how."""

    VERB = "learn resources"
    COMMON = ("runs", "model", "start", "out", "json")

    runs: Path | None = option(
        FILE,
        "Parquet file of runs, as `foretrain runs export` writes it (default: the store).",
        metavar="FILE",
        panel=STORED,
    )
    store: str | None = option(
        TEXT, "The store of runs, if not the default one.", metavar="FILE|URL", panel=STORED
    )
    model: tuple[str, ...] = option(texts(), "Only runs of these models.", default=(), panel=STORED)
    strategy: tuple[str, ...] = option(
        texts(by_comma=False),
        "Only runs with these strategies, e.g. for a transfer.",
        default=(),
        panel=STORED,
    )
    network: str = option(choice(*NETWORKS), "Graph network.", default="gcn", panel=FIT)
    readout: str = option(choice(*READOUTS), "Readout of the graph.", default="set2set", panel=FIT)
    grouping: str = option(
        choice(*GROUPINGS), "Grouping of the operators.", default="proportional", panel=FIT
    )
    start: Path | None = option(
        FILE,
        "Transfer this Inspector (its JSON, or `shipped`) instead of training a new one.",
        metavar="FILE",
        panel=FIT,
    )
    epochs: int = option(whole_number(1), "Most epochs of a member.", default=400, panel=FIT)
    members: int = option(whole_number(1), "Members of the ensemble.", default=3, panel=FIT)
    folds: int = option(whole_number(2), "Folds of models left out for the accuracy.", default=5, panel=FIT)
    seed: int = option(whole_number(0), "Seed of all that is random.", default=0, panel=FIT)
    out: Path | None = option(
        FILE, "JSON to write, the weights beside it (default: your own Inspector, which `resources` uses).",
        panel=OUTPUT,
    )  # fmt: skip
