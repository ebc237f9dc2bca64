"""What the micro-benchmark runs: real torch operators, forward and backward, in sizes training uses.

An `OperatorTrial` is one function of a few tensors. Run on the meta device it shows which piece of work it
is, in the words the operator models read; run on the CPU it takes time. Sizes are spread over what decides
the speed of each kind (depth and width of products, channels and positions of convolutions, bytes against
the caches) and are not those of any one model.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from foretrain.workloads.graph import Phase

Function = Callable[..., Any]
_EACH = ((0,), (1,))
"""The gradient of the first operand, then that of the second."""
_SIZES = (64, 2**13, 2**16, 2**18, 2**20, 2**22, 7 * 2**20, 2**24)
"""Elements, from what is only overhead over what fits no cache to what is mapped anew each time."""
_LAYERS = (
    (64, 576),
    (64,),
    (128, 1152),
    (128,),
    (256, 2304),
    (256,),
    (512, 512),
    (512,),
    (1000, 512),
    (1000,),
)
"""Shapes of a list of parameters, large and small by turns."""


@dataclass(frozen=True)
class Operand:
    """A tensor of normal values, or of integers below `below`; `weight` if it is a parameter."""

    shape: tuple[int, ...]
    weight: bool = False
    below: int = 0

    def make(self, device: str) -> Tensor:
        """The tensor."""
        if self.below:
            return torch.randint(self.below, self.shape, device=device)
        return torch.randn(self.shape, device=device)


@dataclass(frozen=True)
class OperatorTrial:
    """A function of operands; each group of operands in `gradients` is a backward pass timed apart."""

    kind: str
    function: Function
    operands: tuple[Operand, ...]
    gradients: tuple[tuple[int, ...], ...] = ()
    phase: Phase = Phase.FORWARD

    @property
    def differentiated(self) -> frozenset[int]:
        """The operands that need a gradient."""
        return frozenset(index for group in self.gradients for index in group)


def trials() -> tuple[OperatorTrial, ...]:
    """All of them, the ones that matter most first."""
    return (
        *_products(), *_convolutions(), *_batched_products(), *_pointwise(), *_norms(), *_softmaxes(),
        *_recurrent(), *_attention(), *_pooling(), *_lookups(), *_dropouts(), *_reductions(), *_copies(),
        *_updates(), *_others(),
    )  # fmt: skip


def _products() -> Iterator[OperatorTrial]:
    """Linear layers with a bias, as (tokens, in, out)."""
    for tokens, inputs, outputs in (
        (256, 768, 3072), (256, 3072, 768), (256, 768, 768), (1024, 512, 2048), (1024, 1024, 1024),
        (2048, 256, 256), (512, 64, 64), (4096, 64, 256), (128, 128, 512), (64, 2048, 512), (64, 512, 1000),
        (8, 512, 1000), (4, 4096, 4096), (32, 4096, 1024), (200, 512, 20000), (16, 128, 64),
    ):  # fmt: skip
        weight = Operand((outputs, inputs), weight=True)
        bias = Operand((outputs,), weight=True)
        yield OperatorTrial("linear", functional.linear, (Operand((tokens, inputs)), weight, bias), _EACH)


def _batched_products() -> Iterator[OperatorTrial]:
    for batch, m, n, k in (
        (24, 128, 128, 64), (24, 128, 64, 128), (96, 64, 64, 64), (12, 384, 384, 64), (12, 384, 64, 384),
        (64, 50, 50, 512), (16, 256, 256, 128), (384, 32, 32, 64), (8, 16, 16, 16),
    ):  # fmt: skip
        yield OperatorTrial("matmul", torch.bmm, (Operand((batch, m, k)), Operand((batch, k, n))), _EACH)


@dataclass(frozen=True)
class _Convolve:
    stride: int
    padding: int
    groups: int

    def __call__(self, images: Tensor, weight: Tensor) -> Tensor:
        return functional.conv2d(images, weight, None, self.stride, self.padding, 1, self.groups)


def _convolution(
    batch: int, inputs: int, outputs: int, size: int, kernel: int, stride: int = 1, groups: int = 1
) -> OperatorTrial:
    weight = Operand((outputs, inputs // groups, kernel, kernel), weight=True)
    images = Operand((batch, inputs, size, size))
    return OperatorTrial("convolution", _Convolve(stride, kernel // 2, groups), (images, weight), _EACH)


@dataclass(frozen=True)
class _ConvolveSequence:
    padding: int

    def __call__(self, sequences: Tensor, weight: Tensor) -> Tensor:
        return functional.conv1d(sequences, weight, None, 1, self.padding)


def _sequence_convolution(batch: int, inputs: int, outputs: int, length: int, kernel: int) -> OperatorTrial:
    operands = (Operand((batch, inputs, length)), Operand((outputs, inputs, kernel), weight=True))
    return OperatorTrial("convolution", _ConvolveSequence(kernel // 2), operands, _EACH)


def _convolutions() -> Iterator[OperatorTrial]:
    """Dense, pointwise, first layers, sequences, grouped, depthwise.

    Shapes are (batch, in, out, size, kernel, stride).
    """
    for shape in (
        (8, 64, 64, 56, 3), (8, 128, 128, 28, 3), (8, 256, 256, 14, 3), (8, 512, 512, 7, 3),
        (2, 64, 64, 56, 3), (2, 256, 256, 28, 3), (2, 512, 512, 14, 3), (16, 32, 32, 32, 3),
        (16, 16, 16, 32, 3), (2, 64, 128, 112, 3), (4, 128, 256, 56, 3, 2), (4, 256, 512, 14, 3, 2),
        (8, 96, 24, 20, 3), (4, 32, 64, 27, 5), (2, 24, 48, 40, 7), (4, 512, 512, 4, 3), (32, 64, 64, 8, 3),
        (24, 384, 384, 1, 3), (48, 192, 192, 2, 3), (12, 512, 512, 2, 3), (16, 640, 512, 1, 3),
        (64, 128, 128, 4, 3), (8, 192, 192, 3, 5), (32, 24, 48, 16, 5), (16, 40, 20, 14, 5),
    ):  # fmt: skip
        yield _convolution(*shape)
    for shape in (
        (8, 64, 256, 56, 1), (8, 256, 64, 56, 1), (8, 512, 128, 28, 1), (8, 1024, 256, 14, 1),
        (8, 512, 2048, 7, 1), (8, 32, 16, 112, 1), (8, 24, 144, 56, 1), (8, 192, 32, 28, 1),
        (8, 96, 576, 14, 1), (8, 320, 1280, 7, 1), (8, 256, 512, 28, 1, 2), (2, 128, 128, 28, 1),
    ):  # fmt: skip
        yield _convolution(*shape)
    for shape in (
        (8, 3, 64, 224, 7, 2), (8, 3, 32, 112, 3, 2), (4, 3, 64, 96, 3), (16, 1, 32, 28, 3),
        (8, 3, 64, 224, 11, 4), (4, 3, 24, 128, 3, 2), (2, 3, 192, 224, 16, 16), (8, 3, 64, 32, 3),
        (64, 1, 16, 28, 5), (32, 1, 64, 32, 3), (8, 1, 24, 64, 7), (128, 1, 12, 20, 5),
    ):  # fmt: skip
        yield _convolution(*shape)
    for shape in (
        (4, 1, 32, 8000, 80), (2, 1, 64, 4000, 160), (2, 40, 24, 2000, 60), (2, 64, 64, 1000, 9),
        (4, 32, 48, 1500, 31), (8, 128, 128, 200, 3), (2, 24, 12, 800, 40), (4, 80, 256, 400, 5),
        (8, 20, 10, 400, 100), (2, 64, 32, 3000, 80),
    ):  # fmt: skip
        yield _sequence_convolution(*shape)
    for batch, channels, size, kernel, stride, group in (
        (8, 128, 56, 3, 1, 4), (8, 256, 28, 3, 1, 8), (8, 512, 14, 3, 1, 16), (4, 256, 28, 3, 2, 64),
        (8, 32, 112, 3, 1, 1), (8, 96, 112, 3, 2, 1), (8, 144, 56, 3, 1, 1), (8, 384, 14, 3, 1, 1),
        (8, 960, 7, 3, 1, 1), (2, 192, 28, 3, 2, 1), (8, 64, 28, 3, 1, 4), (4, 512, 7, 3, 1, 32),
        (8, 120, 28, 5, 1, 1), (4, 96, 28, 7, 1, 1), (4, 240, 14, 5, 2, 1), (2, 384, 14, 7, 1, 1),
    ):  # fmt: skip
        yield _convolution(batch, channels, channels, size, kernel, stride, channels // group)


def _pointwise() -> Iterator[OperatorTrial]:
    for elements in _SIZES:
        one = (Operand((elements,)),)
        yield OperatorTrial("elementwise", torch.relu, one, ((0,),))
        yield OperatorTrial("elementwise", torch.add, one * 2)
        yield OperatorTrial("elementwise", torch.mul, one * 2, ((0,),))
        if elements <= 2**22:
            yield OperatorTrial("elementwise", functional.gelu, one, ((0,),))
            yield OperatorTrial("elementwise", torch.tanh, one, ((0,),))
            yield OperatorTrial("elementwise", functional.silu, one, ((0,),))


def _batch_norm(images: Tensor, scale: Tensor, shift: Tensor, mean: Tensor, variance: Tensor) -> Tensor:
    return functional.batch_norm(images, mean, variance, scale, shift, training=True)


def _layer_norm(rows: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
    return functional.layer_norm(rows, rows.shape[-1:], scale, shift)


def _group_norm(images: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
    return functional.group_norm(images, 8, scale, shift)


def _norms() -> Iterator[OperatorTrial]:
    everything = ((0, 1, 2),)
    for batch, channels, size in (
        (8, 64, 112), (8, 64, 56), (4, 128, 56), (8, 256, 14), (8, 512, 7), (16, 16, 32), (2, 1024, 14),
        (2, 32, 8),
    ):  # fmt: skip
        affine = Operand((channels,), weight=True)
        images = Operand((batch, channels, size, size))
        yield OperatorTrial(
            "normalisation", _batch_norm, (images, affine, affine, affine, affine), everything
        )
        if channels <= 128:
            yield OperatorTrial("normalisation", _group_norm, (images, affine, affine), everything)
    for rows, length in ((256, 768), (1024, 768), (4096, 768), (64, 512), (2048, 128), (8, 256)):
        affine = Operand((length,), weight=True)
        yield OperatorTrial(
            "normalisation", _layer_norm, (Operand((rows, length)), affine, affine), everything
        )


def _last_softmax(scores: Tensor) -> Tensor:
    return torch.softmax(scores, -1)


def _log_softmax(logits: Tensor) -> Tensor:
    return torch.log_softmax(logits, -1)


def _softmaxes() -> Iterator[OperatorTrial]:
    for rows, length in ((3072, 128), (6144, 512), (8192, 64), (64, 64)):
        yield OperatorTrial("softmax", _last_softmax, (Operand((rows, length)),), ((0,),))
    for rows, length in ((128, 1000), (200, 20000), (8, 10)):
        yield OperatorTrial("softmax", _log_softmax, (Operand((rows, length)),), ((0,),))


@dataclass(frozen=True)
class _Recur:
    """A recurrent network with its weights as operands: the input, then torch's flat weights."""

    mode: str
    hidden: int
    layers: int
    bidirectional: bool

    def __call__(self, inputs: Tensor, *weights: Tensor) -> Tensor:
        states = self.layers * (2 if self.bidirectional else 1)
        zero = inputs.new_zeros(states, inputs.shape[1], self.hidden)
        start: Any = (zero, zero) if self.mode == "lstm" else zero
        run = getattr(torch, self.mode)
        outputs: Tensor = run(
            inputs, start, list(weights), True, self.layers, 0.0, True, self.bidirectional, False
        )[0]
        return outputs


