"""What every answer of the public verbs offers: plain data for scripts, a table for notebooks."""

from __future__ import annotations

from abc import ABC, abstractmethod
from html import escape
from typing import Any, final

from foretrain.encoding import to_json


class Answer(ABC):
    """Base of all answers. Final classes are frozen dataclasses, complete when built."""

    @abstractmethod
    def to_dict(self) -> dict[str, Any]:
        """The answer as plain data: exactly what `--json` prints."""

    @abstractmethod
    def summary(self) -> tuple[tuple[str, str], ...]:
        """The main figures as (name, formatted value), for a quick look."""

    @final
    def to_json(self) -> str:
        """`to_dict` as indented JSON text."""
        return to_json(self.to_dict())

    @final
    def _repr_html_(self) -> str:
        """The summary as an HTML table, as notebooks show it."""
        rows = "".join(
            f'<tr><th style="text-align:left">{escape(name)}</th>'
            f'<td style="text-align:left">{escape(value)}</td></tr>'
            for name, value in self.summary()
        )
        return f"<table>{rows}</table>"
