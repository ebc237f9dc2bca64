"""A command that runs as if it were started by hand, while its output is read on the way.

It has a process group of its own. Where its output goes to a terminal, it writes to a pseudo-terminal of the
same size, so that bars and colours stay; otherwise to a pipe. Bytes are passed on unchanged before anything
else is done with them. On a terminal the command is the foreground job: it receives the keyboard and Ctrl-C.
"""

from __future__ import annotations

import errno
import fcntl
import os
import selectors
import signal
import subprocess
import termios
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from types import FrameType
from typing import NoReturn

from foretrain.errors import BackendFailed

_READ_BYTES = 1 << 16
_PIPE_BYTES = 1 << 20
"""A command that prints in bursts is not stopped by a full pipe while we work."""
_TO_THE_GROUP = (signal.SIGINT, signal.SIGQUIT)
"""Signals that a terminal sends to a whole process group."""
_TO_THE_COMMAND = (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
NO_SUCH_COMMAND, NOT_EXECUTABLE = 127, 126
"""Exit codes of shells for commands that cannot be started."""


class CommandNotStarted(BackendFailed):
    """A command that does not exist or cannot be executed."""

    def __init__(self, sentence: str, exit_code: int) -> None:
        super().__init__(sentence)
        self.exit_code = exit_code  # type: ignore[misc]


class RunningCommand:
    """A started command; `read` passes its output on and returns it.

    `stdout` and `stderr` are the descriptors its output is passed to.
    """

    def __init__(
        self, command: Sequence[str], environment: Mapping[str, str], stdout: int = 1, stderr: int = 2
    ) -> None:
        self.was_asked_to_end = False
        self._selector = selectors.DefaultSelector()
        self._targets: dict[int, int] = {}
        self._terminals: list[int] = []
        inner = self._channels(stdout, stderr)
        try:
            self._process = subprocess.Popen(
                command, stdout=inner[0], stderr=inner[1], env=dict(environment), process_group=0
            )
        except OSError as error:
            _refuse(command, error)
        finally:
            for descriptor in set(inner):
                os.close(descriptor)
        self.pid = self._process.pid
        self._exit = os.pidfd_open(self.pid)
        self._selector.register(self._exit, selectors.EVENT_READ)
        self._foreground_before = _bring_to_foreground(self.pid)

    def has_output(self, timeout: float) -> bool:
        """Wait for output or the end; whether there is something to read."""
        return any(key.fd != self._exit for key, _ in self._selector.select(timeout))

    def read(self) -> Iterator[tuple[int, bytes]]:
        """Pass on what came and yield it with the number of its channel."""
        for key, _ in self._selector.select(0):
            if key.fd != self._exit:
                data = self._pass_on(key.fd)
                if data:
                    yield key.fd, data

    def drain(self) -> Iterator[tuple[int, bytes]]:
        """What the command wrote before it ended. Output of processes it left behind is not waited for."""
        while self.has_output(0):
            yield from self.read()

    @property
    def returncode(self) -> int | None:
        """As `Popen` has it: None while running, negative for a signal."""
        return self._process.poll()

    def send(self, number: int) -> None:
        """Forward a signal as a terminal or `kill` would deliver it."""
        if number in _ENDING:
            self.was_asked_to_end = True
        with suppress(ProcessLookupError):
            if number in _TO_THE_GROUP:
                os.killpg(self.pid, number)
            else:
                self._process.send_signal(number)

    def resize(self) -> None:
        """Give pseudo-terminals the size of the terminal."""
        for terminal in self._terminals:
            _copy_size(self._targets[terminal], terminal)

    def close(self) -> None:
        """Take the terminal back and close everything."""
        if self._foreground_before is not None:
            _set_foreground(self._foreground_before)
        for descriptor in (*self._targets, self._exit):
            os.close(descriptor)
        self._targets = {}
        self._selector.close()

    def _channels(self, stdout: int, stderr: int) -> tuple[int, int]:
        """The ends the command writes to. Two outputs to one place share one, to keep their order."""
        if stdout == stderr or (os.isatty(stdout) and os.isatty(stderr)):
            one = self._channel(stdout)
            return one, one
        return self._channel(stdout), self._channel(stderr)

    def _channel(self, target: int) -> int:
        if os.isatty(target):
            outer, inner = os.openpty()
            attributes = termios.tcgetattr(inner)
            attributes[1] &= ~termios.OPOST  # the real terminal adds its carriage returns itself
            termios.tcsetattr(inner, termios.TCSANOW, attributes)
            _copy_size(target, outer)
            self._terminals.append(outer)
        else:
            outer, inner = os.pipe()
            with suppress(OSError):  # more than this user may have
                fcntl.fcntl(outer, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
        self._targets[outer] = target
        self._selector.register(outer, selectors.EVENT_READ)
        return inner

    def _pass_on(self, channel: int) -> bytes:
        try:
            data = os.read(channel, _READ_BYTES)
        except OSError as error:
            if error.errno != errno.EIO:  # all writers of a pseudo-terminal have closed it
                raise
            data = b""
        try:
            _write_all(self._targets[channel], data)
        except BrokenPipeError:  # the reader has gone: the command learns it at its next write
            data = b""
        if not data:
            self._selector.unregister(channel)
            os.close(channel)
            del self._targets[channel]
            self._terminals = [terminal for terminal in self._terminals if terminal != channel]
        return data


@contextmanager
def forwarded_signals(running: RunningCommand) -> Iterator[None]:
    """Signals to foretrain reach the command; foretrain itself goes on until the command ends."""

    def forward(number: int, frame: FrameType | None) -> None:
        del frame
        running.send(number)

    def resize(number: int, frame: FrameType | None) -> None:
        del number, frame
        running.resize()

    handlers: dict[int, Callable[[int, FrameType | None], None] | signal.Handlers]
    handlers = dict.fromkeys((*_TO_THE_GROUP, *_TO_THE_COMMAND), forward)
    handlers |= {signal.SIGWINCH: resize, signal.SIGTTOU: signal.SIG_IGN}
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def exit_code_of(returncode: int) -> int:
    """The exit code that shells report: 128 plus the number of a signal."""
    return 128 - returncode if returncode < 0 else returncode


def _refuse(command: Sequence[str], error: OSError) -> NoReturn:
    name = command[0]
    if isinstance(error, FileNotFoundError):
        sentence = f"there is no command {name!r}: check its name and PATH"
        raise CommandNotStarted(sentence, NO_SUCH_COMMAND) from error
    if isinstance(error, PermissionError):
        sentence = f"{name!r} may not be executed: make it executable, or start it with its interpreter"
        raise CommandNotStarted(sentence, NOT_EXECUTABLE) from error
    reason = error.strerror or str(error)
    raise CommandNotStarted(f"{name!r} cannot be started: {reason}", NOT_EXECUTABLE) from error


def _write_all(target: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        try:
            view = view[os.write(target, view) :]
        except BlockingIOError:  # a terminal that another program made non-blocking
            with selectors.DefaultSelector() as waiting:
                waiting.register(target, selectors.EVENT_WRITE)
                waiting.select()


def _bring_to_foreground(group: int) -> int | None:
    """Make a process group the foreground job of the terminal; returns the one before, None without one."""
    try:
        before = os.tcgetpgrp(0)
        if before != os.getpgrp():
            return None
        _set_foreground(group)
        os.killpg(group, signal.SIGCONT)  # it may have tried to read before
    except OSError:
        return None
    return before


def _set_foreground(group: int) -> None:
    before = signal.signal(signal.SIGTTOU, signal.SIG_IGN)
    try:
        os.tcsetpgrp(0, group)
    except OSError:  # the terminal is gone
        return
    finally:
        signal.signal(signal.SIGTTOU, before)


def _copy_size(source: int, target: int) -> None:
    with suppress(OSError):
        size = fcntl.ioctl(source, termios.TIOCGWINSZ, b"\0" * 8)
        fcntl.ioctl(target, termios.TIOCSWINSZ, size)
