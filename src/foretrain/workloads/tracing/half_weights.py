"""A module that lives in half precision, and an optimizer that keeps full-precision copies of its weights.

Megatron, DeepSpeed and nanotron convert the whole module, so that nothing is cast from call to call. The
optimizer works on FP32 master weights with FP32 state; each step hands it the gradients in FP32 and copies
the new weights back. Gradients may be added up in FP32 buffers that stay, as each becomes ready.
Micikevicius et al. 2018, arXiv:1710.03740; Narayanan et al. 2021, arXiv:2104.04473.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch

from foretrain.workloads.graph import Role
from foretrain.workloads.tracing.nested import map_tensors
from foretrain.workloads.tracing.recorder import Recorder


def cast_floats(value: Any, dtype: torch.dtype) -> Any:
    """Inputs or outputs of a module with their floating-point tensors in another precision."""
    return map_tensors(value, lambda tensor: tensor.to(dtype) if tensor.is_floating_point() else tensor)


def own_state(recorder: Recorder, parameter: str, state: Mapping[str, Any]) -> None:
    """Make an optimizer's state of one parameter known, under the parameter's name."""
    for value in state.values():
        if isinstance(value, torch.Tensor):
            recorder.own(value, Role.OPTIMIZER_STATE, parameter)


class MasterOptimizer:
    """An optimizer over FP32 copies of half-precision parameters.

    `full_gradients` are FP32 buffers that gradients are added to in the backward pass; without them, each
    step makes FP32 copies of the gradients.
    """

    def __init__(
        self,
        build: Callable[[Iterable[torch.nn.Parameter]], torch.optim.Optimizer],
        parameters: dict[str, torch.nn.Parameter],
        full_gradients: bool,
    ) -> None:
        self._parameters = parameters
        self._masters = [torch.nn.Parameter(each.detach().to(torch.float32)) for each in parameters.values()]
        self._optimizer = build(self._masters)
        self._kept: dict[str, torch.Tensor] = {}
        for master in self._masters:
            master.grad = torch.zeros_like(master)
        self._optimizer.step()
        if full_gradients:
            self._kept = {
                name: torch.zeros_like(each, dtype=torch.float32) for name, each in parameters.items()
            }
            for name, parameter in parameters.items():
                parameter.register_post_accumulate_grad_hook(self._adding_to(self._kept[name]))
        self._optimizer.zero_grad(set_to_none=True)

    def own(self, recorder: Recorder) -> None:
        """Make masters, state and lasting gradients known."""
        for gradient_of, gradient in self._kept.items():
            recorder.own(gradient, Role.GRADIENT, gradient_of)
        for name, master in zip(self._parameters, self._masters, strict=True):
            recorder.own(master, Role.OPTIMIZER_STATE, name)
            own_state(recorder, name, self._optimizer.state.get(master, {}))

    def step(self) -> None:
        """Gradients to FP32, the update, and the weights back to half precision."""
        for master, (name, parameter) in zip(self._masters, self._parameters.items(), strict=True):
            if self._kept:
                master.grad = self._kept[name]
            elif parameter.grad is not None:
                master.grad = parameter.grad.to(torch.float32)
        self._optimizer.step()
        with torch.no_grad():
            torch._foreach_copy_(tuple(self._parameters.values()), tuple(self._masters))
        self._optimizer.zero_grad(set_to_none=True)

    @staticmethod
    def _adding_to(kept: torch.Tensor) -> Callable[[torch.Tensor], None]:
        def add(parameter: torch.Tensor) -> None:
            assert parameter.grad is not None
            kept.add_(parameter.grad)
            parameter.grad = None

        return add
