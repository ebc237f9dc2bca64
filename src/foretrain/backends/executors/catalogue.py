"""The registry of executors."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from functools import cache

from foretrain.backends.executors._base import Executor
from foretrain.errors import UnknownName
from foretrain.registry import Registry, modules_beside
from foretrain.scheduling.problem import Fleet


@cache
def executors() -> Registry[type[Executor]]:
    """All kinds of clusters by name."""
    kinds = {
        value
        for module in modules_beside(__name__)
        for value in vars(module).values()
        if inspect.isclass(value) and issubclass(value, Executor) and not inspect.isabstract(value)
    }
    return Registry("backend", sorted(kinds, key=lambda each: each.name), name=lambda each: each.name)


def connect(name: str, fleet: Fleet, options: Mapping[str, str] | None = None) -> Executor:
    """The executor of a name for a fleet; unknown options are errors."""
    kind = executors()[name]
    for option in options or {}:
        if option not in kind.options:
            raise UnknownName(f"option of the backend {kind.name!r}", option, kind.options)
    return kind(fleet, options or {})
