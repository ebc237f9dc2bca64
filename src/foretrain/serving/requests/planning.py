"""The requests of plan, size, guide, scaling and rent-or-buy."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from foretrain.decoding import (
    FILE,
    SWITCH,
    TEXT,
    choice,
    option,
    texts,
    whole_number,
    whole_numbers,
)
from foretrain.jobs.options import BatchLimits, LengthOptions, RunningOptions
from foretrain.panels import (
    LENGTH,
    MACHINES,
    PARALLELISM,
    PRIOR,
    STEP,
)
from foretrain.planning.options import (
    Limits,
    MachineOptions,
    OwningOptions,
    RentOrBuyOptions,
    SizeOptions,
)
from foretrain.prediction.options import (
    HARDWARE,
    InputOptions,
    TopologyOption,
)
from foretrain.serving.requests import Request
from foretrain.workloads.options import (
    MODEL_FORMS,
    MODEL_NAME,
    PRECISIONS,
    ConfigOption,
    ModelOption,
    SequenceOption,
    StepOptions,
    TrainingOptions,
)


@dataclass(frozen=True, kw_only=True)
class PlanRequest(
    Request,
    ConfigOption,
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

    COMMON = "deadline budget samples epochs steps global_batch precision gpu cloud spot max_gpus check json"
    TAKES_WORKLOAD_FILE = True
    DETAILS = (
        "Compares all offers, single-node and multi-node, across all strategies and batch sizes that fit. "
        "Shows the Pareto front of time and cost, and the probability that each plan meets the deadline and "
        "budget."
    )
    EXAMPLES = (
        "foretrain plan resnet50 --samples 1281167 --epochs 90 --precision fp16 --deadline 24h",
        "foretrain plan bert-large --steps 7038 --global-batch 256 --precision fp16 --budget 200usd --spot",
        "foretrain plan llama3-8b --steps 2000 --global-batch 64 --precision bf16 --gpu h100 --max-gpus 16",
        "foretrain plan resnet50 --samples 1281167 --epochs 90 --deadline 6h --html plan.html --emit ray",
    )

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
class SizeRequest(Request, Limits, SizeOptions, MachineOptions, SequenceOption, StepOptions, RunningOptions):
    """Which size of model to train on how many tokens."""

    COMMON = "budget deadline gpu cloud max_gpus spot law params precision compile seq_len plot json"
    DETAILS = (
        "Compares models of the Llama family. Each is priced on all offers, as plan does it, and trained on "
        "as many tokens as money and time allow; its loss follows from a published scaling law. Shows the "
        "size of the lowest expected loss, its neighbours, and what other laws prefer."
    )
    EXAMPLES = (
        "foretrain size --budget 1000usd --deadline 3d",
        "foretrain size --budget 200usd --gpu h100,a100 --cloud lambda,runpod --plot loss.svg",
        "foretrain size --deadline 7d --max-gpus 8 --gpu rtx4090 --law hoffmann-2022 --json",
        "foretrain size --params 7B --budget 50k$ --deadline 30d --config config.json",
    )


@dataclass(frozen=True, kw_only=True)
class GuideRequest(Request, TrainingOptions):
    """Networks by hardware by batch size."""

    COMMON = "on counts batch samples precision strategy cloud show html json"
    DETAILS = (
        "Every machine trains the same global batch. Reports time, cost, speed-up, memory and bottleneck, "
        "the recommended machine, and the batch size from which more GPUs pay off. Without --on, compares a "
        "CPU with 1, 2, 4 and 8 GPUs of three classes at the lowest current prices."
    )
    EXAMPLES = (
        "foretrain guide resnet50 --precision fp16 --samples 1281167",
        "foretrain guide voice-linear voice-conv --on gtx1080ti --counts 1,2,4 --strategy dp --samples 2000",
        "foretrain guide mnist-cnn resnet18 --on epyc-7742 --on rtx2080ti --counts 1,2,4,8 --html guide.html",
        "foretrain guide bert-large --on aws:g5.xlarge,aws:g5.12xlarge --batch 32..512 --show time,cost",
    )

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
class GuideModel(Request, ModelOption, TrainingOptions):
    """One model of a guide, which may be a workload file."""

    PART_OF = "guide"
    TAKES_WORKLOAD_FILE = True


@dataclass(frozen=True, kw_only=True)
class ScalingRequest(Request):
    """From a few timed configurations of a job to all the others."""

    DETAILS = (
        "Fits compute and synchronisation times, predicts the step time of other placements and batch sizes "
        "(per device), and suggests which configuration to time next. One timing is enough; timings of other "
        "jobs serve as a prior."
    )
    EXAMPLES = (
        "foretrain scaling timings.csv",
        "foretrain scaling timings.csv --at configs.csv --form all --plot scaling.png",
        "foretrain scaling timings.csv --workload resnet50 --on aws:g4dn.12xlarge --precision fp16",
    )

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
        "Model form: physical, ring, pollux, optimus or sanghvi; all compares them.",
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

    COMMON = "price rent offer relative_performance hours_per_year utilisation json"
    EXAMPLES = (
        "foretrain rent-or-buy --price 8000 --rent 1.50 --relative-performance 0.7",
        "foretrain rent-or-buy --price 250k$ --offer aws:p4d.24xlarge --plot costs.png",
    )
