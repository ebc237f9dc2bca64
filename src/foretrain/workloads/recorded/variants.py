"""How a step is run, as far as its calls depend on it: by which a recording is found.

Everything else about a step changes no call (TF32, FP8, `compile`, offloading), or only its optimizer.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from typing import NamedTuple

from foretrain.facts.frameworks import frameworks
from foretrain.workloads.lora import LoraOptions
from foretrain.workloads.options import ResolvedOptions

FULL, AUTOCAST, HALF, HALF_OUTPUTS = "fp32", "autocast", "bf16", "bf16-half-outputs"
FP32_GRADIENTS, HALF_AUTOCAST = "bf16-fp32-gradients", "bf16-autocast"
"""How weights are stored and computed with; FP16 is recorded as BF16 (`workload`)."""
STORAGES = (FULL, AUTOCAST, HALF, HALF_OUTPUTS, FP32_GRADIENTS)
CHECKPOINTS = ("", "blocks", "selective", "blocks-whole", "selective-whole")
"""What is recomputed: nothing, blocks, or what is between products; `whole` blocks to their end."""
USUAL_STORAGES = (FULL, AUTOCAST)
LORA = (
    *("", ",quantised", ",quantised,double", ",dora", ",half"),
    *(",all-linear", ",all-linear,quantised", ",all-linear,quantised,double"),
)
"""Layers that LoRA is put beside, if not the default ones, and how."""
RECORDER_OPTIMIZER = "sgd"
"""Lasting FP32 gradients are made by an optimizer, whose own calls are then left out."""


class StepVariant(NamedTuple):
    """What calls depend on. `single` is a batch of one, where tensors of size one take shortcuts."""

    storage: str
    eager: bool = False
    checkpoint: str = ""
    channels_last: bool = False
    forward_only: bool = False
    single: bool = False
    lora: str = ""

    @property
    def key(self) -> str:
        """The variant as a text."""
        switches = ("eager", "channels_last", "forward_only", "single")
        words = [
            self.storage,
            self.checkpoint,
            *(name for name in switches if getattr(self, name)),
            self.lora,
        ]
        return " ".join(word for word in words if word)


def variant_of(options: ResolvedOptions, lora: LoraOptions | None, single: bool) -> StepVariant | None:
    """The variant of a step, or None where none is recorded."""
    storage = _storage(options)
    if storage is None or options.gradient_release or options.attention not in ("sdpa", "eager"):
        return None
    checkpoint = ""
    if options.checkpoint_activations:
        checkpoint = "selective" if options.selective_checkpointing else "blocks"
        if frameworks()[options.framework].recomputes_whole_blocks:
            checkpoint += "-whole"
    return StepVariant(
        storage,
        options.attention == "eager",
        checkpoint,
        options.channels_last,
        options.forward_only,
        single,
        "" if lora is None else _describe(lora),
    )


def _storage(options: ResolvedOptions) -> str | None:
    half = options.precision in ("bf16", "fp8")
    if options.weights == "fp32":
        if half and options.casts:
            return AUTOCAST
        return FULL if half or options.precision in ("fp32", "tf32") else None
    if options.weights != "bf16":
        return None
    adds_up = options.adds_up_in_fp32 and options.optimizer is not None and not options.forward_only
    if options.casts:
        return None if adds_up or options.half_outputs else HALF_AUTOCAST
    if adds_up:
        return None if options.half_outputs else FP32_GRADIENTS
    return HALF_OUTPUTS if options.half_outputs else HALF


def _describe(lora: LoraOptions) -> str:
    flags = [name for name in ("quantised", "double", "dora", "half") if getattr(lora, name)]
    return ",".join(("lora", *lora.targets, *flags))


def options_of(variant: StepVariant) -> ResolvedOptions:
    """Options that a variant is traced with."""
    plain = ResolvedOptions(
        precision="fp32" if variant.storage == FULL else "bf16",
        optimizer=None,
        attention="eager" if variant.eager else "sdpa",
        weights="fp32" if variant.storage in (FULL, AUTOCAST) else "bf16",
        autocast=True if variant.storage == HALF_AUTOCAST else None,
        half_outputs=variant.storage == HALF_OUTPUTS,
        channels_last=variant.channels_last,
        forward_only=variant.forward_only,
        checkpoint_activations=bool(variant.checkpoint),
        selective_checkpointing=variant.checkpoint.startswith("selective"),
        framework="megatron" if variant.checkpoint.endswith("whole") else "pytorch",
    )
    if variant.storage != FP32_GRADIENTS:
        return plain
    return replace(plain, optimizer=RECORDER_OPTIMIZER, master_weights=True, gradients="fp32")


def lora_of(variant: StepVariant, rank: int) -> LoraOptions | None:
    """The LoRA options that a variant is traced with."""
    if not variant.lora:
        return None
    words = variant.lora.split(",")[1:]
    flags = {name: True for name in words if name in ("quantised", "double", "dora", "half")}
    return LoraOptions(rank, tuple(word for word in words if word not in flags), **flags)


def list_variants(attention: bool, lora: bool, images: bool) -> Iterator[StepVariant]:
    """The variants that are recorded: of models with attention to choose, with LoRA, of images."""
    for single in (False, True):
        for eager, last in product((False, True)[: 1 + attention], (False, True)[: 1 + images]):
            for storage in STORAGES:
                yield StepVariant(storage, eager, channels_last=last, single=single)
            usual = STORAGES if attention and not last else USUAL_STORAGES
            recomputed = CHECKPOINTS[1:] if attention and not eager else CHECKPOINTS[1:2]
            for storage, checkpoint in product(usual, recomputed):
                yield StepVariant(storage, eager, checkpoint, last, single=single)
            for storage in USUAL_STORAGES:
                yield StepVariant(storage, eager, "", last, forward_only=True, single=single)
        for kind in LORA if lora else ():
            for storage, checkpoint in product((FULL, HALF_AUTOCAST)[bool(kind) :], CHECKPOINTS[:2]):
                yield StepVariant(storage, False, checkpoint, single=single, lora=f"lora{kind}")
