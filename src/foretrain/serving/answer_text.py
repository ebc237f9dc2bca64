"""Answers as text: what the command line prints, plain, for `str(answer)`.

Each command has a function `show` that prints its answer. Here its output is collected.
"""

from __future__ import annotations

import contextlib
import importlib
import io
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from foretrain.answers import write_answers_with

if TYPE_CHECKING:
    from foretrain.answers import Answer

_SHOWN_BY: Mapping[str, str] = {
    "JobPrediction": "predict",
    "Trace": "trace",
    "Frontier": "plan",
    "Guide": "guide",
    "RentOrBuy": "rent_or_buy",
    "Convergence": "converge",
    "ScalingAnswer": "scaling",
    "LearnAnswer": "learn",
    "ConsumptionAnswer": "resources",
    "PairAnswer": "pair",
    "Schedule": "schedule",
    "Outcome": "simulate",
    "Comparison": "simulate",
    "RealRun": "run",
}
"""The command that prints an answer, by the answer's class; commands are imported when they are needed."""


def answer_text(answer: Answer) -> str | None:
    """What the command of an answer prints where no one is looking; None for an answer without a command."""
    command = _SHOWN_BY.get(type(answer).__name__)
    if command is None:
        return None
    module = importlib.import_module(f"foretrain.serving.cli.{command}")
    show: Callable[[Answer], None] = module.show
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        show(answer)
    return printed.getvalue().rstrip("\n")


def register() -> None:
    """Make `str(answer)` the text of the command line."""
    write_answers_with(answer_text)
