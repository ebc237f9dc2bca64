"""The request of each verb: groups of shared fields, and its own."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from foretrain.convergence.options import LogRequest
from foretrain.decoding import (
    FILE,
    MONEY,
    SWITCH,
    TEXT,
    choice,
    number,
    option,
    texts,
    whole_number,
    whole_numbers,
)
from foretrain.jobs.options import BatchLimits, BillingOptions, LengthOptions, RunningOptions
from foretrain.panels import (
    COST,
    HERE,
    LENGTH,
    MACHINES,
    MONEY_AND_ENERGY,
    OUTPUT,
    PARALLELISM,
    PRICES,
    PRIOR,
    STEP,
    STORED,
)
from foretrain.planning.options import Limits, MachineOptions, OwningOptions, RentOrBuyOptions
from foretrain.prediction.options import (
    HARDWARE,
    CostModelOptions,
    HardwareOption,
    InputOptions,
    Parallelism,
    TopologyOption,
)
from foretrain.serving.requests.base import Request
from foretrain.serving.requests.measure import MeasureRequest
from foretrain.serving.requests.resources import PairRequest, ResourcesRequest
from foretrain.serving.requests.schedule import RunRequest, ScheduleRequest, SimulateRequest
from foretrain.workloads.options import (
    MODEL_FORMS,
    MODEL_NAME,
    PRECISIONS,
    ModelOption,
    TrainingOptions,
    WorkloadRequest,
)


@dataclass(frozen=True, kw_only=True)
class TraceRequest(Request, WorkloadRequest):
    """What a training step consists of."""

    VERB = "trace"
    COMMON = ("batch", "seq_len", "image_size", "precision", "optimizer", "layers", "json")
    TAKES_WORKLOAD_FILE = True

    layers: bool = option(SWITCH, "Include a table of all layers.", default=False, panel=OUTPUT)


@dataclass(frozen=True, kw_only=True)
class PredictRequest(
    Request,
    WorkloadRequest,
    HardwareOption,
    TopologyOption,
    Parallelism,
    CostModelOptions,
    InputOptions,
    LengthOptions,
    RunningOptions,
    BillingOptions,
):
    """What a training step, and the whole job, take on given hardware."""

    VERB = "predict"
    COMMON = (
        "on",
        "batch",
        "global_batch",
        "precision",
        "strategy",
        "optimizer",
        "seq_len",
        "samples",
        "epochs",
        "steps",
        "cost_model",
        "check",
        "json",
    )
    TAKES_WORKLOAD_FILE = True

    power_limit: float | None = option(
        number(0),
        "Power limit per device in watts (default: data sheet). A lower limit slows down matrix products.",
        panel=MACHINES,
        metavar="WATTS",
    )
    advice: bool = option(
        SWITCH,
        "Search for changes that make the step faster.",
        default=True,
        panel=OUTPUT,
        flags=("advice/no-advice",),
    )


@dataclass(frozen=True, kw_only=True)
class PlanRequest(
    Request,
    ModelOption,
    BatchLimits,
    TrainingOptions,
    Limits,
    MachineOptions,
    TopologyOption,
    InputOptions,
    LengthOptions,
    RunningOptions,
    OwningOptions,
):
    """Which machines to rent for a job."""

    VERB = "plan"
    COMMON = (
        "deadline",
        "budget",
        "samples",
        "epochs",
        "steps",
        "global_batch",
        "precision",
        "gpu",
        "cloud",
        "spot",
        "max_gpus",
        "check",
        "json",
    )
    TAKES_WORKLOAD_FILE = True

    strategy: tuple[str, ...] = option(
        texts(),
        "Strategies to compare: auto (all), or a subset of ddp,zero1,zero2,zero3.",
        default=("auto",),
        panel=PARALLELISM,
    )
    layouts: bool = option(
        SWITCH,
        "Also search tensor, pipeline and other model-parallel layouts on the Pareto front (seconds each).",
        default=False,
        panel=PARALLELISM,
    )


@dataclass(frozen=True, kw_only=True)
class GuideRequest(Request, TrainingOptions):
    """Networks by hardware by batch size."""

    VERB = "guide"
    COMMON = ("on", "counts", "batch", "samples", "precision", "strategy", "cloud", "show", "html", "json")

    models: tuple[str, ...] = option(
        texts("models", by_comma=False),
        f"Models to train: {MODEL_FORMS}.",
        required=True,
        positional=True,
        metavar="MODEL",
        complete="model",
    )
    on: tuple[str, ...] = option(
        texts(),
        "Hardware to compare, repeated or comma-separated: DEVICE[:COUNT], PROVIDER:INSTANCE, FILE.yaml.",
        default=(),
        panel=MACHINES,
        metavar="HARDWARE",
        complete="hardware",
    )
    counts: tuple[int, ...] = option(
        whole_numbers(),
        "GPU counts for devices in `on` without a count, e.g. 1,2,4,8.",
        default=(),
        panel=MACHINES,
    )
    batch: tuple[int, ...] = option(
        whole_numbers(),
        "Global batch sizes: 32,64,96, or 32..8192 by doubling (default).",
        default=(),
        panel=STEP,
    )
    samples: int | None = option(
        whole_number(1), "Samples per epoch; adds time and cost per epoch.", panel=LENGTH
    )
    strategy: str = option(
        TEXT,
        "Parallel strategy: ddp, dp, zero1, zero2, zero3, fsdp or hsdp.",
        default="ddp",
        panel=PARALLELISM,
    )
    cloud: tuple[str, ...] = option(
        texts(), "Only prices of these clouds, e.g. aws,gcp.", default=(), panel=MACHINES, complete="provider"
    )


@dataclass(frozen=True, kw_only=True)
class ConvergeRequest(Request, LogRequest):
    """When a training log reaches its target."""

    VERB = "converge"


@dataclass(frozen=True, kw_only=True)
class ScalingRequest(Request):
    """From a few timed configurations of a job to all the others."""

    VERB = "scaling"

    timings: Path = option(
        FILE,
        "CSV with columns placement (4+4: GPUs per node) or nodes,devices; batch; step_seconds.",
        required=True,
        positional=True,
        metavar="TIMINGS",
    )
    at: Path | None = option(FILE, "CSV of configurations to predict: same columns without step_seconds.")
    form: str = option(
        TEXT,
        "Model form: physical, ring, pollux, optimus or seed; all compares them.",
        default="physical",
        metavar="NAME",
    )
    cluster: str = option(
        TEXT,
        "Cluster with known timings of other jobs, e.g. aws-4xt4.",
        default="",
        metavar="NAME",
        panel=PRIOR,
    )
    workload: str | None = option(
        MODEL_NAME,
        "Model that was trained; its prediction serves as a prior. Requires `on`.",
        metavar="MODEL",
        complete="model",
        panel=PRIOR,
    )
    on: str | None = option(
        HARDWARE,
        "Hardware with full nodes, e.g. v100-sxm2-16gb:8, with `workload`.",
        complete="hardware",
        panel=PRIOR,
    )
    precision: str = option(choice(*PRECISIONS), "Precision of `workload`.", default="fp32", panel=PRIOR)
    network: str | None = option(
        TEXT,
        "Network between nodes, if `on` does not specify one.",
        metavar="LINK[:CARDS]",
        panel=PRIOR,
        complete="network",
    )
    topology: Path | None = option(
        FILE,
        "File with the output of `nvidia-smi topo -m`: how the GPUs of a node of `on` are joined.",
        metavar="FILE",
        panel=PRIOR,
    )


@dataclass(frozen=True, kw_only=True)
class RentOrBuyRequest(Request, RentOrBuyOptions):
    """After how many hours of use owning a machine wins."""

    VERB = "rent-or-buy"
    COMMON = ("price", "rent", "offer", "relative_performance", "hours_per_year", "utilisation", "json")


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


@dataclass(frozen=True, kw_only=True)
class OffersRequest(Request):
    """What machines cost to rent."""

    VERB = "offers"

    gpu: str | None = option(
        TEXT, "Device, alias or family, e.g. h100.", metavar="NAME", complete="device", panel=MACHINES
    )
    count: int | None = option(whole_number(1), "Number of devices per machine.", panel=MACHINES)
    cloud: tuple[str, ...] = option(
        texts(), "Only these providers, e.g. aws,gcp.", default=(), complete="provider", panel=MACHINES
    )
    region: tuple[str, ...] = option(
        texts(by_comma=False),
        "Only these regions, comma-separated.",
        default=(),
        panel=MACHINES,
        complete="region",
    )
    spot: bool = option(SWITCH, "Use spot prices.", default=False, panel=MONEY_AND_ENERGY)
    historical: bool = option(
        SWITCH, "Include offers that are no longer available.", default=False, panel=MACHINES
    )
    max_price: float | None = option(MONEY, "Maximum price per hour.", panel=MONEY_AND_ENERGY)
    sort: str = option(
        TEXT,
        "Sort order: price, price-per-gpu, cloud or gpu.",
        default="price",
        metavar="ORDER",
        panel=OUTPUT,
    )
    limit: int | None = option(whole_number(1), "Maximum number of rows.", panel=OUTPUT)
    all_regions: bool = option(
        SWITCH, "List every region, not only the cheapest per machine.", default=False, panel=OUTPUT
    )
    refresh: Path | None = option(FILE, "Import a newer price file (CSV in SkyPilot's layout).", panel=PRICES)
    as_of: str | None = option(
        TEXT, "Date of that file, if its name has none.", metavar="YYYY-MM-DD", panel=PRICES
    )


@dataclass(frozen=True, kw_only=True)
class ExplainRequest(Request):
    """Every fact about a name."""

    VERB = "explain"

    name: str = option(
        TEXT,
        "Device, family, link, node, provider, data set, storage, source or offer.",
        required=True,
        positional=True,
        metavar="NAME",
    )


@dataclass(frozen=True, kw_only=True)
class DevicesRequest(Request):
    """What hardware is known."""

    VERB = "devices"

    name: str | None = option(
        TEXT,
        "Device (id or alias) or family (default: all).",
        positional=True,
        metavar="NAME",
        complete="device",
    )
    vendor: str | None = option(
        TEXT, "Only this vendor: nvidia, amd, intel ...", metavar="NAME", panel=MACHINES
    )
    generation: str | None = option(
        TEXT, "Only this generation, e.g. ampere.", metavar="NAME", panel=MACHINES
    )
    measure_here: bool = option(
        SWITCH, "Measure this machine's CPU and add it as the device `here`.", default=False, panel=HERE
    )


@dataclass(frozen=True, kw_only=True)
class ModelsRequest(Request):
    """Which models can be trained."""

    VERB = "models"

    search: str | None = option(
        TEXT, "Only models whose name, family or task contains this text.", metavar="TEXT"
    )


@dataclass(frozen=True, kw_only=True)
class LinksRequest(Request):
    """Which links and networks are known."""

    VERB = "links"

    kind: str | None = option(
        TEXT, "Only this technology: pcie, nvlink, nvswitch, infiniband, ethernet ...", metavar="NAME"
    )
    topology: Path | None = option(
        FILE,
        "Explain a file with the output of `nvidia-smi topo -m`: which GPUs are joined by what.",
        metavar="FILE",
    )
    device: str | None = option(
        TEXT,
        "The GPUs of `topology`, for the links that predictions use.",
        metavar="DEVICE",
        complete="device",
    )


@dataclass(frozen=True, kw_only=True)
class GuideModel(Request, ModelOption, TrainingOptions):
    """One model of a guide, which may be a workload file."""

    VERB = "guide"
    TAKES_WORKLOAD_FILE = True


REQUESTS: tuple[type[Request], ...] = (
    PredictRequest,
    PlanRequest,
    TraceRequest,
    GuideRequest,
    ConvergeRequest,
    ScalingRequest,
    LearnRequest,
    RentOrBuyRequest,
    OffersRequest,
    ExplainRequest,
    DevicesRequest,
    ModelsRequest,
    LinksRequest,
    MeasureRequest,
    ResourcesRequest,
    PairRequest,
    SimulateRequest,
    ScheduleRequest,
    RunRequest,
)
