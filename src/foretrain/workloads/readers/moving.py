"""Tensors that were made on the host, used together with tensors that hold no data."""

from __future__ import annotations

from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves, tree_map

from foretrain.workloads.example import Loss


class _HostTensorsFollow(TorchFunctionMode):
    """Calls that mix host and meta tensors see all of them on meta."""

    def __torch_function__(
        self, func: Any, kinds: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if any(_is_meta(leaf) for leaf in tree_leaves((args, kwargs))):
            args, kwargs = tree_map(_moved, (args, kwargs))
        return func(*args, **kwargs)


def following(loss: Loss) -> Loss:
    """The loss, with the targets it closes over moved to wherever the module's output is."""

    def moved_loss(output: Any) -> torch.Tensor:
        with _HostTensorsFollow():
            return loss(output)

    return moved_loss


def _is_meta(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.is_meta


def _moved(value: Any) -> Any:
    return value.to("meta") if isinstance(value, torch.Tensor) and not value.is_meta else value
