"""Fact sheets: what is known of one thing, each value with its kind and source.

On disk a sheet is a TOML file whose `[[facts]]` blocks group the values that share a kind and a source:

    [[facts]]
    kind = "spec"
    source = "nvidia-a100-datasheet"
    memory_bytes = 42949672960

Sources that disagree stay side by side in blocks of their own; the first block that states a quantity is
preferred, and `explain` shows the others too.

Files on devices, links and nodes hold one thing each: its `id`, which is also the name of the file, a few
identifying texts, its aliases, and `[[facts]]` blocks. Sources are listed in `data/sources.toml`.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache, cached_property
from importlib import resources
from importlib.resources.abc import Traversable
from typing import Any

from foretrain.errors import InvalidData, MissingData
from foretrain.registry import Registry

Value = float | int | str


class FactKind(StrEnum):
    """How a value came to be known."""

    SPEC = "spec"
    MEASURED = "measured"
    FITTED = "fitted"
    ASSUMED = "assumed"


@dataclass(frozen=True, slots=True)
class Fact:
    """One value of one quantity, with its kind and source. Only the first of several is `preferred`."""

    quantity: str
    value: Value
    kind: FactKind
    source: str
    preferred: bool = True
    note: str = ""


@dataclass(frozen=True, slots=True)
class Quantity:
    """What a quantity means, its unit, and the bounds outside which a value is surely wrong."""

    name: str
    unit: str
    meaning: str
    bounds: tuple[float, float] | None
    required: tuple[str, ...]


@dataclass(frozen=True)
class Sheet:
    """All facts about one thing."""

    subject: str
    facts: tuple[Fact, ...]

    def __iter__(self) -> Iterator[Fact]:
        return iter(self.facts)

    def __hash__(self) -> int:  # sheets are keys of caches: hashing every fact takes longer than a look-up
        return hash(self.subject)

    def fact(self, quantity: str) -> Fact | None:
        """The preferred fact on a quantity, or None."""
        return self._preferred.get(quantity)

    @cached_property
    def _preferred(self) -> Mapping[str, Fact]:
        return {fact.quantity: fact for fact in reversed(self.facts) if fact.preferred}

    def to_dict(self) -> dict[str, dict[str, Any]]:
        """The preferred facts as plain data, by quantity."""
        known = quantities()
        return {
            fact.quantity: {
                "value": fact.value,
                "unit": known[fact.quantity].unit,
                "kind": fact.kind,
                "source": fact.source,
            }
            for fact in self
            if fact.preferred
        }

    def has(self, quantity: str) -> bool:
        """Whether anything is known of a quantity."""
        return self.fact(quantity) is not None

    def number(self, quantity: str) -> float:
        """The preferred value of a numeric quantity; an absent one raises `MissingData`."""
        fact = self.fact(quantity)
        if fact is None or isinstance(fact.value, str):
            raise MissingData(
                f"no {quantity} is known of {self.subject}; add it, with a source, to its file in facts/data"
            )
        return fact.value

    def text(self, quantity: str) -> str:
        """The preferred value of a textual quantity; an absent one raises `MissingData`."""
        fact = self.fact(quantity)
        if fact is None:
            raise MissingData(f"no {quantity} is known of {self.subject}")
        return str(fact.value)


def data_root() -> Traversable:
    """The folder of the shipped data files."""
    return resources.files("foretrain.facts") / "data"


def read_toml(file: Traversable) -> dict[str, Any]:
    """A TOML file as a dictionary; a malformed one raises `InvalidData` with its name."""
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidData(file.name, f"not valid TOML: {error}") from error


@cache
def quantities() -> Mapping[str, Quantity]:
    """Every quantity a fact may state, from `data/quantities.toml`."""
    return {
        name: Quantity(
            name=name,
            unit=entry["unit"],
            meaning=entry["meaning"],
            bounds=tuple(entry["bounds"]) if "bounds" in entry else None,
            required=tuple(entry.get("required", ())),
        )
        for name, entry in read_toml(data_root() / "quantities.toml").items()
    }


def read_sheet(subject: str, blocks: list[dict[str, Any]], file: str) -> Sheet:
    """A sheet from the `[[facts]]` blocks of a file."""
    facts: list[Fact] = []
    stated: set[str] = set()
    for block in blocks:
        try:
            kind, source = FactKind(block["kind"]), block["source"]
        except (KeyError, ValueError) as error:
            kinds = ", ".join(FactKind)
            raise InvalidData(
                file, f"a [[facts]] block needs a source and a kind ({kinds}): {error}"
            ) from error
        note = block.get("note", "")
        for quantity, value in block.items():
            if quantity in {"kind", "source", "note"}:
                continue
            if not isinstance(value, int | float | str) or isinstance(value, bool):
                raise InvalidData(file, f"{quantity} = {value!r} is neither a number nor a text")
            facts.append(Fact(quantity, value, kind, source, quantity not in stated, note))
            stated.add(quantity)
    return Sheet(subject, tuple(facts))


@dataclass(frozen=True)
class Entry:
    """What one file says: identifying texts by key, aliases, facts."""

    identity: dict[str, str]
    aliases: tuple[str, ...]
    sheet: Sheet


def read_entries(folder: Traversable, identity: tuple[str, ...]) -> Iterator[Entry]:
    """The TOML files of a folder, in order of name; each must state the `identity` texts."""
    files = (file for file in folder.iterdir() if file.name.endswith(".toml"))
    for file in sorted(files, key=lambda file: file.name):
        content = read_toml(file)
        missing = [key for key in identity if not isinstance(content.get(key), str)]
        if missing:
            raise InvalidData(file.name, f"a file in {folder.name} must say {', '.join(missing)}")
        if content["id"] + ".toml" != file.name:
            raise InvalidData(file.name, f"the file is not named after its id, {content['id']!r}")
        yield Entry(
            identity={key: content[key] for key in identity},
            aliases=tuple(content.get("aliases", ())),
            sheet=read_sheet(content["id"], content.get("facts", []), file.name),
        )


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
