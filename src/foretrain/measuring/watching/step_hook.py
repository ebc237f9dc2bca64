"""The two lines a training script adds to be measured exactly:

    import foretrain
    foretrain.step()          # at the end of each training step

`foretrain measure` names a folder in an environment variable; each process appends the instants of its steps
to a file there. Without the variable a call does nothing. Only the standard library is used, and nothing that
goes wrong here ever reaches the training script. The reading end is `step_files.py`: it needs numpy, which a
watched script must not load for our sake.
"""

from __future__ import annotations

import os
import struct
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Generic, TypeVar

CHANNEL_VARIABLE = "FORETRAIN_STEPS"
"""The folder that step files are written to."""
RECORD = struct.Struct("<dd")
"""The instant (`time.monotonic`) at which a step ended, and how long it waited for input (NaN: unknown)."""
UNKNOWN = float("nan")

Item = TypeVar("Item")


class _Channel:
    """The file of this process; `descriptor` is None where nothing watches, and before the first step."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """As at the start of a process: also after a fork."""
        self.opened = False
        self.descriptor: int | None = None
        self.waited: float | None = None

    def open(self) -> None:
        """Create the file of this process if it is watched."""
        self.opened = True
        folder = os.environ.get(CHANNEL_VARIABLE)
        if not folder:
            return
        path = os.path.join(folder, file_name(_number("RANK"), _number("LOCAL_RANK"), os.getpid()))  # noqa: PTH118
        try:
            self.descriptor = os.open(path, os.O_CREAT | os.O_APPEND | os.O_WRONLY | os.O_CLOEXEC, 0o644)
        except OSError:
            self.descriptor = None

    def write(self, record: bytes) -> None:
        """Append a record; after a failure no further one is tried."""
        if self.descriptor is None:
            return
        try:
            os.write(self.descriptor, record)
        except OSError:
            self.descriptor = None


_channel = _Channel()
os.register_at_fork(after_in_child=_channel.reset)


def step(input_seconds: float | None = None) -> None:
    """Mark the end of a training step.

    `input_seconds` is how long the step waited for its input, where the script knows it; `timed_input`
    measures it.
    """
    if not _channel.opened:
        _channel.open()
    if _channel.descriptor is None:
        return
    waited = _channel.waited if input_seconds is None else input_seconds
    if _channel.waited is not None:
        _channel.waited = 0.0
    _channel.write(RECORD.pack(time.monotonic(), UNKNOWN if waited is None else waited))


class timed_input(Generic[Item]):  # noqa: N801 - used as a function, like `enumerate`
    """Iterate over a data loader and measure how long each step waits for it.

    for images, labels in foretrain.timed_input(loader):
        ...
        foretrain.step()
    """

    def __init__(self, iterable: Iterable[Item]) -> None:
        self._iterable = iterable

    def __len__(self) -> int:
        return len(self._iterable)  # type: ignore[arg-type]

    def __iter__(self) -> Iterator[Item]:
        iterator = iter(self._iterable)
        clock: Callable[[], float] = time.monotonic
        while True:
            start = clock()
            try:
                item = next(iterator)
            except StopIteration:
                return
            finally:
                _channel.waited = (_channel.waited or 0.0) + clock() - start
            yield item

    def __getattr__(self, name: str) -> Any:
        return getattr(self._iterable, name)


def file_name(rank: int, local_rank: int, pid: int) -> str:
    """The name of a process's file; -1 stands for a rank that is not set."""
    return f"{rank}_{local_rank}_{pid}.steps"


def _number(variable: str) -> int:
    text = os.environ.get(variable, "")
    return int(text) if text.isdecimal() else -1
