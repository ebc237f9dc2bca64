"""What is drawn, read back: elements of a page or a chart, and where the texts of a chart stand."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import combinations
from xml.etree import ElementTree

from foretrain.serving.views.vega import Box, text_width

Element = ElementTree.Element
_NAMESPACE = "{http://www.w3.org/2000/svg}"
_ANCHORS = {"start": 0.0, "middle": 0.5, "end": 1.0}


def parsed(markup: str) -> Element:
    """A piece of a page as a tree without namespaces; it must be well formed."""
    tree = ElementTree.fromstring(f"<div>{markup}</div>")
    for element in tree.iter():
        element.tag = element.tag.removeprefix(_NAMESPACE)
    return tree


def charts(markup: str) -> list[Element]:
    """The drawings of a figure, wide and narrow."""
    return parsed(markup).findall(".//svg")


def of_class(tree: Element, name: str) -> list[Element]:
    """Elements that have a class."""
    return [element for element in tree.iter() if name in element.get("class", "").split()]


def text_of(element: Element) -> str:
    """All text of an element, with plain spaces."""
    return "".join(element.itertext()).replace("\xa0", " ")


def labels(tree: Element, role: str) -> list[str]:
    """The texts of a part of a chart as Vega names it, as `axis-label`, without those hidden for room."""
    return [
        text_of(text)
        for group in of_class(tree, f"role-{role}")
        for text in group.iter("text")
        if text.get("opacity") != "0"
    ]


def texts(chart: Element) -> list[tuple[str, Box]]:
    """Every text with the room it takes, estimated as generously as when it was placed."""
    return list(dict.fromkeys(_texts(chart, 0.0, 0.0)))


def _texts(element: Element, x: float, y: float) -> Iterator[tuple[str, Box]]:
    for across, down in re.findall(r"translate\(([-\d.e]+),([-\d.e]+)\)", element.get("transform", "")):
        x, y = x + float(across), y + float(down)
    if element.tag == "text" and element.get("opacity") != "0":
        size = float(element.get("font-size", "").removesuffix("px"))
        is_bold = element.get("font-weight") not in (None, "normal")
        width = text_width(text_of(element), size, is_bold=is_bold)
        left = x - _ANCHORS[element.get("text-anchor", "start")] * width
        yield text_of(element), Box(left, y - 0.85 * size, left + width, y + 0.3 * size)
    for child in element:
        yield from _texts(child, x, y)


def check_drawing(chart: Element) -> None:
    """No two texts overlap, even in the widest of fonts."""
    for (one, first), (other, second) in combinations(texts(chart), 2):
        assert not first.overlaps(second), (one, other)
