"""Modules whose inputs go by name, behind a module that takes them by position."""

from __future__ import annotations

from typing import Any

from torch import nn


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
