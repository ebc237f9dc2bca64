"""The requests of predict, fit and trace."""

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
from foretrain.serving.requests import Request
from foretrain.workloads.options import (
    ConfigOption,
    WorkloadRequest,
)


@dataclass(frozen=True, kw_only=True)
class TraceRequest(Request, WorkloadRequest):
    """What a training step consists of."""

    COMMON = "batch seq_len image_size precision optimizer layers json"
    TAKES_WORKLOAD_FILE = True
    EXAMPLES = (
        "foretrain trace resnet50 --batch 32",
        "foretrain trace gpt2 --seq-len 512 --layers",
    )

    layers: bool = option(SWITCH, "Include a table of all layers.", default=False, panel=OUTPUT)


@dataclass(frozen=True, kw_only=True)
class PredictRequest(
    Request,
    ConfigOption,
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

    COMMON = (
        "on batch global_batch precision strategy optimizer seq_len samples epochs steps cost_model "
        "check json"
    )
    TAKES_WORKLOAD_FILE = True
    DETAILS = (
        "Reports the step time, memory, bottleneck and possible improvements. With a length (--steps, or "
        "--epochs with --samples), also reports time, cost and energy of the whole job."
    )
    EXAMPLES = (
        "foretrain predict resnet50 --on rtx3090 --batch 192 --precision fp16 --channels-last",
        "foretrain predict resnet50 --on v100-sxm2-16gb --batch 64 --dataset imagenet-jpeg --storage hdd",
        "foretrain predict llama3-8b --on h100-sxm:8 --strategy zero3 --precision bf16 --batch 1",
        "foretrain predict bert-large --on aws:g5.12xlarge:2 --batch 8 --timeline step.json",
        "foretrain predict llama3-70b --on h100-sxm:8x8 --strategy auto --global-batch 512 --precision bf16",
        "foretrain predict resnet50 --on cluster.yaml --global-batch 256",
        "foretrain predict --from axolotl.yml --on a100-sxm4-80gb:8",
        "foretrain predict resnet50 --on aws:g5.xlarge --batch 64 --samples 1281167 --epochs 90 --spot",
    )

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
class FitRequest(Request, ConfigOption, WorkloadRequest, HardwareOption, TopologyOption, Parallelism):
    """Whether a training step fits into memory."""

    COMMON = (
        "on batch global_batch precision strategy optimizer seq_len lora checkpoint_activations check json"
    )
    TAKES_WORKLOAD_FILE = True
    DETAILS = (
        "Reports the chance that a step fits into memory, how much it needs, the largest batch, and options "
        "that would make it fit."
    )
    EXAMPLES = (
        "foretrain fit llama3-8b --on rtx4090 --lora r=16",
        "foretrain fit resnet50 --on t4 --batch 256 --check",
        "foretrain fit llama3-70b --on h100-sxm:8x8 --strategy auto --global-batch 512 --precision bf16",
    )
