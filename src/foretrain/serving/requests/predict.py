"""The requests of `trace` and `predict`."""

from __future__ import annotations

from dataclasses import dataclass

from foretrain.decoding import (
    SWITCH,
    number,
    option,
)
from foretrain.jobs.options import BillingOptions, LengthOptions, RunningOptions
from foretrain.panels import (
    MACHINES,
    OUTPUT,
)
from foretrain.prediction.options import (
    CostModelOptions,
    HardwareOption,
    InputOptions,
    Parallelism,
    TopologyOption,
)
from foretrain.serving.requests.base import Request
from foretrain.workloads.options import (
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
class FitRequest(Request, WorkloadRequest, HardwareOption, TopologyOption, Parallelism):
    """Whether a training step fits into memory."""

    VERB = "fit"
    COMMON = (
        "on",
        "batch",
        "global_batch",
        "precision",
        "strategy",
        "optimizer",
        "seq_len",
        "lora",
        "checkpoint_activations",
        "check",
        "json",
    )
    TAKES_WORKLOAD_FILE = True
