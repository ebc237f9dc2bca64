"""What is being done while an answer takes long: the core names its phases, a front end listens to them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Protocol


class Progress(Protocol):
    """Takes what is being done ("" for no particular thing), and the share that is done where known."""

    def __call__(self, doing: str, share: float | None = None, /) -> None: ...


_listener: ContextVar[Progress | None] = ContextVar("listener", default=None)
_phase: ContextVar[str] = ContextVar("phase", default="")


def no_progress(_: str, __: float | None = None, /) -> None:
    """Report progress to no one."""


@contextmanager
def listen(listener: Progress) -> Iterator[None]:
    """Report the phases of what runs inside to a listener."""
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)


@contextmanager
def phase(name: str) -> Iterator[None]:
    """What runs inside is a phase of this name; after it, the phase around it goes on."""
    listener = _listener.get()
    if listener is None:
        yield
        return
    token = _phase.set(name)
    listener(name)
    try:
        yield
    finally:
        _phase.reset(token)
        listener(_phase.get())
