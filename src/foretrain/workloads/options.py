"""What may be chosen about a workload: the model, its sizes, and how a training step is run.

Each option is declared once, on a field with its type, bounds, help and panel; what is None is left open. The
requests of all verbs are composed of these classes.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from foretrain.decoding import FILE, SWITCH, TEXT, OptionKind, choice, option, texts, whole_number
from foretrain.errors import InvalidRequest, nearest
from foretrain.facts.frameworks import PLAIN, attention_in, frameworks
from foretrain.panels import MEMORY, MODEL, STEP

PRECISIONS = ("fp32", "tf32", "fp16", "bf16", "fp8")
HALF_PRECISIONS = ("fp16", "bf16")
HALF_WEIGHTS = {"bf16": "bf16", "fp16": "fp16", "fp8": "bf16"}
"""What weights in half precision are stored in, by what products are computed in."""
WEIGHTS = ("fp32", *HALF_PRECISIONS)
ATTENTIONS = ("eager", "sdpa", "flash", "flash1", "flash2", "flash3", "cudnn")
ATTENTION_KERNELS = {name: name for name in ATTENTIONS[3:]} | {"flash": "flash2"}
"""The words that name a kernel of fused attention; `sdpa` is the one that PyTorch picks on the GPU."""
LOSSES = ("eager", "fused")
OPTIMIZERS = (
    "sgd", "momentum", "nesterov", "adam", "adamw", "adamw-fused", "nadam", "radam", "adamax", "adagrad",
    "adadelta", "rmsprop", "adafactor", "lion", "muon", "adamw-8bit", "lion-8bit", "paged-adamw",
    "paged-adamw-8bit", "paged-lion-8bit",
)  # fmt: skip
"""Declared apart from what builds them (`tracing.optimizers`), so that a name is checked without torch."""
FP8_SCALINGS = ("delayed", "current", "block")
OFFLOADS = ("optimizer", "parameters", "activations")
REAL = "real"
TRACES = ("meta", REAL)
"""How a step is recorded: without data, on shapes alone, or by running it on the CPU with example inputs."""
QUANTISED_BLOCK = 256
"""Elements of optimizer state that share a scale in an 8-bit optimizer (bitsandbytes 0.45)."""
QUANTISED_FROM = 4096
"""Smaller tensors keep 32-bit state, as bitsandbytes does."""
YAML_SUFFIXES = (".yaml", ".yml")
_FILE_SUFFIXES = (".py", ".onnx", ".pt2", *YAML_SUFFIXES)
MODEL_FORMS = (
    "zoo name, hf:CONFIG, hf:ORG/NAME, timm:NAME, torchvision:NAME, FILE.py:callable, FILE.onnx, FILE.pt2 or "
    "FILE.yaml"
)
MOST_SAMPLES, MOST_TOKENS, MOST_PIXELS = 10**8, 10**7, 10**5
"""Of a step, of a sample, and along an image: far beyond what was ever trained."""


def _model_beside(model: str, folder: Path) -> str:
    """A model that is a file, relative to the workload file that names it."""
    prefix, path = ("hf:", model[3:]) if model.startswith("hf:") else ("", model)
    if not prefix and not path.partition(":")[0].endswith(_FILE_SUFFIXES):
        return model
    if prefix and not path.endswith(".json") and not (folder / path).exists():
        return model  # a model of the hub
    return f"{prefix}{folder / path}"


MODEL_NAME = OptionKind("MODEL", f"a model: {MODEL_FORMS}", TEXT.read, beside=_model_beside)


@dataclass(frozen=True)
class ModelOption:
    """The model to train."""

    model: str = option(
        MODEL_NAME, f"Model to train: {MODEL_FORMS}.", required=True, positional=True, complete="model"
    )


@dataclass(frozen=True, kw_only=True)
class ConfigOption:
    """The training configuration whose entries are the defaults of a request."""

    from_config: Path | None = option(
        FILE,
        "Training configuration to take model and options from: Hugging Face TrainingArguments, axolotl, "
        "torchtitan, Megatron-LM, DeepSpeed or accelerate. Given options take precedence.",
        panel=MODEL,
        flags=("from",),
        metavar="CONFIG",
    )


@dataclass(frozen=True, kw_only=True)
class BatchOption:
    """The batch of each device."""

    batch: int | None = option(whole_number(1, MOST_SAMPLES), "Batch size per device.", panel=STEP)


@dataclass(frozen=True, kw_only=True)
class SequenceOption:
    """The length of a sample of tokens."""

    seq_len: int | None = option(whole_number(1, MOST_TOKENS), "Tokens per sample.", panel=STEP)


@dataclass(frozen=True, kw_only=True)
class SampleOptions(SequenceOption):
    """Sizes of a sample."""

    image_size: int | None = option(
        whole_number(1, MOST_PIXELS), "Image height and width in pixels.", panel=STEP
    )


@dataclass(frozen=True, kw_only=True)
class StepOptions:
    """How one training step is run.

    What is None follows from the device, the layout and the framework (`prediction.scenario`).
    `precision` is what products are computed in, `weights` what parameters are stored in:

    | as in | precision | weights | master_weights | gradients |
    |---|---|---|---|---|
    | autocast (default) | bf16 | fp32 | no | of the weights |
    | a module converted by `.to(bfloat16)` | bf16 | bf16 | no | of the weights |
    | Megatron, DeepSpeed, nanotron | bf16 | bf16 | yes | of the weights, or fp32 |

    `gradients` "fp32" adds gradients up in FP32 in the optimizer, beside `master_weights`. `framework` sets
    which kernels are fused, whether recomputation stops early, and how fast operators are launched
    (`facts.frameworks`). `loss` fused computes softmax, loss and gradient from half-precision logits without
    storing probabilities. `offload` of parameters takes the optimizer with them.
    """

    precision: str | None = option(
        choice(*PRECISIONS),
        "Numeric precision: fp32, tf32, fp16 or bf16 (mixed precision) or fp8 (default: device default).",
        panel=MEMORY,
    )
    optimizer: str | None = option(
        choice(*OPTIMIZERS),
        "Optimizer: sgd, momentum, adam, adamw (default), muon, lion, adafactor, adamw-8bit, paged-adamw ...",
        panel=STEP,
    )
    attention: str | None = option(
        choice(*ATTENTIONS),
        "Attention kernel: eager, sdpa, flash1, flash2 (flash), flash3 or cudnn (default: `framework` "
        "default, else the kernel PyTorch selects on the GPU).",
        panel=STEP,
    )
    channels_last: bool = option(
        SWITCH, "Store images in NHWC (channels-last) memory format.", default=False, panel=STEP
    )
    compile: bool = option(SWITCH, "Compile the model with torch.compile.", default=False, panel=STEP)
    checkpoint_activations: bool = option(
        SWITCH, "Recompute activations during the backward pass.", default=False, panel=MEMORY
    )
    selective_checkpointing: bool = option(
        SWITCH,
        "Recompute activations except those of matrix products and attention.",
        default=False,
        panel=MEMORY,
    )
    gradient_release: bool = option(
        SWITCH,
        "Apply and free each gradient during the backward pass, as soon as it is complete.",
        default=False,
        panel=MEMORY,
    )
    offload: tuple[str, ...] = option(
        texts(),
        "State to offload to host memory: optimizer (the update then runs on the CPU), parameters, "
        "activations.",
        default=(),
        panel=MEMORY,
        metavar="NAME[,NAME]",
    )
    cuda_graphs: bool = option(
        SWITCH, "Capture the step as a CUDA graph and replay it.", default=False, panel=STEP
    )
    weights: str | None = option(
        choice(*WEIGHTS),
        "Precision of stored weights (default: fp32 for ddp; half for `lora`, `master_weights`, ZeRO, FSDP "
        "and model-parallel strategies).",
        panel=MEMORY,
    )
    master_weights: bool = option(
        SWITCH,
        "Keep FP32 copies of half-precision weights in the optimizer (Megatron).",
        default=False,
        panel=MEMORY,
    )
    gradients: str | None = option(
        choice(*WEIGHTS), "Precision of gradient accumulation (default: that of `weights`).", panel=MEMORY
    )
    autocast: bool | None = option(
        SWITCH, "Use autocast (default, unless all weights are converted).", panel=MEMORY
    )
    framework: str | None = option(
        TEXT,
        "Training framework: pytorch, megatron, nemo, deepspeed, megatron-deepspeed, nanotron, composer, "
        "hf-trainer, torchtitan or keras. Sets fused kernels, launch overhead and recomputation (default: "
        "megatron with tp, pp, cp or ep, else pytorch).",
        panel=STEP,
        metavar="NAME",
    )
    loss: str | None = option(
        choice(*LOSSES),
        "Cross-entropy loss: eager, or fused into one kernel (default: `framework` default).",
        panel=STEP,
    )
    fp8_scaling: str | None = option(
        choice(*FP8_SCALINGS),
        "FP8 scaling: delayed (from earlier steps), current (per tensor) or block (per 128 elements; "
        "MXFP8, per 32, on Blackwell) (default: `framework` default).",
        panel=MEMORY,
    )
    software_year: int | None = option(
        whole_number(2016, 2100),
        "Release year of PyTorch and its libraries; selects the kernels behind `attention` sdpa and flash "
        "(default: latest).",
        panel=STEP,
        metavar="YEAR",
    )


@dataclass(frozen=True, kw_only=True)
class TrainingOptions(SampleOptions, StepOptions):
    """How a model is trained."""

    lora: str | None = option(
        TEXT,
        "Train LoRA adapters only, e.g. r=16, r=16,targets=all-linear, r=16,dora, r=16,half, "
        "r=16,quantised[,double].",
        panel=MEMORY,
        metavar="r=RANK[,...]",
    )


@dataclass(frozen=True, kw_only=True)
class PhaseOptions:
    """Which parts of a training step are left out."""

    forward_only: bool = option(SWITCH, "Run the forward pass only.", default=False, panel=STEP)
    no_optimizer: bool = option(SWITCH, "Skip the optimizer step.", default=False, panel=STEP)


@dataclass(frozen=True, kw_only=True)
class WorkloadRequest(ModelOption, BatchOption, TrainingOptions, PhaseOptions):
    """A model by name or file, its sizes, and how a step is run."""

    trace: str | None = option(
        choice(*TRACES),
        "How to trace the model: meta (default), shapes only; real, run it on this CPU with the example "
        "inputs.",
        panel=MODEL,
    )


@dataclass(frozen=True, kw_only=True)
class ResolvedOptions(StepOptions):
    """How one training step is run, nothing left open: what tracing and pricing read.

    `optimizer` None leaves the optimizer out, `forward_only` also the backward pass. The outputs of a
    converted module are cast to FP32 before the loss, as by Megatron and Apex; `half_outputs` leaves them to
    the loss as they are, as FSDP and DeepSpeed do.
    """

    precision: str = "fp32"
    optimizer: str | None = "adamw"
    attention: str = "sdpa"
    weights: str = "fp32"
    framework: str = PLAIN
    forward_only: bool = False
    half_outputs: bool = False

    def __post_init__(self) -> None:
        self._check_choices()
        object.__setattr__(self, "framework", frameworks()[self.framework].name)
        if self.weights != "fp32" and self.precision not in (self.weights, "fp8"):
            raise InvalidRequest(
                f"weights in {self.weights} are computed with in {self.weights}: give precision "
                f"{self.weights}, not {self.precision}"
            )
        if self.master_weights and self.weights == "fp32":
            raise InvalidRequest(
                "FP32 weights need no FP32 copies; `master_weights` requires `weights` bf16 or fp16"
            )
        if self.gradients is not None:
            _one_of("gradients", self.gradients, ("fp32", self.weights))
            if self.gradients != self.weights and not self.master_weights:
                raise InvalidRequest(
                    "gradients have the precision of the weights that are updated; `gradients` fp32 requires "
                    "`master_weights`"
                )
        for name in self.offload:
            _one_of("offload", name, OFFLOADS)
        if self.offload and self.forward_only:
            raise InvalidRequest("`offload` is for training; a forward pass keeps no state or activations")
        if self.gradient_release and "optimizer" in self.offload:
            raise InvalidRequest("`gradient_release` updates on the device; leave out `offload` optimizer")
        if self.selective_checkpointing and not self.checkpoint_activations:
            raise InvalidRequest("`selective_checkpointing` requires `checkpoint_activations`")
        if self.gradient_release and (self.optimizer is None or self.forward_only or self.master_weights):
            raise InvalidRequest(
                "`gradient_release` updates weights in the backward pass: it requires an optimizer of the "
                "weights themselves, without `master_weights`"
            )
        if self.checkpoint_activations and self.forward_only:
            raise InvalidRequest(
                "activation checkpointing recomputes for the backward pass; leave it out with `forward_only`"
            )

    def _check_choices(self) -> None:
        _one_of("precision", self.precision, PRECISIONS)
        _one_of("weights", self.weights, WEIGHTS)
        _one_of("attention", self.attention, ATTENTIONS)
        if self.optimizer is not None:
            _one_of("optimizer", self.optimizer, OPTIMIZERS)
        if self.loss is not None:
            _one_of("loss", self.loss, LOSSES)
        if self.fp8_scaling is not None:
            _one_of("fp8_scaling", self.fp8_scaling, FP8_SCALINGS)
            if self.precision != "fp8":
                raise InvalidRequest(
                    f"`fp8_scaling` {self.fp8_scaling} is for `precision` fp8, not {self.precision}; "
                    "give fp8 or leave it out"
                )

    @property
    def casts(self) -> bool:
        """Whether autocast is on."""
        return self.weights == "fp32" if self.autocast is None else self.autocast

    @property
    def adds_up_in_fp32(self) -> bool:
        """Whether half-precision gradients are added up in lasting FP32 buffers."""
        return self.master_weights and self.gradients == "fp32"


def usual_attention(asked: str | None, framework: str, year: int | None) -> str:
    """The attention of a step: as asked, or as is usual with the framework, in the software of a year.

    A kernel that was named stays; `sdpa` and `flash` are what PyTorch, Transformer Engine and the package
    flash-attn made of them in that year.
    """
    own = frameworks()[framework]
    kind = asked or own.attention or "sdpa"
    if year is None or kind not in ("sdpa", "flash"):
        return kind
    library = "flash-attn" if kind == "flash" else own.attention_library
    kernel = attention_in(library, year)
    if kind == "flash" and kernel == "eager":
        raise InvalidRequest(f"there was no flash attention in {year}; give `attention` eager")
    return kernel


def is_paged(optimizer: str | None) -> bool:
    """Whether an optimizer keeps its state in unified memory, as the paged ones of bitsandbytes do."""
    return optimizer is not None and optimizer.startswith("paged-")


def _one_of(name: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        near = nearest(value, allowed)
        suggestion = f"; did you mean {' or '.join(near)}?" if near else ""
        raise InvalidRequest(f"{name} {value!r} is not one of {', '.join(allowed)}{suggestion}")
