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
    number,
    option,
    texts,
    whole_number,
)
from foretrain.panels import INPUT, JOB, LENGTH, MACHINES, MONEY_AND_ENERGY, STEP
from foretrain.workloads.options import MOST_SAMPLES, YAML_SUFFIXES

HARDWARE_FORMS = (
    "DEVICE, DEVICE:COUNT, DEVICE:PER_NODExNODES, PROVIDER:INSTANCE[:NODES] or a cluster FILE.yaml"
)
STORAGES = ("nvme", "sata-ssd", "hdd", "network-disk")


def _hardware_beside(name: str, folder: Path) -> str:
    return str(folder / name) if name.endswith(YAML_SUFFIXES) else name


HARDWARE = Kind("HARDWARE", f"hardware: {HARDWARE_FORMS}", TEXT.read, beside=_hardware_beside)


def strategy_help() -> str:
    """How strategies are written, as their registry lists them."""
    from foretrain.prediction.strategies.catalogue import forms

    return f"{forms()}."


@dataclass(frozen=True, kw_only=True)
class Request:
    """Base of all requests. `VERB` is the command, `COMMON` lists the options its help shows first."""

    VERB: ClassVar[str]
    COMMON: ClassVar[tuple[str, ...]] = ()
    TAKES_WORKLOAD_FILE: ClassVar[bool] = False


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
    topology: Path | None = option(
        FILE,
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
