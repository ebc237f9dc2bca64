"""What a command prints: an answer as its page or as JSON, and something that moves while it works."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Any

import click

from foretrain.answers import Answer


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


def printing(verb: str) -> Callable[[Any, Any], None]:
    """A command that calls a verb (`listing.devices`) with its request, and prints the answer."""

    def run(request: Any, output: Any) -> None:
        file, _, name = verb.partition(".")
        answer = getattr(import_module(f"foretrain.serving.verbs.{file}"), name)(request)
        print_answer(answer, output.json)

    return run


@contextmanager
def spinner(title: str) -> Iterator[Callable[[str], None]]:
    """Something that moves while work takes seconds; the yielded function says what is being done."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console

    with Console(stderr=True).status(title) as status:
        yield lambda doing: status.update(f"{title}: {doing}")


@contextmanager
def as_far_as_it_is_read() -> Iterator[None]:
    """Printing that a reader (head, less) may cut short; what comes after, as an exit code, still counts."""
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
