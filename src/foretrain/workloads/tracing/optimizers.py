"""Optimizers by name, built the way CUDA runs them: multi-tensor (`foreach`) where PyTorch would."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import torch

from foretrain.errors import UnknownName

Parameters = Iterable[torch.nn.Parameter]

OPTIMIZERS: Mapping[str, Callable[[Parameters], torch.optim.Optimizer]] = {
    "sgd": lambda parameters: torch.optim.SGD(parameters, lr=0.1, foreach=True),
    "momentum": lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9, foreach=True),
    "nesterov": lambda parameters: torch.optim.SGD(
        parameters, lr=0.1, momentum=0.9, nesterov=True, foreach=True
    ),
    "adam": lambda parameters: torch.optim.Adam(parameters, foreach=True),
    "adamw": lambda parameters: torch.optim.AdamW(parameters, foreach=True),
    "nadam": lambda parameters: torch.optim.NAdam(parameters, foreach=True),
    "radam": lambda parameters: torch.optim.RAdam(parameters, foreach=True),
    "adamax": lambda parameters: torch.optim.Adamax(parameters, foreach=True),
    "adagrad": lambda parameters: torch.optim.Adagrad(parameters, foreach=True),
    "adadelta": lambda parameters: torch.optim.Adadelta(parameters, foreach=True),
    "rmsprop": lambda parameters: torch.optim.RMSprop(parameters, foreach=True),
    "adafactor": lambda parameters: torch.optim.Adafactor(parameters, foreach=False),
}


def optimizer(name: str, parameters: Parameters) -> torch.optim.Optimizer:
    """The optimizer called `name` over `parameters`."""
    try:
        build = OPTIMIZERS[name]
    except KeyError:
        raise UnknownName("optimizer", name, OPTIMIZERS, f"Known: {', '.join(OPTIMIZERS)}") from None
    return build(list(parameters))
