"""What every answer of the public verbs offers: plain data for scripts, text, HTML for notebooks.

Text and HTML are those of the views, which lie above: `render_answers_with` registers them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, final

from foretrain.encoding import encode, to_json

Renderer = Callable[["Answer"], str | None]
_renderers: dict[str, Renderer] = {}


def render_answers_with(text: Renderer, html: Renderer) -> None:
    """Let `str(answer)` be what `text` returns and notebooks show `html`; None where there is no view."""
    _renderers.update(text=text, html=html)


class Answer(ABC):
    """Base of all answers. Final classes are frozen dataclasses, complete when built."""

    def __init_subclass__(cls) -> None:
        """Data classes write a `__repr__` of all fields, unless the class has its own: it has this one."""
        cls.__repr__ = Answer.__repr__  # type: ignore[method-assign]

    def __repr__(self) -> str:
        """The main figures in one line."""
        figures = ", ".join(f"{name} {value}" for name, value in self.summary())
        return " ".join(f"<{type(self).__name__}: {figures}>".split())

    def __str__(self) -> str:
        """What the command line prints, without colours; without a command line, the main figures."""
        text = self._rendered("text")
        return "\n".join(f"{name}: {value}" for name, value in self.summary()) if text is None else text

    def _rendered(self, form: str) -> str | None:
        render = _renderers.get(form)
        return None if render is None else render(self)

    @abstractmethod
    def to_dict(self) -> dict[str, Any] | list[Any]:
        """The answer as plain data: exactly what `--json` prints; a list where the verb lists things."""

    @abstractmethod
    def summary(self) -> tuple[tuple[str, str], ...]:
        """The main figures as (name, formatted value), for a quick look."""

    @final
    def to_json(self) -> str:
        """`to_dict` as indented JSON text."""
        return to_json(self.to_dict())

    @final
    def _repr_html_(self) -> str:
        """What notebooks show: the page of the answer; without a view, the main figures as a table."""
        page = self._rendered("html")
        if page is not None:
            return page
        from html import escape

        rows = "".join(
            f'<tr><th style="text-align:left">{escape(name)}</th>'
            f'<td style="text-align:left">{escape(value)}</td></tr>'
            for name, value in self.summary()
        )
        return f"<table>{rows}</table>"


@final
@dataclass(frozen=True)
class Infeasible(Answer):
    """The answer "nothing satisfies this", with the tightest constraint and the nearest thing that works."""

    constraint: str
    needed: str
    available: str
    alternative: str = ""

    def __str__(self) -> str:
        sentence = f"infeasible: {self.constraint} needs {self.needed}, but there is {self.available}"
        return f"{sentence}; {self.alternative}" if self.alternative else sentence

    def to_dict(self) -> dict[str, Any]:
        """One key, `infeasible`, which no other answer has."""
        return {"infeasible": encode(self)}

    def summary(self) -> tuple[tuple[str, str], ...]:
        """The constraint, what it needs, what there is and what would work."""
        rows = (
            ("infeasible", self.constraint),
            ("needed", self.needed),
            ("available", self.available),
            ("alternative", self.alternative),
        )
        return tuple(row for row in rows if row[1])
