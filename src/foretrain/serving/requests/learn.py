"""The requests of `learn layers` and `learn resources`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from foretrain.convergence.options import LogRequest
from foretrain.decoding import (
    FILE,
    SWITCH,
    TEXT,
    choice,
    option,
    texts,
    whole_number,
)
from foretrain.learning.resources.options import GROUPINGS, NETWORKS, READOUTS
from foretrain.panels import (
    COST,
    FIT,
    OUTPUT,
    STORED,
)
from foretrain.serving.requests.base import Request
from foretrain.workloads.options import (
    MODEL_NAME,
)


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


@dataclass(frozen=True, kw_only=True)
class ConvergeRequest(Request, LogRequest):
    """When a training log reaches its target."""

    VERB = "converge"


@dataclass(frozen=True, kw_only=True)
class LearnRequest(Request):
    """Regression on a user's own timings."""

    VERB = "learn"
    COMMON = ("target", "features", "split", "technique", "save", "plot", "json")

    table: Path | None = option(
        FILE, "CSV file with a header and one row per timing.", positional=True, metavar="TABLE"
    )
    runs: str | None = option(
        TEXT,
        "Learn from stored runs instead: all, or filters such as model=resnet18,device=here,since=7d.",
        metavar="QUERY",
        panel=STORED,
    )
    store: str | None = option(
        TEXT, "Store to read with `runs`: SQLite file or database URL.", metavar="FILE|URL", panel=STORED
    )
    target: str | None = option(
        TEXT, "Column to predict; must be positive (default with `runs`: step_seconds).", metavar="COLUMN"
    )
    features: tuple[str, ...] = option(
        texts("columns"), "Feature columns, comma-separated (default: all).", default=()
    )
    technique: tuple[str, ...] = option(
        texts("techniques"),
        "Regression techniques: linear, ridge, nnls, ernest, svr, forest, boosting, gray-box (default: all).",
        default=(),
    )
    split: tuple[str, ...] = option(
        texts("splits"),
        "Validation splits: random, batch-size, gpu-count, compute-power, inner-modules, column=NAME, or "
        "all applicable ones. The first split selects the model.",
        default=("random",),
    )
    model: str | None = option(
        MODEL_NAME,
        "Model trained in all rows, if the table has no column `model`; used by gray-box.",
        complete="model",
        panel=COST,
    )
    gray_box: bool = option(
        SWITCH,
        "Use foretrain's own prediction as a feature (gray-box).",
        default=True,
        flags=("gray-box/no-gray-box",),
        panel=COST,
    )
    drop_missing: bool = option(SWITCH, "Drop rows with missing values.", default=False)
