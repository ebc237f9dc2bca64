"""A module that exists already, with its inputs and loss, as a notebook has them."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from foretrain.errors import InvalidRequest
from foretrain.workloads.readers._base import ModelSource, refuse_size
from foretrain.workloads.readers.python_file import example_of
from foretrain.workloads.zoo.catalogue import BuildOptions

if TYPE_CHECKING:
    import torch

    from foretrain.workloads.example import Example


@dataclass(frozen=True, eq=False)
class LiveModule(ModelSource):
    """A module of this process. It is not changed: what is traced is a copy without data.

    `inputs` is one tensor, a tuple of them by position, or a dict by name; `loss` turns what the module
    returns into one number, None where that is the loss. A module has no text to recognise it by, so that
    its graphs are not kept beyond this process.
    """

    name: str
    module: torch.nn.Module
    inputs: Any
    loss: Any = None
    identity: str = field(default_factory=lambda: uuid4().hex)
    kind: str = field(default="live module", init=False)
    runs_user_code: bool = field(default=True, init=False)
    is_kept: bool = field(default=False, init=False)
    has_data: bool = field(default=True, init=False)

    def fingerprint(self) -> str:
        return self.identity

    def example(self, options: BuildOptions) -> Example:
        refuse_size(self.name, options, "seq_len", "image_size")
        module = copy.deepcopy(self.module) if options.real else _without_data(self.module)
        parts = module, self.inputs, self.loss
        return example_of(parts, options, self.name, resize=True)


def live_module(module: Any, inputs: Any, loss: Any = None) -> LiveModule:
    """The source of a module with example inputs."""
    import torch

    if not isinstance(module, torch.nn.Module):
        raise InvalidRequest(
            f"`model` is a {type(module).__name__}; it must be a name, a file or a torch.nn.Module"
        )
    if inputs is None:
        raise InvalidRequest(
            f"{type(module).__name__} needs example inputs: give `inputs`, a tensor, a tuple or a dict"
        )
    return LiveModule(type(module).__name__, module, inputs, loss)


def _without_data(module: torch.nn.Module) -> torch.nn.Module:
    """A copy whose parameters and buffers are on the meta device; shared ones stay shared."""
    import torch

    memo: dict[int, Any] = {}
    for parameter in module.parameters():
        empty = torch.empty_like(parameter, device="meta")
        memo[id(parameter)] = torch.nn.Parameter(empty, requires_grad=parameter.requires_grad)
    for buffer in module.buffers():
        memo[id(buffer)] = torch.empty_like(buffer, device="meta")
    return copy.deepcopy(module, memo)
