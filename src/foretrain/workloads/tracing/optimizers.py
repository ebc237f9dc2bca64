"""Optimizers by name, built as CUDA runs them: multi-tensor (`foreach`) where PyTorch would.

`MasterOptimizer` is for modules that live in half precision. Megatron, DeepSpeed and nanotron convert the
whole module, so that autocast is not used. The optimizer works on FP32 master weights with FP32
state; each step hands it the gradients in FP32 and copies the new weights back. Gradients may be added up in
FP32 buffers that stay, as each becomes ready.
Micikevicius et al. 2018, arXiv:1710.03740; Narayanan et al. 2021, arXiv:2104.04473.

Optimizers whose state is kept in eight bits, as bitsandbytes runs them: one kernel updates one tensor.

Each block of state has a scale in FP32; small tensors keep FP32 state.
Dettmers et al. 2022, arXiv:2110.02861.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from foretrain.workloads.graph import Role
from foretrain.workloads.options import QUANTISED_BLOCK, QUANTISED_FROM
from foretrain.workloads.tracing.recorder import Recorder
from foretrain.workloads.tracing.values import map_tensors

_library = torch.library.Library("foretrain", "FRAGMENT")
_library.define("update_8bit(Tensor(a!) weights, Tensor gradient, Tensor(b!)[] state) -> ()")


def _update(weights: Tensor, gradient: Tensor, state: list[Tensor]) -> None:
    """Nothing to compute: a trace has no values."""
    assert weights.shape == gradient.shape
    assert state


_library.impl("update_8bit", _update, "CompositeExplicitAutograd")


class EightBitOptimizer(torch.optim.Optimizer):
    """Keeps `moments` moments of every weight: two for AdamW, one for Lion."""

    def __init__(self, parameters: Iterable[torch.nn.Parameter], moments: int) -> None:
        super().__init__(parameters, {})
        self._moments = moments

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """Update all parameters that have a gradient, one after another."""
        del closure
        for each in self.param_groups[0]["params"]:
            if each.grad is None:
                continue
            if not self.state[each]:
                self.state[each] = self._new_state(each)
            torch.ops.foretrain.update_8bit(each.detach(), each.grad, list(self.state[each].values()))

    def _new_state(self, parameter: Tensor) -> dict[str, Tensor]:
        if parameter.numel() < QUANTISED_FROM:
            full = torch.zeros_like(parameter, dtype=torch.float32)
            return {f"moment_{number}": torch.zeros_like(full) for number in range(self._moments)}
        blocks = math.ceil(parameter.numel() / QUANTISED_BLOCK)
        state: dict[str, Tensor] = {}
        for number in range(self._moments):
            state[f"moment_{number}"] = torch.zeros_like(parameter, dtype=torch.uint8)
            state[f"scale_{number}"] = torch.zeros(blocks, device=parameter.device)
        return state


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


class Lion(torch.optim.Optimizer):
    """The sign of a blend of momentum and gradient, over lists of tensors.

    Chen et al. 2023, arXiv:2302.06675.
    """

    def __init__(self, parameters: Parameters) -> None:
        super().__init__(parameters, {})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """Update all parameters that have a gradient."""
        del closure
        trained = [each for each in self.param_groups[0]["params"] if each.grad is not None]
        for each in trained:
            if not self.state[each]:
                self.state[each] = {"exp_avg": torch.zeros_like(each)}
        momenta = [self.state[each]["exp_avg"] for each in trained]
        gradients = [each.grad for each in trained]
        updates = torch._foreach_lerp(gradients, momenta, 0.9)
        torch._foreach_sign_(updates)
        torch._foreach_mul_(trained, 1 - 1e-5)
        torch._foreach_add_(trained, updates, alpha=-1e-4)
        torch._foreach_lerp_(momenta, gradients, 0.01)


class Muon(torch.optim.Optimizer):
    """PyTorch's Muon for matrices of hidden layers; AdamW for embeddings, vectors and other tensors.

    The momentum of each matrix is orthogonalised by five Newton-Schulz iterations in BF16, each of three
    products. K. Jordan et al. 2024, "Muon"; Liu et al. 2025, arXiv:2502.16982. Embeddings and output layers
    are recognised by their size: the longest side among all matrices.
    """

    def __init__(self, parameters: Parameters) -> None:
        listed = list(parameters)
        super().__init__(listed, {})
        longest = max((max(each.shape) for each in listed if each.dim() == 2), default=0)
        hidden = [each for each in listed if each.dim() == 2 and not _is_vocabulary(each, longest, listed)]
        hidden_ids = {id(each) for each in hidden}
        others = [each for each in listed if id(each) not in hidden_ids]
        self._parts: list[torch.optim.Optimizer] = [torch.optim.Muon(hidden)] if hidden else []
        self._parts += [torch.optim.AdamW(others, foreach=True)] if others else []

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """Update all parameters that have a gradient."""
        del closure
        for part in self._parts:
            part.step()
            self.state.update(part.state)


def _is_vocabulary(matrix: torch.Tensor, longest: int, listed: Sequence[torch.Tensor]) -> bool:
    """Whether a matrix is an embedding or output layer: one of at most two with the longest side of all."""
    as_long = sum(longest in each.shape for each in listed if each.dim() == matrix.dim())
    return max(matrix.shape) == longest and as_long <= _VOCABULARY_LAYERS


_VOCABULARY_LAYERS = 2
"""Embedding and output layer."""


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


BUILDERS: Mapping[str, Callable[[Parameters], torch.optim.Optimizer]] = {
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
    "lion": Lion,
    "muon": Muon,
    "adamw-8bit": lambda parameters: EightBitOptimizer(parameters, moments=2),
    "lion-8bit": lambda parameters: EightBitOptimizer(parameters, moments=1),
    "paged-adamw": FusedAdamW,
    "paged-adamw-8bit": lambda parameters: EightBitOptimizer(parameters, moments=2),
    "paged-lion-8bit": lambda parameters: EightBitOptimizer(parameters, moments=1),
}
"""What builds each of `options.OPTIMIZERS`.

Paged ones keep their state in memory that the driver moves to the host where the device runs short."""


def optimizer(name: str, parameters: Parameters) -> torch.optim.Optimizer:
    """The optimizer called `name` over `parameters`."""
    return BUILDERS[name](list(parameters))


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
            if parameter.grad is not None:  # undefined for a bias of fused attention, which has no gradient
                kept.add_(parameter.grad)
                parameter.grad = None

        return add
