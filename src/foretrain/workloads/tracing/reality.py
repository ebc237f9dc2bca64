"""What a GPU would really run: mixed precision, fused attention, fused recurrent networks, fused dropout.

A function mode that sits above autograd and changes calls the way CUDA's autocast and PyTorch's CUDA kernels
would, so that casts, saved tensors and gradients come out as they do on a GPU.

Reference: the operator lists of the PyTorch documentation, "Automatic Mixed Precision package", CUDA ops.
"""

from __future__ import annotations

import math
import types
from collections.abc import Callable
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from foretrain.workloads.tracing import fused
from foretrain.workloads.tracing.values import map_tensors

LOWER_PRECISION = frozenset(
    (
        "__matmul__ __rmatmul__ addbmm addmm addmv addr baddbmm bmm chain_matmul linalg_multi_dot conv1d "
        "conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d linear matmul mm mv prelu "
        "einsum scaled_dot_product_attention lstm gru rnn_tanh rnn_relu lstm_cell gru_cell rnn_tanh_cell "
        "rnn_relu_cell bilinear conv_tbc grouped_mm _grouped_mm"
    ).split()
)
FULL_PRECISION = frozenset(
    (
        "__pow__ __rpow__ __rdiv__ __rtruediv__ acos asin binary_cross_entropy_with_logits cosh "
        "cosine_embedding_loss cdist cosine_similarity cumprod cumsum dist erfinv exp expm1 group_norm "
        "hinge_embedding_loss kl_div l1_loss layer_norm log log10 log1p log2 margin_ranking_loss mse_loss "
        "multilabel_margin_loss multi_margin_loss nll_loss nll_loss_nd norm pdist poisson_nll_loss pow "
        "prod reciprocal rsqrt sinh smooth_l1_loss huber_loss soft_margin_loss softplus sum renorm tan "
        "triplet_margin_loss rms_norm ctc_loss linalg_vector_norm linalg_norm"
    ).split()
)
_HALF = (torch.float16, torch.bfloat16)
_RECURRENT = frozenset(fused.GATES)
_PYTHON_LEVEL = ("torch.nn.functional", "torch.functional")


