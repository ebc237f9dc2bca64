"""The requests of measure, campaign and profile: what to run and watch, and what it trains."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from foretrain.decoding import FILE, SWITCH, TEXT, OptionKind, Unreadable, number, option, texts, whole_number
from foretrain.panels import (
    HERE,
    LENGTH,
    LOG,
    MACHINES,
    MEMORY,
    MODEL,
    MONEY_AND_ENERGY,
    NODES,
    OUTPUT,
    PARALLELISM,
    STEP,
    STORED,
    TRACES,
)
from foretrain.prediction.options import HARDWARE, HARDWARE_FORMS
from foretrain.serving.requests import Request, StoreOption
from foretrain.workloads.options import (
    MODEL_FORMS,
    MODEL_NAME,
    BatchOption,
    ModelOption,
    PhaseOptions,
    TrainingOptions,
)

_SETTING = (
    "model", "on", "batch", "global_batch", "strategy", "precision", "optimizer", "seq_len", "image_size",
    "network", "steps",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class MeasureRequest(Request, StoreOption):
    """A command to run and watch, and what it trains."""

    COMMON = "model on batch store no_store interval json"
    WRAPS = True
    DETAILS = (
        "Runs the command unchanged and returns its exit code. Step times come from `foretrain.step()` calls "
        "in the script, or from the progress output of tqdm, Keras, Lightning, the Hugging Face Trainer or "
        "the script itself. The report goes to stderr. With --json, the JSON goes to stdout and the output "
        "of the command to stderr. A missing command exits with 127, as in a shell."
    )
    EXAMPLES = (
        "foretrain measure -- python train.py --epochs 3",
        "foretrain measure --model resnet18 --on here --batch 32 -- python train.py",
        "foretrain measure --plot run.png -- torchrun --nproc_per_node 2 train.py",
    )

    command: tuple[str, ...] = option(
        texts("a command and its arguments", by_comma=False), "Command to run, after `--`.", positional=True,
        required=True, metavar="COMMAND",
    )  # fmt: skip
    model: str | None = option(
        MODEL_NAME,
        f"Model that the command trains, to predict it first: {MODEL_FORMS}.",
        complete="model",
        panel=MODEL,
    )
    on: str | None = option(
        HARDWARE,
        f"Hardware of the run (`here`: this machine's CPU): {HARDWARE_FORMS}.",
        complete="hardware",
        panel=MACHINES,
    )
    batch: int | None = option(whole_number(1), "Batch size per device.", panel=STEP)
    global_batch: int | None = option(
        whole_number(1), "Batch size across all devices; replaces `batch`.", panel=STEP
    )
    strategy: str | None = option(TEXT, "Parallel strategy of the run, as in `predict`.", panel=PARALLELISM)
    network: str | None = option(
        TEXT, "Network between nodes, as in `predict`.", panel=MACHINES, complete="network"
    )
    precision: str | None = option(TEXT, "Precision, as in `predict`.", panel=MEMORY, metavar="NAME")
    optimizer: str | None = option(
        TEXT, "Optimizer, as in `predict`.", panel=STEP, complete="optimizer", metavar="NAME"
    )
    seq_len: int | None = option(whole_number(1), "Tokens per sample.", panel=STEP)
    image_size: int | None = option(whole_number(1), "Image height and width in pixels.", panel=STEP)
    steps: int | None = option(
        whole_number(1), "Total number of steps, used to estimate the remaining time.", panel=LENGTH
    )
    usd_per_hour: float | None = option(
        number(at_least=0),
        "Price of all machines in USD per hour, to show the money left (default: that of a rented `on`).",
        panel=MONEY_AND_ENERGY,
    )
    target: str | None = option(
        TEXT, "Target value of a metric in `log`, e.g. loss=0.3, to show its probability.", panel=LOG,
        metavar="METRIC=VALUE",
    )  # fmt: skip
    log: Path | None = option(FILE, "Training log that the command writes, as in `converge`.", panel=LOG)
    interval: float = option(
        number(at_least=0.005, at_most=10),
        "Sampling interval of resource usage in seconds.",
        default=0.05,
        panel=OUTPUT,
    )
    no_store: bool = option(SWITCH, "Do not store the run.", default=False, panel=STORED)
    join: Path | None = option(
        FILE, "Folder shared by the nodes of one job; run `measure` on every node.", panel=NODES,
        metavar="FOLDER",
    )  # fmt: skip
    node: int | None = option(
        whole_number(0), "Rank of this node, with `join` (default: from torchrun or Slurm).", panel=NODES
    )
    nodes: int | None = option(
        whole_number(1), "Number of nodes, with `join` (default: from torchrun or Slurm).", panel=NODES
    )
    wait: float = option(
        number(at_least=0), "Seconds that the first node waits for the others, with `join`.",
        default=60.0, panel=NODES,
    )  # fmt: skip

    @property
    def setting(self) -> dict[str, Any]:
        """What it trains, as keywords of `predict`."""
        return {name: value for name in _SETTING if (value := getattr(self, name)) is not None}


_RAY = "ray"


def _read_place(value: Any) -> str:
    if not isinstance(value, str) or value.partition("=")[0] != _RAY or value.endswith("="):
        raise Unreadable
    return value


_PLACE = OptionKind("ray[=ADDRESS]", "ray or ray=ADDRESS", _read_place)


@dataclass(frozen=True, kw_only=True)
class CampaignRequest(Request, StoreOption):
    """A campaign file, and where it runs."""

    DETAILS = (
        "Each trial is predicted before it runs and stored when it ends, including failures. You can "
        "interrupt a campaign at any time and run it again: stored trials are not repeated. Trials of models "
        "run in network namespaces, which require root and iproute2."
    )
    EXAMPLES = (
        "foretrain campaign campaigns/batch_sizes.yaml",
        "foretrain campaign campaign.yaml --dry-run",
        "foretrain campaign campaign.yaml --on ray=auto --store postgresql://user@host/runs",
    )

    file: Path = option(FILE, "Campaign file (YAML).", required=True, positional=True, metavar="FILE")
    on: str | None = option(
        _PLACE, "Run on a Ray cluster (default address: RAY_ADDRESS, else the cluster on this machine)."
    )
    limit: int | None = option(whole_number(1), "Maximum number of trials to run now.")
    dry_run: bool = option(SWITCH, "List the trials without running them.", default=False)


@dataclass(frozen=True, kw_only=True)
class ProfileRequest(Request, ModelOption, BatchOption, TrainingOptions, PhaseOptions):
    """A model, and where its times come from: this machine or a trace."""

    COMMON = "here trace on batch seq_len image_size precision optimizer json"
    DETAILS = (
        "Runs the model under torch.profiler for a few seconds, or reads a trace exported by torch.profiler "
        "on another machine. Prints measured and predicted times side by side."
    )
    EXAMPLES = (
        "foretrain profile resnet18 --here --batch 4 --image-size 64",
        "foretrain profile model.py:build --here",
        "foretrain profile resnet50 --trace trace.json.gz --on rtx3090 --batch 64",
    )

    here: bool = option(
        SWITCH, "Run the model on this machine: its GPU, else its CPU.", default=False, panel=HERE
    )
    trace: Path | None = option(
        FILE, "Trace exported by torch.profiler on another machine, .json or .json.gz.", panel=TRACES
    )
    on: str | None = option(
        TEXT,
        "Device on which `trace` was recorded, e.g. rtx3090.",
        metavar="DEVICE",
        complete="device",
        panel=TRACES,
    )
    seconds: float = option(
        number(at_least=0.1), "Approximate duration in seconds, with `here`.", default=10.0, panel=HERE
    )
