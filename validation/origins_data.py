"""What the five documents that foretrain unites publish: `data/origins/*.toml`, one file a document.

A *figure* is a number that is printed there, a *finding* a statement that is true or not, and an *item* a
section, figure, table, equation or procedure with the command, page and test that have it here (or the reason
why foretrain does not).
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "data" / "origins"
PAPERS = ("sanghvi", "cloud_slides", "ardagna", "driple", "pani")
"""The documents in the order of the page."""
COUNTED, PREDICTED, CATALOGUE, MEASURED = "counted", "predicted", "catalogue", "measured"


@dataclass(frozen=True)
class PaperFigure:
    """A printed number; `key` names foretrain's own, `how` says how that comes about.

    `counted`: by foretrain's functions from what the document gives. `predicted`: foretrain predicts what the
    document measured. `catalogue`: a fact that foretrain ships. `measured`: the same question on other
    measurements, so the two need not be equal.
    """

    where: str
    what: str
    published: float
    key: str
    how: str
    unit: str = ""


@dataclass(frozen=True)
class PaperFinding:
    """A statement of the document; `key` names what foretrain finds."""

    where: str
    says: str
    key: str


@dataclass(frozen=True)
class PaperItem:
    """A part of the document: the command that does it, or why there is none; its page and its test."""

    where: str
    says: str
    page: str
    test: str
    command: str = ""
    absent: str = ""


@dataclass(frozen=True)
class Paper:
    """One document."""

    id: str
    title: str
    authors: str
    published: str
    figures: tuple[PaperFigure, ...]
    findings: tuple[PaperFinding, ...]
    items: tuple[PaperItem, ...]
    slots: tuple[tuple[float, float], ...] = ()
    """Predicted and real cost of each slot of a schedule."""

    def printed(self, key: str) -> float:
        """A printed number by its key."""
        return next(figure.published for figure in self.figures if figure.key == key)


@dataclass(frozen=True)
class Ours:
    """What foretrain computes for a document: numbers by key, and findings as yes or no with the values."""

    figures: Mapping[str, float]
    findings: Mapping[str, tuple[bool, str]]


def read_paper(name: str) -> Paper:
    """One document by the name of its file."""
    raw: dict[str, Any] = tomllib.loads((FOLDER / f"{name}.toml").read_text(encoding="utf-8"))
    return Paper(
        name,
        raw["title"],
        raw["authors"],
        raw["published"],
        tuple(PaperFigure(**each) for each in raw["figure"]),
        tuple(PaperFinding(**each) for each in raw["finding"]),
        tuple(PaperItem(**each) for each in raw["item"]),
        tuple((slot["predicted"], slot["real"]) for slot in raw.get("slot", ())),
    )


def read_papers() -> tuple[Paper, ...]:
    """All documents."""
    return tuple(map(read_paper, PAPERS))
