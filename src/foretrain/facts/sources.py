"""Where figures come from: `data/sources.toml`."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from foretrain.errors import InvalidData
from foretrain.facts.sheets import data_root, read_toml
from foretrain.registry import Registry


@dataclass(frozen=True, slots=True)
class Source:
    """A document, data set or measurement: what it is, where to find it, when it was read, its licence."""

    id: str
    title: str
    locator: str
    retrieved: str
    licence: str


@cache
def sources() -> Registry[Source]:
    """All sources, by id."""
    entries = read_toml(data_root() / "sources.toml")
    try:
        listed = [Source(id=id_, **entry) for id_, entry in entries.items()]
    except TypeError as error:
        raise InvalidData(
            "sources.toml", f"a source needs title, locator, retrieved, licence: {error}"
        ) from error
    return Registry("source", listed, name=lambda source: source.id)
