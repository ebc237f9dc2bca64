"""Data sets and storage: what reading training samples takes, one TOML file each under `data/input/`."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from foretrain.facts.sheets import Sheet, read_registry
from foretrain.registry import Registry


@dataclass(frozen=True)
class Dataset:
    """A data set as it is stored. `kind`: images (counted by sample), tokens, or synthetic (nothing)."""

    id: str
    name: str
    kind: str
    aliases: tuple[str, ...]
    sheet: Sheet

    @property
    def is_read(self) -> bool:
        """Whether samples come from storage at all."""
        return self.kind != "synthetic"


@dataclass(frozen=True)
class Storage:
    """Where a data set lies. `kind` is its technology: ssd, hdd or network."""

    id: str
    name: str
    kind: str
    aliases: tuple[str, ...]
    sheet: Sheet


@cache
def datasets() -> Registry[Dataset]:
    """All known data sets, by id and alias."""
    return read_registry("data set", Dataset, "input/datasets")


@cache
def storages() -> Registry[Storage]:
    """All known kinds of storage, by id and alias."""
    return read_registry("storage", Storage, "input/storage")
