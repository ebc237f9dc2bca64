"""A self-contained page: one file, no outside request, in light and dark, on a phone and on paper."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from foretrain.serving.html.markup import Markup, element, join

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
    """Names and what is to be said of each."""
    listed = (child for name, said in entries for child in (element("dt", name), element("dd", said)))
    return element("dl", *listed, class_="definitions") if entries else Markup("")


def notes(entries: Sequence[str]) -> Markup:
    """Remarks as a list, each once."""
    listed = [element("li", *_options_unbroken(entry)) for entry in dict.fromkeys(entries)]
    return element("ul", *listed, class_="notes") if listed else Markup("")


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
    return Markup(files("foretrain.serving.html").joinpath(name).read_text(encoding="utf-8"))
