"""What is drawn, read back: elements of a figure, and where its texts stand."""

from __future__ import annotations

from itertools import combinations
from xml.etree import ElementTree

from foretrain.serving.html.drawing import FONT_SIZE, Box, placed_at

Element = ElementTree.Element


def parsed(markup: str) -> Element:
    """A figure as a tree; it must be well formed."""
    return ElementTree.fromstring(f"<div>{markup}</div>")


def charts(markup: str) -> list[Element]:
    """The drawings of a figure, wide and narrow."""
    return parsed(markup).findall(".//svg")


def of_class(tree: Element, name: str) -> list[Element]:
    """Elements that have a class."""
    return [element for element in tree.iter() if name in element.get("class", "").split()]


def text_of(element: Element) -> str:
    """All text of an element, with plain spaces."""
    return "".join(element.itertext()).replace("\xa0", " ")


def size(chart: Element) -> tuple[float, float]:
    """Width and height."""
    _, _, width, height = map(float, chart.get("viewBox", "").split())
    return width, height


def texts(chart: Element) -> list[Box]:
    """The room each text takes, estimated as generously as when it was placed."""
    return [
        placed_at(
            text_of(text),
            FONT_SIZE,
            float(text.get("x", "")),
            float(text.get("y", "")),
            text.get("text-anchor", "start"),
        ).box
        for text in chart.iter("text")
    ]


def check_drawing(chart: Element) -> None:
    """Everything stands inside, and no two texts overlap."""
    width, height = size(chart)
    for circle in chart.iter("circle"):
        assert 0 <= float(circle.get("cx", "")) <= width
        assert 0 <= float(circle.get("cy", "")) <= height
    for one in chart.iter("line"):
        assert all(0 <= float(one.get(name, "")) <= width for name in ("x1", "x2"))
        assert all(0 <= float(one.get(name, "")) <= height for name in ("y1", "y2"))
    for first, second in combinations(texts(chart), 2):
        assert not first.overlaps(second), (first, second)
    for box in texts(chart):
        assert box.left >= -1
        assert box.right <= width + 1
