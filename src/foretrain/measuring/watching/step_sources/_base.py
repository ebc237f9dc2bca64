"""A parser of printed progress: one line in, what it says about steps out.

A new parser is a class in a module beside this one; it is found by its name.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cache

from foretrain.registry import Registry, discover


@dataclass(frozen=True, kw_only=True)
class Observation:
    """What a line of output says about training steps.

    `bar` distinguishes progress bars of one parser (training, validation). `step_seconds` is the time of a
    step as printed; it is `exact` where the script timed the latest steps and not all since the start. A line
    that is a `whole_pass` stands for `done` steps of its own, whatever was printed before.
    """

    bar: str
    done: int
    total: int | None = None
    step_seconds: float | None = None
    exact: bool = False
    whole_pass: bool = False


class ProgressParser(ABC):
    """Reads one kind of progress output. Lines come without colours and without their end."""

    name: str
    """What the source of step times is called in results."""
    hint: str
    """A character that every line of this kind contains: other lines are not tried."""
    in_place: bool = True
    """Whether a line is drawn over the one before, so that its end comes only with the next one."""
    is_summary: bool = False
    """Whether it knows only the mean over the whole run: the last choice."""

    @abstractmethod
    def read(self, line: str) -> Observation | None:
        """What the line says, or None where it is of another kind."""


@cache
def parsers() -> Registry[ProgressParser]:
    """The parsers; bars come before printed lines, in the order of their files."""
    listed = discover(__name__, ProgressParser)  # type: ignore[type-abstract]
    return Registry("step source", listed, name=lambda parser: parser.name)
