"""What `torch.compile` really saves for the backward pass, beside what foretrain says.

`python -m tests.support.partitioned` prints the comparison for all modules.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from foretrain.prediction.memory.lifetimes import saved_bytes
from foretrain.workloads.example import Example
from foretrain.workloads.fusion import fuse
from foretrain.workloads.graph import Graph
from foretrain.workloads.options import ResolvedOptions
from foretrain.workloads.tracing.step import trace

_TOKENS, _WIDTH, _HEADS = 64, 64, 4
_LAYERS = 3


class Mlp(nn.Module):
    """Two linear layers with something between them."""

    def __init__(self, between: nn.Module) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(_WIDTH, 256), between, nn.Linear(256, _WIDTH))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.layers(tokens)
        return out


class RmsNorm(nn.Module):
    """The norm of Llama as Hugging Face writes it: in FP32, by single operators."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(_WIDTH))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        wide = tokens.float()
        wide = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + 1e-6)
        return self.weight * wide.to(tokens.dtype)


class Attention(nn.Module):
    """Causal attention, or one of single operators with dropout of its probabilities."""

    def __init__(self, dropout: float | None = None) -> None:
        super().__init__()
        self.projections = nn.Linear(_WIDTH, 3 * _WIDTH, bias=False)
        self.out = nn.Linear(_WIDTH, _WIDTH, bias=False)
        self.dropout = dropout

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        parts = self.projections(tokens).chunk(3, -1)
        query, key, value = (part.unflatten(-1, (_HEADS, -1)).transpose(1, 2) for part in parts)
        if self.dropout is None:
            mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        else:
            probabilities = torch.softmax(query @ key.transpose(-1, -2) / 4.0, -1)
            mixed = functional.dropout(probabilities, self.dropout) @ value
        out: torch.Tensor = self.out(mixed.transpose(1, 2).flatten(2))
        return out


class SwiGlu(nn.Module):
    """The gated MLP of Llama."""

    def __init__(self) -> None:
        super().__init__()
        self.gate, self.up, self.down = (
            nn.Linear(*sizes, bias=False) for sizes in ((_WIDTH, 192), (_WIDTH, 192), (192, _WIDTH))
        )

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.down(functional.silu(self.gate(tokens)) * self.up(tokens))
        return out


class Block(nn.Module):
    """A transformer block: norms before attention and MLP, residual connections around them."""

    def __init__(self, norm: Callable[[], nn.Module], attention: nn.Module, mlp: nn.Module) -> None:
        super().__init__()
        self.first, self.second = norm(), norm()
        self.attention, self.mlp = attention, mlp

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        tokens = tokens + self.attention(self.first(tokens))
        out: torch.Tensor = tokens + self.mlp(self.second(tokens))
        return out


class LanguageModel(nn.Module):
    """Embedding, blocks, head and the loss of predicting the tokens."""

    def __init__(self, vocabulary: int = 1000) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, _WIDTH)
        self.blocks = nn.Sequential(*(Block(RmsNorm, Attention(), SwiGlu()) for _ in range(_LAYERS)))
        self.head = nn.Sequential(RmsNorm(), nn.Linear(_WIDTH, vocabulary, bias=False))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        scores = self.head(self.blocks(self.embedding(tokens)))
        return functional.cross_entropy(scores.float().flatten(0, 1), tokens.flatten())


class Residual(nn.Module):
    """The basic block of a ResNet."""

    def __init__(self, channels: int = 16) -> None:
        super().__init__()
        self.branch = nn.Sequential(
            nn.Conv2d(channels, channels, 3, padding=1, bias=False),
            nn.BatchNorm2d(channels),
            nn.ReLU(inplace=True),
            nn.Conv2d(channels, channels, 3, padding=1, bias=False),
            nn.BatchNorm2d(channels),
        )

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return functional.relu(images + self.branch(images), inplace=True)


def _layer_norm() -> nn.Module:
    return nn.LayerNorm(_WIDTH)


def _transformer(
    norm: Callable[[], nn.Module], mlp: Callable[[], nn.Module], dropout: float | None
) -> nn.Module:
    return nn.Sequential(*(Block(norm, Attention(dropout), mlp()) for _ in range(_LAYERS)))


def _resnet() -> nn.Module:
    stem = (nn.Conv2d(3, 16, 7, 2, 3, bias=False), nn.BatchNorm2d(16), nn.ReLU(inplace=True))
    head = (nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 10))
    return nn.Sequential(*stem, nn.MaxPool2d(3, 2, 1), Residual(), Residual(), *head)


