"""One way to find things by name: devices, providers, op models, strategies, policies, backends."""

from __future__ import annotations

import inspect
import pkgutil
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from importlib import import_module
from types import ModuleType
from typing import Generic, TypeVar

from foretrain.errors import UnknownName

Item = TypeVar("Item")


class DuplicateName(ValueError):
    """Two items claim one name: a bug in the data or in an extension, never the user's fault."""


@lru_cache(maxsize=4096)
def normalise(name: str) -> str:
    """The form names are compared in: case, and the choice of space, dash or underscore, do not matter."""
    return re.sub(r"[\s_\-/]+", "-", name.strip().casefold())


class Registry(Generic[Item], Mapping[str, Item]):
    """An immutable mapping from names and aliases to items; it rejects duplicates and suggests near names.

    Iterating yields the primary names; looking up accepts aliases too.
    """

    def __init__(
        self,
        kind: str,
        items: Iterable[Item],
        name: Callable[[Item], str],
        aliases: Callable[[Item], Iterable[str]] = lambda _: (),
        hint: str = "",
    ) -> None:
        self.kind = kind
        self._hint = hint
        self._items: dict[str, Item] = {}
        self._primary_by_key: dict[str, str] = {}
        for item in items:
            primary = name(item)
            for alias in (primary, *aliases(item)):
                self._claim(alias, primary)
            self._items[primary] = item

    def _claim(self, alias: str, primary: str) -> None:
        key = normalise(alias)
        owner = self._primary_by_key.get(key)
        if owner is not None:
            raise DuplicateName(f"{self.kind} {primary!r} claims {alias!r}, which already names {owner!r}")
        self._primary_by_key[key] = primary

    def __getitem__(self, name: str) -> Item:
        """The item called `name`; an unknown name raises `UnknownName` with the nearest known ones."""
        primary = self.resolve(name)
        if primary is None:
            raise UnknownName(self.kind, name, self._items, self._hint)
        return self._items[primary]

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self.resolve(name) is not None

    def __iter__(self) -> Iterator[str]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def find(self, name: str) -> Item | None:
        """The item called `name`, or None; for names that may well mean something else."""
        primary = self.resolve(name)
        return None if primary is None else self._items[primary]

    def resolve(self, name: str) -> str | None:
        """The primary name behind `name` or one of its aliases, or None."""
        return self._primary_by_key.get(normalise(name))


def modules_beside(catalogue: str) -> Iterator[ModuleType]:
    """The public modules and packages beside a catalogue module, or in a catalogue package, in order of name.

    A catalogue passes its own `__name__`. Modules with a leading underscore are skipped.
    """
    package = import_module(catalogue)
    if not hasattr(package, "__path__"):
        package = import_module(catalogue.rpartition(".")[0])
    for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
        if module.name != catalogue and not module.name.rpartition(".")[2].startswith("_"):
            yield import_module(module.name)


def discover(catalogue: str, base: type[Item]) -> Iterator[Item]:
    """An instance of every concrete subclass of `base` that is defined beside or in a catalogue."""
    for module in modules_beside(catalogue):
        for value in vars(module).values():
            is_kind = inspect.isclass(value) and issubclass(value, base) and not inspect.isabstract(value)
            if is_kind and value is not base and value.__module__.startswith(module.__name__):
                yield value()
