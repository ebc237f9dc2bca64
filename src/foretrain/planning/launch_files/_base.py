"""What is launched, and what every target has to answer."""

from __future__ import annotations

import math
import re
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from foretrain.errors import InvalidRequest
from foretrain.prediction.strategies.layout import Layout

MASTER_PORT = 29500
"""torchrun's own default."""


@dataclass(frozen=True)
class LaunchPlan:
    """A chosen plan: the machines, how the step is spread over them, and the script that trains.

    `accelerator` is what clouds call the device (`A100-80GB`), `instance` and `provider` the machine rented,
    None for machines one has. `global_batch` counts the samples of a step on all devices. Scripts read the
    rest from the environment (see `environment`).
    """

    name: str
    accelerator: str
    nodes: int
    devices_per_node: int
    layout: Layout
    global_batch: int
    precision: str
    micro_batches: int = 1
    script: str = "train.py"
    arguments: tuple[str, ...] = ()
    provider: str | None = None
    instance: str | None = None
    region: str | None = None
    spot: bool = False
    limit_seconds: float | None = None

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[A-Za-z]([A-Za-z0-9-]*[A-Za-z0-9])?", self.name):
            raise InvalidRequest(
                f"a job's name has letters, digits and dashes, e.g. resnet50-a100, not {self.name!r}"
            )
        texts = (self.accelerator, self.precision, self.script, self.provider, self.instance, self.region)
        for text in (*texts, *self.arguments):
            if text is not None and not text.isprintable():
                raise InvalidRequest(f"{text!r} cannot stand in a launch file: it is not one printable line")
        for label in ("nodes", "devices_per_node", "global_batch", "micro_batches"):
            if getattr(self, label) < 1:
                raise InvalidRequest(f"{label} must be at least 1, got {getattr(self, label)}")
        self._check_layout()

    def _check_layout(self) -> None:
        if self.layout.servers is not None:
            raise InvalidRequest(
                f"no launch file for parameter servers ({self.layout.name}): torchrun starts workers only; "
                "choose ddp, fsdp, zero1..3 or degrees"
            )
        if self.layout.devices != self.devices:
            raise InvalidRequest(
                f"{self.layout.name} takes {self.layout.devices} devices, "
                f"but {self.nodes} nodes of {self.devices_per_node} are {self.devices}"
            )
        shares = self.layout.replicas * self.micro_batches
        if self.global_batch % shares:
            raise InvalidRequest(
                f"a batch of {self.global_batch} does not divide among {self.layout.replicas} replicas "
                f"x {self.micro_batches} micro-batches; give a multiple of {shares}"
            )
        if self.limit_seconds is not None and not (
            math.isfinite(self.limit_seconds) and self.limit_seconds > 0
        ):
            raise InvalidRequest(f"a time limit of {self.limit_seconds} s; give a finite time above 0")

    @property
    def devices(self) -> int:
        """Of all nodes."""
        return self.nodes * self.devices_per_node

    @property
    def processes_per_node(self) -> int:
        """One a device, but a single one for PyTorch's DataParallel."""
        return 1 if self.layout.is_single_process else self.devices_per_node

    @property
    def micro_batch(self) -> int:
        """Samples of one micro-batch on one replica."""
        return self.global_batch // (self.layout.replicas * self.micro_batches)


class LaunchTarget(ABC):
    """A way to start a plan: writes one file."""

    name: ClassVar[str]
    aliases: ClassVar[tuple[str, ...]] = ()
    suffix: ClassVar[str]
    how_to_start: ClassVar[str]
    """The command, with {file} for the file."""

    @abstractmethod
    def text(self, plan: LaunchPlan) -> str:
        """The file's text."""
