"""Fused kernels as single operators: attention, cuDNN recurrent networks, selective scans, softmax.

On the meta device PyTorch would decompose them (attention into matrix products with a stored score matrix, an
LSTM into hundreds of step operators). A GPU runs each as one kernel, so it is recorded as one operator, with
outputs, saved tensors and gradients of the same sizes.

The selective scan of state-space models is recorded as the kernels of mamba-ssm run it. Without those kernels
transformers runs a loop over the tokens, which is not used for training. The kernel never stores the states
of all tokens: it keeps one pair per chunk and computes the others again in the backward pass. Gu and Dao
2023, arXiv:2312.00752, section 3.3.2.

`ensure_shapes` adds shapes that torch lacks on the meta device.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import FunctionCtx

GATES = {"lstm": 4, "gru": 3, "rnn_tanh": 1, "rnn_relu": 1}
_CTC = "aten::_ctc_loss.Tensor"
_CTC_BACKWARD = ("aten::_ctc_loss_backward", "aten::_ctc_loss_backward.Tensor")
CHUNK = 2048
"""Tokens per stored state in `selective_scan_fwd` of mamba-ssm."""
_OPERANDS = 8
"""Operands of a scan, which come after the gradient in its backward pass."""

_library = torch.library.Library("foretrain", "DEF")
_library.define(
    "attention(Tensor query, Tensor key, Tensor value, Tensor? mask, bool causal, str algorithm,"
    " float dropout, int window=0) -> (Tensor, Tensor)"
)
_library.define(
    "attention_backward(Tensor grad, Tensor query, Tensor key, Tensor value, Tensor out, Tensor logsumexp,"
    " Tensor? mask, bool causal, str algorithm, float dropout, int window=0) -> (Tensor, Tensor, Tensor)"
)
_library.define(
    "rnn(Tensor input, Tensor[] weights, str mode, int hidden, int layers, bool bidirectional,"
    " bool batch_first) -> (Tensor, Tensor, Tensor)"
)
_library.define(
    "rnn_backward(Tensor grad, Tensor input, Tensor out, Tensor reserve, Tensor[] weights, str mode,"
    " int hidden, int layers, bool bidirectional, bool batch_first) -> (Tensor, Tensor[])"
)
_library.define("softmax(Tensor input, int dim, bool log) -> Tensor")
_library.define("softmax_backward(Tensor grad, Tensor out, int dim, bool log, ScalarType dtype) -> Tensor")
_library.define(
    "selective_scan(Tensor input, Tensor delta, Tensor A, Tensor B, Tensor C, Tensor? D, Tensor? gate,"
    " Tensor? bias) -> (Tensor, Tensor, Tensor)"
)
_library.define(
    "selective_scan_backward(Tensor grad, Tensor input, Tensor delta, Tensor A, Tensor B, Tensor C,"
    " Tensor? D, Tensor? gate, Tensor? bias, Tensor out, Tensor states)"
    " -> (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)"
)


def _attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    mask: torch.Tensor | None,
    causal: bool,
    algorithm: str,
    dropout: float,
    window: int = 0,
) -> tuple[torch.Tensor, torch.Tensor]:
    out = _tokens_before_heads(query, value.shape[-1])
    return out, query.new_empty(query.shape[:-1], dtype=torch.float32)


def _attention_backward(
    grad: torch.Tensor,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    *_: Any,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    return (
        _tokens_before_heads(query, query.shape[-1]),
        _tokens_before_heads(key, key.shape[-1]),
        _tokens_before_heads(value, value.shape[-1]),
    )


def _tokens_before_heads(like: torch.Tensor, width: int) -> torch.Tensor:
    """(batch, heads, tokens, width), as CUDA stores it: the transpose that follows costs nothing."""
    batch, heads, tokens, _ = like.shape
    return like.new_empty((batch, tokens, heads, width)).transpose(1, 2)


def _rnn(
    input_: torch.Tensor,
    weights: list[torch.Tensor],
    mode: str,
    hidden: int,
    layers: int,
    bidirectional: bool,
    batch_first: bool,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    directions = 2 if bidirectional else 1
    rows = input_.shape[:-1]
    out = input_.new_empty((*rows, hidden * directions))
    # What cuDNN keeps for the backward pass: every gate and the cell of every layer, direction and step.
    kept = (GATES[mode] + 1) * hidden * directions * layers
    last = input_.new_empty((layers * directions, rows[0 if batch_first else -1], hidden))
    return out, last, input_.new_empty((*rows, kept))


def _rnn_backward(
    grad: torch.Tensor,
    input_: torch.Tensor,
    out: torch.Tensor,
    reserve: torch.Tensor,
    weights: list[torch.Tensor],
    *_: Any,
) -> tuple[torch.Tensor, list[torch.Tensor]]:
    return torch.empty_like(input_), [torch.empty_like(weight) for weight in weights]


def _softmax(input_: torch.Tensor, dim: int, log: bool) -> torch.Tensor:
    return torch.empty_like(input_, dtype=torch.float32)


def _softmax_backward(
    grad: torch.Tensor, out: torch.Tensor, dim: int, log: bool, dtype: torch.dtype
) -> torch.Tensor:
    return torch.empty_like(out, dtype=dtype)


for _name, _implementation in {
    "attention": _attention,
    "attention_backward": _attention_backward,
    "rnn": _rnn,
    "rnn_backward": _rnn_backward,
    "softmax": _softmax,
    "softmax_backward": _softmax_backward,
}.items():
    _library.impl(_name, _implementation, "CompositeExplicitAutograd")


def _attention_values(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    causal: bool,
    algorithm: str,
    dropout: float,
    window: int = 0,
) -> tuple[Tensor, Tensor]:
    """The same with values, for steps that are run."""
    out, statistics = _attention(query, key, value, mask, causal, algorithm, dropout)
    with torch._C.DisableTorchFunction():
        grouped = query.shape[1] != key.shape[1]
        if window:
            mask, causal = window_mask(query, key, window, causal), False
        attended = torch.nn.functional.scaled_dot_product_attention(
            query, key, value, mask, dropout, causal, enable_gqa=grouped
        )
        return out.copy_(attended), statistics.zero_()


def _rnn_values(
    input_: Tensor,
    weights: list[Tensor],
    mode: str,
    hidden: int,
    layers: int,
    bidirectional: bool,
    batch_first: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    out, last, reserve = _rnn(input_, weights, mode, hidden, layers, bidirectional, batch_first)
    with torch._C.DisableTorchFunction():
        first = torch.zeros_like(last)
        states: Any = (first, first) if mode == "lstm" else first
        has_biases = len(weights) == 4 * layers * (2 if bidirectional else 1)
        run = getattr(torch._VF, mode)
        results = run(input_, states, weights, has_biases, layers, 0.0, False, bidirectional, batch_first)
        return out.copy_(results[0]), last.copy_(results[1]), reserve.zero_()


def _softmax_values(input_: Tensor, dim: int, log: bool) -> Tensor:
    with torch._C.DisableTorchFunction():
        return (torch.log_softmax if log else torch.softmax)(input_.float(), dim)


_library.impl("attention", _attention_values, "CPU")
_library.impl("rnn", _rnn_values, "CPU")
_library.impl("softmax", _softmax_values, "CPU")


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: FunctionCtx,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        mask: torch.Tensor | None,
        *choices: Any,
    ) -> torch.Tensor:
        out, logsumexp = torch.ops.foretrain.attention(query, key, value, mask, *choices)
        ctx.save_for_backward(query, key, value, out, logsumexp, mask)  # type: ignore[arg-type]
        ctx.choices = choices  # type: ignore[attr-defined]
        return out  # type: ignore[no-any-return]

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[Any, ...]:
        query, key, value, out, logsumexp, mask = ctx.saved_tensors
        gradients = torch.ops.foretrain.attention_backward(
            grads[0], query, key, value, out, logsumexp, mask, *ctx.choices
        )
        return (*gradients, None, *(None for _ in ctx.choices))


class _Rnn(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: FunctionCtx, choices: tuple[Any, ...], input_: torch.Tensor, *weights: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        out, last, reserve = torch.ops.foretrain.rnn(input_, list(weights), *choices)
        ctx.save_for_backward(input_, out, reserve, *weights)
        ctx.choices = choices  # type: ignore[attr-defined]
        return out, last

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[Any, ...]:
        input_, out, reserve, *weights = ctx.saved_tensors
        to_input, to_weights = torch.ops.foretrain.rnn_backward(
            grads[0], input_, out, reserve, weights, *ctx.choices
        )
        return (None, to_input, *to_weights)


class _Softmax(torch.autograd.Function):
    @staticmethod
    def forward(ctx: FunctionCtx, input_: torch.Tensor, dim: int, log: bool) -> torch.Tensor:
        out = torch.ops.foretrain.softmax(input_, dim, log)
        ctx.save_for_backward(out)
        ctx.choices = (dim, log, input_.dtype)  # type: ignore[attr-defined]
        return out  # type: ignore[no-any-return]

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[Any, ...]:
        return torch.ops.foretrain.softmax_backward(grads[0], *ctx.saved_tensors, *ctx.choices), None, None


def softmax(input_: torch.Tensor, dim: int, log: bool) -> torch.Tensor:
    """CUDA's softmax under autocast: reads half, computes and writes float, in one kernel."""
    return _Softmax.apply(input_, dim, log)  # type: ignore[no-any-return, no-untyped-call]


def attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    mask: torch.Tensor | None,
    causal: bool,
    algorithm: str,
    dropout: float,
    window: int = 0,
) -> torch.Tensor:
    """One fused attention; the score matrix is never stored, its row statistics are."""
    return _Attention.apply(query, key, value, mask, causal, algorithm, dropout, window)  # type: ignore[no-any-return, no-untyped-call]


def attend_in_window(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    window: int,
    dropout_p: float = 0.0,
    is_causal: bool = True,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """`scaled_dot_product_attention` of every query with the last `window` keys, its own among them, and with
    as many behind it if not causal.

    FlashAttention, cuDNN and PyTorch's memory-efficient kernel take a window and skip what is beyond it;
    PyTorch's function does not, and takes a mask. When traced it is one such kernel.
    """
    tensors = (query, key, value)
    if torch.overrides.has_torch_function(tensors):
        attended: Tensor = torch.overrides.handle_torch_function(
            attend_in_window,
            tensors,
            *tensors,
            window=window,
            dropout_p=dropout_p,
            is_causal=is_causal,
            scale=scale,
            enable_gqa=enable_gqa,
        )
        return attended
    mask = window_mask(query, key, window, is_causal)
    return torch.nn.functional.scaled_dot_product_attention(
        query, key, value, mask, dropout_p, scale=scale, enable_gqa=enable_gqa
    )


def window_mask(query: Tensor, key: Tensor, window: int, causal: bool) -> Tensor:
    """Which keys each query sees, (queries, keys)."""
    ones = torch.ones(query.shape[-2], key.shape[-2], dtype=torch.bool, device=query.device)
    return ones.triu(1 - window).tril(0 if causal else window - 1)


def rnn(
    mode: str,
    input_: torch.Tensor,
    weights: list[torch.Tensor],
    hidden: int,
    layers: int,
    bidirectional: bool,
    batch_first: bool,
) -> tuple[torch.Tensor, torch.Tensor]:
    """One fused recurrent network: its outputs at every step, and the last hidden state."""
    choices = (mode, hidden, layers, bidirectional, batch_first)
    return _Rnn.apply(choices, input_, *weights)  # type: ignore[no-any-return, no-untyped-call]


_shapes: list[torch.library.Library] = []
"""Holds what torch was taught; a torch library takes its operators along when it is collected."""


@cache
def ensure_shapes() -> None:
    """Teach torch, once per process, shapes it lacks on the meta device: the CTC loss and its gradient, and
    grouped products in other types than BF16, which CUDA runs too."""
    for name in _CTC_BACKWARD:
        if not torch._C._dispatch_has_kernel_for_dispatch_key(name, "Meta"):
            torch.library.impl(name, "Meta")(_ctc_gradient_shape)
    if not torch._C._dispatch_has_kernel_for_dispatch_key(_CTC, "Meta"):
        torch.library.impl(_CTC, "Meta")(_ctc_shape)
    if hasattr(torch.ops.aten, "_grouped_mm"):
        library = torch.library.Library("aten", "IMPL")
        library.impl("_grouped_mm", _grouped_shape, "Meta", allow_override=True)
        _shapes.append(library)


def _ctc_shape(log_probabilities: Tensor, targets: Tensor, *_: object, **__: object) -> tuple[Tensor, Tensor]:
    """A loss for each sample, and a lattice of frames by twice the labels and one.

    Labels one after another are taken to be as many in each sample.
    """
    frames, batch = log_probabilities.shape[:2]
    labels = targets.shape[1] if targets.dim() == 2 else -(-targets.shape[0] // batch)
    return log_probabilities.new_empty((batch,)), log_probabilities.new_empty((batch, frames, 2 * labels + 1))


def _ctc_gradient_shape(_: Tensor, log_probabilities: Tensor, *__: object, **___: object) -> Tensor:
    return torch.empty_like(log_probabilities)


def _grouped_shape(
    first: Tensor,
    second: Tensor,
    offs: Tensor | None = None,
    bias: Tensor | None = None,
    out_dtype: torch.dtype | None = None,
) -> Tensor:
    """Rows by group, or a matrix per group where rows are summed over or both operands are batches."""
    del bias
    if first.dim() == second.dim() == 2:
        assert offs is not None
        shape: tuple[int, ...] = (offs.shape[0], first.shape[0], second.shape[1])
    elif first.dim() == second.dim():
        shape = (first.shape[0], first.shape[1], second.shape[2])
    else:
        shape = (first.shape[-2], second.shape[-1])
    return first.new_empty(shape, dtype=out_dtype or first.dtype)


def _scan(
    input_: Tensor, delta: Tensor, a: Tensor, b: Tensor, c: Tensor, d: Any, gate: Any, bias: Any
) -> tuple[Tensor, Tensor, Tensor]:
    """The gated output, the output before the gate (the same where there is none), and a state per chunk."""
    del delta, b, c, d, bias
    batch, width, tokens = input_.shape
    states = input_.new_empty((batch, width, math.ceil(tokens / CHUNK), 2 * a.shape[-1]), dtype=torch.float32)
    return (
        input_.new_empty(input_.shape),
        input_.new_empty(input_.shape if gate is not None else (0,)),
        states,
    )


def _scan_backward(grad: Tensor, *given: Tensor | None) -> tuple[Tensor, ...]:
    """A gradient for each operand that was given."""
    operands = given[:_OPERANDS]
    return tuple(grad.new_empty((0,)) if each is None else torch.empty_like(each) for each in operands)


_library.impl("selective_scan", _scan, "CompositeExplicitAutograd")
_library.impl("selective_scan_backward", _scan_backward, "CompositeExplicitAutograd")


class _SelectiveScan(torch.autograd.Function):
    @staticmethod
    def forward(ctx: FunctionCtx, *given: Tensor | None) -> Tensor:
        gated, out, states = torch.ops.foretrain.selective_scan(*given)
        ctx.save_for_backward(*given, out, states)  # type: ignore[arg-type]
        return gated  # type: ignore[no-any-return]

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        *given, out, states = ctx.saved_tensors
        gradients = torch.ops.foretrain.selective_scan_backward(grads[0], *given, out, states)
        return tuple(
            None if each is None else gradient for each, gradient in zip(given, gradients, strict=True)
        )


def selective_scan(
    input_: Tensor,
    delta: Tensor,
    a: Tensor,
    b: Tensor,
    c: Tensor,
    D: Tensor | None = None,  # noqa: N803 - the names of mamba-ssm
    z: Tensor | None = None,
    delta_bias: Tensor | None = None,
    delta_softplus: bool = False,
    return_last_state: bool = False,
    **_: Any,
) -> Any:
    """`selective_scan_fn` of mamba-ssm: one kernel, with bias, softplus, skip and gate inside."""
    del delta_softplus
    out: Tensor = _SelectiveScan.apply(input_, delta, a, b, c, D, z, delta_bias)  # type: ignore[no-untyped-call]
    if not return_last_state:
        return out
    return out, input_.new_empty((*input_.shape[:2], a.shape[-1]))
