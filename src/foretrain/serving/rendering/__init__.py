"""Pages of blocks as people see them: `terminal` draws text, `html` web pages; neither knows what it shows.

`register` makes `str(answer)` and notebooks show the page of the command line.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from foretrain.answers import render_answers_with
from foretrain.serving.views import has_view, page_of

if TYPE_CHECKING:
    from foretrain.answers import Answer


def register() -> None:
    """Let answers show their pages."""
    render_answers_with(answer_text, answer_html)


def answer_text(answer: Answer) -> str | None:
    """What the command of an answer prints in a pipe; None for an answer without a view."""
    from foretrain.serving.rendering.terminal import plain_text

    return plain_text(page_of(answer)) if has_view(answer) else None


def answer_html(answer: Answer) -> str | None:
    """The page of an answer as a piece of HTML; None for an answer without a view."""
    from foretrain.serving.rendering.html import fragment

    return fragment(page_of(answer)) if has_view(answer) else None
