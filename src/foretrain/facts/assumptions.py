"""Single numbers that belong to no device, link, node or provider: `data/assumptions.toml`."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from foretrain.errors import InvalidData, MissingData
from foretrain.facts.sheets import Kind, data_root, read_toml

PLANNED_LINK_SHARE = "planned_share_of_nominal_link_rate"
FULL_TIME_HOURS = "full_time_hours_per_year"
_FILE = "assumptions.toml"


@dataclass(frozen=True, slots=True)
class Assumption:
    """A number with its unit, meaning, kind and source."""

    name: str
    value: float
    unit: str
    meaning: str
    kind: Kind
    source: str
    note: str


@cache
def assumptions() -> dict[str, Assumption]:
    """All of them, by name."""
    return {name: _assumption(name, entry) for name, entry in read_toml(data_root() / _FILE).items()}


def assumption(name: str) -> Assumption:
    """One of them; an unknown name raises `MissingData`."""
    try:
        return assumptions()[name]
    except KeyError:
        raise MissingData(f"{_FILE} has no {name}; it has {', '.join(assumptions())}") from None


def _assumption(name: str, entry: dict[str, object]) -> Assumption:
    try:
        value, kind = float(str(entry["value"])), Kind(str(entry["kind"]))
        texts = {key: str(text) for key, text in entry.items() if key not in {"value", "kind"}}
        return Assumption(name=name, value=value, kind=kind, **texts)
    except (KeyError, TypeError, ValueError) as error:
        raise InvalidData(_FILE, f"{name}: {error}") from error
