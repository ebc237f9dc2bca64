"""A function that runs a whole training step: the networks and optimizers it uses.

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

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from foretrain.errors import InvalidRequest


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
    named = dict(_referenced_values(given))
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


def _referenced_values(step: Any) -> Iterator[tuple[str, Any]]:
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
