"""Launch files of a plan: what is launched, the targets by name, and the lines that their files share.

A launched script finds the plan in its environment: the `FORETRAIN_` variables state what the prediction
assumed, and a script that follows them runs what was predicted (`examples/train_plan.py` does). A switch that
is on is 1; what is off, or left to the model, has no variable. The other variables are read by libraries.
"""

from __future__ import annotations

import math
import re
import shlex
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, ClassVar

from foretrain.errors import InvalidRequest
from foretrain.planning.frontier import Frontier
from foretrain.prediction.scenario import as_stored, fix_precision, storage_of
from foretrain.prediction.strategies.strategy import (
    Layout,
    active_strategies,
    is_single_process,
    layout_of,
    plan_words,
    strategies,
)
from foretrain.registry import Registry, discover
from foretrain.workloads.lora import format_lora
from foretrain.workloads.options import HALF_PRECISIONS

if TYPE_CHECKING:
    from foretrain.jobs.configurations import RunConfiguration
    from foretrain.workloads.workload import Workload

MASTER_PORT = 29500
"""torchrun's own default."""

STEP_VARIABLES = {
    "optimizer": "optimizer",
    "weights": "what parameters are stored in",
    "master_weights": "FP32 copies of the parameters in the optimizer (or FSDP's own shards in FP32)",
    "gradients": "what gradients are added up in",
    "autocast": "run forward pass and loss under torch.autocast",
    "checkpoint_activations": "recompute the activations of each block in the backward pass",
    "selective_checkpointing": "keep the outputs of products and attention, recompute the rest",
    "compile": "torch.compile of the model",
    "attention": "attention kernel",
    "framework": "training framework whose kernels were predicted",
    "loss": "cross-entropy loss: eager, or fused into one kernel",
    "fp8_scaling": "how FP8 values are scaled",
    "channels_last": "images in channels-last memory format",
    "cuda_graphs": "capture the step as a CUDA graph",
    "gradient_release": "apply and free each gradient in the backward pass",
    "offload": "state that is kept in host memory",
}
"""What a script reads of the options of a step besides its precision, and what each is for."""
NOT_VARIABLES = frozenset({"precision", "software_year"})
"""Options of a step that are in another variable, or that describe the installed libraries."""


@dataclass(frozen=True, slots=True)
class Variable:
    """A variable, its value, and what it is for."""

    name: str
    value: str
    purpose: str


@dataclass(frozen=True)
class LaunchPlan:
    """A plan to launch: its machines, the layout of the step on them, and the script that trains.

    `accelerator` is the name clouds use for the device (`A100-80GB`); `instance` and `provider` are the
    rented machine, None for owned machines. `global_batch` counts the samples of a step on all devices.
    Scripts read the rest from the environment (see `environment`); `training` are the variables that say
    what is trained, and how a step of it is run.
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
    training: tuple[Variable, ...] = ()
    vendor: str = "nvidia"

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[A-Za-z]([A-Za-z0-9-]*[A-Za-z0-9])?", self.name):
            raise InvalidRequest(
                f"a job name has letters, digits and dashes, e.g. resnet50-a100, not {self.name!r}"
            )
        texts = (self.accelerator, self.precision, self.script, self.provider, self.instance, self.region)
        values = (variable.value for variable in self.training)
        for text in (*texts, *self.arguments, *values):
            if text is not None and not text.isprintable():
                raise InvalidRequest(f"{text!r} cannot be in a launch file: it is not one printable line")
        for label in ("nodes", "devices_per_node", "global_batch", "micro_batches"):
            if getattr(self, label) < 1:
                raise InvalidRequest(f"{label} must be at least 1, got {getattr(self, label)}")
        self._check_layout()

    def _check_layout(self) -> None:
        if any(each.launchers == frozenset() for each in active_strategies(self.layout)):
            raise InvalidRequest(
                f"no launcher can start {self.layout.name}; choose {', '.join(plan_words())} or degrees of "
                "parallelism"
            )
        if self.layout.devices != self.devices:
            raise InvalidRequest(
                f"{self.layout.name} needs {self.layout.devices} devices, "
                f"but {self.nodes} nodes of {self.devices_per_node} have {self.devices}"
            )
        shares = self.layout.replicas * self.micro_batches
        if self.global_batch % shares:
            raise InvalidRequest(
                f"`global_batch` {self.global_batch} does not divide evenly over {self.layout.replicas} "
                f"replicas x {self.micro_batches} micro-batches; give a multiple of {shares}"
            )
        if self.limit_seconds is not None and not (
            math.isfinite(self.limit_seconds) and self.limit_seconds > 0
        ):
            raise InvalidRequest(f"the time limit must be finite and above 0, got {self.limit_seconds} s")

    @property
    def devices(self) -> int:
        """Devices of all nodes."""
        return self.nodes * self.devices_per_node

    @property
    def processes_per_node(self) -> int:
        """One per device, but a single one for PyTorch's DataParallel."""
        return 1 if is_single_process(self.layout) else self.devices_per_node

    @property
    def micro_batch(self) -> int:
        """Samples of one micro-batch on one replica."""
        return self.global_batch // (self.layout.replicas * self.micro_batches)


