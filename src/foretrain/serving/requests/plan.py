"""The requests of `plan`, `guide`, `scaling` and `rent-or-buy`."""

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
from foretrain.planning.options import Limits, MachineOptions, OwningOptions, RentOrBuyOptions
from foretrain.prediction.options import (
    HARDWARE,
    InputOptions,
    TopologyOption,
)
from foretrain.serving.requests.base import Request
from foretrain.workloads.options import (
    MODEL_FORMS,
    MODEL_NAME,
    PRECISIONS,
    ModelOption,
    TrainingOptions,
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
class GuideModel(Request, ModelOption, TrainingOptions):
    """One model of a guide, which may be a workload file."""

    VERB = "guide"
    TAKES_WORKLOAD_FILE = True


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
