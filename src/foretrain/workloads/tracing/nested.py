"""Tensors in nested containers: what modules take and return."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import torch


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
