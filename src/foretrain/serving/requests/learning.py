"""The requests of converge, learn, learn layers and learn resources."""

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
)
from foretrain.learning.resources.options import InspectorOptions, InspectorTraining
from foretrain.panels import (
    COST,
    FIT,
    OUTPUT,
    STORED,
)
from foretrain.serving.requests import Request, StoreOption
from foretrain.workloads.options import (
    MODEL_NAME,
)


@dataclass(frozen=True, kw_only=True)
class ConvergeRequest(Request, LogRequest):
    """When a training log reaches its target."""

    DETAILS = (
        "Fits several families of curves to the log and weights them by out-of-sample error: how well each "
        "predicted the end of the log from its beginning. Earlier runs (--history) serve as a prior. Reports "
        "p10, p50 and p90 of the steps to target and of the final value."
    )
    EXAMPLES = (
        "foretrain converge log.csv --target loss=0.3",
        "foretrain converge log.csv --target accuracy=94 --planned-steps 90 --history runs/ --plot fan.png",
    )


@dataclass(frozen=True, kw_only=True)
class LearnRequest(Request, StoreOption):
    """Regression on a user's own timings."""

    COMMON = "target features split technique save plot json"
    DETAILS = (
        "Fits eight regression techniques to a table (or to stored runs), validates each on held-out rows "
        "(random, or extrapolating to larger batches, more GPUs, other devices or deeper networks) and keeps "
        "the best. If the rows name a model, a device and a batch, foretrain's own prediction is one of the "
        "features (gray box)."
    )
    EXAMPLES = (
        "foretrain learn timings.csv --target seconds",
        "foretrain learn timings.csv --target seconds --split batch-size,gpu-count --save mine.json",
        "foretrain learn --runs campaign=lab --plot residuals.png",
        "foretrain predict resnet50 --on t4 --batch 64 --cost-model mine.json",
    )

    table: Path | None = option(
        FILE, "CSV file with a header and one row per timing.", positional=True, metavar="TABLE"
    )
    runs: str | None = option(
        TEXT,
        "Learn from stored runs instead: all, or filters such as model=resnet18,device=here,since=7d.",
        metavar="QUERY",
        panel=STORED,
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


@dataclass(frozen=True, kw_only=True)
class LearnLayersRequest(Request):
    """Lines of layers from profiles."""

    DETAILS = (
        "c is the number of operations of a layer. Lines fitted to one network predict other networks with "
        "the same layer types."
    )
    EXAMPLES = (
        "foretrain profile alexnet --here --batch 4 --json > alexnet.json",
        "foretrain learn layers alexnet.json --predict googlenet.json",
    )

    profiles: tuple[str, ...] = option(
        texts("profiles", by_comma=False),
        "Output files of `foretrain profile MODEL --json`, all of the same device.",
        required=True,
        positional=True,
        metavar="PROFILE",
    )
    predict: tuple[str, ...] = option(
        texts("profiles", by_comma=False),
        "Profiles of other models to predict with the fitted lines.",
        default=(),
    )
    complexity: str = option(
        choice("operations", "predicted"),
        "Meaning of c: operations of the layer (published table), or foretrain's own prediction.",
        default="operations",
    )


@dataclass(frozen=True, kw_only=True)
class LearnResourcesRequest(Request, StoreOption, InspectorOptions, InspectorTraining):
    """Which runs an Inspector is trained on, and how."""

    COMMON = "runs model start out json"
    DETAILS = (
        "Trains an ensemble of graph networks on measured bursts and validates it on held-out models. "
        "`foretrain resources` then uses it where it beats the timeline."
    )
    EXAMPLES = (
        "foretrain learn resources",
        "foretrain learn resources --runs runs.parquet --out mine.json",
        "foretrain learn resources --strategy ps-async --start shipped --out async.json",
    )

    runs: Path | None = option(
        FILE,
        "Parquet file written by `foretrain runs export` (default: the store).",
        metavar="FILE",
        panel=STORED,
    )
    model: tuple[str, ...] = option(texts(), "Only runs of these models.", default=(), panel=STORED)
    strategy: tuple[str, ...] = option(
        texts(by_comma=False),
        "Only runs with these strategies.",
        default=(),
        panel=STORED,
    )
    start: Path | None = option(
        FILE,
        "Fine-tune this Inspector (JSON file, or `shipped`) instead of training from scratch.",
        metavar="FILE",
        panel=FIT,
    )
    out: Path | None = option(
        FILE,
        "Output JSON file; weights are saved beside it (default: your own Inspector, used by `resources`).",
        panel=OUTPUT,
    )
