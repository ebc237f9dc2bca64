"""The models that are trained: three small chains of blocks that every strategy can cut, and the zoo.

`trainable` makes any of them ready to train; `repeat` and `record` run a step many times, equally often on
all workers.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional

from foretrain.errors import InvalidRequest, UnknownName
from foretrain.workloads.zoo import BuildOptions, build, zoo

_Traced = tuple[nn.Module, Tensor, Callable[[Tensor], Tensor]]
CLASSES = 1000
_PIXELS = 32
_TOKENS, _VOCABULARY, _WIDTH, _HEADS = 64, 2000, 256, 4


@dataclass(frozen=True)
class Example:
    """A model with a batch of made-up samples; its blocks in a row are the whole model."""

    blocks: tuple[nn.Module, ...]
    inputs: Tensor
    targets: Tensor

    @property
    def module(self) -> nn.Sequential:
        """The whole model."""
        return nn.Sequential(*self.blocks)


def example(name: str, batch: int) -> Example:
    """The model called `name`, always with the same weights, and a batch for it."""
    if name not in MODELS:
        raise UnknownName("model of the distributed trials", name, MODELS)
    torch.manual_seed(0)
    return MODELS[name](batch)


def loss_of(outputs: Tensor, targets: Tensor) -> Tensor:
    """Cross entropy over the last dimension."""
    return functional.cross_entropy(outputs.flatten(0, -2), targets.flatten())


def _mlp(batch: int) -> Example:
    """Fully connected layers, 12.5 million parameters."""
    widths = (1024, 2048, 2048, 2048)
    hidden = (nn.Sequential(nn.Linear(inner, outer), nn.ReLU()) for inner, outer in pairwise(widths))
    blocks = (*hidden, nn.Linear(widths[-1], CLASSES))
    return Example(blocks, torch.randn(batch, widths[0]), torch.randint(CLASSES, (batch,)))


class _Residual(nn.Module):
    """Two convolutions with a way around them."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.body = nn.Sequential(_convolution(channels, channels), _convolution(channels, channels))

    def forward(self, images: Tensor) -> Tensor:
        changed: Tensor = self.body(images)
        return images + changed


def _convolution(inner: int, outer: int, stride: int = 1) -> nn.Module:
    return nn.Sequential(nn.Conv2d(inner, outer, 3, stride, 1, bias=False), nn.BatchNorm2d(outer), nn.ReLU())


def _convnet(batch: int) -> Example:
    """A residual network on images of 32 x 32, 1.3 million parameters."""
    blocks = (
        nn.Sequential(_convolution(3, 24), _Residual(24)),
        nn.Sequential(_convolution(24, 48, 2), _Residual(48)),
        nn.Sequential(_convolution(48, 96, 2), _Residual(96)),
        nn.Sequential(
            _convolution(96, 192, 2),
            _Residual(192),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(192, CLASSES),
        ),
    )
    return Example(blocks, torch.randn(batch, 3, _PIXELS, _PIXELS), torch.randint(CLASSES, (batch,)))


