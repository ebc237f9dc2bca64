"""The request of each verb: groups of shared fields, and its own."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from foretrain.decoding import (
    DURATION,
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
from foretrain.serving.requests.groups import (
    COST,
    HARDWARE,
    HARDWARE_FORMS,
    HERE,
    LENGTH,
    LOG,
    MACHINES,
    MODEL_FORMS,
    MODEL_NAME,
    MONEY_AND_ENERGY,
    OUTPUT,
    OWNING,
    PARALLELISM,
    PRICES,
    PRIOR,
    STEP,
    STORED,
    BatchDivisionFields,
    BatchField,
    InputFields,
    JobFields,
    LengthFields,
    ModelField,
    NetworkFields,
    PhaseFields,
    Request,
    StepFields,
    TraceField,
    strategy_help,
)
from foretrain.serving.requests.measure import MeasureRequest
from foretrain.serving.requests.resources import PairRequest, ResourcesRequest
from foretrain.serving.requests.schedule import RunRequest, ScheduleRequest, SimulateRequest
from foretrain.workloads.options import PRECISIONS


@dataclass(frozen=True, kw_only=True)
class TraceRequest(Request, ModelField, BatchField, StepFields, PhaseFields, TraceField):
    """What a training step consists of."""

    VERB = "trace"
    COMMON = ("batch", "seq_len", "image_size", "precision", "optimizer", "layers", "json")
    TAKES_WORKLOAD_FILE = True

    layers: bool = option(SWITCH, "Also the table of all layers.", default=False, panel=OUTPUT)


@dataclass(frozen=True, kw_only=True)
class PredictRequest(
    Request,
    ModelField,
    BatchField,
    BatchDivisionFields,
    StepFields,
    PhaseFields,
    TraceField,
    NetworkFields,
    InputFields,
    LengthFields,
    JobFields,
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

    on: str = option(HARDWARE, f"{HARDWARE_FORMS}.", required=True, panel=MACHINES, complete="hardware")
    strategy: str = option(TEXT, strategy_help, default="ddp", panel=PARALLELISM)
    min_batch: int | None = option(
        whole_number(1), "Minimum batch of a device, on a heterogeneous cluster.", panel=STEP
    )
    jitter: float | None = option(
        number(0),
        "Coefficient of variation of step times across devices (default 0.05; 0 disables).",
        panel=PARALLELISM,
    )
    power_limit: float | None = option(
        number(0),
        "Power limit of each device in watts (default: its data sheet's); fewer watts slow products down.",
        panel=MACHINES,
        metavar="WATTS",
    )
    cost_model: str = option(
        TEXT,
        "foretrain, roofline, per-layer, end-to-end (with `timings`), a FILE of your own timings, or a "
        "model that learn saved (.json).",
        default="foretrain",
        panel=COST,
        metavar="NAME|FILE",
    )
    timings: Path | None = option(
        FILE, "Your own timings, to which `cost_model` end-to-end is fitted.", panel=COST
    )
    usd_per_hour: float | None = option(
        MONEY, "Price of all machines together (default: the offer's).", panel=MONEY_AND_ENERGY
    )
    region: str | None = option(
        TEXT,
        "Where it runs: a cloud's region, a country or a US state.",
        panel=MONEY_AND_ENERGY,
        complete="region",
    )
    advice: bool = option(
        SWITCH,
        "Whether to search for changes that make the step faster.",
        default=True,
        panel=OUTPUT,
        flags=("--advice/--no-advice",),
    )


@dataclass(frozen=True, kw_only=True)
class PlanRequest(
    Request,
    ModelField,
    BatchField,
    BatchDivisionFields,
    StepFields,
    NetworkFields,
    InputFields,
    LengthFields,
    JobFields,
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

    deadline: float | None = option(DURATION, "Latest end of the job: 12h, 2d.", panel=LENGTH)
    budget: float | None = option(MONEY, "Most it may cost: 200usd, $1,500.", panel=MONEY_AND_ENERGY)
    confidence: float = option(
        number(),
        "Probability with which `deadline` and `budget` are kept, e.g. 0.9.",
        default=0.5,
        panel=LENGTH,
    )
    gpu: tuple[str, ...] = option(
        texts(),
        "Only these GPUs or families, comma-separated.",
        default=(),
        panel=MACHINES,
        complete="device",
    )
    cloud: tuple[str, ...] = option(
        texts(), "Only these clouds, e.g. aws,gcp.", default=(), panel=MACHINES, complete="provider"
    )
    region: tuple[str, ...] = option(
        texts(by_comma=False),
        "Only these regions, comma-separated.",
        default=(),
        panel=MACHINES,
        complete="region",
    )
    max_gpus: int = option(whole_number(1), "Most GPUs of a plan.", default=64, panel=MACHINES)
    strategy: tuple[str, ...] = option(
        texts(),
        "auto (all that plan compares), or some of ddp,zero1,zero2,zero3.",
        default=("auto",),
        panel=PARALLELISM,
    )
    layouts: bool = option(
        SWITCH,
        "Also search tensor, pipeline and other layouts on the front (seconds each).",
        default=False,
        panel=PARALLELISM,
    )
    max_global_batch: int | None = option(whole_number(1), "Largest global batch to consider.", panel=STEP)
    jobs_per_year: float | None = option(
        number(above=0), "How often the job runs: is buying machines worth it?", panel=OWNING
    )
    buy_price: float | None = option(
        MONEY, "Purchase price of the chosen machines, all together.", panel=OWNING
    )
    usd_per_kwh: float | None = option(MONEY, "Price of electricity of own machines.", panel=OWNING)


@dataclass(frozen=True, kw_only=True)
class GuideRequest(Request, StepFields):
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
        "Hardware, repeated or comma-separated: DEVICE[:COUNT], PROVIDER:INSTANCE, FILE.yaml.",
        default=(),
        panel=MACHINES,
        metavar="HARDWARE",
        complete="hardware",
    )
    counts: tuple[int, ...] = option(
        whole_numbers(),
        "Numbers of each GPU that `on` names alone, e.g. 1,2,4,8.",
        default=(),
        panel=MACHINES,
    )
    batch: tuple[int, ...] = option(
        whole_numbers(),
        "Global batches: 32,64,96 or 32..8192 by doubling (default).",
        default=(),
        panel=STEP,
    )
    samples: int | None = option(whole_number(1), "Samples of an epoch, for its time and cost.", panel=LENGTH)
    strategy: str = option(
        TEXT, "ddp, dp, zero1, zero2, zero3, fsdp or hsdp.", default="ddp", panel=PARALLELISM
    )
    cloud: tuple[str, ...] = option(
        texts(), "Clouds whose prices count, e.g. aws,gcp.", default=(), panel=MACHINES, complete="provider"
    )


@dataclass(frozen=True, kw_only=True)
class ConvergeRequest(Request):
    """When a training log reaches its target."""

    VERB = "converge"

    log: Path = option(
        FILE,
        "CSV, JSONL, TensorBoard events, trainer_state.json or Keras' CSVLogger.",
        required=True,
        positional=True,
        metavar="LOG",
    )
    target: str = option(
        TEXT, "METRIC=VALUE, e.g. loss=0.3 or accuracy=0.94.", required=True, metavar="METRIC=VALUE"
    )
    planned_steps: float | None = option(
        number(above=0), "Length of the run, in the log's own unit.", panel=LOG
    )
    schedule: str | None = option(
        TEXT, "Learning-rate schedule: linear, linear:0.4, cosine, step:0.5,0.75, constant.", panel=LOG
    )
    history: Path | None = option(
        FILE, "Folder of earlier logs of the same task and metric.", metavar="FOLDER", panel=LOG
    )
    direction: str | None = option(
        choice("up", "down"), "Which way the metric gets better, if unclear.", panel=LOG
    )


@dataclass(frozen=True, kw_only=True)
class ScalingRequest(Request):
    """From a few timed configurations of a job to all the others."""

    VERB = "scaling"

    timings: Path = option(
        FILE,
        "CSV of placement (4+4: GPUs on each node) or nodes,devices; batch; step_seconds.",
        required=True,
        positional=True,
        metavar="TIMINGS",
    )
    at: Path | None = option(FILE, "CSV of the configurations to predict: the same without the time.")
    form: str = option(
        TEXT,
        "physical, ring, pollux, optimus or seed; all compares them.",
        default="physical",
        metavar="NAME",
    )
    cluster: str = option(
        TEXT,
        "A cluster known by other jobs' timings, e.g. aws-4xt4.",
        default="",
        metavar="NAME",
        panel=PRIOR,
    )
    workload: str | None = option(
        MODEL_NAME,
        "Model trained: its prediction is used as a prior, with `on`.",
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
        "Network between nodes, where `on` does not name one.",
        metavar="LINK[:CARDS]",
        panel=PRIOR,
        complete="network",
    )


@dataclass(frozen=True, kw_only=True)
class RentOrBuyRequest(Request):
    """After how many hours of use owning a machine wins."""

    VERB = "rent-or-buy"
    COMMON = ("price", "rent", "offer", "relative_performance", "hours_per_year", "utilisation", "json")

    price: float = option(MONEY, "Purchase price of the machine, e.g. 8000.", required=True, panel=OWNING)
    rent: float | None = option(MONEY, "Rent of an hour, e.g. 1.50.", panel=OWNING)
    offer: str | None = option(
        TEXT,
        "Rent this cloud offer, e.g. lambda:gpu_8x_h100_sxm5.",
        panel=OWNING,
        complete="instance",
        metavar="CLOUD:INSTANCE",
    )
    relative_performance: float = option(
        number(above=0),
        "Work of a rented hour against an owned one; 0.7 = 30 % less.",
        default=1.0,
        panel=OWNING,
    )
    hours_per_year: float | None = option(
        number(above=0), "Use of the owned machine; 2,000 is full time.", panel=OWNING
    )
    utilisation: float | None = option(
        number(), "The same as a share of all 8,760 hours, e.g. 0.5.", panel=OWNING
    )
    watts: float | None = option(number(0), "Power draw of the owned machine in use.", panel=MONEY_AND_ENERGY)
    device: str | None = option(
        TEXT,
        "Take the power from the TDP of DEVICE:COUNT.",
        panel=MONEY_AND_ENERGY,
        metavar="DEVICE[:COUNT]",
        complete="device",
    )
    usd_per_kwh: float = option(MONEY, "Price of electricity.", default=0.0, panel=MONEY_AND_ENERGY)
    pue: float = option(
        number(), "Total over IT power of the room; 1 = no cooling.", default=1.0, panel=MONEY_AND_ENERGY
    )
    hosting: float = option(MONEY, "Rack, network, repairs: USD a year.", default=0.0, panel=MONEY_AND_ENERGY)
    resale: float = option(MONEY, "Resale value of the machine.", default=0.0, panel=OWNING)
    resale_after: float = option(DURATION, "When it is sold, e.g. 3y.", default=0.0, panel=OWNING)
    discount_rate: float = option(number(), "Yearly cost of capital, e.g. 0.08.", default=0.0, panel=OWNING)


@dataclass(frozen=True, kw_only=True)
class LearnRequest(Request):
    """Regression on a user's own timings."""

    VERB = "learn"
    COMMON = ("target", "features", "split", "technique", "save", "plot", "json")

    table: Path | None = option(
        FILE, "CSV file with a header, one row for each timing.", positional=True, metavar="TABLE"
    )
    runs: str | None = option(
        TEXT,
        "Learn from stored runs instead: all, or conditions such as model=resnet18,device=here,since=7d.",
        metavar="QUERY",
        panel=STORED,
    )
    store: str | None = option(
        TEXT, "With `runs`: the store, as for foretrain runs.", metavar="FILE|URL", panel=STORED
    )
    target: str | None = option(
        TEXT, "The column to predict, above 0 in every row (with `runs`: step_seconds).", metavar="COLUMN"
    )
    features: tuple[str, ...] = option(
        texts("columns"), "The columns to learn from, comma-separated (default: all).", default=()
    )
    technique: tuple[str, ...] = option(
        texts("techniques"),
        "Only these: linear, ridge, nnls, ernest, svr, forest, boosting, gray-box (default: all).",
        default=(),
    )
    split: tuple[str, ...] = option(
        texts("splits"),
        "What is left out to judge by: random, batch-size, gpu-count, compute-power, inner-modules, "
        "column=NAME, or all that the table allows. The first one chooses.",
        default=("random",),
    )
    model: str | None = option(
        MODEL_NAME,
        "The model of all rows, for the gray box, if the table has no column of it.",
        complete="model",
        panel=COST,
    )
    gray_box: bool = option(
        SWITCH,
        "Whether foretrain predicts the rows first, for the gray box.",
        default=True,
        flags=("--gray-box/--no-gray-box",),
        panel=COST,
    )
    drop_missing: bool = option(SWITCH, "Leave out rows with missing values.", default=False)


