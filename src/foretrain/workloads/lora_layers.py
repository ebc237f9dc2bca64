"""The layers LoRA puts in the place of linear ones, and the four-bit form a frozen weight may have."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, NamedTuple

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


class _FourBitWeights(nn.Module):
    """Frozen weights in four bits.

    Two weights share a byte, and each block of 64 has a scale in FP32: 0.5 + 4/64 = 0.5625 bytes per weight.
    With `double` quantisation a scale takes a byte, and 256 of them share one in FP32: 0.5157 bytes per
    weight.
    """

    def __init__(self, weights: int, device: torch.device, double: bool = False) -> None:
        super().__init__()
        blocks = -(-weights // BLOCK_ELEMENTS)
        packed = torch.empty(-(-weights // 2), dtype=torch.uint8, device=device)
        scales = torch.empty(blocks, dtype=torch.uint8 if double else torch.float32, device=device)
        self.of_scales: nn.Parameter | None = None
        if double:
            shared = torch.empty(-(-blocks // BLOCK_SCALES), dtype=torch.float32, device=device)
            self.of_scales = nn.Parameter(shared, requires_grad=False)
        self.packed = nn.Parameter(packed, requires_grad=False)
        self.scales = nn.Parameter(scales, requires_grad=False)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> _FourBitWeights:
        """As `Module._apply`, but the scales keep FP32 where a module is converted to half precision."""

        def convert(tensor: Tensor) -> Tensor:
            converted = fn(tensor)
            keeps = tensor is self.scales or tensor is self.of_scales
            return tensor.to(converted.device) if keeps else converted

        super()._apply(convert, recurse)  # type: ignore[no-untyped-call]
        return self


class FourBitLinear(_FourBitWeights):
    """A frozen linear layer whose weight is kept in four bits. The bias stays as it was."""

    def __init__(
        self, inputs: int, outputs: int, bias: nn.Parameter | None, device: torch.device, double: bool = False
    ) -> None:
        super().__init__(inputs * outputs, device, double)
        self.in_features, self.out_features = inputs, outputs
        self.bias = bias

    def forward(self, x: Tensor) -> Tensor:
        computing = _computing_type(x)
        product: Tensor = _FourBitProduct.apply(  # type: ignore[no-untyped-call]
            x.to(computing), self.packed, self.scales, self.out_features
        )
        return product if self.bias is None else product + self.bias.to(computing)


def _computing_type(x: Tensor) -> torch.dtype:
    return torch.get_autocast_dtype("cuda") if torch.is_autocast_enabled("cuda") else x.dtype


class FourBitStack(_FourBitWeights):
    """Weights of several experts, stored as one frozen tensor, in four bits."""

    def __init__(self, weight: Tensor, double: bool = False) -> None:
        super().__init__(weight.numel(), weight.device, double)
        self.shape = tuple(weight.shape)

    def forward(self, dtype: torch.dtype) -> Tensor:
        """The weights in a precision."""
        rows = math.prod(self.shape[:-1])
        whole: Tensor = torch.ops.foretrain.dequantise(self.packed, self.scales, rows, self.shape[-1], dtype)
        return whole.view(self.shape)


def quantise_experts(part: nn.Module, double: bool = False) -> None:
    """Put the weights that a module of experts stores as stacks into four bits, in place.

    They are dequantised for the products, and again for the gradients of their inputs: never kept.
    """
    stacks = {name: FourBitStack(weight, double) for name, weight in stacked_weights(part).items()}
    for name, stack in stacks.items():
        del part._parameters[name]
        part.add_module(name, stack)
    forward = part.forward

    @wraps(forward)
    def dequantising(x: Tensor, *args: Any, **kwargs: Any) -> Any:
        whole = {name: stack(_computing_type(x)) for name, stack in stacks.items()}
        names = {_storage(weight): name for name, weight in whole.items()}
        part.__dict__.update(whole)  # found before the submodule of the same name
        try:
            with torch.autograd.graph.saved_tensors_hooks(
                lambda saved: _Dequantised.of(saved, names), lambda kept: kept.again(stacks)
            ):
                return forward(x, *args, **kwargs)
        finally:
            for name in whole:
                del part.__dict__[name]

    part.forward = dequantising


class _Dequantised(NamedTuple):
    """What is kept of a saved tensor: itself, or which weights to dequantise again, and as which view."""

    tensor: Tensor | None
    name: str = ""
    dtype: torch.dtype = torch.float32
    view: tuple[Any, ...] = ()

    @staticmethod
    def of(saved: Tensor, names: Mapping[int, str]) -> _Dequantised:
        name = names.get(_storage(saved))
        if name is None:
            return _Dequantised(saved)
        return _Dequantised(None, name, saved.dtype, (saved.shape, saved.stride(), saved.storage_offset()))

    def again(self, stacks: Mapping[str, FourBitStack]) -> Tensor:
        if self.tensor is not None:
            return self.tensor
        weights: Tensor = stacks[self.name](self.dtype)
        return weights.as_strided(*self.view)


def _storage(tensor: Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)


def stacked_weights(part: nn.Module) -> dict[str, nn.Parameter]:
    """The weights that a module of experts keeps as stacks of matrices; empty for all other modules."""
    if "expert" not in type(part).__name__.lower():
        return {}
    return {
        name: weight for name, weight in part._parameters.items() if weight is not None and weight.dim() == 3
    }


class LoraLinear(nn.Module):
    """A frozen layer plus up(down(x)), scaled; only `down` and `up` are trained.

    They stay in FP32 where the module is converted to half precision, and their input is cast to it, as PEFT
    does by default (`autocast_adapter_dtype`), unless they are to have the precision of the base (`half`).
    """

    def __init__(self, base: nn.Module, inputs: int, outputs: int, rank: int, device: torch.device) -> None:
        super().__init__()
        self.base = base
        self.half_adapter = False
        self.down = nn.Linear(inputs, rank, bias=False, device=device)
        self.up = nn.Linear(rank, outputs, bias=False, device=device)
        self.scale = 1.0  # alpha = rank; another alpha costs the same

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> LoraLinear:
        """As `Module._apply`, but the trained matrices keep their precision."""
        frozen = {id(tensor) for tensor in self.base.parameters()}
        own = {id(tensor) for tensor in self.parameters()} - frozen

        def convert(tensor: Tensor) -> Tensor:
            converted = fn(tensor)
            keeps = id(tensor) in own and not self.half_adapter
            return tensor.to(converted.device) if keeps else converted

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


def adapt(layer: Any, rank: int, dora: bool = False, half: bool = False) -> LoraLinear:
    """A linear layer, in four bits or not, with trained matrices of a rank beside it."""
    inputs, outputs = _sizes(layer)
    device = layer.packed.device if isinstance(layer, FourBitLinear) else layer.weight.device
    adapter = (DoraLinear if dora else LoraLinear)(layer, inputs, outputs, rank, device)
    adapter.half_adapter = half
    return adapter


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
