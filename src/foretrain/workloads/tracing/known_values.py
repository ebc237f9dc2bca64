"""Values that a trace knows although it computes nothing: whole numbers and truth values of a batch.

Library models read such values: which tokens are padding, where the tokens of an image go, how large each
image is. `KnownValues` computes them beside the trace, on the host, for tensors that follow from real ones
alone. What follows from activations stays unknown; of those, a few questions have the answer of a batch of
full sequences, each of them one document: no token is padding, and all positions follow one another.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
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
