"""Layers that several models of the zoo share.

The unit most convolutional networks repeat: convolution, batch norm, activation.

Norms that training frameworks fuse by hand, as one operator of the same traffic.

Multi-head attention, once for every transformer of the zoo. Vaswani et al., arXiv:1706.03762.

    softmax(scale · Q Kᵀ + bias) V

`eager` does this op by op, so it writes the whole score matrix; `sdpa` and `flash` call torch's fused one.

What transformer layers are made of: feed-forward networks, residual sublayers, the block itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from foretrain.workloads.tracing.fused import attend_in_window, window_mask
from foretrain.workloads.zoo.catalogue import AttentionKind

Kernel = int | tuple[int, int]


def same_padding(kernel: Kernel) -> Kernel:
    """The padding that keeps the size at stride 1, for odd kernels."""
    return kernel // 2 if isinstance(kernel, int) else (kernel[0] // 2, kernel[1] // 2)


def conv_norm(
    inputs: int,
    outputs: int,
    kernel: Kernel = 1,
    *,
    stride: int = 1,
    padding: Kernel | None = None,
    groups: int = 1,
    activation: nn.Module | None = None,
    eps: float = 1e-5,
) -> nn.Sequential:
    """Convolution without bias, batch norm, and the activation if one is given; padding keeps the size."""
    padding = same_padding(kernel) if padding is None else padding
    convolution = nn.Conv2d(inputs, outputs, kernel, stride, padding, groups=groups, bias=False)
    layers = [convolution, nn.BatchNorm2d(outputs, eps=eps)]
    return nn.Sequential(*layers, *([activation] if activation else []))


def conv_norm_relu(
    inputs: int,
    outputs: int,
    kernel: Kernel = 1,
    *,
    stride: int = 1,
    padding: Kernel | None = None,
    eps: float = 1e-5,
) -> nn.Sequential:
    """`conv_norm` with an in-place ReLU."""
    relu = nn.ReLU(inplace=True)
    return conv_norm(inputs, outputs, kernel, stride=stride, padding=padding, activation=relu, eps=eps)


class FusedRMSNorm(nn.LayerNorm):
    """x / rms(x) · weight in one kernel: it reads, writes and saves what a layer norm without a bias does."""

    def __init__(self, width: int, eps: float = 1e-5) -> None:
        super().__init__(width, eps=eps, bias=False)


class CastingRMSNorm(nn.RMSNorm):
    """In the precision of its weight: autocast leaves the outputs of products in half precision."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.to(self.weight.dtype))


Rotary = tuple[Tensor, Tensor]
"""Cosine and sine of the rotary position angles, each (positions, head width)."""


