"""Liger-Kernel's benchmarks of layers and losses, eager: what PyTorch and Hugging Face run without Liger.

Each is a module whose input asks for a gradient, timed by Triton's `do_bench` (the second-level cache is
emptied between calls) forward, backward or both (`full`). `build` makes those modules whose benchmark script
says all of them: norms, gated MLPs, rotary embeddings, softmax and losses. The gradient of the output exists
before the timer starts, so a module ends in `_Seeded`, which computes nothing. Losses timed forward and
backward are left out: their gradients are added to those of the call before.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from calibration.datasets.measurements import rows
from foretrain.workloads.example import Example
from foretrain.workloads.graph import Graph
from foretrain.workloads.options import ResolvedOptions
from foretrain.workloads.tracing.step import trace

SOURCE = "liger"
_FILE = Path("liger/layers.csv")
_EAGER = frozenset({"huggingface", "torch"})
_ACCUMULATES = frozenset({"cross_entropy", "kl_div"})
_TYPES = {"torch.bfloat16": torch.bfloat16, "torch.float32": torch.float32}
Forward = Callable[..., Tensor]


@dataclass(frozen=True)
class LayerTime:
    """Seconds of one layer on a device; `sizes` are those of its benchmark, the swept one included."""

    kernel: str
    device_id: str
    phase: str
    sizes: Mapping[str, Any]
    seconds: float


def times(data: Path) -> Iterator[LayerTime]:
    """The eager times."""
    for row in rows(data / _FILE):
        adds_up = row["kernel"] in _ACCUMULATES and row["phase"] == "full"
        if row["quantity"] == "seconds" and row["provider"] in _EAGER and not adds_up:
            sizes = {**json.loads(row["config"]), row["x"]: int(float(row["x_value"]))}
            yield LayerTime(row["kernel"], row["device"], row["phase"], sizes, float(row["value"]))


class _Seeded(torch.autograd.Function):
    """A scalar of outputs whose gradients are there already."""

    @staticmethod
    def forward(ctx: Any, *outputs: Tensor) -> Tensor:
        ctx.like = outputs
        return outputs[0].new_empty(())

    @staticmethod
    def backward(ctx: Any, _: Tensor) -> tuple[Tensor, ...]:
        return tuple(torch.empty_like(each) for each in ctx.like)


def _seeded(*outputs: Tensor) -> Tensor:
    scalar: Tensor = _Seeded.apply(*outputs)  # type: ignore[no-untyped-call]
    return scalar


class _Timed(nn.Module):
    """A function of inputs that ask for gradients, and of weights."""

    def __init__(self, function: Forward, *inputs: Tensor, weights: nn.Module | None = None) -> None:
        super().__init__()
        self.inputs, self.weights = nn.ParameterList(inputs), weights
        self._function = function

    def forward(self, target: Tensor) -> Tensor:
        output = self._function(*self.inputs, target)
        return output if output.ndim == 0 else _seeded(output)


def graph_of(time: LayerTime) -> Graph | None:
    """Forward and backward pass of a layer; None where its description does not say all of it."""
    made = _LAYERS.get(time.kernel)
    if made is None:
        return None
    half = _TYPES[time.sizes.get("dtype", "torch.float32")] is torch.bfloat16
    with torch.device("meta"):
        module, target = made(time.sizes, _TYPES[time.sizes.get("dtype", "torch.float32")])
    example = Example(module, (target,), loss=None, samples=1)
    precision = "bf16" if half else "fp32"
    return trace(
        example,
        ResolvedOptions(
            precision=precision, optimizer=None, weights=precision, autocast=False, half_outputs=True
        ),
    )


Made = tuple[nn.Module, Tensor]


def _no_target() -> Tensor:
    return torch.empty(1)


def _rms_norm(sizes: Mapping[str, Any], dtype: torch.dtype) -> Made:
    """LlamaRMSNorm: in FP32, back to the type of the input, times the weight."""

    def function(x: Tensor, weight: Tensor, _: Tensor) -> Tensor:
        wide = x.to(torch.float32)
        wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + sizes["eps"])
        return weight * wide.to(dtype)

    x, weight = torch.empty(sizes["M"], sizes["H"], dtype=dtype), torch.empty(sizes["H"], dtype=dtype)
    return _Timed(function, x, weight), _no_target()


def _layer_norm(sizes: Mapping[str, Any], dtype: torch.dtype) -> Made:
    norm = nn.LayerNorm(sizes["N"], dtype=dtype)
    x = torch.empty(sizes["M"], sizes["N"], dtype=dtype)
    return _Timed(lambda x, _: norm(x), x, weights=norm), _no_target()


def _group_norm(sizes: Mapping[str, Any], dtype: torch.dtype) -> Made:
    norm = nn.GroupNorm(sizes["C"] // sizes["channels_per_group"], sizes["C"], dtype=dtype)
    x = torch.empty(sizes["M"], sizes["C"], sizes["H"], dtype=dtype)
    return _Timed(lambda x, _: norm(x), x, weights=norm), _no_target()


def _gated_mlp(sizes: Mapping[str, Any], dtype: torch.dtype) -> Made:
    """LlamaMLP: down(act(gate(x)) * up(x)), without biases."""
    hidden, between = sizes["hidden_size"], sizes["intermediate_size"]
    gate, up = (nn.Linear(hidden, between, bias=False, dtype=dtype) for _ in range(2))
    down = nn.Linear(between, hidden, bias=False, dtype=dtype)
    act = nn.SiLU() if sizes["hidden_act"] == "silu" else nn.GELU(approximate="tanh")
    x = torch.empty(sizes.get("B", sizes.get("bsz")), sizes["T"], hidden, dtype=dtype)
    weights = nn.ModuleList([gate, up, down])
    return _Timed(lambda x, _: down(act(gate(x)) * up(x)), x, weights=weights), _no_target()


def _rotated(x: Tensor) -> Tensor:
    first, second = x.chunk(2, dim=-1)
    return torch.cat((-second, first), dim=-1)


def _rope(sizes: Mapping[str, Any], dtype: torch.dtype) -> Made:
    """Rotary embedding of queries and keys as in Hugging Face's Llama, heads before tokens."""
    heads, kv_heads = sizes["num_q_heads"], sizes["num_kv_heads"]
    head, tokens = sizes.get("H", sizes.get("hidden_size")) // heads, sizes.get("T", sizes.get("seq_len"))
    q, k = (torch.empty(1, tokens, each, head, dtype=dtype) for each in (heads, kv_heads))

    def function(q: Tensor, k: Tensor, angles: Tensor) -> Tensor:
        q, k, cos = q.transpose(1, 2), k.transpose(1, 2), angles.to(dtype).unsqueeze(1)
        return _seeded(q * cos + _rotated(q) * cos, k * cos + _rotated(k) * cos)

    return _Timed(function, q, k), torch.empty(1, tokens, head)


