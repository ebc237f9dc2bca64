"""What a command prints: an answer as its page or as JSON, and something that moves while it works."""

from __future__ import annotations

import itertools
import os
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, TextIO

import click

from foretrain.answers import Answer
from foretrain.progress import Progress, listen

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
    """Show what is being done once it takes long; the yielded function takes what that is."""
    line = PhaseLine(title, sys.stderr)
    try:
        with listen(line.report):
            yield line.report
    finally:
        line.close()


class PhaseLine:
    """What is being done: after a second a line that moves on a terminal; else, after five, a line for each.

    A thread of its own writes it, since what takes long reports only when it begins. `FORETRAIN_PROGRESS` is
    the delay in seconds, for logs of batch jobs and for tests.
    """

    def __init__(self, title: str, stream: TextIO) -> None:
        self._title, self._stream = title, stream
        self._is_terminal = stream.isatty()
        self._start = time.monotonic()
        self._doing, self._share, self._is_closed = "", 0.0, False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._show, daemon=True)
        self._thread.start()

    def report(self, doing: str, share: float | None = None, /) -> None:
        """What is being done from now on."""
        with self._changed:
            self._doing, self._share = doing, share or 0.0
            self._changed.notify()

    def close(self) -> None:
        """Remove the line."""
        with self._changed:
            self._is_closed = True
            self._changed.notify()
        self._thread.join()

    def _show(self) -> None:
        delay = _delay(1.0 if self._is_terminal else 5.0)
        with self._changed:
            self._changed.wait_for(lambda: self._is_closed, delay)
            if self._is_terminal:
                self._animate()
            else:
                self._list_phases(min(delay, 1.0))

    def _animate(self) -> None:
        """Rewrite one line ten times a second."""
        if self._is_closed:
            return
        for frame in itertools.cycle("|/-\\"):
            width = os.get_terminal_size(self._stream.fileno()).columns or 80  # 0 where it is not known
            self._write(f"\r\033[2K{f'{frame} {self._text()}'[: width - 1]}")
            if self._changed.wait_for(lambda: self._is_closed, 0.1):
                break
        self._write("\r\033[2K")

    def _list_phases(self, pause: float) -> None:
        """Write a line for each phase, at most one in `pause` seconds; every few seconds what is left."""
        written, at = "", 0.0
        while not self._is_closed:
            is_due = bool(self._share) and time.monotonic() - at >= _LINE_SECONDS
            if self._doing and (self._doing != written or is_due):
                written, at = self._doing, time.monotonic()
                self._write(f"{self._text()}\n")
                self._changed.wait_for(lambda: self._is_closed, pause)
            else:
                self._changed.wait(_LINE_SECONDS)

    def _text(self) -> str:
        text = f"{self._title}: {self._doing}" if self._doing else self._title
        if not self._share:
            return text
        left = (time.monotonic() - self._start) * (1 - self._share) / self._share
        return f"{text}, {self._share:.0%} done, about {left:.0f} s left"

    def _write(self, text: str) -> None:
        with suppress(OSError, ValueError):  # the reader is gone, or closed it
            self._stream.write(text)
            self._stream.flush()


def _delay(usual: float) -> float:
    try:
        return float(os.environ.get("FORETRAIN_PROGRESS", usual))
    except ValueError:
        return usual


@contextmanager
def as_far_as_it_is_read() -> Iterator[None]:
    """Printing that a reader (head, less) may cut short; what comes after, as an exit code, still counts."""
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