class Attention(nn.Module):
    """Projections, attention over the heads, output projection.

    `fused` makes queries, keys and values by one linear layer. Fewer `kv_heads` than `heads` is grouped-query
    attention. `scale` is 1/√(head width) unless given. A `bias` handed to `forward` must hold the causal mask
    itself, if there is to be one. `fused_kernels` scale in the product, mask in the softmax and rotate in one
    pass, as Megatron's do. `input_bias` is whether queries, keys and values have a bias, by default as the
    output does. `head_norm` makes the norm of each head of queries and keys. With a `window`, a token attends
    to itself and the `window` - 1 before it. `memory_width` is the width of what another sequence attends to,
    `key_bias` whether keys have a bias where queries and values do.
    """

    def __init__(
        self,
        width: int,
        heads: int,
        *,
        kind: AttentionKind,
        causal: bool = False,
        dropout: float = 0.0,
        fused: bool = False,
        linear_bias: bool = True,
        head_width: int | None = None,
        kv_heads: int | None = None,
        scale: float | None = None,
        fused_kernels: bool = False,
        input_bias: bool | None = None,
        head_norm: Callable[[int], nn.Module] | None = None,
        window: int = 0,
        memory_width: int | None = None,
        key_bias: bool = True,
    ) -> None:
        super().__init__()
        self.kind, self.causal, self.dropout, self.window = kind, causal, dropout, window
        self.heads, self.kv_heads = heads, kv_heads or heads
        self.head_width = head_width or width // heads
        self.scale = 1 / math.sqrt(self.head_width) if scale is None else scale
        self.query_width = self.heads * self.head_width
        self.kv_width = self.kv_heads * self.head_width
        self.fused, self.fused_kernels = fused, fused_kernels
        input_bias = linear_bias if input_bias is None else input_bias
        if fused:
            self.qkv = nn.Linear(width, self.query_width + 2 * self.kv_width, bias=input_bias)
        else:
            self.query = nn.Linear(width, self.query_width, bias=input_bias)
            read = memory_width or width
            self.key = nn.Linear(read, self.kv_width, bias=input_bias and key_bias)
            self.value = nn.Linear(read, self.kv_width, bias=input_bias)
        self.query_norm = None if head_norm is None else head_norm(self.head_width)
        self.key_norm = None if head_norm is None else head_norm(self.head_width)
        self.output = nn.Linear(self.query_width, width, bias=linear_bias)

    def forward(
        self,
        x: Tensor,
        memory: Tensor | None = None,
        bias: Tensor | None = None,
        rotary: Rotary | None = None,
    ) -> Tensor:
        """Attend from `x` to itself, or to `memory`."""
        query, key, value = self._project(x, x if memory is None else memory)
        if self.query_norm is not None and self.key_norm is not None:
            query, key = self.query_norm(query), self.key_norm(key)
        if rotary is not None:
            turn = rotate_in_one_pass if self.fused_kernels else rotate
            query, key = turn(query, rotary), turn(key, rotary)
        attended = (self._eager if self.kind == "eager" else self._fused)(query, key, value, bias)
        output: Tensor = self.output(attended.transpose(1, 2).flatten(2))
        return output

    def _project(self, x: Tensor, memory: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        if self.fused:
            query, key, value = self.qkv(x).split([self.query_width, self.kv_width, self.kv_width], dim=-1)
        else:
            query, key, value = self.query(x), self.key(memory), self.value(memory)
        return self._by_head(query), self._by_head(key), self._by_head(value)

    def _by_head(self, x: Tensor) -> Tensor:
        return x.view(*x.shape[:-1], -1, self.head_width).transpose(1, 2)

    def _fused(self, query: Tensor, key: Tensor, value: Tensor, bias: Tensor | None) -> Tensor:
        dropout, grouped = self.dropout if self.training else 0.0, self.kv_heads != self.heads
        if self.window:
            return attend_in_window(
                query, key, value, self.window, dropout, self.causal, self.scale, enable_gqa=grouped
            )
        return functional.scaled_dot_product_attention(
            query,
            key,
            value,
            attn_mask=bias,
            dropout_p=dropout,
            is_causal=self.causal and bias is None,
            scale=self.scale,
            enable_gqa=grouped,
        )

    def _eager(self, query: Tensor, key: Tensor, value: Tensor, bias: Tensor | None) -> Tensor:
        if self.kv_heads != self.heads:
            key = key.repeat_interleave(self.heads // self.kv_heads, dim=1)
            value = value.repeat_interleave(self.heads // self.kv_heads, dim=1)
        scores = query @ key.transpose(-2, -1)
        if self.scale != 1 and not self.fused_kernels:
            scores = scores * self.scale
        if bias is None and self.causal and not self.fused_kernels and not self.window:
            bias = causal_bias(scores)
        if bias is not None:
            scores = scores + bias
        if self.window:
            beyond = ~window_mask(query, key, self.window, self.causal)
            scores = scores.masked_fill(beyond, -math.inf)
        weights = functional.dropout(scores.softmax(dim=-1), self.dropout, self.training)
        return weights @ value


def causal_bias(like: Tensor) -> Tensor:
    """Minus infinity above the diagonal, 0 elsewhere; of the last two dimensions and the type of `like`."""
    return like.new_full(like.shape[-2:], -math.inf).triu(1)


def rotary_angles(positions: int, head_width: int, base: float, like: Tensor) -> Rotary:
    """cos and sin of position · base^(-2i / head width), typed as `like`. Su et al., arXiv:2104.09864."""
    index = torch.arange(0, head_width, 2, device=like.device, dtype=torch.float32)
    frequency = base ** (-index / head_width)
    angles = torch.outer(torch.arange(positions, device=like.device, dtype=torch.float32), frequency)
    angles = torch.cat((angles, angles), dim=-1)
    return angles.cos().to(like.dtype), angles.sin().to(like.dtype)


def rotate_in_one_pass(x: Tensor, rotary: Rotary) -> Tensor:
    """As one fused kernel, for what it costs: reads the heads, writes them, saves only the angles."""
    return x * rotary[0]


def rotate(x: Tensor, rotary: Rotary) -> Tensor:
    """Turn each pair (i, i + half) of the head by its position's angle."""
    cosine, sine = rotary
    first, second = x.chunk(2, dim=-1)
    return x * cosine + torch.cat((-second, first), dim=-1) * sine


class ComposedGelu(nn.Module):
    """GELU by its tanh approximation, op by op, as the original GPT-2 and its common ports compute it.

    0.5 x (1 + tanh(√(2/π) (x + 0.044715 x³))). Hendrycks and Gimpel, arXiv:1606.08415.
    """

    def forward(self, x: Tensor) -> Tensor:
        return 0.5 * x * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * torch.pow(x, 3.0))))


ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {
    "relu": nn.ReLU,
    "gelu": nn.GELU,
    "gelu-tanh": lambda: nn.GELU(approximate="tanh"),
    "gelu-composed": ComposedGelu,
}


class FeedForward(nn.Module):
    """down(dropout(activation(up(x))))."""

    def __init__(
        self, width: int, hidden: int, activation: str, *, dropout: float = 0.0, linear_bias: bool = True
    ) -> None:
        super().__init__()
        self.up = nn.Linear(width, hidden, bias=linear_bias)
        self.activation = ACTIVATIONS[activation]()
        self.dropout = nn.Dropout(dropout)
        self.down = nn.Linear(hidden, width, bias=linear_bias)

    def forward(self, x: Tensor) -> Tensor:
        output: Tensor = self.down(self.dropout(self.activation(self.up(x))))
        return output


