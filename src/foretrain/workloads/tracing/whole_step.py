"""Steps that users write themselves: several networks, losses and optimizers, as in adversarial training.

The function is called as it stands. Where it calls `backward` the backward pass begins, and an optimizer's
`step` is the update; what comes in between is forward. It runs once unrecorded, so that optimizers have their
state and gradients are where the function leaves them, as from the second step on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch.optim import optimizer as hooks

from foretrain.errors import InvalidRequest
from foretrain.workloads.example import Example
from foretrain.workloads.graph import Phase, Role
from foretrain.workloads.options import ResolvedOptions
from foretrain.workloads.tracing.optimizers import own_state
from foretrain.workloads.tracing.reality import Reality
from foretrain.workloads.tracing.recorder import Recorder
from foretrain.workloads.tracing.values import RealValues


def refuse_options(options: ResolvedOptions) -> None:
    """Options that replace a part of the step which the function runs itself."""
    refused = {
        "forward_only": options.forward_only,
        "no_optimizer": options.optimizer is None and not options.forward_only,
        "master_weights": options.master_weights,
    }
    for name, is_asked in refused.items():
        if is_asked:
            raise InvalidRequest(
                f"a step function runs its own backward passes and optimizers; leave out `{name}`, or return "
                "(module, inputs, loss function) in place of the step"
            )


def warm_up(
    example: Example,
    inputs: tuple[Any, ...],
    reality: Reality,
    values: RealValues | None,
    device: torch.device,
) -> None:
    """One step that is not recorded. Optimizers update many tensors at once, as on CUDA by default."""
    for each in example.optimizers:
        for group in each.param_groups:
            if group.get("foreach", False) is None:
                group["foreach"] = True
    with torch.device(device), computing(values), reality, _phases(reality, values, lambda _: None):
        example.module(*inputs)


def own_all(example: Example, recorder: Recorder) -> None:
    """Make the state of all optimizers known, and gradients that last from step to step."""
    for name, parameter in example.module.named_parameters():
        for each in example.optimizers:
            own_state(recorder, name, each.state.get(parameter, {}))
        if parameter.grad is not None:
            recorder.own(parameter.grad, Role.GRADIENT, name)


def run(
    example: Example,
    inputs: tuple[Any, ...],
    reality: Reality,
    values: RealValues | None,
    recorder: Recorder,
    device: torch.device,
) -> None:
    """Record the step."""

    def enter(phase: Phase) -> None:
        if recorder.phase is Phase.BACKWARD:
            own_gradients(example.module, recorder)
        recorder.phase = phase

    with torch.device(device), computing(values), reality, recorder, _phases(reality, values, enter):
        example.module(*inputs)


def own_gradients(module: torch.nn.Module, recorder: Recorder) -> None:
    """Make the gradients that exist now known."""
    for name, parameter in module.named_parameters():
        if parameter.grad is not None:
            recorder.own(parameter.grad, Role.GRADIENT, name)


def computing(values: RealValues | None) -> AbstractContextManager[None]:
    """Where values are computed, if there are any."""
    return nullcontext() if values is None else values.active()


@contextmanager
def _phases(reality: Reality, values: RealValues | None, enter: Callable[[Phase], None]) -> Iterator[None]:
    """Report backward passes and updates while they run, without values; nothing is cast in an update."""
    backward = torch.autograd.backward

    def begin(phase: Phase) -> None:
        if values is not None:
            values.is_paused = phase is not Phase.FORWARD
        enter(phase)

    def differentiate(*args: Any, **kwargs: Any) -> None:
        reality.forget_casts()
        begin(Phase.BACKWARD)
        try:
            backward(*args, **kwargs)
        finally:
            begin(Phase.FORWARD)

    def before(*_: Any) -> None:
        reality.is_paused = True
        begin(Phase.OPTIMIZER)

    def after(*_: Any) -> None:
        reality.is_paused = False
        reality.forget_casts()
        begin(Phase.FORWARD)

    handles = (
        hooks.register_optimizer_step_pre_hook(before),
        hooks.register_optimizer_step_post_hook(after),
    )
    torch.autograd.backward = differentiate
    try:
        yield
    finally:
        torch.autograd.backward = backward
        for handle in handles:
            handle.remove()
