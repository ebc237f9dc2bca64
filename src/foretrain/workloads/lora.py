"""LoRA, DoRA and QLoRA: train two small matrices beside each frozen weight.

y = W x + (alpha / r) · B A x, with W frozen, A of shape r × in and B of shape out × r. Hu et al.,
arXiv:2106.09685. QLoRA keeps W in four bits and dequantises it whenever it is used: Dettmers et al.,
arXiv:2305.14314. DoRA also trains the length of each row of W + B A: Liu et al., arXiv:2402.09353.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from foretrain.errors import InvalidRequest, UnknownName

if TYPE_CHECKING:
    from torch import nn

DEFAULT_TARGETS = (
    "q_proj", "v_proj", "query", "value", "q_lin", "v_lin", "q", "v", "query_key_value", "Wqkv", "qkv_proj",
    "qkv", "c_attn", "in_proj", "x_proj",
)  # fmt: skip
"""The layers LoRA is put beside unless others are named: queries and values, or what makes them together.

PEFT's defaults by architecture (`TRANSFORMERS_MODELS_TO_LORA_TARGET_MODULES_MAPPING`)."""

ALL_LINEAR = "all-linear"
_SAME_LAYER = (
    {"q_proj", "query", "q_lin", "q"},
    {"k_proj", "key", "k_lin", "k"},
    {"v_proj", "value", "v_lin", "v"},
    {"o_proj", "output", "out_proj", "out_lin", "o"},
    {"gate_proj", "gate"},
    {"up_proj", "up", "fc_in"},
    {"down_proj", "down", "fc_out"},
    {"qkv", "qkv_proj", "Wqkv", "query_key_value", "c_attn"},
)
"""Names that different models give the same layer: a target of one name selects any of them."""

_KEYS = ("r", "targets", "quantised", "double", "dora", "half")
_FLAGS = ("quantised", "double", "dora", "half")


@dataclass(frozen=True)
class LoraOptions:
    """The rank of the trained matrices, the layers they stand beside, and whether the rest is in four bits.

    `double` also quantises the scales of a quantised base, as QLoRA does. `dora` also trains the magnitude of
    each row of the adapted weights. `half` keeps the trained matrices in the precision of the base, as
    torchtune and LitGPT do; PEFT keeps them in FP32.

    `targets` are last parts of layer names, or `all-linear`: all linear layers but the output. None means the
    queries and values, as PEFT chooses, or all linear layers of a model that has none by a usual name.
    """

    rank: int = 16
    targets: tuple[str, ...] = ()
    quantised: bool = False
    dora: bool = False
    double: bool = False
    half: bool = False

    def __post_init__(self) -> None:
        if self.double and not self.quantised:
            raise InvalidRequest("`lora` double quantises the scales of a quantised base: add quantised")
        if self.rank < 1:
            raise InvalidRequest(f"LoRA of rank {self.rank} trains nothing; the rank must be at least 1")


def parse_lora(text: str) -> LoraOptions:
    """Options from `r=16`, `r=8,targets=q_proj+v_proj`, `r=16,quantised,double`, `r=16,dora`, `r=16,half`."""
    entries: dict[str, str] = {}
    for item in filter(None, (part.strip() for part in text.split(","))):
        key, _, value = (piece.strip() for piece in item.partition("="))
        if key not in _KEYS:
            raise UnknownName("LoRA option", key, _KEYS, "Write r=16,targets=q_proj+v_proj,quantised.")
        if key in entries:
            raise InvalidRequest(f"the LoRA option {key} is given twice in {text!r}")
        entries[key] = value
    if not re.fullmatch(r"\d+", entries.get("r", "")):
        raise InvalidRequest(f"{text!r} gives no rank; write r=16,targets=q_proj+v_proj,quantised")
    for flag in _FLAGS:
        if entries.get(flag):
            raise InvalidRequest(f"{flag} takes no value in {text!r}; write it alone, or leave it out")
    targets = tuple(filter(None, (target.strip() for target in entries.get("targets", "").split("+"))))
    flags = {flag: flag in entries for flag in _FLAGS}
    return LoraOptions(int(entries["r"]), targets, **flags)


def format_lora(options: LoraOptions) -> str:
    """The text that `parse_lora` reads as these options."""
    targets = [f"targets={'+'.join(options.targets)}"] if options.targets else []
    return ",".join([f"r={options.rank}", *targets, *(flag for flag in _FLAGS if getattr(options, flag))])


def apply_lora(module: nn.Module, options: LoraOptions) -> nn.Module:
    """The module, changed in place: everything frozen but a pair of new matrices beside each target.

    `quantised` puts every linear layer into four bits but the output layer, as QLoRA does, and the weights
    that experts store together.
    """
    from foretrain.workloads.lora_layers import adapt, four_bit, quantise_experts, stacked_weights

    linears = _linears(module)
    if not linears:
        raise InvalidRequest("this model has no linear layers for LoRA to stand beside; leave out `lora`")
    chosen = _targets(list(linears), options, _output_layer(module, linears))
    module.requires_grad_(False)
    frozen: dict[str, nn.Module] = dict(linears)
    if options.quantised:
        frozen |= {
            path: four_bit(linears[path], options.double)
            for path in linears
            if path != _output_layer(module, linears)
        }
        for part in [each for each in module.modules() if stacked_weights(each)]:
            quantise_experts(part, options.double)
    for path, layer in frozen.items():
        parent, _, name = path.rpartition(".")
        new = adapt(layer, options.rank, options.dora, options.half) if path in chosen else layer
        setattr(module.get_submodule(parent), name, new)
    return module


def _linears(module: nn.Module) -> dict[str, nn.Module]:
    """Linear layers by path, but for those that torch's own attention reaches into."""
    from torch import nn

    from foretrain.workloads.lora_layers import is_linear

    inside = {
        id(child)
        for part in module.modules()
        if isinstance(part, nn.MultiheadAttention)
        for child in part.modules()
    }
    return {
        path: layer
        for path, layer in module.named_modules()
        if path and is_linear(layer) and id(layer) not in inside
    }


def _output_layer(module: nn.Module, linears: dict[str, nn.Module]) -> str:
    """The path of the layer that makes the logits: what the model says it is, else the last linear layer."""
    for part in module.modules():
        says = getattr(part, "get_output_embeddings", None)
        output = says() if says is not None else None
        if output is not None:
            return next((path for path, layer in linears.items() if layer is output), "")
    return list(linears)[-1]


def _targets(paths: list[str], options: LoraOptions, output: str) -> list[str]:
    last_parts = {path: path.rpartition(".")[2] for path in paths}
    if options.targets == (ALL_LINEAR,):
        return [path for path in paths if path != output] or paths
    names = sorted(set(last_parts.values()))
    wanted = {name for target in options.targets for name in _select_names(target, names)}
    chosen = [path for path, name in last_parts.items() if name in (wanted or DEFAULT_TARGETS)]
    return chosen or paths


def _select_names(target: str, names: list[str]) -> set[str]:
    """The layer names that a target selects: itself, or what this model calls the same layer."""
    if target in names:
        return {target}
    same = next((group for group in _SAME_LAYER if target in group), set())
    if not same & set(names):
        known = f"Linear layers: {', '.join([*names[:20], ALL_LINEAR])}."
        raise UnknownName("linear layer", target, names, known)
    return same & set(names)
