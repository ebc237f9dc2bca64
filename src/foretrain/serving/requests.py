"""The requests of all verbs as plain data: names, numbers and paths, each option declared once.

Fields that several verbs share are grouped in classes of their own; a request is a combination of groups.
`foretrain.decoding` reads them; `foretrain.serving.verbs` asks the core what they describe.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from foretrain.decoding import (
    BANDWIDTH,
    DURATION,
    FILE,
    MONEY,
    SWITCH,
    TEXT,
    Kind,
    build,
    choice,
    number,
    option,
    options,
    read_mapping,
    texts,
    values,
    whole_number,
    whole_numbers,
)
from foretrain.errors import InvalidData
from foretrain.workloads.options import ATTENTIONS, PRECISIONS

COMMON = "Common options"
MODEL, PARALLELISM, INPUT, COST = "Model and step", "Parallelism", "Input", "Cost model"
JOB, MONEY_AND_ENERGY, MACHINES, OWNING = "Job", "Money and energy", "Machines", "Owning"
OUTPUT = "Output"
PANELS = (COMMON, MODEL, PARALLELISM, INPUT, COST, JOB, MONEY_AND_ENERGY, MACHINES, OWNING, OUTPUT)
"""The headings of a help text, in this order."""

MODEL_FORMS = (
    "zoo name, hf:CONFIG, timm:NAME, torchvision:NAME, FILE.py:callable, FILE.onnx, FILE.pt2 or FILE.yaml"
)
HARDWARE_FORMS = (
    "DEVICE, DEVICE:COUNT, DEVICE:PER_NODExNODES, PROVIDER:INSTANCE[:NODES] or a cluster FILE.yaml"
)
YAML_SUFFIXES = (".yaml", ".yml")
_FILE_SUFFIXES = (".py", ".onnx", ".pt2", *YAML_SUFFIXES)

STORAGES = ("nvme", "sata-ssd", "hdd", "network-disk")


def _model_beside(model: str, folder: Path) -> str:
    """A model that is a file, relative to the workload file that names it."""
    prefix, path = ("hf:", model[3:]) if model.startswith("hf:") else ("", model)
    if not prefix and not path.partition(":")[0].endswith(_FILE_SUFFIXES):
        return model
    return f"{prefix}{folder / path}"


def _hardware_beside(name: str, folder: Path) -> str:
    return str(folder / name) if name.endswith(YAML_SUFFIXES) else name


MODEL_NAME = Kind("MODEL", f"a model: {MODEL_FORMS}", TEXT.read, beside=_model_beside)
HARDWARE = Kind("HARDWARE", f"hardware: {HARDWARE_FORMS}", TEXT.read, beside=_hardware_beside)


def strategy_help() -> str:
    """The strategies by name."""
    return "ddp, dp, fsdp, hsdp, zero1-3, ps-sync, ps-async, ps-ksync=K ..., tp=T,pp=P,dp=D[,...] or auto."


# ---------------------------------------------------------------- groups of fields that verbs share


@dataclass(frozen=True, kw_only=True)
class Request:
    """Base of all requests. `VERB` is the command, `COMMON` lists the options its help shows first."""

    VERB: ClassVar[str]
    COMMON: ClassVar[tuple[str, ...]] = ()
    TAKES_WORKLOAD_FILE: ClassVar[bool] = False


@dataclass(frozen=True, kw_only=True)
class ModelField:
    """The model to train."""

    model: str = option(
        MODEL_NAME, f"Model to train: {MODEL_FORMS}.", required=True, positional=True, complete="model"
    )


@dataclass(frozen=True, kw_only=True)
class BatchField:
    """The batch of each device."""

    batch: int | None = option(whole_number(1), "Samples per device and step.", panel=MODEL)


@dataclass(frozen=True, kw_only=True)
class StepFields:
    """Sizes of a sample, and how a training step is run."""

    seq_len: int | None = option(whole_number(1), "Tokens per sample.", panel=MODEL)
    image_size: int | None = option(whole_number(1), "Pixels along each side.", panel=MODEL)
    precision: str | None = option(
        choice(*PRECISIONS), "fp32 (default), tf32, fp16 or bf16 (mixed precision), fp8.", panel=MODEL
    )
    optimizer: str | None = option(
        TEXT, "sgd, momentum, adam, adamw (default), adafactor ...", panel=MODEL, metavar="NAME"
    )
    attention: str | None = option(choice(*ATTENTIONS), "Attention kernel (default: sdpa).", panel=MODEL)
    channels_last: bool = option(SWITCH, "Images in NHWC layout.", default=False, panel=MODEL)
    compile: bool = option(SWITCH, "Run the step as torch.compile does.", default=False, panel=MODEL)
    cuda_graphs: bool = option(
        SWITCH, "Replay the step as one captured CUDA graph.", default=False, panel=MODEL
    )
    checkpoint_activations: bool = option(
        SWITCH, "Recompute activations in the backward pass.", default=False, panel=MODEL
    )
    half_weights: bool = option(
        SWITCH, "Weights in fp16/bf16, FP32 copies in the optimizer (Megatron).", default=False, panel=MODEL
    )
    full_gradients: bool = option(
        SWITCH, "With `half_weights`: accumulate gradients in FP32.", default=False, panel=MODEL
    )
    lora: str | None = option(
        TEXT, "Train LoRA adapters only, e.g. r=16 or r=16,quantised.", panel=MODEL, metavar="r=RANK[,...]"
    )


@dataclass(frozen=True, kw_only=True)
class PhaseFields:
    """Which parts of a training step are left out."""

    forward_only: bool = option(SWITCH, "No backward pass, no optimizer.", default=False, panel=MODEL)
    no_optimizer: bool = option(SWITCH, "No optimizer step.", default=False, panel=MODEL)


@dataclass(frozen=True, kw_only=True)
class BatchDivisionFields:
    """The batch of all devices, and the parts it is trained in."""

    global_batch: int | None = option(
        whole_number(1), "Samples of a step on all devices, in place of `batch`.", panel=PARALLELISM
    )
    micro_batches: int | None = option(
        whole_number(1), "Equal parts in which each replica trains its batch.", panel=PARALLELISM
    )


@dataclass(frozen=True, kw_only=True)
class NetworkFields:
    """How devices are connected, where facts do not know it or something else is assumed."""

    links: str | None = option(
        TEXT, "Links inside a node, e.g. pcie3-x16 or nvlink2:6.", panel=PARALLELISM, metavar="LINK[:COUNT]"
    )
    network: str | None = option(
        TEXT, "Network between nodes, e.g. infiniband-ndr:8.", panel=PARALLELISM, metavar="LINK[:CARDS]"
    )


@dataclass(frozen=True, kw_only=True)
class InputFields:
    """Where samples come from."""

    dataset: str | None = option(
        TEXT, "Also read and decode imagenet-jpeg, cifar10, mnist, tokens or synthetic.", panel=INPUT,
        metavar="NAME",
    )  # fmt: skip
    storage: str = option(
        TEXT, f"Storage of the data set: {', '.join(STORAGES)}.", default="nvme", panel=INPUT, metavar="NAME"
    )
    loader_workers: int = option(
        whole_number(0), "Processes that load samples; 0 loads in the training process.", default=4,
        panel=INPUT,
    )  # fmt: skip
    prefetch: bool = option(
        SWITCH, "Whether loading overlaps training.", default=True, panel=INPUT,
        flags=("--prefetch/--no-overlap",),
    )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class LengthFields:
    """How long a job is."""

    samples: int | None = option(whole_number(1), "Samples of an epoch.", panel=JOB)
    epochs: float | None = option(number(above=0), "Epochs of the whole job, with `samples`.", panel=JOB)
    steps: int | None = option(whole_number(1), "Steps of the whole job.", panel=JOB)
    target: str | None = option(
        TEXT, "METRIC=VALUE at which the job ends, extrapolated from `log`.", panel=JOB, metavar="METRIC=VALUE"
    )
    log: Path | None = option(FILE, "Training log from which the steps to `target` are predicted.", panel=JOB)
    planned_steps: float | None = option(
        number(above=0), "Length of the run that wrote `log`, in its own unit.", panel=JOB
    )
    schedule: str | None = option(
        TEXT, "Learning-rate schedule of `log`: linear, cosine, step:0.5,0.75 ...", panel=JOB
    )
    history: Path | None = option(
        FILE, "Folder of earlier logs of the same task and metric.", panel=JOB, metavar="FOLDER"
    )
    epochs_at: tuple[str, ...] = option(
        texts("BATCH=EPOCHS, once for each batch"), "Epochs to target at a global batch, for two or more; in "
        "place of `epochs`.", default=(), panel=JOB, metavar="BATCH=EPOCHS",
    )  # fmt: skip
    critical_batch: float | None = option(
        number(above=0), "Global batch that needs twice the minimum of epochs.", panel=JOB
    )
    reference_batch: int | None = option(
        whole_number(1), "Global batch at which `epochs`, `steps` or `log` hold.", panel=JOB
    )


@dataclass(frozen=True, kw_only=True)
class JobFields:
    """How a job is run: start-up, checkpoints, evaluations, interruptions."""

    startup: float | None = option(DURATION, "Time from requesting machines to the first step.", panel=JOB)
    checkpoint_every: float | None = option(
        DURATION, "Training time between checkpoints (default: the best interval).", panel=JOB
    )
    checkpoint_rate: float | None = option(
        BANDWIDTH, "Write bandwidth of checkpoints, e.g. 1GB/s.", panel=JOB
    )
    eval_samples: int | None = option(whole_number(1), "Samples of each evaluation.", panel=JOB)
    eval_every: int | None = option(
        whole_number(1), "Steps between evaluations (default: an epoch, or the whole job).", panel=JOB
    )
    spot: bool = option(
        SWITCH, "Spot machines: their price and their interruptions.", default=False, panel=MONEY_AND_ENERGY
    )
    interruptions_per_day: float | None = option(
        number(0), "Interruptions of each machine per day, spot or not.", panel=JOB
    )


# ---------------------------------------------------------------- requests


@dataclass(frozen=True, kw_only=True)
class TraceRequest(Request, ModelField, BatchField, StepFields, PhaseFields):
    """What a training step consists of."""

    VERB = "trace"
    COMMON = ("batch", "seq_len", "image_size", "precision", "optimizer", "layers", "json")
    TAKES_WORKLOAD_FILE = True

    layers: bool = option(SWITCH, "Also the table of all layers.", default=False, panel=OUTPUT)


@dataclass(frozen=True, kw_only=True)
class PredictRequest(
    Request, ModelField, BatchField, BatchDivisionFields, StepFields, PhaseFields, NetworkFields, InputFields,
    LengthFields, JobFields,
):  # fmt: skip
    """What a training step, and the whole job, take on given hardware."""

    VERB = "predict"
    COMMON = (
        "on", "batch", "global_batch", "precision", "strategy", "optimizer", "seq_len", "samples", "epochs",
        "steps", "cost_model", "check", "json",
    )  # fmt: skip
    TAKES_WORKLOAD_FILE = True

    on: str = option(HARDWARE, f"{HARDWARE_FORMS}.", required=True, panel=PARALLELISM, complete="device")
    strategy: str = option(TEXT, strategy_help, default="ddp", panel=PARALLELISM)
    min_batch: int | None = option(
        whole_number(1), "Minimum batch of a device, on a heterogeneous cluster.", panel=PARALLELISM
    )
    jitter: float | None = option(
        number(0), "Coefficient of variation of step times across devices (default 0.05; 0 disables).",
        panel=PARALLELISM,
    )  # fmt: skip
    cost_model: str = option(
        TEXT, "foretrain, roofline, per-layer, end-to-end (with `timings`), or a FILE of your own timings.",
        default="foretrain", panel=COST, metavar="NAME|FILE",
    )  # fmt: skip
    timings: Path | None = option(FILE, "Your own timings, to which `cost_model` end-to-end is fitted.", panel=COST)
    usd_per_hour: float | None = option(
        MONEY, "Price of all machines together (default: the offer's).", panel=MONEY_AND_ENERGY
    )
    region: str | None = option(
        TEXT, "Where it runs: a cloud's region, a country or a US state.", panel=MONEY_AND_ENERGY
    )
    advice: bool = option(
        SWITCH, "Whether to search for changes that make the step faster.", default=True, panel=OUTPUT,
        flags=("--advice/--no-advice",),
    )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class PlanRequest(
    Request, ModelField, BatchField, BatchDivisionFields, StepFields, NetworkFields, InputFields, LengthFields,
    JobFields,
):  # fmt: skip
    """Which machines to rent for a job."""

    VERB = "plan"
    COMMON = (
        "deadline", "budget", "samples", "epochs", "steps", "global_batch", "precision", "gpu", "cloud", "spot",
        "max_gpus", "check", "json",
    )  # fmt: skip
    TAKES_WORKLOAD_FILE = True

    deadline: float | None = option(DURATION, "Latest end of the job: 12h, 2d.", panel=JOB)
    budget: float | None = option(MONEY, "Most it may cost: 200usd, $1,500.", panel=MONEY_AND_ENERGY)
    confidence: float = option(
        number(), "Probability with which `deadline` and `budget` are kept, e.g. 0.9.", default=0.5, panel=JOB
    )
    gpu: tuple[str, ...] = option(
        texts(), "Only these GPUs or families, comma-separated.", default=(), panel=MACHINES, complete="device"
    )
    cloud: tuple[str, ...] = option(
        texts(), "Only these clouds, e.g. aws,gcp.", default=(), panel=MACHINES, complete="provider"
    )
    region: tuple[str, ...] = option(
        texts(by_comma=False), "Only these regions, comma-separated.", default=(), panel=MACHINES
    )
    max_gpus: int = option(whole_number(1), "Most GPUs of a plan.", default=64, panel=MACHINES)
    strategy: tuple[str, ...] = option(
        texts(), "auto (all that plan compares), or some of ddp,zero1,zero2,zero3.", default=("auto",),
        panel=PARALLELISM,
    )  # fmt: skip
    layouts: bool = option(
        SWITCH, "Also search tensor, pipeline and other layouts on the front (seconds each).", default=False,
        panel=PARALLELISM,
    )  # fmt: skip
    max_global_batch: int | None = option(whole_number(1), "Largest global batch to consider.", panel=PARALLELISM)
    jobs_per_year: float | None = option(
        number(above=0), "How often the job runs: is buying machines worth it?", panel=OWNING
    )
    buy_price: float | None = option(MONEY, "Purchase price of the chosen machines, all together.", panel=OWNING)
    usd_per_kwh: float | None = option(MONEY, "Price of electricity of own machines.", panel=OWNING)


@dataclass(frozen=True, kw_only=True)
class GuideRequest(Request, StepFields):
    """Networks by hardware by batch size."""

    VERB = "guide"
    COMMON = ("on", "counts", "batch", "samples", "precision", "strategy", "cloud", "show", "html", "json")

    models: tuple[str, ...] = option(
        texts("models", by_comma=False), f"Models to train: {MODEL_FORMS}.", required=True, positional=True,
        metavar="MODEL", complete="model",
    )  # fmt: skip
    on: tuple[str, ...] = option(
        texts(), "Hardware, repeated or comma-separated: DEVICE[:COUNT], PROVIDER:INSTANCE, FILE.yaml.",
        default=(), panel=MACHINES, metavar="HARDWARE", complete="device",
    )  # fmt: skip
    counts: tuple[int, ...] = option(
        whole_numbers(), "Numbers of each GPU that `on` names alone, e.g. 1,2,4,8.", default=(), panel=MACHINES
    )
    batch: tuple[int, ...] = option(
        whole_numbers(), "Global batches: 32,64,96 or 32..8192 by doubling (default).", default=(), panel=MODEL
    )
    samples: int | None = option(whole_number(1), "Samples of an epoch, for its time and cost.", panel=JOB)
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
        FILE, "CSV, JSONL, TensorBoard events, trainer_state.json or Keras' CSVLogger.", required=True,
        positional=True, metavar="LOG",
    )  # fmt: skip
    target: str = option(
        TEXT, "METRIC=VALUE, e.g. loss=0.3 or accuracy=0.94.", required=True, metavar="METRIC=VALUE"
    )
    planned_steps: float | None = option(number(above=0), "Length of the run, in the log's own unit.")
    schedule: str | None = option(
        TEXT, "Learning-rate schedule: linear, linear:0.4, cosine, step:0.5,0.75, constant."
    )
    history: Path | None = option(
        FILE, "Folder of earlier logs of the same task and metric.", metavar="FOLDER"
    )
    direction: str | None = option(choice("up", "down"), "Which way the metric gets better, if unclear.")


@dataclass(frozen=True, kw_only=True)
class ScalingRequest(Request):
    """From a few timed configurations of a job to all the others."""

    VERB = "scaling"

    timings: Path = option(
        FILE, "CSV of placement (4+4: GPUs on each node) or nodes,devices; batch; step_seconds.", required=True,
        positional=True, metavar="TIMINGS",
    )  # fmt: skip
    at: Path | None = option(FILE, "CSV of the configurations to predict: the same without the time.")
    form: str = option(
        TEXT, "physical, ring, pollux, optimus or seed; all compares them.", default="physical", metavar="NAME"
    )
    cluster: str = option(
        TEXT, "A cluster known by other jobs' timings, e.g. aws-4xt4.", default="", metavar="NAME"
    )
    workload: str | None = option(
        MODEL_NAME, "Model trained: its prediction is used as a prior, with `on`.", metavar="MODEL",
        complete="model",
    )  # fmt: skip
    on: str | None = option(
        HARDWARE, "Hardware with full nodes, e.g. v100-sxm2-16gb:8, with `workload`.", complete="device"
    )
    precision: str = option(choice(*PRECISIONS), "Precision of `workload`.", default="fp32")
    network: str | None = option(
        TEXT, "Network between nodes, where `on` does not name one.", metavar="LINK[:CARDS]"
    )


@dataclass(frozen=True, kw_only=True)
class RentOrBuyRequest(Request):
    """After how many hours of use owning a machine wins."""

    VERB = "rent-or-buy"
    COMMON = ("price", "rent", "offer", "relative_performance", "hours_per_year", "utilisation", "json")

    price: float = option(MONEY, "Purchase price of the machine, e.g. 8000.", required=True, panel=OWNING)
    rent: float | None = option(MONEY, "Rent of an hour, e.g. 1.50.", panel=OWNING)
    offer: str | None = option(
        TEXT, "Rent this cloud offer, e.g. lambda:gpu_8x_h100_sxm5.", panel=OWNING, metavar="CLOUD:INSTANCE"
    )
    relative_performance: float = option(
        number(above=0), "Work of a rented hour against an owned one; 0.7 = 30 % less.", default=1.0, panel=OWNING
    )
    hours_per_year: float | None = option(
        number(above=0), "Use of the owned machine; 2,000 is full time.", panel=OWNING
    )
    utilisation: float | None = option(
        number(), "The same as a share of all 8,760 hours, e.g. 0.5.", panel=OWNING
    )
    watts: float | None = option(number(0), "Power draw of the owned machine in use.", panel=MONEY_AND_ENERGY)
    device: str | None = option(
        TEXT, "Take the power from the TDP of DEVICE:COUNT.", panel=MONEY_AND_ENERGY, metavar="DEVICE[:COUNT]",
        complete="device",
    )  # fmt: skip
    usd_per_kwh: float = option(MONEY, "Price of electricity.", default=0.0, panel=MONEY_AND_ENERGY)
    pue: float = option(
        number(), "Total over IT power of the room; 1 = no cooling.", default=1.0, panel=MONEY_AND_ENERGY
    )
    hosting: float = option(MONEY, "Rack, network, repairs: USD a year.", default=0.0, panel=MONEY_AND_ENERGY)
    resale: float = option(MONEY, "Resale value of the machine.", default=0.0, panel=OWNING)
    resale_after: float = option(DURATION, "When it is sold, e.g. 3y.", default=0.0, panel=OWNING)
    discount_rate: float = option(number(), "Yearly cost of capital, e.g. 0.08.", default=0.0, panel=OWNING)


@dataclass(frozen=True, kw_only=True)
class OffersRequest(Request):
    """What machines cost to rent."""

    VERB = "offers"

    gpu: str | None = option(TEXT, "A device, alias or family, e.g. h100.", metavar="NAME", complete="device")
    count: int | None = option(whole_number(1), "Devices in the machine.")
    cloud: tuple[str, ...] = option(
        texts(), "Only these providers, e.g. aws,gcp.", default=(), complete="provider"
    )
    region: tuple[str, ...] = option(
        texts(by_comma=False), "Only these regions, comma-separated.", default=()
    )
    spot: bool = option(SWITCH, "Compare spot prices.", default=False)
    historical: bool = option(SWITCH, "Also offers of the past.", default=False)
    max_price: float | None = option(MONEY, "Highest price of an hour.")
    sort: str = option(TEXT, "price, price-per-gpu, cloud or gpu.", default="price", metavar="ORDER")
    limit: int | None = option(whole_number(1), "Most rows to list.")
    all_regions: bool = option(
        SWITCH, "Every region, not only the cheapest of each machine.", default=False
    )


@dataclass(frozen=True, kw_only=True)
class ExplainRequest(Request):
    """Every fact about a name."""

    VERB = "explain"

    name: str = option(
        TEXT, "A device, family, link, node, provider, data set, storage, source, or offer.", required=True,
        positional=True, metavar="NAME",
    )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class DevicesRequest(Request):
    """What hardware is known."""

    VERB = "devices"

    name: str | None = option(
        TEXT, "A device (id or alias) or family; all by default.", positional=True, metavar="NAME",
        complete="device",
    )  # fmt: skip
    vendor: str | None = option(TEXT, "Only this vendor: nvidia, amd, intel ...", metavar="NAME")
    generation: str | None = option(TEXT, "Only this generation, e.g. ampere.", metavar="NAME")


# ---------------------------------------------------------------- from options and workload files


@dataclass(frozen=True, kw_only=True)
class GuideModel(Request, ModelField, StepFields):
    """One model of a guide, which may be a workload file."""

    VERB = "guide"
    TAKES_WORKLOAD_FILE = True


REQUESTS: tuple[type[Request], ...] = (
    PredictRequest, PlanRequest, TraceRequest, GuideRequest, ConvergeRequest, ScalingRequest, RentOrBuyRequest,
    OffersRequest, ExplainRequest, DevicesRequest,
)  # fmt: skip

_LOG_FIELDS = ("target", "log", "planned_steps", "schedule", "history")
_ALTERNATIVES: tuple[tuple[tuple[str, ...], ...], ...] = (
    (("batch",), ("global_batch",)),
    (("steps",), ("epochs",), _LOG_FIELDS),
    (("epochs",), ("epochs_at",)),
)
"""Options that take each other's place: one that is given replaces the others of a workload file."""