def _softmax(sizes: Mapping[str, Any], dtype: torch.dtype) -> Made:
    x = torch.empty(sizes["M"], sizes["N"], dtype=dtype)
    return _Timed(lambda x, _: torch.softmax(x, -1), x), _no_target()


def _relu_squared(sizes: Mapping[str, Any], dtype: torch.dtype) -> Made:
    x = torch.empty(sizes["M"], sizes["N"], dtype=dtype)
    return _Timed(lambda x, _: torch.relu(x).square(), x), _no_target()


def _cross_entropy(sizes: Mapping[str, Any], dtype: torch.dtype) -> Made:
    tokens = sizes["B"] * sizes["T"]
    logits, target = torch.empty(tokens, sizes["V"], dtype=dtype), torch.empty(tokens, dtype=torch.int64)
    return _Timed(nn.functional.cross_entropy, logits), target


def _kl_div(sizes: Mapping[str, Any], dtype: torch.dtype) -> Made:
    shape = sizes["B"] * sizes["T"], sizes["V"]
    loss = nn.KLDivLoss(reduction="batchmean")
    return _Timed(loss, torch.empty(shape, dtype=dtype)), torch.empty(shape, dtype=dtype)


_LAYERS: Mapping[str, Callable[[Mapping[str, Any], torch.dtype], Made]] = {
    "rms_norm": _rms_norm,
    "layer_norm": _layer_norm,
    "group_norm": _group_norm,
    "swiglu": _gated_mlp,
    "geglu": _gated_mlp,
    "tiled_swiglu": _gated_mlp,
    "tiled_geglu": _gated_mlp,
    "rope": _rope,
    "softmax": _softmax,
    "relu_squared": _relu_squared,
    "cross_entropy": _cross_entropy,
    "kl_div": _kl_div,
}
