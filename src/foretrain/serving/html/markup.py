"""HTML and SVG from Python values. Text is escaped unless it is `Markup` already, so none slips through."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

from foretrain.serving.wording import SPACE

_VOID = frozenset({"meta", "br", "col", "wbr"})

Attribute = str | float | None


class Markup(str):
    """Text that is HTML already."""

    __slots__ = ()


def element(tag: str, *children: str, **attributes: Attribute) -> Markup:
    """An element. Children that are not `Markup` are escaped, and so are all attributes.

    Attributes are written as Python names: `class_`, `data_value`, `viewBox`. One that is None is left out.
    Numbers get at most two digits behind the point.
    """
    opening = f"<{tag}{''.join(_attribute(name, value) for name, value in attributes.items())}>"
    return Markup(opening if tag in _VOID else f"{opening}{join(children)}</{tag}>")


def join(children: Iterable[str]) -> Markup:
    """Children one after the other; what is not `Markup` is escaped."""
    return Markup("".join(child if isinstance(child, Markup) else escape(child) for child in children))


def ranged(text: str) -> str:
    """A range such as `4h 50m – 6h 30m`, which may be broken after its dash only, not inside a quantity."""
    return text.replace(" ", SPACE).replace(f"–{SPACE}", "– ")


def _attribute(name: str, value: Attribute) -> str:
    if value is None:
        return ""
    written = name.rstrip("_").replace("_", "-")
    return f' {written}="{escape(_text(value))}"'


def _text(value: str | float) -> str:
    if isinstance(value, str):
        return value
    return f"{value:.2f}".rstrip("0").rstrip(".")