R = TypeVar("R", bound=Request)


def request_from(cls: type[R], given: Mapping[str, Any]) -> R:
    """The request of the options given; where the model is a workload file, its keys are the defaults."""
    chosen = values(cls, given, refuse=lambda key: unread(cls, key))
    model = chosen.get("model", "")
    if cls.TAKES_WORKLOAD_FILE and model.endswith(YAML_SUFFIXES):
        in_file = workload_file_values(cls, Path(model).expanduser())
        chosen = {**_not_replaced(in_file, chosen), **chosen, "model": in_file["model"]}
    return build(cls, chosen)


def workload_file_values(cls: type[Request], file: Path) -> dict[str, Any]:
    """The checked values of a workload file; files it names are looked for beside it."""
    content = read_mapping(file, "workload file", "model: resnet50")
    checked = values(cls, content, file, lambda key: unread(cls, key))
    if "model" not in checked:
        raise InvalidData(str(file), "names no model; add a line such as `model: resnet50`")
    if checked["model"].endswith(YAML_SUFFIXES):
        raise InvalidData(str(file), f"names another workload file ({content['model']}); it must name a model")
    return checked


def unread(cls: type[Request], key: str) -> str:
    """Why a key of another verb is refused; nothing if no verb has it."""
    verbs = [each.VERB for each in REQUESTS if any(option.name == key for option in options(each))]
    return f"{cls.VERB} does not read `{key}`, an option of {' and '.join(verbs)}" if verbs else ""


def _not_replaced(in_file: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    replaced = {
        name
        for family in _ALTERNATIVES
        for place, names in enumerate(family)
        if any(name in given for name in names)
        for other, names_of_other in enumerate(family)
        if other != place
        for name in names_of_other
    }
    return {name: value for name, value in in_file.items() if name not in replaced}