def _vgg() -> nn.Module:
    def stage(channels: int) -> tuple[nn.Module, ...]:
        return nn.Conv2d(channels, 16, 3, padding=1), nn.ReLU(inplace=True), nn.MaxPool2d(2)

    return nn.Sequential(*stage(3), *stage(16), nn.Flatten(), nn.Linear(16 * 16 * 16, 10))


MODULES: dict[str, Callable[[], nn.Module]] = {
    "MLP, GELU": lambda: Mlp(nn.GELU()),
    "MLP, ReLU and dropout": lambda: Mlp(nn.Sequential(nn.ReLU(), nn.Dropout(0.1))),
    "transformer, RMSNorm, SwiGLU": lambda: _transformer(RmsNorm, SwiGlu, None),
    "transformer, LayerNorm, GELU": lambda: _transformer(_layer_norm, lambda: Mlp(nn.GELU()), None),
    "transformer, eager attention": lambda: _transformer(_layer_norm, lambda: Mlp(nn.GELU()), 0.1),
    "language model": LanguageModel,
    "convolutions, residual": _resnet,
    "convolutions, ReLU and pooling": _vgg,
}


def _inputs(name: str) -> torch.Tensor:
    if name == "language model":
        return torch.randint(0, 1000, (4, _TOKENS))
    return torch.randn(4, 3, 64, 64) if "convolutions" in name else torch.randn(4, _TOKENS, _WIDTH)


def _loss(out: torch.Tensor) -> torch.Tensor:
    return out if out.dim() == 0 else out.float().square().mean()


def graph_of_module(name: str, weights: str, **options: Any) -> Graph:
    """The traced step of a module."""
    example = Example(MODULES[name](), (_inputs(name),), _loss, samples=4)
    return trace(example, ResolvedOptions(optimizer=None, precision=weights, weights=weights, **options))


def bytes_saved_by_torch(name: str, weights: str) -> int:
    """Bytes of the tensors that the default partitioner saves, without parameters and inputs.

    Operators are decomposed as Inductor does it; nothing else of Inductor runs.
    """
    from torch._dynamo.backends.common import aot_autograd
    from torch._functorch._aot_autograd.utils import make_boxed_func
    from torch._functorch.partitioners import min_cut_rematerialization_partition
    from torch._inductor.decomposition import select_decomp_table

    saved: dict[int, int] = {}

    def partition(joint: Any, inputs: Any, *, num_fwd_outputs: int, **options: Any) -> tuple[Any, Any]:
        forward, backward = min_cut_rematerialization_partition(
            joint, inputs, num_fwd_outputs=num_fwd_outputs, **options
        )
        nodes = list(forward.graph.nodes)
        given = {_storage(node)._cdata for node in nodes if node.op == "placeholder"}
        for node in nodes[-1].args[0][num_fwd_outputs:]:
            storage = _storage(node)
            if storage._cdata not in given:
                saved[storage._cdata] = storage.nbytes()
        return forward, backward

    backend = aot_autograd(
        fw_compiler=lambda module, _: make_boxed_func(module.forward),
        partition_fn=partition,
        decompositions=select_decomp_table(),
    )
    module, inputs = MODULES[name](), _inputs(name)
    if weights != "fp32":
        module = module.bfloat16()
        inputs = inputs.bfloat16() if inputs.is_floating_point() else inputs
    torch._dynamo.reset()
    torch.compile(lambda given: _loss(module(given)), backend=backend)(inputs).backward()
    return sum(saved.values())


def _storage(node: Any) -> torch.UntypedStorage:
    storage: torch.UntypedStorage = node.meta["val"].untyped_storage()
    return storage


def main() -> None:
    """Print bytes saved by eager steps, by `torch.compile`, and as modelled."""
    sys.stdout.write(f"{'module':32}{'weights':9}{'eager':>10}{'compiled':>10}{'modelled':>10}{'error':>8}\n")
    for name in MODULES:
        for weights in ("fp32", "bf16"):
            eager = graph_of_module(name, weights)
            real, modelled = bytes_saved_by_torch(name, weights), saved_bytes(fuse(eager))
            sizes = "".join(f"{size:10,}" for size in (saved_bytes(eager), real, modelled))
            sys.stdout.write(f"{name:32}{weights:9}{sizes}{modelled / real - 1:+8.1%}\n")


if __name__ == "__main__":
    main()