@dataclass(frozen=True, kw_only=True)
class OffersRequest(Request):
    """What machines cost to rent."""

    VERB = "offers"

    gpu: str | None = option(
        TEXT, "A device, alias or family, e.g. h100.", metavar="NAME", complete="device", panel=MACHINES
    )
    count: int | None = option(whole_number(1), "Devices in the machine.", panel=MACHINES)
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
    spot: bool = option(SWITCH, "Compare spot prices.", default=False, panel=MONEY_AND_ENERGY)
    historical: bool = option(SWITCH, "Also offers of the past.", default=False, panel=MACHINES)
    max_price: float | None = option(MONEY, "Highest price of an hour.", panel=MONEY_AND_ENERGY)
    sort: str = option(
        TEXT, "price, price-per-gpu, cloud or gpu.", default="price", metavar="ORDER", panel=OUTPUT
    )
    limit: int | None = option(whole_number(1), "Most rows to list.", panel=OUTPUT)
    all_regions: bool = option(
        SWITCH, "Every region, not only the cheapest of each machine.", default=False, panel=OUTPUT
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
        "A device, family, link, node, provider, data set, storage, source, or offer.",
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
        "A device (id or alias) or family; all by default.",
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

    search: str | None = option(TEXT, "Only models whose name, family or task contains this.", metavar="TEXT")


@dataclass(frozen=True, kw_only=True)
class LinksRequest(Request):
    """Which links and networks are known."""

    VERB = "links"

    kind: str | None = option(
        TEXT, "Only this technology: pcie, nvlink, nvswitch, infiniband, ethernet ...", metavar="NAME"
    )


@dataclass(frozen=True, kw_only=True)
class GuideModel(Request, ModelField, StepFields):
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
