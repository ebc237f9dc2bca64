"""Optimizers by name, built the way CUDA runs them: multi-tensor (`foreach`) where PyTorch would."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from foretrain.errors import UnknownName

Parameters = Iterable[torch.nn.Parameter]


class FusedAdamW(torch.optim.Optimizer):
    """AdamW in one pass over lists of tensors: Apex's FusedAdam, or torch's `fused=True`."""

    def __init__(self, parameters: Parameters) -> None:
        super().__init__(parameters, {})

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """Update all parameters that have a gradient."""
        del closure
        trained = [each for each in self.param_groups[0]["params"] if each.grad is not None]
        for each in trained:
            if not self.state[each]:
                self.state[each] = {
                    "step": torch.zeros((), device=each.device),
                    "exp_avg": torch.zeros_like(each),
                    "exp_avg_sq": torch.zeros_like(each),
                }
        mean, square, steps = (
            [self.state[each][name] for each in trained] for name in ("exp_avg", "exp_avg_sq", "step")
        )
        torch._fused_adamw_(
            [each.detach() for each in trained],
            [each.grad for each in trained],
            mean,
            square,
            [],
            steps,
            lr=1e-3, beta1=0.9, beta2=0.95, weight_decay=0.1, eps=1e-8,
            amsgrad=False, maximize=False, grad_scale=None, found_inf=None,
        )  # fmt: skip


class _UnitScalars(TorchDispatchMode):
    """Answers `.item()` on a meta tensor with 1.0."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        del types
        if func is torch.ops.aten._local_scalar_dense.default and args[0].is_meta:
            return 1.0
        return func(*args, **(kwargs or {}))


class Adafactor(torch.optim.Adafactor):
    """PyTorch's Adafactor on any device: second moments of matrices as one row and one column of means.

    The host reads two norms per parameter for the size of its step. A trace has no values to read; which
    kernels run does not depend on them. Shazeer and Stern 2018, arXiv:1804.04235.
    """

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """Update all parameters that have a gradient, one after another."""
        with _UnitScalars():  # type: ignore[no-untyped-call]
            super().step(closure)  # type: ignore[no-untyped-call]


OPTIMIZERS: Mapping[str, Callable[[Parameters], torch.optim.Optimizer]] = {
    "sgd": lambda parameters: torch.optim.SGD(parameters, lr=0.1, foreach=True),
    "momentum": lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9, foreach=True),
    "nesterov": lambda parameters: torch.optim.SGD(
        parameters, lr=0.1, momentum=0.9, nesterov=True, foreach=True
    ),
    "adam": lambda parameters: torch.optim.Adam(parameters, foreach=True),
    "adamw": lambda parameters: torch.optim.AdamW(parameters, foreach=True),
    "adamw-fused": FusedAdamW,
    "nadam": lambda parameters: torch.optim.NAdam(parameters, foreach=True),
    "radam": lambda parameters: torch.optim.RAdam(parameters, foreach=True),
    "adamax": lambda parameters: torch.optim.Adamax(parameters, foreach=True),
    "adagrad": lambda parameters: torch.optim.Adagrad(parameters, foreach=True),
    "adadelta": lambda parameters: torch.optim.Adadelta(parameters, foreach=True),
    "rmsprop": lambda parameters: torch.optim.RMSprop(parameters, foreach=True),
    "adafactor": lambda parameters: Adafactor(parameters, foreach=False),
}


def optimizer(name: str, parameters: Parameters) -> torch.optim.Optimizer:
    """The optimizer called `name` over `parameters`."""
    try:
        build = OPTIMIZERS[name]
    except KeyError:
        raise UnknownName("optimizer", name, OPTIMIZERS, f"Known: {', '.join(OPTIMIZERS)}") from None
    return build(list(parameters))
