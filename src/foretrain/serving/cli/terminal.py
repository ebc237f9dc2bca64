"""What a command prints: an answer as its page or as JSON, and something that moves while it works."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from foretrain.answers import Answer

if TYPE_CHECKING:
    from rich.status import Status

    from foretrain.serving.verbs.predicting import Progress

_LINE_SECONDS = 15.0
"""How often progress is written where there is no terminal."""


def print_answer(answer: Answer, as_json: bool, files: Sequence[str] = (), **options: Any) -> None:
    """An answer as JSON, or as its page and a line about each of the `files` written.

    `options` are those of the answer's view.
    """
    if as_json:
        click.echo(answer.to_json())
        return
    from foretrain.serving.rendering.terminal import print_line, print_page
    from foretrain.serving.views import page_of

    print_page(page_of(answer, **options))
    for line in files:
        print_line(line, "green")


@contextmanager
def spinner(title: str) -> Iterator[Progress]:
    """Something that moves from the first progress on; the yielded function takes what is being done.

    Where the share that is done is known, the time left is shown, and written every few seconds where there
    is no terminal.
    """
    start = last = time.monotonic()
    is_terminal = sys.stderr.isatty()
    status: Status | None = None

    def report(doing: str, share: float | None = None, /) -> None:
        nonlocal last, status
        text = f"{title}: {doing}"
        if share:
            left = (time.monotonic() - start) * (1 - share) / share
            text += f", {share:.0%} done, about {left:.0f} s left"
        if not is_terminal:
            if share is not None and time.monotonic() - last >= _LINE_SECONDS:
                last = time.monotonic()
                sys.stderr.write(f"{text}\n")
        elif status is None:
            from rich.console import Console

            status = Console(stderr=True).status(text)
            status.start()
        else:
            status.update(text)

    try:
        yield report
    finally:
        if status is not None:
            status.stop()


@contextmanager
def as_far_as_it_is_read() -> Iterator[None]:
    """Printing that a reader (head, less) may cut short; what comes after, as an exit code, still counts."""
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
