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
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import MISSING, dataclass, fields
from enum import StrEnum
from functools import cache, cached_property, partial
from importlib import resources
from importlib.resources.abc import Traversable
from typing import Any, TypeVar

from foretrain.errors import InvalidData, MissingData
from foretrain.persisted import restore
from foretrain.registry import Registry

T = TypeVar("T")
Value = float | int | str
_FACTS_KEY = "facts"
_FACTS = f"[[{_FACTS_KEY}]]"


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
    bounds: tuple[float, float] | None = None
    required: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class Sheet:
    """All facts about one thing; `given` may be what reads them when one is first asked for.

    A prediction needs the names of all devices and the facts of a few: to read those of all took half of the
    time in which hardware is looked up.
    """

    subject: str
    given: tuple[Fact, ...] | Callable[[], tuple[Fact, ...]]

    @cached_property
    def facts(self) -> tuple[Fact, ...]:
        """All of them, in the order of the file."""
        return self.given() if callable(self.given) else self.given

    def __eq__(self, other: object) -> bool:
        if self is other or not isinstance(other, Sheet):
            return self is other
        return (self.subject, self.facts) == (other.subject, other.facts)

    def __repr__(self) -> str:
        """With what was read, not with what reads it: digests of it are the same in every process."""
        return f"Sheet({self.subject!r}, {self.facts!r})"

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
    return _parse_toml(_read_text(file), file.name)


def _read_text(file: Traversable) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise InvalidData(file.name, f"not valid TOML: {error}") from error


def _parse_toml(text: str, file: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InvalidData(file, f"not valid TOML: {error}") from error


@cache
def quantities() -> Mapping[str, Quantity]:
    """Every quantity a fact may state, from `data/quantities.toml`."""
    entries = read_toml(data_root() / "quantities.toml")
    return {name: restore(Quantity, {**entry, "name": name}, name) for name, entry in entries.items()}


def _read_facts(text: str, file: str) -> tuple[Fact, ...]:
    """The facts of the `[[facts]]` blocks of a file."""
    blocks = _parse_toml(text, file).get(_FACTS_KEY, [])
    if not isinstance(blocks, list) or not all(isinstance(block, dict) for block in blocks):
        raise InvalidData(file, f"facts must be {_FACTS} blocks, each with kind, source and values")
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
    return tuple(facts)


def read_things(kind: Callable[..., T], folder: Traversable, texts: Iterable[str] = ()) -> Iterator[T]:
    """What the TOML files of a folder describe, in order of name.

    Each must state its identifying `texts`, by default all fields of `kind` but `aliases` and `sheet`. Facts
    are read when they are used.
    """
    wanted = tuple(texts) or identity(kind)
    files = (file for file in folder.iterdir() if file.name.endswith(".toml"))
    for file in sorted(files, key=lambda file: file.name):
        thing, _ = read_thing(kind, file, wanted)
        if f"{thing.id}.toml" != file.name:
            raise InvalidData(file.name, f"the file is not named after its id, {thing.id!r}")
        yield thing


def read_thing(kind: Callable[..., T], file: Traversable, texts: Iterable[str]) -> tuple[Any, frozenset[str]]:
    """What one TOML file describes, and the keys that it has beside the facts."""
    text = _read_text(file)
    head, marker, facts = text.partition(f"\n{_FACTS}")
    content = _parse_toml(head, file.name)
    missing = [key for key in texts if not isinstance(content.get(key), str)]
    if missing:
        raise InvalidData(file.name, f"must state {', '.join(missing)} as text")
    aliases = content.get("aliases", [])
    if not isinstance(aliases, list) or not all(isinstance(each, str) for each in aliases):
        raise InvalidData(file.name, f"aliases = {aliases!r} is no list of texts")
    stated = text if _FACTS_KEY in content else f"{_FACTS}{facts}" if marker else ""
    sheet = Sheet(content["id"], partial(_read_facts, stated, file.name))
    thing = kind(**{key: content[key] for key in texts}, aliases=tuple(aliases), sheet=sheet)
    return thing, frozenset(content) - {_FACTS_KEY}


def identity(kind: Any) -> tuple[str, ...]:
    """The texts that the file of a thing must state."""
    texts = (each.name for each in fields(kind) if each.default is MISSING)
    return tuple(name for name in texts if name not in ("aliases", "sheet"))


def read_registry(what: str, kind: type[T], folder: str, hint: str | None = None) -> Registry[T]:
    """What the files of a data folder describe, by id and alias; the hint lists all ids by default."""
    things: list[Any] = list(read_things(kind, data_root() / folder))
    listed = f"Known: {', '.join(each.id for each in things)}"
    return Registry(
        what,
        things,
        name=lambda each: each.id,
        aliases=lambda each: each.aliases,
        hint=listed if hint is None else hint,
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


def source_named(name: str) -> Source:
    """The source that a fact cites; what is none of the shipped ones is what a user wrote in a file."""
    own = Source(name, "Stated in a file of yours", "your foretrain data directory", "when added", "yours")
    return sources().find(name) or own
