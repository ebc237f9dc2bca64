"""Fields that the requests of several verbs share, in groups."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from foretrain.decoding import (
    BANDWIDTH,
    DURATION,
    FILE,
    SWITCH,
    TEXT,
    Kind,
    choice,
    number,
    option,
    texts,
    whole_number,
)
from foretrain.workloads.options import ATTENTIONS, FP8_SCALINGS, LOSSES, PRECISIONS, WEIGHTS
from foretrain.workloads.options import TRACES as TRACE_KINDS

COMMON = "Common options"
MODEL, STEP, MEMORY = "Model", "Training step", "Precision and memory"
MACHINES, PARALLELISM, INPUT, COST = "Machines", "Parallelism", "Input", "Cost model"
LENGTH, JOB, MONEY_AND_ENERGY, OWNING = "Length of the job", "Running the job", "Money and energy", "Owning"
LOG, PRIOR, FIT = "Training log", "Prior knowledge", "Fit"
HERE, TRACES, STORED, NODES = "This machine", "Profiler traces", "Stored runs", "Several nodes"
POLICY, DISTURBANCES, GENERATED = "Policy", "Disturbances", "Generated problems and traces"
PRICES, OUTPUT = "Price files", "Output"
PANELS = (
    COMMON, MODEL, STEP, MEMORY, MACHINES, PARALLELISM, INPUT, COST, LENGTH, JOB, MONEY_AND_ENERGY, OWNING,
    LOG, PRIOR, FIT, HERE, TRACES, STORED, NODES, POLICY, DISTURBANCES, GENERATED, PRICES, OUTPUT,
)  # fmt: skip
"""The headings of a help text, in this order."""

MODEL_FORMS = (
    "zoo name, hf:CONFIG, hf:ORG/NAME, timm:NAME, torchvision:NAME, FILE.py:callable, FILE.onnx, FILE.pt2 or "
    "FILE.yaml"
)
HARDWARE_FORMS = (
    "DEVICE, DEVICE:COUNT, DEVICE:PER_NODExNODES, PROVIDER:INSTANCE[:NODES] or a cluster FILE.yaml"
)
YAML_SUFFIXES = (".yaml", ".yml")
_FILE_SUFFIXES = (".py", ".onnx", ".pt2", *YAML_SUFFIXES)

MOST_SAMPLES, MOST_TOKENS, MOST_PIXELS = 10**8, 10**7, 10**5
"""Of a step, of a sample, and along an image: far beyond what was ever trained."""

STORAGES = ("nvme", "sata-ssd", "hdd", "network-disk")


def _model_beside(model: str, folder: Path) -> str:
    """A model that is a file, relative to the workload file that names it."""
    prefix, path = ("hf:", model[3:]) if model.startswith("hf:") else ("", model)
    if not prefix and not path.partition(":")[0].endswith(_FILE_SUFFIXES):
        return model
    if prefix and not path.endswith(".json") and not (folder / path).exists():
        return model  # a model of the hub
    return f"{prefix}{folder / path}"


def _hardware_beside(name: str, folder: Path) -> str:
    return str(folder / name) if name.endswith(YAML_SUFFIXES) else name


MODEL_NAME = Kind("MODEL", f"a model: {MODEL_FORMS}", TEXT.read, beside=_model_beside)
HARDWARE = Kind("HARDWARE", f"hardware: {HARDWARE_FORMS}", TEXT.read, beside=_hardware_beside)


def strategy_help() -> str:
    """How strategies are written, as their registry lists them."""
    from foretrain.prediction.strategies.catalogue import forms

    return f"Parallel strategy: {forms()}."


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

    batch: int | None = option(whole_number(1, MOST_SAMPLES), "Batch size per device.", panel=STEP)


@dataclass(frozen=True, kw_only=True)
class StepFields:
    """Sizes of a sample, and how a training step is run."""

    seq_len: int | None = option(whole_number(1, MOST_TOKENS), "Tokens per sample.", panel=STEP)
    image_size: int | None = option(
        whole_number(1, MOST_PIXELS), "Image height and width in pixels.", panel=STEP
    )
    precision: str | None = option(
        choice(*PRECISIONS),
        "Numeric precision: fp32, tf32, fp16 or bf16 (mixed precision) or fp8 (default: device default).",
        panel=MEMORY,
    )
    optimizer: str | None = option(
        TEXT,
        "Optimizer: sgd, momentum, adam, adamw (default), muon, lion, adafactor, adamw-8bit, paged-adamw ...",
        panel=STEP,
        complete="optimizer",
        metavar="NAME",
    )
    attention: str | None = option(
        choice(*ATTENTIONS),
        "Attention kernel: eager, sdpa, flash1, flash2 (flash), flash3 or cudnn (default: `framework` "
        "default, else the kernel PyTorch selects on the GPU).",
        panel=STEP,
    )
    software_year: int | None = option(
        whole_number(2016, 2100),
        "Release year of PyTorch and its libraries; selects the kernels behind `attention` sdpa and flash "
        "(default: latest).",
        panel=STEP,
        metavar="YEAR",
    )
    channels_last: bool = option(
        SWITCH, "Store images in NHWC (channels-last) memory format.", default=False, panel=STEP
    )
    compile: bool = option(SWITCH, "Compile the model with torch.compile.", default=False, panel=STEP)
    cuda_graphs: bool = option(
        SWITCH, "Capture the step as a CUDA graph and replay it.", default=False, panel=STEP
    )
    checkpoint_activations: bool = option(
        SWITCH, "Recompute activations during the backward pass.", default=False, panel=MEMORY
    )
    selective_checkpointing: bool = option(
        SWITCH,
        "Recompute activations except those of matrix products and attention.",
        default=False,
        panel=MEMORY,
    )
    gradient_release: bool = option(
        SWITCH,
        "Apply and free each gradient during the backward pass, as soon as it is complete.",
        default=False,
        panel=MEMORY,
    )
    offload: tuple[str, ...] = option(
        texts(),
        "State to offload to host memory: optimizer (the update then runs on the CPU), parameters, "
        "activations.",
        default=(),
        panel=MEMORY,
        metavar="NAME[,NAME]",
    )
    weights: str | None = option(
        choice(*WEIGHTS),
        "Precision of stored weights (default: fp32 for ddp; half for `lora`, `master_weights`, ZeRO, FSDP "
        "and model-parallel strategies).",
        panel=MEMORY,
    )
    master_weights: bool = option(
        SWITCH,
        "Keep FP32 copies of half-precision weights in the optimizer (Megatron).",
        default=False,
        panel=MEMORY,
    )
    gradients: str | None = option(
        choice(*WEIGHTS), "Precision of gradient accumulation (default: that of `weights`).", panel=MEMORY
    )
    autocast: bool | None = option(
        SWITCH, "Use autocast (default, unless all weights are converted).", panel=MEMORY
    )
    framework: str | None = option(
        TEXT,
        "Training framework: pytorch, megatron, nemo, deepspeed, megatron-deepspeed, nanotron, composer, "
        "hf-trainer, torchtitan or keras. Sets fused kernels, launch overhead and recomputation (default: "
        "megatron with tp, pp, cp or ep, else pytorch).",
        panel=STEP,
        metavar="NAME",
    )
    loss: str | None = option(
        choice(*LOSSES),
        "Cross-entropy loss: eager, or fused into one kernel (default: `framework` default).",
        panel=STEP,
    )
    fp8_scaling: str | None = option(
        choice(*FP8_SCALINGS),
        "FP8 scaling: delayed (from earlier steps), current (per tensor) or block (per 128 elements; "
        "MXFP8, per 32, on Blackwell) (default: `framework` default).",
        panel=MEMORY,
    )
    lora: str | None = option(
        TEXT,
        "Train LoRA adapters only, e.g. r=16, r=16,targets=all-linear, r=16,dora, r=16,half, "
        "r=16,quantised[,double].",
        panel=MEMORY,
        metavar="r=RANK[,...]",
    )


@dataclass(frozen=True, kw_only=True)
class TraceField:
    """How the step is recorded."""

    trace: str | None = option(
        choice(*TRACE_KINDS),
        "How to trace the model: meta (default), shapes only; real, run it on this CPU with the example "
        "inputs.",
        panel=MODEL,
    )


@dataclass(frozen=True, kw_only=True)
class PhaseFields:
    """Which parts of a training step are left out."""

    forward_only: bool = option(SWITCH, "Run the forward pass only.", default=False, panel=STEP)
    no_optimizer: bool = option(SWITCH, "Skip the optimizer step.", default=False, panel=STEP)


@dataclass(frozen=True, kw_only=True)
class BatchDivisionFields:
    """The batch of all devices, and the parts it is trained in."""

    global_batch: int | None = option(
        whole_number(1, MOST_SAMPLES), "Batch size across all devices; replaces `batch`.", panel=STEP
    )
    micro_batches: int | None = option(
        whole_number(1), "Micro-batches per step and replica (gradient accumulation or pipeline).", panel=STEP
    )


@dataclass(frozen=True, kw_only=True)
class NetworkFields:
    """How devices are connected, where facts do not know it or something else is assumed."""

    links: str | None = option(
        TEXT,
        "Links within a node, e.g. nvlink2:6 or pcie4-x16@TOPOLOGY (pcie-switch, two-bridges, host-memory, "
        "host-bridge).",
        panel=MACHINES,
        complete="link",
        metavar="LINK[@TOPOLOGY][:COUNT]",
    )
    topology: str | None = option(
        TEXT,
        "File with the output of `nvidia-smi topo -m`: how GPUs of a node are joined, in place of `links`.",
        panel=MACHINES,
        metavar="FILE",
    )
    network: str | None = option(
        TEXT,
        "Network between nodes, e.g. infiniband-ndr:8.",
        panel=MACHINES,
        complete="network",
        metavar="LINK[:CARDS]",
    )


@dataclass(frozen=True, kw_only=True)
class InputFields:
    """Where samples come from."""

    dataset: str | None = option(
        TEXT,
        "Include data loading from this data set: imagenet-jpeg, cifar10, mnist, tokens or synthetic.",
        panel=INPUT,
        metavar="NAME",
    )
    storage: str = option(
        TEXT, f"Storage of the data set: {', '.join(STORAGES)}.", default="nvme", panel=INPUT, metavar="NAME"
    )
    loader_workers: int = option(
        whole_number(0),
        "Number of data-loading processes; 0 loads in the training process.",
        default=4,
        panel=INPUT,
    )
    prefetch: bool = option(
        SWITCH,
        "Overlap data loading with training.",
        default=True,
        panel=INPUT,
        flags=("--prefetch/--no-overlap",),
    )


@dataclass(frozen=True, kw_only=True)
class LengthFields:
    """How long a job is."""

    samples: int | None = option(whole_number(1), "Samples per epoch.", panel=LENGTH)
    epochs: float | None = option(number(above=0), "Number of epochs; requires `samples`.", panel=LENGTH)
    steps: int | None = option(whole_number(1), "Number of training steps.", panel=LENGTH)
    target: str | None = option(
        TEXT,
        "Train until METRIC reaches VALUE, extrapolated from `log`.",
        panel=LENGTH,
        metavar="METRIC=VALUE",
    )
    log: Path | None = option(FILE, "Training log used to predict the steps to `target`.", panel=LENGTH)
    planned_steps: float | None = option(
        number(above=0), "Planned length of the run that wrote `log`, in the unit of the log.", panel=LENGTH
    )
    schedule: str | None = option(
        TEXT, "Learning-rate schedule of `log`: linear, cosine, step:0.5,0.75 ...", panel=LENGTH
    )
    history: Path | None = option(
        FILE, "Folder with logs of earlier runs of the same task and metric.", panel=LENGTH, metavar="FOLDER"
    )
    epochs_at: tuple[str, ...] = option(
        texts("BATCH=EPOCHS, once for each batch"),
        "Epochs to target at a given global batch size, for two or more of them; replaces `epochs`.",
        default=(),
        panel=LENGTH,
        metavar="BATCH=EPOCHS",
    )
    critical_batch: float | None = option(
        number(above=0),
        "Critical batch size: the global batch that needs twice the minimum number of epochs.",
        panel=LENGTH,
    )
    reference_batch: int | None = option(
        whole_number(1), "Global batch size for which `epochs`, `steps` or `log` are given.", panel=LENGTH
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
    eval_samples: int | None = option(whole_number(1), "Samples per evaluation.", panel=JOB)
    eval_every: int | None = option(
        whole_number(1), "Steps between evaluations (default: one epoch, or the whole job).", panel=JOB
    )
    spot: bool = option(
        SWITCH,
        "Use spot machines, with spot prices and interruptions.",
        default=False,
        panel=MONEY_AND_ENERGY,
    )
    interruptions_per_day: float | None = option(number(0), "Interruptions per machine and day.", panel=JOB)
