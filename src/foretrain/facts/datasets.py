"""Data sets and storage: what reading training samples takes, one TOML file each under `data/input/`."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from foretrain.facts.sheets import Sheet, data_root, read_entries
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
    entries = read_entries(data_root() / "input" / "datasets", ("id", "name", "kind"))
    return Registry(
        "data set",
        [Dataset(**entry.identity, aliases=entry.aliases, sheet=entry.sheet) for entry in entries],
        name=lambda dataset: dataset.id,
        aliases=lambda dataset: dataset.aliases,
        hint=f"Known: {', '.join(_ids('datasets'))}",
    )


@cache
def storages() -> Registry[Storage]:
    """All known kinds of storage, by id and alias."""
    entries = read_entries(data_root() / "input" / "storage", ("id", "name", "kind"))
    return Registry(
        "storage",
        [Storage(**entry.identity, aliases=entry.aliases, sheet=entry.sheet) for entry in entries],
        name=lambda storage: storage.id,
        aliases=lambda storage: storage.aliases,
        hint=f"Known: {', '.join(_ids('storage'))}",
    )


def _ids(folder: str) -> list[str]:
    files = (data_root() / "input" / folder).iterdir()
    return sorted(file.name.removesuffix(".toml") for file in files)
