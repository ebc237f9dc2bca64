"""Tensors that were made on the host, used together with tensors that hold no data."""

from __future__ import annotations

import contextlib
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves, tree_map

from foretrain.workloads.example import Loss


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
        args, kwargs = tree_map(_moved, (args, kwargs))
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


def _moved(value: Any) -> Any:
    return value.to("meta") if isinstance(value, torch.Tensor) and not value.is_meta else value
