"""Options that several commands share, and how their text is read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import typer

from foretrain.units import UnitError, parse_bandwidth, parse_duration, parse_money


def _reader(parse: Callable[[str], float], name: str) -> Callable[[str | float], float]:
    def read(text: str | float) -> float:
        if not isinstance(text, str):  # typer also passes the default through the parser
            return float(text)
        if text.lstrip().startswith("-"):
            raise typer.BadParameter(f"{text!r} is negative; give an amount of at least 0")
        try:
            return parse(text)
        except UnitError as error:
            raise typer.BadParameter(str(error)) from error

    read.__name__ = name
    return read


money = _reader(parse_money, "USD")
duration = _reader(parse_duration, "DURATION")
bandwidth = _reader(parse_bandwidth, "RATE")

Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")]


def comma_separated(text: str | None) -> tuple[str, ...]:
    """The items of `a,b,c`; nothing for None."""
    return tuple(item.strip() for item in (text or "").split(",") if item.strip())


def region_names(text: str | None) -> tuple[str, ...]:
    """The regions of `us-east-1,eu-west-2`, as their providers spell them; unknown ones as they were typed.

    Some have commas of their own (`Sichuan, CN, AS`), so the longest run of items that is a region is one.
    """
    items = comma_separated(text)
    if not items:
        return ()
    from foretrain.facts.offers import all_offers
    from foretrain.registry import normalised

    known = {tuple(map(normalised, comma_separated(offer.region))): offer.region for offer in all_offers()}
    found, start = [], 0
    while start < len(items):
        ends = range(len(items), start, -1)
        keys = {end: tuple(map(normalised, items[start:end])) for end in ends}
        end = next((end for end in ends if keys[end] in known), start + 1)
        found.append(known.get(keys[end], items[start]))
        start = end
    return tuple(found)


def complete_device(incomplete: str) -> list[str]:
    """Device ids that start with what was typed, for shell completion."""
    from foretrain.facts.devices import devices

    return [name for name in devices() if name.startswith(incomplete.lower())]


def complete_provider(incomplete: str) -> list[str]:
    """Provider ids that start with what was typed, for shell completion."""
    from foretrain.facts.providers import providers

    return [name for name in providers() if name.startswith(incomplete.lower())]
