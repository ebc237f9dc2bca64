"""The selective scan of state-space models as one operator, as the kernels of mamba-ssm run it.

Without those kernels transformers runs a loop over the tokens, which is not used for training. The kernel
never stores the states of all tokens: it keeps one pair per chunk and computes the others again in the
backward pass. Gu and Dao 2023, arXiv:2312.00752, section 3.3.2.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import FunctionCtx

CHUNK = 2048
"""Tokens per stored state in `selective_scan_fwd` of mamba-ssm."""

_library = torch.library.Library("foretrain", "FRAGMENT")
_library.define(
    "selective_scan(Tensor input, Tensor delta, Tensor A, Tensor B, Tensor C, Tensor? D, Tensor? gate,"
    " Tensor? bias) -> (Tensor, Tensor, Tensor)"
)
_library.define(
    "selective_scan_backward(Tensor grad, Tensor input, Tensor delta, Tensor A, Tensor B, Tensor C,"
    " Tensor? D, Tensor? gate, Tensor? bias, Tensor out, Tensor states)"
    " -> (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)"
)


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


_OPERANDS = 8
"""Operands of a scan, which come after the gradient in its backward pass."""


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
