"""The layers LoRA puts in the place of linear ones, and the four-bit form a frozen weight may have."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

BLOCK_ELEMENTS = 64
"""Weights that share one scale (Dettmers et al., arXiv:2305.14314, section 3: blocks of 64)."""
BLOCK_SCALES = 256
"""Scales that share one scale of their own with double quantisation (the same, section 3)."""

_library = torch.library.Library("foretrain", "FRAGMENT")
_library.define("dequantise(Tensor packed, Tensor scales, int out, int columns, ScalarType dtype) -> Tensor")


def _dequantise(packed: Tensor, scales: Tensor, out: int, columns: int, dtype: torch.dtype) -> Tensor:
    """The shape of the result: a trace computes no values."""
    assert scales.dtype in (torch.float32, torch.uint8)
    return packed.new_empty((out, columns), dtype=dtype)


_library.impl("dequantise", _dequantise, "CompositeExplicitAutograd")


class _FourBitProduct(torch.autograd.Function):
    """x Wᵀ with W dequantised for the product, and again for the gradient of x: it is never kept."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, packed: Tensor, scales: Tensor, out: int) -> Tensor:
        ctx.save_for_backward(packed, scales)
        ctx.shape = (out, x.shape[-1])
        weight = torch.ops.foretrain.dequantise(packed, scales, *ctx.shape, x.dtype)
        return functional.linear(x, weight)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Any, ...]:
        packed, scales = ctx.saved_tensors
        weight = torch.ops.foretrain.dequantise(packed, scales, *ctx.shape, grads[0].dtype)
        return grads[0] @ weight, None, None, None


