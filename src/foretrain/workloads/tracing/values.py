"""Values beside a trace, which records shapes and computes nothing.

Library models read values: which tokens are padding, where the tokens of an image go, how large each image
is. Two modes answer them.

`KnownValues` computes whole numbers and truth values on the host, for tensors that follow from real ones
alone. What follows from activations stays unknown; of those, a few questions have the answer of a batch of
full sequences, each of them one document: no token is padding, and all positions follow one another.

`RealValues` runs the forward pass on the CPU while it is recorded. Behind every storage without data stands
one on the host. Each operator runs twice: on shapes, which is what is recorded, and on the values, in full
precision whatever the step is recorded in. What a model reads (`.item()`, a branch on a tensor) and shapes
that follow from values (nonzero, non-maximum suppression) come from there. Backward passes and updates run on
shapes alone; weights keep the values they had.
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

MOST_ELEMENTS = 2**20
"""Larger tensors are not computed on the host: only masks of tokens by tokens are."""
MOST_FLOATS = 2**16
"""The same for floating-point tensors, such as coordinates in an image."""
_VALUE = "_foretrain_value"
_GUESS = "_foretrain_guess"
_COUNT = "_foretrain_count"
_GUESSES = {"all": True, "any": False}
_READS = frozenset(
    "item tolist __bool__ __int__ __float__ __index__ __contains__ numpy __array__ equal cpu".split()
)
_SHAPED_BY_VALUES = frozenset(
    "nonzero argwhere masked_select unique _unique2 unique_consecutive repeat_interleave bincount".split()
)
_WITHOUT_VALUES = ("rand", "empty", "bernoulli", "multinomial", "normal", "dropout", "uniform", "exponential")
_HALF = (torch.float16, torch.bfloat16)
_ALSO_SHAPED_BY_VALUES = frozenset({"torchvision.nms"})
"""Operators that do not declare that the shape of their result follows from values."""


def with_value(tensor: torch.Tensor, device: torch.device | str) -> torch.Tensor:
    """`tensor` on a device; its values stay known where it goes to the meta device."""
    moved = tensor.to(device)
    if tensor.requires_grad and moved is not tensor:  # its gradient ends here, not where it came from
        moved = moved.detach().requires_grad_()
    if moved.is_meta and not tensor.is_meta and _is_small(tensor):
        setattr(moved, _VALUE, tensor)
    return moved


class KnownValues(TorchFunctionMode):
    """Answers what a model asks of tensors without data, where the answer is known; other questions fail.

    Unknown values answer three questions: `bool(x.all())` is True, `bool(x.any())` and `value in x` are
    False. A sum of truth values counts them all, which is how some ask whether all are true.
    """

    def __init__(self) -> None:
        super().__init__()
        self._stale: set[int] = set()
        """Storages of values that were overwritten by unknown ones."""

    def __torch_function__(
        self, func: Any, kinds: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        del kinds
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        tensors = list(_tensors((args, kwargs)))
        known = all(self._knows(tensor) for tensor in tensors)
        if name in _READS and any(tensor.is_meta for tensor in tensors):
            return self._read(func, name, known, args, kwargs)
        if name in _SHAPED_BY_VALUES and known and any(tensor.is_meta for tensor in tensors):
            return tree_map(_on_meta, _on_host(func, args, kwargs))
        if name == "where" and len(args) == 1:
            return self.__torch_function__(torch.nonzero, (), args, {"as_tuple": True})
        if name in {"__getitem__", "__setitem__"}:
            args = (args[0], _places(args[1]), *args[2:])
        result = func(*args, **kwargs)
        if _changes_in_place(name, kwargs):
            self._keep_or_forget(func, known, args, kwargs)
        elif known and _may_follow(name, result):
            _attach(result, _on_host(func, args, kwargs))
        self._guess(name, args, result)
        return result

    def _knows(self, tensor: torch.Tensor) -> bool:
        value = _value(tensor)
        return value is not None and (not self._stale or value.untyped_storage()._cdata not in self._stale)

    def _read(self, func: Any, name: str, known: bool, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if known:
            return _on_host(func, args, kwargs)
        if name in {"__bool__", "item"} and hasattr(args[0], _GUESS):
            return getattr(args[0], _GUESS)
        if name == "__contains__":
            return False
        if name == "cpu":  # a copy to the host of something without values
            return args[0]
        return func(*args, **kwargs)

    def _keep_or_forget(self, func: Any, known: bool, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """A change in place: made to the known value too; after any other change nothing is known of it."""
        changed = kwargs.get("out", args[0] if args else None)
        if not isinstance(changed, torch.Tensor) or not changed.is_meta or not self._knows(changed):
            return
        if known and "out" not in kwargs:
            _on_host(func, args, kwargs)
        else:
            value = _value(changed)
            assert value is not None
            self._stale.add(value.untyped_storage()._cdata)

    def _guess(self, name: str, args: tuple[Any, ...], result: Any) -> None:
        if not isinstance(result, torch.Tensor) or not result.is_meta or result.dim():
            return
        if name in {"__eq__", "eq"} and hasattr(args[0], _COUNT):
            setattr(result, _GUESS, getattr(args[0], _COUNT) == args[1])
        elif name == "sum" and args[0].dtype is torch.bool:
            setattr(result, _COUNT, args[0].numel())
        elif name in _GUESSES:
            setattr(result, _GUESS, _GUESSES[name])


def _value(tensor: torch.Tensor) -> torch.Tensor | None:
    """What a tensor holds: itself on the host, or what was computed beside the trace."""
    return getattr(tensor, _VALUE, None) if tensor.is_meta else tensor


def _is_small(tensor: torch.Tensor) -> bool:
    return tensor.numel() <= (MOST_FLOATS if tensor.is_floating_point() else MOST_ELEMENTS)


def _may_follow(name: str, result: Any) -> bool:
    """Whether a result that follows from known values alone is worth computing."""
    results = list(_meta_tensors(result))
    return (
        bool(results)
        and not any(word in name for word in _WITHOUT_VALUES)
        and all(_is_small(tensor) and not tensor.requires_grad for tensor in results)
    )


def _changes_in_place(name: str, kwargs: dict[str, Any]) -> bool:
    by_name = name.endswith("_") and not name.endswith("__")
    return (
        by_name or name in {"__setitem__", "__iadd__", "__isub__", "__imul__", "__ior__"} or "out" in kwargs
    )


def _on_host(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    host_args, host_kwargs = tree_map(_host_operand, (args, kwargs))
    with torch.no_grad(), torch._C.DisableTorchFunction():
        return func(*host_args, **host_kwargs)


def _host_operand(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return _value(value)
    if value == "meta" if isinstance(value, str) else isinstance(value, torch.device):
        return torch.device("cpu")
    return value


def _on_meta(value: Any) -> Any:
    return with_value(value, "meta") if isinstance(value, torch.Tensor) else value


def _places(index: Any) -> Any:
    """An index whose masks are the places they select, whose number a trace needs."""
    parts = index if isinstance(index, tuple) else (index,)
    if not any(_is_known_mask(part) for part in parts):
        return index
    places: list[Any] = []
    for part in parts:
        if _is_known_mask(part):
            value = _value(part)
            assert value is not None
            places += [_on_meta(along) for along in value.nonzero(as_tuple=True)]
        else:
            places.append(part)
    return tuple(places)


def _is_known_mask(index: Any) -> bool:
    is_mask = isinstance(index, torch.Tensor) and index.is_meta and index.dtype is torch.bool
    return is_mask and _value(index) is not None


def _attach(result: Any, value: Any) -> None:
    for tensor, known in zip(_meta_tensors(result), _tensors(value), strict=False):
        if tensor.shape == known.shape:
            setattr(tensor, _VALUE, known)


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    return (leaf for leaf in tree_leaves(value) if isinstance(leaf, torch.Tensor))


def _meta_tensors(value: Any) -> Iterator[torch.Tensor]:
    return (tensor for tensor in _tensors(value) if tensor.is_meta)


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
        is_listed = f"{func.namespace}.{func._opname}" in _ALSO_SHAPED_BY_VALUES
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
