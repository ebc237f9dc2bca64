"""From what user code returns to examples: batch sizes, inputs by name, targets on the host, losses, and the
networks and optimizers of a function that runs a whole training step.

    def gan(batch=128):
        generator, discriminator = Generator(), Discriminator()
        of_generator = torch.optim.Adam(generator.parameters())
        of_discriminator = torch.optim.Adam(discriminator.parameters())

        def step(images):
            ...  # losses, backward passes and updates of both
        return step, torch.rand(batch, 3, 64, 64)

Networks and optimizers are those that the function refers to: variables it closes over, globals it names, and
the attributes of the object it is a method of.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves, tree_map

from foretrain.errors import InvalidRequest
from foretrain.workloads.example import Example, Loss
from foretrain.workloads.tracing.values import tensors_in


def batch_of(inputs: tuple[Any, ...], name: str) -> int:
    """The first dimension of the first tensor; the length of a list of them, as detection models take."""
    if inputs and isinstance(inputs[0], list) and inputs[0]:
        return len(inputs[0])
    for leaf in tree_leaves(inputs):
        if isinstance(leaf, torch.Tensor) and leaf.dim():
            return leaf.shape[0]
    raise InvalidRequest(f"{name} has no input tensor with a batch dimension")


def resize_inputs(inputs: tuple[Any, ...], old: int, new: int) -> tuple[Any, ...]:
    """The inputs with `new` samples where they had `old` along their first dimension."""

    def other(value: Any) -> Any:
        if isinstance(value, torch.Tensor) and value.dim() and value.shape[0] == old:
            return value.new_empty((new, *value.shape[1:]), device="meta")
        return value

    changed: tuple[Any, ...] = tree_map(other, inputs)
    return changed


def repeat_inputs(inputs: tuple[Any, ...], old: int, new: int) -> tuple[Any, ...]:
    """The inputs with `new` samples where they had `old`: the same ones again and again."""

    def other(value: Any) -> Any:
        if isinstance(value, list) and len(value) == old:
            return [value[index % old] for index in range(new)]
        if isinstance(value, torch.Tensor) and value.dim() and value.shape[0] == old:
            return value[torch.arange(new) % old]
        return value

    return tuple(
        {key: other(item) for key, item in value.items()} if isinstance(value, dict) else other(value)
        for value in inputs
    )


def tokens_of(inputs: tuple[Any, ...]) -> int:
    """How many token ids the inputs hold: the elements of the first integer matrix, 0 if there is none."""
    for leaf in tree_leaves(inputs):
        if isinstance(leaf, torch.Tensor) and leaf.dim() == 2 and leaf.dtype in (torch.int64, torch.int32):
            return leaf.numel()
    return 0


class NamedInputs(nn.Module):
    """Hands all but the first `by_position` of its inputs to `model` under the names given."""

    def __init__(self, model: nn.Module, names: tuple[str, ...], by_position: int = 0) -> None:
        super().__init__()
        self.model = model
        self.names = names
        self.by_position = by_position

    def forward(self, *inputs: Any) -> Any:
        named = dict(zip(self.names, inputs[self.by_position :], strict=True))
        return self.model(*inputs[: self.by_position], **named)


def all_by_position(module: nn.Module, inputs: Any) -> tuple[nn.Module, tuple[Any, ...]]:
    """The module and its inputs as a tuple; a dict of inputs wraps the module."""
    if isinstance(inputs, dict):
        return NamedInputs(module, tuple(inputs)), tuple(inputs.values())
    return module, tuple(inputs) if isinstance(inputs, tuple | list) else (inputs,)


class _HostTensorsFollow(TorchFunctionMode):
    """Calls that mix host and meta tensors see all of them on meta.

    Where the step has `samples` in place of the `batch` that the host tensors were made for, their first
    dimension follows too, as long as the call takes them so: targets do, weights of classes do not.
    """

    def __init__(self, batch: int, samples: int) -> None:
        super().__init__()
        self._batch, self._samples = batch, samples

    def __torch_function__(
        self, func: Any, kinds: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if not any(_is_meta(leaf) for leaf in tree_leaves((args, kwargs))):
            return func(*args, **kwargs)
        if self._batch != self._samples:
            resized_args, resized_kwargs = tree_map(self._resized, (args, kwargs))
            with contextlib.suppress(RuntimeError, ValueError):
                return func(*resized_args, **resized_kwargs)
        args, kwargs = tree_map(_move, (args, kwargs))
        return func(*args, **kwargs)

    def _resized(self, value: Any) -> Any:
        if not isinstance(value, torch.Tensor) or value.is_meta:
            return value
        if not value.dim() or value.shape[0] % self._batch:
            return value.to("meta")
        rows = value.shape[0] // self._batch * self._samples
        return value.new_empty((rows, *value.shape[1:]), device="meta")


def following(loss: Loss, batch: int, samples: int) -> Loss:
    """The loss, with the targets it closes over moved to wherever the module's output is.

    `batch` is that of the targets, `samples` that of the step.
    """

    def moved_loss(output: Any) -> torch.Tensor:
        with _HostTensorsFollow(batch, samples):
            return loss(output)

    return moved_loss


def _is_meta(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.is_meta


def _move(value: Any) -> Any:
    return value.to("meta") if isinstance(value, torch.Tensor) and not value.is_meta else value


def default_loss(output: Any) -> Tensor:
    """Cross-entropy if the first floating-point output is a matrix of logits, else the mean of it."""
    first = next((value for value in tensors_in(output) if value.is_floating_point()), None)
    if first is None:
        raise InvalidRequest("no output of the model is of floating-point type, so nothing can be trained")
    if first.dim() != 2 or first.shape[1] < 2:
        return first.mean()
    targets = torch.zeros(first.shape[0], dtype=torch.int64, device=first.device)
    return functional.cross_entropy(first, targets)


def classification(module: nn.Module, images: tuple[int, int, int, int], classes: int) -> Example:
    """Images of shape (batch, channels, height, width), one class each."""
    return _example(module, images, (images[0],), classes)


def segmentation(module: nn.Module, images: tuple[int, int, int, int], classes: int) -> Example:
    """Images of shape (batch, channels, height, width), one class for each pixel."""
    batch, _, height, width = images
    return _example(module, images, (batch, height, width), classes)


def _example(module: nn.Module, images: tuple[int, ...], targets: tuple[int, ...], classes: int) -> Example:
    with torch.device("meta"):
        inputs, wanted = torch.rand(images), torch.randint(classes, targets)

    def loss(output: Any) -> Tensor:
        """Cross-entropy summed over the outputs: the last layer's, and those of auxiliary classifiers.

        Recipes weigh the auxiliary ones less, which changes nothing about the cost of a step.
        """
        first, *others = (functional.cross_entropy(logits, wanted) for logits in _tensors(output))
        return sum(others, start=first)

    return Example(module, (inputs,), loss, samples=images[0])


def _tensors(output: Any) -> Iterator[Tensor]:
    if isinstance(output, Tensor):
        yield output
    elif output is not None:
        for item in output.values() if isinstance(output, dict) else output:
            yield from _tensors(item)


@dataclass(frozen=True, eq=False)
class StepParts:
    """A module to call, the optimizers it steps (none for a plain module), and notes for the answer."""

    module: torch.nn.Module
    optimizers: tuple[torch.optim.Optimizer, ...] = ()
    notes: tuple[str, ...] = ()


class WholeStep(torch.nn.Module):
    """A step function with the networks it trains."""

    def __init__(self, step: Callable[..., Any], networks: Mapping[str, torch.nn.Module]) -> None:
        super().__init__()
        for name, network in networks.items():
            self.add_module(name, network)
        self.step = step

    def forward(self, *inputs: Any) -> None:
        self.step(*inputs)


def step_of(given: Any, name: str) -> StepParts:
    """The parts of a module or of a step function."""
    if isinstance(given, torch.nn.Module):
        return StepParts(given)
    named = dict(_list_references(given))
    optimizers = {id(each): each for each in named.values() if isinstance(each, torch.optim.Optimizer)}
    networks = {key: each for key, each in named.items() if isinstance(each, torch.nn.Module)}
    for kind, each in (("optimizer", optimizers), ("network", networks)):
        if not each:
            raise InvalidRequest(
                f"{name} returns a function that refers to no {kind}; a step function refers to the networks "
                "it trains and to their torch.optim optimizers, as variables around it or attributes of its "
                "object"
            )
    trained = {id(parameter) for network in networks.values() for parameter in network.parameters()}
    for optimizer in optimizers.values():
        updated = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
        if not updated <= trained:
            raise InvalidRequest(
                f"{name}: an optimizer updates parameters of a network that the step function does not "
                "refer to"
            )
    kinds = ", ".join(type(each).__name__ for each in optimizers.values())
    note = f"the step function updates with its own optimizers: {kinds}"
    return StepParts(WholeStep(given, networks), tuple(optimizers.values()), (note,))


def _list_references(step: Any) -> Iterator[tuple[str, Any]]:
    """Names and values that a function refers to; members of lists and dicts by `name_key`."""
    owner = getattr(step, "__self__", None)
    function = inspect.unwrap(getattr(step, "__func__", step))
    if not inspect.isfunction(function):
        owner, function = step, None
    scopes: list[Mapping[str, Any]] = [vars(owner)] if hasattr(owner, "__dict__") else []
    if function is not None:
        variables = inspect.getclosurevars(function)
        scopes += [variables.nonlocals, variables.globals]
    for scope in scopes:
        for name, value in scope.items():
            yield name, value
            members = value.items() if isinstance(value, dict) else ()
            if isinstance(value, list | tuple):
                members = enumerate(value)  # type: ignore[assignment]
            yield from ((f"{name}_{key}", member) for key, member in members)
