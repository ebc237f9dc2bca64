"""Where labels go: next to what they name, over nothing else, or not at all.

The reader's font is not known, so the width of a text is bounded by that in the widest of the common fonts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

_NARROW, _MEDIUM, _CAPITAL, _WIDE = 0.42, 0.64, 0.84, 1.0
"""Advance widths as shares of the font's size, which no character of its kind exceeds in DejaVu Sans."""
_NARROW_CHARACTERS = frozenset(" .,:;·'|!()[]/-Iijlftr")
_WIDE_CHARACTERS = frozenset("MWmw%@")
_BOLD = 1.12
"""Width of a bold text relative to a regular one."""


@dataclass(frozen=True, slots=True)
class Box:
    """A rectangle of pixels."""

    left: float
    top: float
    right: float
    bottom: float

    def overlaps(self, other: Box) -> bool:
        """Whether the two share more than an edge."""
        return (
            self.left < other.right
            and other.left < self.right
            and self.top < other.bottom
            and other.top < self.bottom
        )

    def inside(self, other: Box) -> bool:
        """Whether all of it lies in the other."""
        return (
            other.left <= self.left
            and self.right <= other.right
            and other.top <= self.top
            and self.bottom <= other.bottom
        )


@dataclass(frozen=True, slots=True)
class Wanted:
    """A point to be labelled: where, how large its marker is, and what to write, the best text first."""

    x: float
    y: float
    radius: float
    texts: tuple[str, ...]
    is_bold: bool = False


@dataclass(frozen=True, slots=True)
class Placed:
    """A text at a place: its anchor (start, middle or end) at the baseline, and the room it takes."""

    text: str
    anchor: str
    x: float
    y: float
    box: Box


def text_width(text: str, size: float, *, is_bold: bool = False) -> float:
    """Pixels a text takes in the widest of the common fonts."""
    regular = size * sum(_character_width(character) for character in text)
    return _BOLD * regular if is_bold else regular


def _character_width(character: str) -> float:
    if character in _NARROW_CHARACTERS or character.isspace():
        return _NARROW
    if character in _WIDE_CHARACTERS:
        return _WIDE
    return _CAPITAL if character.isupper() or character in "×+=<>~" else _MEDIUM


def placed_at(text: str, size: float, x: float, y: float, anchor: str, *, is_bold: bool = False) -> Placed:
    """A text with its anchor at a point."""
    width = text_width(text, size, is_bold=is_bold)
    left = x - {"start": 0.0, "middle": width / 2, "end": width}[anchor]
    return Placed(text, anchor, x, y, Box(left, y - 0.85 * size, left + width, y + 0.3 * size))


def first_free(places: Iterable[Placed], within: Box, taken: Sequence[Box]) -> Placed | None:
    """The first place inside a box that touches nothing taken."""
    return next(
        (
            place
            for place in places
            if place.box.inside(within) and not any(place.box.overlaps(box) for box in taken)
        ),
        None,
    )


def place_labels(
    wanted: Sequence[Wanted], size: float, within: Box, taken: Iterable[Box] = (), *, above: bool = False
) -> list[Placed | None]:
    """A label for each point, in order of importance; None where no text has room.

    Places below left of a point are tried first, where nothing can be that is better than a point of a front;
    `above` tries those above it first, where a rising line leaves room.
    """
    occupied = [*taken, *(_marker(point) for point in wanted)]
    found: list[Placed | None] = []
    for point in wanted:
        places = (place for text in point.texts for place in _places(point, text, size, above))
        placed = first_free(places, within, occupied)
        if placed is not None:
            occupied.append(placed.box)
        found.append(placed)
    return found


def _marker(point: Wanted) -> Box:
    return Box(point.x - point.radius, point.y - point.radius, point.x + point.radius, point.y + point.radius)


def _places(point: Wanted, text: str, size: float, above: bool) -> Iterator[Placed]:
    gap = point.radius + 3
    places = (
        ("end", -gap, gap + 0.5 * size),
        ("middle", 0.0, gap + size),
        ("end", -gap, 0.35 * size),
        ("start", gap, -gap),
        ("start", gap, 0.35 * size),
        ("start", gap, gap + 0.7 * size),
        ("middle", 0.0, -gap - 0.3 * size),
        ("end", -gap, -gap),
        ("start", 0.0, -gap - 1.2 * size),
    )
    for anchor, across, down in sorted(places, key=lambda place: above and place[2] > 0):
        yield placed_at(text, size, point.x + across, point.y + down, anchor, is_bold=point.is_bold)