def _recurrent() -> Iterator[OperatorTrial]:
    for mode, steps, batch, inputs, hidden, layers, both in (
        ("lstm", 40, 16, 512, 512, 1, False), ("lstm", 40, 64, 512, 512, 1, False),
        ("lstm", 24, 16, 256, 256, 2, False), ("lstm", 20, 4, 128, 128, 1, True),
        ("lstm", 16, 32, 512, 1024, 1, False), ("gru", 40, 16, 256, 256, 1, True),
        ("gru", 24, 8, 640, 512, 1, False), ("gru", 24, 32, 128, 256, 2, False),
    ):  # fmt: skip
        gates = 4 if mode == "lstm" else 3
        directions = 2 if both else 1
        weights: list[Operand] = []
        for layer in range(layers):
            width = inputs if layer == 0 else hidden * directions
            for _ in range(directions):
                shapes = (
                    (gates * hidden, width),
                    (gates * hidden, hidden),
                    (gates * hidden,),
                    (gates * hidden,),
                )
                weights += [Operand(shape, weight=True) for shape in shapes]
        operands = (Operand((steps, batch, inputs)), *weights)
        everything = (tuple(range(len(operands))),)
        yield OperatorTrial("rnn", _Recur(mode, hidden, layers, both), operands, everything)


