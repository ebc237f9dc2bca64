"""The vocabulary of the ONNX interpreter: a node, and how an operator is run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from onnx import helper
from torch import Tensor

from foretrain.errors import InvalidRequest

Arguments = list[Any]
"""What a node reads, by position; None where an optional input is absent."""


@dataclass(frozen=True)
class Node:
    """One node of a graph: its type, attributes and the version of the operator set it is written in."""

    type: str
    attributes: Mapping[str, Any]
    opset: int

    def get(self, name: str, default: Any = None) -> Any:
        """An attribute, or the default the ONNX specification gives it."""
        return self.attributes.get(name, default)


Run = Callable[[Node, Arguments, bool], Any]


@dataclass(frozen=True)
class Operator:
    """How an operator is run: a function of the node, its arguments and whether the module is training.

    `settings` are the positions of arguments whose values decide shapes: they stay on the host.
    """

    run: Run
    settings: frozenset[int] = frozenset()

    def placed(self, arguments: list[Tensor | None], device: torch.device) -> Arguments:
        """The arguments on one device: the host if all are there, else `device`."""
        given = [value for position, value in enumerate(arguments) if position not in self.settings]
        if all(value is None or value.device.type != device.type for value in given):
            return arguments
        return [
            value.to(device)
            if value is not None and value.dim() and position not in self.settings and value.device != device
            else value
            for position, value in enumerate(arguments)
        ]


def plain(function: Callable[..., Any]) -> Operator:
    """An operator that is a torch function of its arguments alone."""
    return Operator(lambda _node, arguments, _training: function(*arguments))


def integers(value: Tensor | None, what: str) -> list[int] | None:
    """The values of a setting, which must not depend on the data."""
    if value is None:
        return None
    if value.is_meta:
        raise InvalidRequest(f"{what} of the ONNX graph depends on the data, which a trace does not have")
    return [int(item) for item in value.flatten().tolist()]


def argument(arguments: Arguments, position: int) -> Any:
    """An argument, None where it was left out."""
    return arguments[position] if position < len(arguments) else None


def torch_dtype(element_type: int) -> torch.dtype:
    """The torch type of an ONNX element type."""
    try:
        name = helper.tensor_dtype_to_np_dtype(element_type).name
    except KeyError:
        raise InvalidRequest(f"ONNX element type {element_type} is unknown") from None
    found = getattr(torch, {"bool": "bool", "float8_e4m3": "float8_e4m3fn"}.get(name, name), None)
    if not isinstance(found, torch.dtype):
        raise InvalidRequest(f"tensors of type {name} cannot be trained with")
    return found