def select_launchers(layout: Layout, known: Iterable[str]) -> frozenset[str]:
    """Those of the known launch targets that can start a layout."""
    named = (each.launchers for each in active_strategies(layout))
    return frozenset(known).intersection(*(names for names in named if names is not None))


class LaunchTarget(ABC):
    """A launcher: writes one file that starts a plan."""

    name: ClassVar[str]
    aliases: ClassVar[tuple[str, ...]] = ()
    suffix: ClassVar[str]
    how_to_start: ClassVar[str]
    """The command, with {file} for the file."""

    @abstractmethod
    def text(self, plan: LaunchPlan) -> str:
        """The file's text."""


def environment(plan: LaunchPlan) -> tuple[Variable, ...]:
    """All variables of a plan, those of every plan first."""
    layout = plan.layout
    always = (
        Variable("FORETRAIN_STRATEGY", layout.name, "how the step is parallelised"),
        Variable("FORETRAIN_PRECISION", plan.precision, "fp16 and bf16 mean mixed precision"),
        Variable("FORETRAIN_GLOBAL_BATCH", str(plan.global_batch), "samples of a step on all devices"),
        Variable("FORETRAIN_MICRO_BATCH", str(plan.micro_batch), "samples of a micro-batch on one replica"),
        Variable("FORETRAIN_MICRO_BATCHES", str(plan.micro_batches), "micro-batches of a step"),
    )
    own = (
        Variable(f"FORETRAIN_{name}", value, purpose)
        for strategy in strategies().values()
        for name, value, purpose in strategy.environment(layout)
    )
    return (*always, *plan.training, *own, *_library_switches(plan))


def list_training_variables(
    workload: Workload, configuration: RunConfiguration, layout: Layout
) -> tuple[Variable, ...]:
    """What is trained and how, as it was planned: model, sizes, LoRA and the options of a step."""
    stored = as_stored(fix_precision(workload, configuration.precision), storage_of(layout))
    options = replace(stored.options, checkpoint_activations=configuration.checkpoint_activations)
    casts = options.casts and options.precision in HALF_PRECISIONS
    sizes = workload.source.fill_sizes(workload.sizes)
    values = {
        "model": (workload.source.name, "model, as foretrain reads it"),
        "steps": (configuration.steps, "steps of the whole job"),
        "seq_len": (sizes.seq_len, "tokens of a sample"),
        "image_size": (sizes.image_size, "height and width of an image"),
        "lora": (workload.lora and format_lora(workload.lora), "adapters that are trained, the rest frozen"),
        **{name: (getattr(options, name), purpose) for name, purpose in STEP_VARIABLES.items()},
        "autocast": (casts, STEP_VARIABLES["autocast"]),
    }
    if not workload.source.has_attention:
        del values["attention"]
    return tuple(
        Variable(f"FORETRAIN_{name.upper()}", _text(value), purpose)
        for name, (value, purpose) in values.items()
        if value not in (None, False, ())
    )


def _text(value: object) -> str:
    if isinstance(value, tuple):
        return ",".join(value)
    return "1" if value is True else str(value)


def _library_switches(plan: LaunchPlan) -> tuple[Variable, ...]:
    variables = []
    if plan.layout.tensor > 1 or plan.layout.context > 1:
        purpose = "Megatron: keeps kernels in launch order so that communication overlaps (Hopper and older)"
        variables.append(Variable("CUDA_DEVICE_MAX_CONNECTIONS", "1", purpose))
    if plan.precision == "fp32":
        purpose = "NVIDIA libraries: real fp32, never TF32 in its place"
        variables.append(Variable("NVIDIA_TF32_OVERRIDE", "0", purpose))
    if plan.precision == "tf32":
        purpose = "PyTorch: TF32 for matrix products, as for convolutions by default"
        variables.append(Variable("TORCH_ALLOW_TF32_CUBLAS_OVERRIDE", "1", purpose))
    return tuple(variables)


