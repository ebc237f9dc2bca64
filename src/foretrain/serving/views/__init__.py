"""Views: each answer as a page of blocks, the same for a terminal, a pipe, a notebook and a report.

A view is a pure function of an answer. The table of verbs names the views of each class of answers; their
files are imported when they are needed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from foretrain.serving.table import load, shown

if TYPE_CHECKING:
    from foretrain.answers import Answer
    from foretrain.serving.views.blocks import Chart, Page


def has_view(answer: Answer) -> bool:
    """Whether an answer is one that verbs return."""
    return type(answer).__name__ in shown()


def page_of(answer: Answer, **options: Any) -> Page:
    """The page of an answer; `options` are those of its view, as `why` of a plan."""
    page: Page = _view(shown()[type(answer).__name__].page)(answer, **options)
    return page


def report_of(answer: Answer) -> Page:
    """The report of an answer (`--html`): its page, or a longer one with charts, sources, long tables."""
    how = shown()[type(answer).__name__]
    page: Page = _view(how.report or how.page)(answer)
    return page


def chart_of(answer: Answer) -> Chart | None:
    """The chart of an answer (`--plot`), if it has one."""
    how = shown()[type(answer).__name__]
    chart: Chart | None = _view(how.chart)(answer) if how.chart else None
    return chart


def _view(path: str) -> Any:
    return load(f"foretrain.serving.views.{path}")