class SwiGLU(nn.Module):
    """down(silu(gate(x)) · up(x)), without biases. Shazeer, arXiv:2002.05202.

    `merged` makes gate and up by one product. Another `activation` in place of silu makes it GeGLU.
    """

    def __init__(
        self,
        width: int,
        hidden: int,
        merged: bool = False,
        activation: Callable[[], nn.Module] = nn.SiLU,
    ) -> None:
        super().__init__()
        self.merged = merged
        if merged:
            self.gate_up = nn.Linear(width, 2 * hidden, bias=False)
        else:
            self.gate = nn.Linear(width, hidden, bias=False)
            self.up = nn.Linear(width, hidden, bias=False)
        self.down = nn.Linear(hidden, width, bias=False)
        self.silu = activation()

    def forward(self, x: Tensor) -> Tensor:
        gate, up = self.gate_up(x).chunk(2, dim=-1) if self.merged else (self.gate(x), self.up(x))
        output: Tensor = self.down(self.silu(gate) * up)
        return output


class SparseSwiGLU(nn.Module):
    """Each token is the weighted sum of a few of many SwiGLU networks, those its router prefers.

    Tokens are spread evenly, as the load-balancing loss of training makes them: every expert works on its
    share. Jiang et al., arXiv:2401.04088.
    """

    def __init__(self, width: int, hidden: int, experts: int, per_token: int) -> None:
        super().__init__()
        self.per_token = per_token
        self.router = nn.Linear(width, experts, bias=False)
        self.experts = nn.ModuleList(SwiGLU(width, hidden) for _ in range(experts))

    def forward(self, x: Tensor) -> Tensor:
        probability = self.router(x).softmax(dim=-1)
        trust, expert = probability.topk(self.per_token, dim=-1)
        trust = trust / trust.sum(dim=-1, keepdim=True)
        gates = torch.zeros_like(probability).scatter(-1, expert, trust)
        share = math.ceil(x.size(1) * self.per_token / len(self.experts))
        weight, token = gates.transpose(1, 2).topk(share, dim=-1)
        outputs = [
            network(x.gather(1, across(slots, x)))
            for network, slots in zip(self.experts, token.unbind(1), strict=True)
        ]
        output: Tensor = torch.cat(outputs, dim=1) * weight.flatten(1).unsqueeze(-1)
        return output.new_zeros(x.shape).scatter_add(1, across(token.flatten(1), x), output)


def across(token: Tensor, x: Tensor) -> Tensor:
    """Token indices (batch, slots) widened to every feature of `x`."""
    return token.unsqueeze(-1).expand(-1, -1, x.size(-1))


class Residual(nn.Module):
    """x + dropout(inner(norm(x))) with the norm first, norm(x + dropout(inner(x))) with the norm after.

    With `norm_after`, a second norm follows what the first one leads to: x + norm_after(inner(norm(x))).
    """

    def __init__(
        self,
        inner: nn.Module,
        norm: nn.Module,
        dropout: float,
        *,
        norm_first: bool,
        norm_after: nn.Module | None = None,
    ) -> None:
        super().__init__()
        self.inner, self.norm = inner, norm
        self.norm_after = norm_after
        self.dropout = nn.Dropout(dropout)
        self.norm_first = norm_first

    def forward(self, x: Tensor, **given: Any) -> Tensor:
        if self.norm_after is not None:
            output: Tensor = x + self.dropout(self.norm_after(self.inner(self.norm(x), **given)))
        elif self.norm_first:
            output = x + self.dropout(self.inner(self.norm(x), **given))
        else:
            output = self.norm(x + self.dropout(self.inner(x, **given)))
        return output


class Block(nn.Module):
    """Self-attention, cross-attention in a decoder that has a memory to read, and a feed-forward network."""

    def __init__(
        self,
        attention: nn.Module,
        feed_forward: nn.Module,
        norm: Callable[[], nn.Module],
        *,
        cross_attention: nn.Module | None = None,
        dropout: float = 0.0,
        norm_first: bool = True,
        norm_after: bool = False,
    ) -> None:
        super().__init__()

        def residual(inner: nn.Module) -> Residual:
            second = norm() if norm_after else None
            return Residual(inner, norm(), dropout, norm_first=norm_first, norm_after=second)

        self.attention = residual(attention)
        self.cross_attention = residual(cross_attention) if cross_attention else None
        self.feed_forward = residual(feed_forward)

    def forward(
        self,
        x: Tensor,
        memory: Tensor | None = None,
        bias: Tensor | None = None,
        rotary: Rotary | None = None,
    ) -> Tensor:
        x = self.attention(x, bias=bias, rotary=rotary)
        if self.cross_attention is not None:
            x = self.cross_attention(x, memory=memory)
        output: Tensor = self.feed_forward(x)
        return output
