"""A self-contained page: one file, no outside request, in light and dark, on a phone and on paper.

`element` makes HTML and SVG from Python values; text is escaped unless it is `Markup` already.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from html import escape
from importlib.resources import files

from foretrain.serving.views.wording import SPACE, as_flags

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


_POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'"
"""The browser itself refuses anything from outside."""


@dataclass(frozen=True, slots=True)
class KeyFigure:
    """A number that matters: what it is, the number, and a line about it."""

    name: str
    value: str
    about: str = ""


def page(
    title: str, kicker: str, opening: Sequence[str], sections: Sequence[str], footer: Sequence[str]
) -> str:
    """The whole document. `opening` stands under the title, before the first section."""
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=_POLICY),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("title", title),
        element("style", _asset("page.css")),
    )
    body = element(
        "body",
        element("header", element("p", kicker, class_="kicker"), element("h1", title), *opening),
        element("main", *sections),
        element("footer", element("div", *footer)),
        element("script", _asset("sort_tables.js")),
    )
    return f"<!doctype html>\n{element('html', head, body, lang='en')}\n"


def section(title: str, *blocks: str) -> Markup:
    """A part of the page under a heading; without blocks there is none."""
    filled = [block for block in blocks if block]
    return element("section", element("h2", title), *filled) if filled else Markup("")


def paragraph(*content: str, class_: str = "") -> Markup:
    """Running text."""
    return element("p", *content, class_=class_ or None)


def key_figures(figures: Sequence[KeyFigure]) -> Markup:
    """A few large numbers side by side."""
    return element(
        "dl",
        *(
            element(
                "div",
                element("dt", figure.name),
                element("dd", figure.value, element("small", figure.about) if figure.about else ""),
            )
            for figure in figures
        ),
        class_="figures",
    )


def definitions(entries: Sequence[tuple[str, str]]) -> Markup:
    """Names with a text for each."""
    listed = (child for name, text in entries for child in (element("dt", name), element("dd", text)))
    return element("dl", *listed, class_="definitions") if entries else Markup("")


def notes(entries: Sequence[str]) -> Markup:
    """Remarks as a list, each once, with fields spelled as options."""
    listed = [element("li", _remark(entry)) for entry in dict.fromkeys(entries)]
    return element("ul", *listed, class_="notes") if listed else Markup("")


def _remark(entry: str) -> Markup:
    return entry if isinstance(entry, Markup) else join(_options_unbroken(as_flags(entry)))


def code(text: str) -> Markup:
    """What is typed."""
    return element("code", *_options_unbroken(text))


def _options_unbroken(text: str) -> Iterator[str]:
    """Pieces of a text; in `--reference-batch` no line ends after a dash."""
    for number, piece in enumerate(re.split(r"((?<!\S)-[-\w]+)", text)):
        if piece:
            yield element("span", piece, class_="keep") if number % 2 else piece


def link(text: str, address: str) -> Markup:
    """A link where the address is one of the web, else both as text."""
    if address.startswith(("https://", "http://")):
        return element("a", text, href=address, rel="noreferrer")
    return join((text, f" ({address})" if address else ""))


@cache
def _asset(name: str) -> Markup:
    return Markup(files("foretrain.serving.rendering").joinpath(name).read_text(encoding="utf-8"))