def heading(plan: LaunchPlan, how_to_start: str) -> list[str]:
    """What the file is for, as lines without comment signs."""
    machine = " ".join(part for part in (plan.provider, plan.instance, plan.region) if part)
    hardware = f"{plan.nodes} x {plan.devices_per_node} {plan.accelerator}"
    return [
        f"{plan.name}: {plan.layout.name} on {hardware}{f' ({machine})' if machine else ''}"
        f"{', spot' if plan.spot else ''}",
        f"{plan.precision}, batch {plan.global_batch}: {plan.layout.replicas} replicas x "
        f"{plan.micro_batches} micro-batches x {plan.micro_batch} samples",
        f"Written by foretrain. Start it: {how_to_start}",
    ]


def exports(plan: LaunchPlan) -> list[str]:
    """The environment as shell lines, each with its purpose above it."""
    lines = []
    for variable in environment(plan):
        lines += [f"# {variable.purpose}", f"export {variable.name}={shlex.quote(variable.value)}"]
    return lines


def user_command(plan: LaunchPlan) -> str:
    """The user's script and its arguments, quoted for a shell."""
    return shlex.join((plan.script, *plan.arguments))


def shell_command(plan: LaunchPlan, rank: str, master: str) -> list[str]:
    """The lines that start one node's processes; `rank` and `master` are shell expressions."""
    if is_single_process(plan.layout):
        return [f"python {user_command(plan)}"]
    if plan.nodes == 1:
        start = [f"torchrun --standalone --nproc-per-node={plan.processes_per_node}"]
    else:
        start = [
            f"torchrun --nnodes={plan.nodes} --nproc-per-node={plan.processes_per_node}",
            f"  --node-rank={rank}",
            f"  --master-addr={master} --master-port={MASTER_PORT}",
        ]
    return [*(f"{line} \\" for line in start), f"  {user_command(plan)}"]


def comment(lines: list[str]) -> list[str]:
    """Lines as comments of shell, YAML or Python."""
    return [f"# {line}" for line in lines]


@dataclass(frozen=True, slots=True)
class LaunchFile:
    """A file to write, by its suggested name."""

    file_name: str
    text: str

    def named(self, file_name: str) -> LaunchFile:
        """The same under another name, also in the comment on how to start it."""
        return LaunchFile(file_name, self.text.replace(self.file_name, shlex.quote(file_name)))


@cache
def launch_targets() -> Registry[LaunchTarget]:
    """All launch targets, by name and alias: every `LaunchTarget` in the modules of this package."""
    known = sorted(discover(__name__, LaunchTarget), key=lambda each: each.name)  # type: ignore[type-abstract]
    return Registry(
        "launch target",
        known,
        name=lambda target: target.name,
        aliases=lambda target: target.aliases,
        hint=f"Known: {', '.join(target.name for target in known)}",
    )


def launch_file(target: str, plan: LaunchPlan) -> LaunchFile:
    """The launch file of a plan for the target of that name."""
    chosen, able = launch_targets()[target], select_launchers(plan.layout, launch_targets())
    if chosen.name not in able:
        raise InvalidRequest(f"{chosen.name} cannot start {plan.layout.name}; {', '.join(sorted(able))} can")
    return LaunchFile(f"{plan.name}{chosen.suffix}", chosen.text(plan))


def launch_plan(frontier: Frontier, script: str) -> LaunchPlan:
    """The reported plan, to be launched; the time limit is the 90th percentile of its time.

    `script` is written as in a shell: the file and its arguments.
    """
    plan = frontier.plans[frontier.reported]
    hardware, configuration = plan.hardware, plan.configuration
    layout = layout_of(configuration.strategy, hardware.devices, hardware.devices_per_node)
    file, *arguments = _words(script)
    return LaunchPlan(
        name=_job_name(frontier.model, hardware.device.id),
        accelerator=plan.offer.family.upper(),
        nodes=hardware.nodes,
        devices_per_node=hardware.devices_per_node,
        layout=layout,
        global_batch=configuration.global_batch,
        precision=configuration.precision,
        micro_batches=configuration.micro_batches,
        script=file,
        arguments=tuple(arguments),
        provider=plan.offer.provider,
        instance=plan.offer.instance,
        region=plan.offer.region or None,
        spot=plan.spot,
        limit_seconds=plan.seconds.p90,
        training=list_training_variables(frontier.workload, configuration, layout),
        vendor=hardware.device.vendor,
    )


def _words(script: str) -> list[str]:
    try:
        words = shlex.split(script)
    except ValueError as error:
        raise InvalidRequest(f"`script` {script!r} is no valid shell command: {error}") from error
    if not words:
        raise InvalidRequest("a launch file starts a script: give `script`, e.g. train.py")
    return words


def _job_name(model: str, device: str) -> str:
    """Letters, digits and dashes, beginning with a letter."""
    name = re.sub(r"[^A-Za-z0-9]+", "-", f"{model}-{device}").strip("-")
    return name if name[0].isalpha() else f"job-{name}"
