"""What may be chosen about a prediction: how a step is parallelised, which network it uses, what feeds it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from foretrain.decoding import FILE, SWITCH, TEXT, OptionKind, number, option, whole_number
from foretrain.errors import InvalidRequest
from foretrain.panels import COST, INPUT, MACHINES, PARALLELISM, STEP
from foretrain.workloads.options import MOST_SAMPLES, YAML_SUFFIXES

HARDWARE_FORMS = (
    "DEVICE, DEVICE:COUNT, DEVICE:PER_NODExNODES, PROVIDER:INSTANCE[:NODES] or a cluster FILE.yaml"
)
STORAGES = ("nvme", "sata-ssd", "hdd", "network-disk")
"""The fastest, which is the default, first."""


def _hardware_beside(name: str, folder: Path) -> str:
    return str(folder / name) if name.endswith(YAML_SUFFIXES) else name


HARDWARE = OptionKind("HARDWARE", f"hardware: {HARDWARE_FORMS}", TEXT.read, beside=_hardware_beside)


def strategy_help() -> str:
    """How strategies are written, as their registry lists them."""
    from foretrain.prediction.strategies.strategy import forms

    return f"Parallel strategy: {forms()}."


@dataclass(frozen=True, kw_only=True)
class HardwareOption:
    """The hardware to train on."""

    on: str = option(
        HARDWARE, f"Hardware: {HARDWARE_FORMS}.", required=True, panel=MACHINES, complete="hardware"
    )


@dataclass(frozen=True, kw_only=True)
class BatchDivision:
    """The batch of all devices, and the parts it is trained in."""

    global_batch: int | None = option(
        whole_number(1, MOST_SAMPLES), "Batch size across all devices; replaces `batch`.", panel=STEP
    )
    micro_batches: int | None = option(
        whole_number(1), "Micro-batches per step and replica (gradient accumulation or pipeline).", panel=STEP
    )


@dataclass(frozen=True, kw_only=True)
class NetworkOptions:
    """How devices are connected, where facts do not know it or something else is assumed."""

    links: str | None = option(
        TEXT,
        "Links within a node, e.g. nvlink2:6 or pcie4-x16@TOPOLOGY (pcie-switch, two-bridges, host-memory, "
        "host-bridge).",
        panel=MACHINES,
        complete="link",
        metavar="LINK[@TOPOLOGY][:COUNT]",
    )
    network: str | None = option(
        TEXT,
        "Network between nodes, e.g. infiniband-ndr:8.",
        panel=MACHINES,
        complete="network",
        metavar="LINK[:CARDS]",
    )


@dataclass(frozen=True, kw_only=True)
class TopologyOption:
    """How the GPUs of a node are joined, as the driver reports it."""

    topology: Path | None = option(
        FILE,
        "File with the output of `nvidia-smi topo -m`: how GPUs of a node are joined, in place of `links`.",
        panel=MACHINES,
        metavar="FILE",
    )


@dataclass(frozen=True, kw_only=True)
class StrategyOptions(BatchDivision, NetworkOptions):
    """By which strategy a step runs on many devices."""

    strategy: str = option(TEXT, strategy_help, default="ddp", panel=PARALLELISM)


@dataclass(frozen=True, kw_only=True)
class Parallelism(StrategyOptions):
    """How a step is parallelised; what is None is chosen."""

    min_batch: int | None = option(
        whole_number(1), "Minimum batch size per device on a heterogeneous cluster.", panel=STEP
    )
    jitter: float | None = option(
        number(0),
        "Coefficient of variation of step times across devices (default 0.05; 0 disables).",
        panel=PARALLELISM,
    )

    def __post_init__(self) -> None:
        for name in ("micro_batches", "global_batch", "min_batch"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise InvalidRequest(f"{name} must be at least 1, got {value}")
        if self.jitter is not None and not 0 <= self.jitter < 1:
            raise InvalidRequest(f"jitter must be at least 0 and below 1, got {self.jitter}")


@dataclass(frozen=True, kw_only=True)
class InputOptions:
    """Where samples come from. Without a data set, inputs are in pinned host memory."""

    dataset: str | None = option(
        TEXT,
        "Include data loading from this data set: imagenet-jpeg, cifar10, mnist, tokens or synthetic.",
        panel=INPUT,
        metavar="NAME",
    )
    storage: str = option(
        TEXT,
        f"Storage of the data set: {', '.join(STORAGES)}.",
        default=STORAGES[0],
        panel=INPUT,
        metavar="NAME",
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
        flags=("prefetch/no-overlap",),
    )

    def __post_init__(self) -> None:
        from foretrain.facts.datasets import datasets, storages

        if self.loader_workers < 0:
            raise InvalidRequest(f"loader workers must be at least 0, got {self.loader_workers}")
        if self.dataset is not None:
            datasets()[self.dataset]
        storages()[self.storage]

    @property
    def overlaps(self) -> bool:
        """Whether loading happens while the device trains."""
        return self.prefetch and (self.dataset is None or self.loader_workers > 0)


@dataclass(frozen=True, kw_only=True)
class CostModelOptions:
    """What prices operators and steps."""

    cost_model: str = option(
        TEXT,
        "Cost model: foretrain, roofline, per-layer, end-to-end (requires `timings`), a FILE of your own "
        "timings, or a model saved by learn (.json).",
        default="foretrain",
        panel=COST,
        metavar="NAME|FILE",
    )
    timings: Path | None = option(FILE, "Your own timings, used to fit `cost_model` end-to-end.", panel=COST)