class _Embedding(nn.Module):
    """Tokens and their places as vectors."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(_VOCABULARY, _WIDTH)
        self.places = nn.Parameter(0.02 * torch.randn(_TOKENS, _WIDTH))

    def forward(self, tokens: Tensor) -> Tensor:
        embedded: Tensor = self.tokens(tokens)
        return embedded + self.places


class _Layer(nn.Module):
    """One transformer layer, normalised first."""

    def __init__(self) -> None:
        super().__init__()
        self.before = nn.LayerNorm(_WIDTH)
        self.mixing = nn.Linear(_WIDTH, 3 * _WIDTH)
        self.joining = nn.Linear(_WIDTH, _WIDTH)
        self.between = nn.LayerNorm(_WIDTH)
        self.feeding = nn.Sequential(nn.Linear(_WIDTH, 4 * _WIDTH), nn.GELU(), nn.Linear(4 * _WIDTH, _WIDTH))

    def forward(self, hidden: Tensor) -> Tensor:
        batch, tokens, width = hidden.shape
        split = self.mixing(self.before(hidden)).view(batch, tokens, 3, _HEADS, width // _HEADS)
        queries, keys, values = split.permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(queries, keys, values, is_causal=True)
        hidden = hidden + self.joining(mixed.transpose(1, 2).reshape(batch, tokens, width))
        changed: Tensor = self.feeding(self.between(hidden))
        return hidden + changed


def _transformer(batch: int) -> Example:
    """Four transformer layers over 64 tokens, 4.2 million parameters."""
    blocks = (
        nn.Sequential(_Embedding(), _Layer()),
        _Layer(),
        _Layer(),
        nn.Sequential(_Layer(), nn.LayerNorm(_WIDTH), nn.Linear(_WIDTH, _VOCABULARY)),
    )
    tokens = torch.randint(_VOCABULARY, (batch, _TOKENS))
    return Example(blocks, tokens, torch.randint(_VOCABULARY, (batch, _TOKENS)))


MODELS: dict[str, Callable[[int], Example]] = {
    "mlp": _mlp,
    "convnet": _convnet,
    "transformer": _transformer,
}
"""Each made for a batch size."""


def traced_mlp(batch: int) -> _Traced:
    """For `foretrain ... FILE.py:traced_mlp`."""
    return _as_traced(example("mlp", batch))


def traced_convnet(batch: int) -> _Traced:
    """For `foretrain ... FILE.py:traced_convnet`."""
    return _as_traced(example("convnet", batch))


def traced_transformer(batch: int) -> _Traced:
    """For `foretrain ... FILE.py:traced_transformer`."""
    return _as_traced(example("transformer", batch))


def _as_traced(made: Example) -> _Traced:
    return made.module, made.inputs, lambda outputs: loss_of(outputs, made.targets.to(outputs.device))


@dataclass(frozen=True)
class Trainable:
    """A module with real weights, the blocks that FSDP shards one by one, and the loss of a fixed batch.

    `loss` takes the module as a strategy wrapped it.
    """

    module: nn.Module
    blocks: tuple[nn.Module, ...]
    loss: Callable[[nn.Module], Tensor]


_AUTOCAST = {"fp32": None, "bf16": torch.bfloat16, "fp16": torch.float16}


def trainable(task: Mapping[str, Any]) -> Trainable:
    """The `model` of a task with a batch of `batch` samples; zoo models also take sizes and a precision."""
    name = task["model"]
    if name in MODELS:
        made = example(name, int(task["batch"]))
        return Trainable(made.module, made.blocks, lambda module: loss_of(module(made.inputs), made.targets))
    if name not in zoo():
        raise UnknownName("model", name, (*MODELS, *zoo()), "Trials train models of the zoo.")
    torch.manual_seed(0)
    built = build(name, BuildOptions(task.get("batch"), task.get("seq_len"), task.get("image_size")))
    precision = _precision(str(task.get("precision") or "fp32"))

    def loss(module: nn.Module) -> Tensor:
        with precision():
            output = module(*built.inputs)
            return output if built.loss is None else built.loss(output)

    return Trainable(built.module, _repeated_blocks(built.module), loss)


def _precision(name: str) -> Callable[[], AbstractContextManager[Any]]:
    if name not in _AUTOCAST:
        raise InvalidRequest(f"precision {name!r} does not run on a CPU; choose {', '.join(_AUTOCAST)}")
    kind = _AUTOCAST[name]
    return nullcontext if kind is None else lambda: torch.autocast("cpu", dtype=kind)


def _repeated_blocks(module: nn.Module) -> tuple[nn.Module, ...]:
    """The members of the outermost stacks of modules with parameters; none where there is no such stack."""
    children = [child for child in module.children() if any(True for _ in child.parameters())]
    if isinstance(module, nn.ModuleList | nn.Sequential) and len(children) > 1:
        return tuple(children)
    return tuple(block for child in children for block in _repeated_blocks(child))


WARM_UP = 3
"""Steps before times count: buckets are final after the first, memory after a few."""


@dataclass(frozen=True)
class Repeated:
    """What one run takes: seconds on the wall (median, lower quartile), processor seconds of this process."""

    seconds: float
    quartile_seconds: float
    processor_seconds: float
    runs: int

    def as_json(self) -> dict[str, float]:
        """As a message."""
        return asdict(self)


def repeat(
    run: Callable[[], object], seconds: float, fewest: int, most: int, warm_up: int = WARM_UP
) -> Repeated:
    """Run it for about `seconds` after a warm-up; the first worker decides how often for all."""
    warm = [_taken(run) for _ in range(warm_up)]
    count = _agreed(int(min(max(seconds / max(warm[-1], 1e-6), fewest), most)))
    used = time.process_time()
    times = [_taken(run) for _ in range(count)]
    used = (time.process_time() - used) / count
    quartile = statistics.quantiles(times, n=4)[0] if count > 1 else times[0]
    return Repeated(statistics.median(times), quartile, used, count)


_FIRST, _FEWEST = 2, 3
"""Steps from which the length of a step is known, and the fewest that follow them."""


@dataclass(frozen=True)
class Recorded:
    """Start and end of every step, warm-up included, on the monotonic clock of the machine."""

    starts: list[float]
    ends: list[float]

    def as_json(self) -> dict[str, list[float]]:
        """As a message."""
        return asdict(self)


def record(run: Callable[[], object], steps: int | None, seconds: float, most: int = 2000) -> Recorded:
    """Run `steps` steps, or steps for about `seconds`; the first worker decides how many for all."""
    starts: list[float] = []
    ends: list[float] = []

    def timed() -> None:
        starts.append(time.monotonic())
        run()
        ends.append(time.monotonic())

    for _ in range(_FIRST):
        timed()
    left = (steps or 0) - _FIRST
    if steps is None:
        each = max(min(end - start for start, end in zip(starts, ends, strict=True)), 1e-6)
        left = _agreed(int(min(max((seconds - (ends[-1] - starts[0])) / each, _FEWEST), most)))
    for _ in range(left):
        timed()
    return Recorded(starts, ends)


def _agreed(count: int) -> int:
    """The first worker's count."""
    agreed = torch.tensor([count])
    dist.broadcast(agreed, 0)
    return int(agreed)


def _taken(run: Callable[[], object]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start