@dataclass(frozen=True)
class _Attend:
    causal: bool
    dropout: float = 0.0

    def __call__(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return functional.scaled_dot_product_attention(
            query, key, value, dropout_p=self.dropout, is_causal=self.causal
        )


def _attention() -> Iterator[OperatorTrial]:
    for batch, heads, tokens, width, causal in (
        (2, 12, 128, 64, False), (2, 12, 512, 64, False), (4, 8, 197, 64, False), (2, 12, 256, 64, True),
        (1, 16, 512, 128, True), (4, 4, 64, 32, False),
    ):  # fmt: skip
        operands = (Operand((batch, heads, tokens, width)),) * 3
        yield OperatorTrial("attention", _Attend(causal), operands, ((0, 1, 2),))
        yield OperatorTrial("attention with dropout", _Attend(causal, 0.1), operands, ((0, 1, 2),))


@dataclass(frozen=True)
class _MaxPool:
    kernel: int
    stride: int

    def __call__(self, images: Tensor) -> Tensor:
        return functional.max_pool2d(images, self.kernel, self.stride, self.kernel // 3)


def _mean_pool(images: Tensor) -> Tensor:
    return functional.avg_pool2d(images, 3, 1, 1)


def _global_pool(images: Tensor) -> Tensor:
    return functional.adaptive_avg_pool2d(images, 7)


def _pooling() -> Iterator[OperatorTrial]:
    for batch, channels, size in ((8, 64, 112), (8, 64, 56), (4, 256, 28), (2, 16, 14)):
        images = (Operand((batch, channels, size, size)),)
        yield OperatorTrial("pooling", _MaxPool(3, 2), images, ((0,),))
        yield OperatorTrial("pooling", _MaxPool(2, 2), images, ((0,),))
        yield OperatorTrial("pooling", _mean_pool, images, ((0,),))
        yield OperatorTrial("pooling", _global_pool, images, ((0,),))


def _look_up(table: Tensor, ids: Tensor) -> Tensor:
    return functional.embedding(ids, table)


def _log_likelihood(log_probabilities: Tensor, targets: Tensor) -> Tensor:
    return functional.nll_loss(log_probabilities, targets)


def _lookups() -> Iterator[OperatorTrial]:
    for rows, width, tokens in ((30000, 512, 256), (30000, 768, 1024), (1000, 256, 64), (10000, 64, 4096)):
        table, ids = Operand((rows, width), weight=True), Operand((tokens,), below=rows)
        yield OperatorTrial("embedding", _look_up, (table, ids), ((0,),))
    for rows, classes in ((256, 30000), (128, 1000), (16, 10)):
        logits, targets = Operand((rows, classes)), Operand((rows,), below=classes)
        yield OperatorTrial("loss", _log_likelihood, (logits, targets), ((0,),))
    for rows, width, picked in ((1000, 768, 256), (20000, 64, 8192), (64, 16, 16)):
        source, ids = Operand((rows, width)), Operand((picked,), below=rows)
        yield OperatorTrial("gather", lambda source, ids: source.index_select(0, ids), (source, ids))


def _dropouts() -> Iterator[OperatorTrial]:
    for elements in (2**13, 2**16, 2**19, 2**22):
        yield OperatorTrial("dropout", lambda x: functional.dropout(x, 0.1), (Operand((elements,)),), ((0,),))
        yield OperatorTrial("random", torch.rand_like, (Operand((elements,)),))


def _reductions() -> Iterator[OperatorTrial]:
    for rows, length in ((256, 768), (256, 3072), (4096, 768), (16, 64), (2048, 4096)):
        yield OperatorTrial("reduction", lambda x: x.sum(0), (Operand((rows, length)),))
        yield OperatorTrial("reduction", lambda x: x.mean(-1), (Operand((rows, length)),))


def _copies() -> Iterator[OperatorTrial]:
    for batch, heads, tokens, width in ((2, 12, 128, 64), (2, 12, 512, 64), (8, 8, 64, 32), (8, 56, 64, 56)):
        swapped = Operand((batch, heads, tokens, width))
        yield OperatorTrial("copy", lambda x: x.transpose(1, 2).contiguous(), (swapped,))
    for elements in _SIZES[1:]:
        yield OperatorTrial("copy", torch.clone, (Operand((elements,)),))
        yield OperatorTrial("copy", torch.zeros_like, (Operand((elements,)),))
    for batch, channels, size in ((8, 64, 56), (8, 256, 14), (2, 32, 28)):
        half = Operand((batch, channels, size, size))
        yield OperatorTrial("copy", lambda a, b: torch.cat((a, b), 1), (half, half))


def _updates() -> Iterator[OperatorTrial]:
    for repeats, factor in ((1, 1), (4, 1), (2, 3), (6, 2)):
        shapes = [(shape[0] * factor, *shape[1:]) for shape in _LAYERS] * repeats
        one = tuple(Operand(shape, weight=True) for shape in shapes)
        count = len(one)
        yield OperatorTrial("optimizer", lambda *a: torch._foreach_mul_(a, 0.999), one, phase=Phase.OPTIMIZER)
        yield OperatorTrial(
            "optimizer",
            lambda *a, n=count: torch._foreach_add_(a[:n], a[n:], alpha=1e-6),
            one * 2,
            phase=Phase.OPTIMIZER,
        )
        yield OperatorTrial(
            "optimizer",
            lambda *a, n=count: torch._foreach_addcmul_(a[:n], a[n : 2 * n], a[n : 2 * n], 1e-6),
            one * 2,
            phase=Phase.OPTIMIZER,
        )
        yield OperatorTrial("optimizer", lambda *a: torch._foreach_abs(a), one, phase=Phase.OPTIMIZER)


def _upsample(images: Tensor) -> Tensor:
    return functional.interpolate(images, scale_factor=2, mode="nearest")


def _others() -> Iterator[OperatorTrial]:
    for batch, channels, size in ((4, 64, 28), (2, 256, 14)):
        yield OperatorTrial("resample", _upsample, (Operand((batch, channels, size, size)),), ((0,),))
    for rows, length in ((128, 1000), (16, 20000)):
        yield OperatorTrial("sort", lambda x: torch.sort(x)[0], (Operand((rows, length)),))
        yield OperatorTrial("scan", lambda x: x.cumsum(-1), (Operand((rows, length)),))
