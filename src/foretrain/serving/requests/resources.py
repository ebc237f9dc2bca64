"""The requests of resources and pair."""

from __future__ import annotations

from dataclasses import dataclass

from foretrain.decoding import DURATION, TEXT, choice, option, texts, whole_numbers
from foretrain.panels import OUTPUT, PARALLELISM, STEP
from foretrain.prediction.options import (
    HardwareOption,
    InputOptions,
    NetworkOptions,
    StrategyOptions,
    TopologyOption,
    strategy_help,
)
from foretrain.serving.requests import Request
from foretrain.workloads.options import MODEL_FORMS, BatchOption, ModelOption, TrainingOptions

METHODS = ("auto", "timeline", "inspector")


CHANGES = ("gpu", "workers", "servers", "batch", "network", "strategy", "precision")


@dataclass(frozen=True, kw_only=True)
class ResourcesRequest(
    Request,
    ModelOption,
    BatchOption,
    TrainingOptions,
    HardwareOption,
    TopologyOption,
    StrategyOptions,
    InputOptions,
):
    """Bursts and idle gaps of a step on given hardware."""

    COMMON = "on batch strategy network what_if method plot json"
    TAKES_WORKLOAD_FILE = True
    DETAILS = (
        "Reports burst amount, burst duration and idle duration of compute, memory, network transmit and "
        "network receive for one worker. Derived from the timeline of the step, or predicted by the "
        "Inspector, a graph network trained on measured runs."
    )
    EXAMPLES = (
        "foretrain resources resnet50 --on v100-sxm2-16gb:1x2 --network ethernet-10g --strategy ps-sync",
        "foretrain resources resnet50 --on v100-sxm2-16gb --what-if gpu=rtx2080ti --what-if batch=64",
        "foretrain resources gpt2 --on a100-sxm-80gb:8 --strategy fsdp --plot bursts.svg",
    )

    what_if: tuple[str, ...] = option(
        texts(by_comma=False),
        f"Also predict with a change; may be repeated: {', '.join(f'{each}=...' for each in CHANGES)}. "
        "Separate several values by commas.",
        default=(),
        panel=OUTPUT,
        metavar="KEY=VALUES",
    )
    method: str = option(
        choice(*METHODS),
        "Method: timeline, inspector, or auto (the one with the lower validation error for this "
        "configuration).",
        default="auto",
        panel=OUTPUT,
    )
    sample_every: float | None = option(
        DURATION, "Sampling interval of the simulated monitor (default: 50 samples per step).", panel=OUTPUT
    )


@dataclass(frozen=True, kw_only=True)
class PairRequest(Request, TrainingOptions, HardwareOption, TopologyOption, NetworkOptions):
    """Whether two jobs share a device and a link well."""

    COMMON = "on batch strategy precision plot json"
    DETAILS = (
        "Overlays the resource usage of two jobs. Where both need the GPU, its memory or the link at the "
        "same time, they share it fairly. Kernels of different processes take turns."
    )
    EXAMPLES = (
        "foretrain pair resnet50 bert-base --on v100-sxm2-16gb:1x2 --network ethernet-10g --batch 32,8",
        "foretrain pair mnist-cnn voice-conv --on t4 --json",
    )

    models: tuple[str, ...] = option(
        texts("two models", by_comma=False),
        f"The two models: {MODEL_FORMS}.",
        required=True,
        positional=True,
        metavar="MODEL",
        complete="model",
    )
    batch: tuple[int, ...] = option(
        whole_numbers(),
        "Batch size per device, for both jobs (32) or each job (32,64).",
        default=(),
        panel=STEP,
    )
    strategy: str = option(TEXT, strategy_help, default="ddp", panel=PARALLELISM)