class FourBitLinear(nn.Module):
    """A frozen linear layer whose weight is kept in four bits.

    Two weights share a byte, and each block of 64 has a scale in FP32: 0.5 + 4/64 = 0.5625 bytes per weight.
    With `double` quantisation a scale takes a byte, and 256 of them share one in FP32: 0.5157 bytes per
    weight. The bias stays as it was.
    """

    def __init__(
        self, inputs: int, outputs: int, bias: nn.Parameter | None, device: torch.device, double: bool = False
    ) -> None:
        super().__init__()
        weights = inputs * outputs
        blocks = -(-weights // BLOCK_ELEMENTS)
        packed = torch.empty(-(-weights // 2), dtype=torch.uint8, device=device)
        scales = torch.empty(blocks, dtype=torch.uint8 if double else torch.float32, device=device)
        self.of_scales: nn.Parameter | None = None
        if double:
            shared = torch.empty(-(-blocks // BLOCK_SCALES), dtype=torch.float32, device=device)
            self.of_scales = nn.Parameter(shared, requires_grad=False)
        self.in_features, self.out_features = inputs, outputs
        self.packed = nn.Parameter(packed, requires_grad=False)
        self.scales = nn.Parameter(scales, requires_grad=False)
        self.bias = bias

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> FourBitLinear:
        """As `Module._apply`, but the scales keep FP32 where a module is converted to half precision."""

        def convert(tensor: Tensor) -> Tensor:
            converted = fn(tensor)
            keeps = tensor is self.scales or tensor is self.of_scales
            return tensor.to(converted.device) if keeps else converted

        super()._apply(convert, recurse)  # type: ignore[no-untyped-call]
        return self

    def forward(self, x: Tensor) -> Tensor:
        computing = torch.get_autocast_dtype("cuda") if torch.is_autocast_enabled("cuda") else x.dtype
        product: Tensor = _FourBitProduct.apply(  # type: ignore[no-untyped-call]
            x.to(computing), self.packed, self.scales, self.out_features
        )
        return product if self.bias is None else product + self.bias.to(computing)


class LoraLinear(nn.Module):
    """A frozen layer plus up(down(x)), scaled; only `down` and `up` are trained.

    They stay in FP32 where the module is converted to half precision, and their input is cast to it, as PEFT
    does by default (`autocast_adapter_dtype`).
    """

    def __init__(self, base: nn.Module, inputs: int, outputs: int, rank: int, device: torch.device) -> None:
        super().__init__()
        self.base = base
        self.down = nn.Linear(inputs, rank, bias=False, device=device)
        self.up = nn.Linear(rank, outputs, bias=False, device=device)
        self.scale = 1.0  # alpha = rank; another alpha costs the same

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> LoraLinear:
        """As `Module._apply`, but the trained matrices keep their precision."""
        frozen = {id(tensor) for tensor in self.base.parameters()}
        own = {id(tensor) for tensor in self.parameters()} - frozen

        def convert(tensor: Tensor) -> Tensor:
            converted = fn(tensor)
            return tensor.to(converted.device) if id(tensor) in own else converted

        super()._apply(convert, recurse)  # type: ignore[no-untyped-call]
        return self

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.base(x)
        added: Tensor = self.up(self.down(x.to(self.down.weight.dtype))) * self.scale
        return (result + added).to(result.dtype)


class DoraLinear(LoraLinear):
    """LoRA with the weight's magnitude trained apart from its direction: m · (W + B A) / ‖W + B A‖ by row.

    As PEFT computes it without dropout: B A as a matrix in FP32 for the norm, which is taken as a constant,
    and (m / norm - 1) · W x + (m / norm) · B A x added to W x. Liu et al., arXiv:2402.09353.
    """

    def __init__(self, base: nn.Module, inputs: int, outputs: int, rank: int, device: torch.device) -> None:
        super().__init__(base, inputs, outputs, rank, device)
        self.magnitude = nn.Parameter(torch.empty(outputs, device=device))

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.base(x)
        x = x.to(self.down.weight.dtype)
        unit = torch.eye(self.down.in_features, device=x.device, dtype=x.dtype)
        change = self.up(self.down(unit)).T.detach()
        norm = (_weight_of(self.base, x.dtype) + change * self.scale).norm(dim=1).detach()
        share = (self.magnitude / norm).view(1, -1)
        bias = getattr(self.base, "bias", None)
        linear = result if bias is None else result - bias
        added: Tensor = (share - 1) * linear + share * self.up(self.down(x)) * self.scale
        return (result + added).to(result.dtype)


def is_linear(layer: nn.Module) -> bool:
    """Whether a layer is a linear one: torch's, or the transposed one of transformers' GPT-2."""
    return isinstance(layer, nn.Linear) or _is_transposed(layer)


def _is_transposed(layer: nn.Module) -> bool:
    library = sys.modules.get("transformers.pytorch_utils")
    return library is not None and isinstance(layer, library.Conv1D)


def four_bit(layer: Any, double: bool = False) -> FourBitLinear:
    """A linear layer with its weight in four bits."""
    inputs, outputs = _sizes(layer)
    return FourBitLinear(inputs, outputs, layer.bias, layer.weight.device, double)


def adapted(layer: Any, rank: int, dora: bool = False) -> LoraLinear:
    """A linear layer, in four bits or not, with trained matrices of a rank beside it."""
    inputs, outputs = _sizes(layer)
    device = layer.packed.device if isinstance(layer, FourBitLinear) else layer.weight.device
    return (DoraLinear if dora else LoraLinear)(layer, inputs, outputs, rank, device)


def _weight_of(layer: Any, dtype: torch.dtype) -> Tensor:
    """The weight of a layer, outputs × inputs, in a precision."""
    if isinstance(layer, FourBitLinear):
        sizes = layer.out_features, layer.in_features
        whole: Tensor = torch.ops.foretrain.dequantise(layer.packed, layer.scales, *sizes, dtype)
        return whole
    weight: Tensor = layer.weight.T if _is_transposed(layer) else layer.weight
    return weight.to(dtype)


def _sizes(layer: Any) -> tuple[int, int]:
    """Inputs and outputs."""
    if _is_transposed(layer):
        return tuple(layer.weight.shape)
    return layer.in_features, layer.out_features