class Reality(TorchFunctionMode):
    """Turns calls into those a GPU would run. `half` is the autocast type, or None for full precision."""

    def __init__(self, half: torch.dtype | None, attention: str) -> None:
        super().__init__()
        self._half = half
        self._attention = attention
        self._transparent: dict[Any, Callable[..., Any]] = {}
        self._cast_of: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
        self._running: set[Any] = set()
        self.is_paused = False

    def forget_casts(self) -> None:
        """Drop the cached half-precision weights, as leaving an autocast block does."""
        self._cast_of.clear()

    def __torch_function__(
        self, func: Any, kinds: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if self.is_paused:
            return func(*args, **kwargs)
        name = getattr(func, "__name__", "").partition(".")[0]  # exported programs call linear.default
        if _is_written_in_python(func) and name != "einsum":
            # A function written in Python: run its body with this mode on, so that what it calls is seen.
            # One that comes back to itself (meshgrid, through a helper that asks again) runs as it is.
            if func in self._running:
                return func(*args, **kwargs)
            self._running.add(func)
            try:
                with self:
                    return self._without_override_check(func)(*args, **kwargs)
            finally:
                self._running.discard(func)
        if name == "dropout":
            return self._dropout(func, *args, **kwargs)
        if name in ("scaled_dot_product_attention", "attend_in_window"):
            return self._attend(*args, **kwargs)
        if name in _RECURRENT:
            return self._recur(func, name, args, kwargs)
        if self._half is not None:
            return self._autocast(func, name, args, kwargs)
        return func(*args, **kwargs)

    def _without_override_check(self, func: types.FunctionType) -> Callable[..., Any]:
        """The same function, not asking whether a mode wants to override it (this one just did)."""
        known = self._transparent.get(func)
        if known is None:
            scope = dict(func.__globals__)
            for check in ("has_torch_function", "has_torch_function_unary", "has_torch_function_variadic"):
                scope[check] = lambda *_: False
            known = types.FunctionType(
                func.__code__, scope, func.__name__, func.__defaults__, func.__closure__
            )
            known.__kwdefaults__ = func.__kwdefaults__
            self._transparent[func] = known
        return known

    # Mixed precision

    def _autocast(self, func: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if name in LOWER_PRECISION:
            return func(*self._lowered(args), **self._lowered(kwargs))
        if name in {"softmax", "log_softmax"} and _is_half(args[0]):
            return fused.softmax(
                args[0], kwargs.get("dim", args[1] if len(args) > 1 else -1), name != "softmax"
            )
        if name == "cross_entropy_loss" and _is_half(args[0]) and not args[1].is_floating_point():
            return _cross_entropy_to_full(*args, **kwargs)
        if name in FULL_PRECISION or name == "cross_entropy_loss":
            return func(*_raise_half(args), **_raise_half(kwargs))
        if name in {"cat", "stack", "index_put", "scatter_add", "where", "addcmul", "addcdiv"}:
            return func(*_promote(args), **kwargs)
        return func(*args, **kwargs)

    def _lowered(self, value: Any) -> Any:
        return map_tensors(
            value, lambda tensor: self._to_half(tensor) if tensor.dtype in (torch.float32, *_HALF) else tensor
        )

    def _to_half(self, tensor: torch.Tensor) -> torch.Tensor:
        assert self._half is not None
        if tensor.dtype == self._half:
            return tensor
        if not (tensor.is_leaf and tensor.requires_grad):
            return tensor.to(self._half)
        known = self._cast_of.get(id(tensor))
        if known is None:
            known = (tensor, tensor.to(self._half))
            self._cast_of[id(tensor)] = known
        return known[1]

    # Fused kernels

    def _dropout(self, func: Any, input: torch.Tensor, p: float, train: bool) -> Any:  # noqa: A002
        if train and 0 < p < 1:
            return torch.native_dropout(input, p, train)[0]
        return func(input, p, train)

    def _attend(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        attn_mask: torch.Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        scale: float | None = None,
        enable_gqa: bool = False,
        window: int = 0,
    ) -> torch.Tensor:
        if self._half is not None:
            query, key, value = self._lowered((query, key, value))
        if self._attention == "eager" or query.dim() != 4:  # the fused kernels take four dimensions only
            with self:
                if window:
                    attn_mask, is_causal = fused.window_mask(query, key, window, is_causal), False
                return _eager_attention(query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa)
        algorithm = "flash" if self._attention == "flash" or query.dtype in _HALF else "efficient"
        return fused.attention(query, key, value, attn_mask, is_causal, algorithm, dropout_p, window)

    def _recur(self, func: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if len(args) != 9 or not isinstance(args[2], list | tuple):  # packed sequences: as PyTorch runs them
            return func(*args, **kwargs)
        input_, states, weights, _, layers, _, _, bidirectional, batch_first = args
        hidden = (states[0] if isinstance(states, list | tuple) else states).shape[-1]
        if self._half is not None:
            input_, weights = self._lowered(input_), self._lowered(weights)
        out, last = fused.rnn(name, input_, list(weights), hidden, layers, bidirectional, batch_first)
        return (out, last, last.clone()) if name == "lstm" else (out, last)


def _is_written_in_python(func: Any) -> bool:
    return isinstance(func, types.FunctionType) and func.__globals__.get("__name__") in _PYTHON_LEVEL


def _is_half(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.dtype in _HALF


def _raise_half(value: Any) -> Any:
    return map_tensors(value, lambda tensor: tensor.float() if tensor.dtype in _HALF else tensor)


def _promote(value: Any) -> Any:
    """Tensors of mixed floating types, all in the widest."""
    flat = [item for group in value for item in (group if isinstance(group, list | tuple) else [group])]
    kinds = {item.dtype for item in flat if isinstance(item, torch.Tensor) and item.is_floating_point()}
    return _raise_half(value) if len(kinds) > 1 else value


def _cross_entropy_to_full(
    input_: torch.Tensor,
    target: torch.Tensor,
    weight: torch.Tensor | None = None,
    reduction: int = 1,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
) -> torch.Tensor:
    log_probabilities = fused.softmax(input_, 1 if input_.dim() > 1 else 0, log=True)
    loss = torch._C._nn.nll_loss_nd(log_probabilities, target, weight, reduction, ignore_index)  # type: ignore[arg-type]
    if label_smoothing > 0:
        smooth = -log_probabilities.sum(1)
        smooth = smooth.mean() if reduction == 1 else smooth.sum() if reduction == 2 else smooth
        loss = (1 - label_smoothing) * loss + smooth * (label_smoothing / input_.shape[1])
    return loss


def _eager_attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    mask: torch.Tensor | None,
    dropout: float,
    causal: bool,
    scale: float | None,
    grouped: bool,
) -> torch.Tensor:
    """softmax(Q Kᵀ · scale + mask) V as separate operators."""
    if grouped:
        repeats = query.shape[-3] // key.shape[-3]
        key, value = key.repeat_interleave(repeats, -3), value.repeat_interleave(repeats, -3)
    scores = torch.matmul(query, key.transpose(-2, -1)) * (scale or 1 / math.sqrt(query.shape[-1]))
    if causal:
        allowed = torch.ones(scores.shape[-2:], dtype=torch.bool, device=query.device).tril()
        scores = scores.masked_fill(~allowed, float("-inf"))
    elif mask is not None:
        scores = scores.masked_fill(~mask, float("-inf")) if mask.dtype == torch.bool else scores + mask
    weights = torch.softmax(scores, -1)
    if dropout > 0:
        weights = torch.dropout(weights, dropout, True)
    return torch.matmul(weights, value)
