"""Values beside a trace: the forward pass of a step that is run on the CPU while it is recorded.

Behind every storage without data stands one on the host. Each operator runs twice: on shapes, which is what
is recorded, and on the values, in full precision whatever the step is recorded in. What a model reads
(`.item()`, a branch on a tensor) and shapes that follow from values (nonzero, non-maximum suppression) come
from there. Backward passes and updates run on shapes alone; weights keep the values they had.

Tensors in nested containers: what modules take and return.
"""

from __future__ import annotations

import copy
import dataclasses
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map


def map_tensors(value: Any, convert: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    """The same containers with every tensor converted.

    Lists, tuples, named tuples, dictionaries and data classes keep their type, so that what a model returns
    (a `ModelOutput` of transformers, say) can still be read by attribute.
    """
    if isinstance(value, torch.Tensor):
        return convert(value)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(map_tensors(item, convert) for item in value))
    if isinstance(value, list | tuple):
        return type(value)(map_tensors(item, convert) for item in value)
    if isinstance(value, dict):
        converted = copy.copy(value)
        for key, item in value.items():
            converted[key] = map_tensors(item, convert)
        return converted
    if _is_data(value) and any(True for _ in tensors_in(value)):
        names = [field.name for field in dataclasses.fields(value) if field.init]
        return dataclasses.replace(
            value, **{name: map_tensors(getattr(value, name), convert) for name in names}
        )
    return value


def tensors_in(value: Any) -> Iterator[torch.Tensor]:
    """The tensors of nested containers, in order."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from tensors_in(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from tensors_in(item)
    elif _is_data(value):
        for field in dataclasses.fields(value):
            yield from tensors_in(getattr(value, field.name))


def _is_data(value: Any) -> bool:
    return dataclasses.is_dataclass(value) and not isinstance(value, type)


_HALF = (torch.float16, torch.bfloat16)
_SHAPED_BY_VALUES = frozenset({"torchvision.nms"})
"""Operators that do not declare that the shape of their result follows from values."""


class RealValues(TorchDispatchMode):
    """Computes values beside operators on tensors without data, while it is not paused."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.is_paused = False
        self._behind: dict[int, tuple[torch.dtype, torch.Tensor]] = {}
        self._watchers: dict[int, weakref.ref[torch.UntypedStorage]] = {}

    @contextmanager
    def active(self) -> Iterator[None]:
        """Compute values while this is open, those of literals too."""
        with self, Literals():
            yield

    def without_data(self, tensor: torch.Tensor) -> torch.Tensor:
        """A tensor without data, and this one as its value."""
        if tensor.is_meta:
            return tensor
        empty = tensor.detach().to("meta")
        self._keep(empty, tensor.detach())
        return empty.requires_grad_(tensor.requires_grad)

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        del types
        kwargs = kwargs or {}
        tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
        is_of_host = tensors and not any(tensor.is_meta for tensor in tensors)
        if self.is_paused or (is_of_host and not _goes_to_meta(kwargs)):
            return func(*args, **kwargs)
        if any(self._value(tensor) is None for tensor in tensors):
            return self._unknown(func, args, kwargs)
        value = self._on_host(func, args, kwargs)
        if _is_read(func, kwargs):
            return value
        is_listed = f"{func.namespace}.{func._opname}" in _SHAPED_BY_VALUES
        if is_listed or torch.Tag.dynamic_output_shape in func.tags:
            return tree_map(lambda leaf: self._shape_of(leaf, tensors[0]), value)
        result = func(*args, **kwargs)
        for shape, known in zip(tree_leaves(result), tree_leaves(value), strict=True):
            if isinstance(shape, torch.Tensor) and shape.is_meta:
                self._keep(shape, known)
        return result

    def _keep(self, empty: torch.Tensor, value: torch.Tensor) -> None:
        """Put a value behind a new storage; behind a known one, views and changes have done it."""
        storage = empty.untyped_storage()
        key = storage._cdata
        if key in self._behind:
            return
        elements = storage.nbytes() // empty.itemsize
        flat = torch.zeros(elements, dtype=torch.float32 if empty.dtype in _HALF else empty.dtype)
        flat.as_strided(empty.shape, empty.stride(), empty.storage_offset()).copy_(value)
        self._behind[key] = empty.dtype, flat
        self._watchers[key] = weakref.ref(storage, lambda _: self._forget(key))

    def _forget(self, key: int) -> None:
        self._behind.pop(key, None)
        self._watchers.pop(key, None)

    def _value(self, tensor: torch.Tensor) -> torch.Tensor | None:
        if not tensor.is_meta:
            return tensor
        dtype, flat = self._behind.get(tensor.untyped_storage()._cdata, (None, None))
        if flat is None or dtype is not tensor.dtype:
            return None
        return flat.as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())

    def _unknown(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """An operator on something unknown: what it changes in place is unknown from now on."""
        result = func(*args, **kwargs)
        if func._schema.is_mutable:
            for leaf in tree_leaves(result):
                if isinstance(leaf, torch.Tensor) and leaf.is_meta:
                    self._forget(leaf.untyped_storage()._cdata)
        return result

    def _on_host(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        host_args, host_kwargs = tree_map(self._operand, (args, kwargs))
        with torch.no_grad(), torch._C.DisableTorchFunction():
            return func(*host_args, **host_kwargs)

    def _operand(self, operand: Any) -> Any:
        if isinstance(operand, torch.Tensor):
            return self._value(operand)
        if isinstance(operand, torch.device):
            return torch.device("cpu")
        return torch.float32 if isinstance(operand, torch.dtype) and operand in _HALF else operand

    def _shape_of(self, value: Any, like: torch.Tensor) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        is_float = value.is_floating_point() and like.is_floating_point()
        empty = torch.empty_like(value, dtype=like.dtype if is_float else value.dtype, device="meta")
        self._keep(empty, value)
        return empty


class Literals(TorchFunctionMode):
    """Tensors made of Python numbers are made on the host first, where a `RealValues` sees them."""

    def __torch_function__(
        self, func: Any, kinds: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        del kinds
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        if name not in {"tensor", "as_tensor", "new_tensor"} or isinstance(args[-1], torch.Tensor):
            return func(*args, **kwargs)
        device = kwargs.get("device") or (
            args[0].device if name == "new_tensor" else torch.get_default_device()
        )
        data = args[1] if name == "new_tensor" else args[0]
        kwargs = {**kwargs, "device": "cpu"}
        if name == "new_tensor":
            kwargs.setdefault("dtype", args[0].dtype)
        return torch.tensor(data, **kwargs).to(device)


def _is_read(func: Any, kwargs: dict[str, Any]) -> bool:
    """Whether the host reads the result: a number, or a copy on the host."""
    if func is torch.ops.aten._local_scalar_dense.default or func is torch.ops.aten.equal.default:
        return True
    device = kwargs.get("device")
    return func is torch.ops.aten._to_copy.default and device is not None and device.type == "cpu"


def _goes_to_meta(kwargs: dict[str, Any]) -> bool:
    device = kwargs.get("device")
    return device is not None and torch.device(device).type == "meta"
