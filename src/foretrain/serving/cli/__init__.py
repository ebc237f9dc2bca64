"""The command line. `main` is the entry point; `app` lists the commands and finds their files."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from foretrain.errors import BackendFailed, ForetrainError, InvalidRequest
from foretrain.units import UnitError

INTERRUPTED = 130
"""The exit code after Ctrl-C, as shells have it."""


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command line and exit; errors become one sentence on stderr and the documented exit code."""
    try:
        _open_closed_streams()
        import click

        exit_code = _run(sys.argv[1:] if arguments is None else list(arguments))
    except ForetrainError as error:
        fail(str(error), error.exit_code)
    except UnitError as error:
        fail(str(error), InvalidRequest.exit_code)
    except BrokenPipeError:  # the reader (head, less) closed the pipe
        _discard_stdout()
        exit_code = 0
    except OSError as error:  # a full disk, a file that may not be read
        about = f" ({error.filename})" if error.filename else ""
        is_full = error.errno == errno.ENOSPC
        remedy = "free some, or write elsewhere" if is_full else "check the path and its permissions"
        reason = f"{error.strerror or error}{about}; {remedy}"
        fail(f"I/O error: {reason}", BackendFailed.exit_code)
    except KeyboardInterrupt:
        _interrupted()
    except click.ClickException as error:
        fail(_usage(error), error.exit_code)
    if arguments is None:
        import gc

        gc.freeze()  # the process ends: searching its graphs for cycles once more would take a fifth of it
    sys.exit(exit_code)


def _interrupted() -> NoReturn:
    """Answer Ctrl-C; another one while files are cleaned up ends the process."""
    import signal

    signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        _flush_stdout()
    except OSError:
        _discard_stdout()
    sys.stderr.write("interrupted before the answer was complete\n")
    # CPython ends as if killed by the signal if it came while text was executed, as data classes do; unless
    # text has been executed since.
    exec("")
    sys.exit(INTERRUPTED)


def _open_closed_streams() -> None:
    """Where the shell closed a stream (`>&-`), what is written there is dropped."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115 - for the process


def _run(arguments: list[str]) -> int:
    """The exit code of a command."""
    import gc

    import click

    from foretrain.serving.cli.app import COMPLETION_VARIABLE, app

    gc.set_threshold(20_000, 50, 100)  # modules and graphs are kept: searching them for cycles takes 5 %
    if COMPLETION_VARIABLE in os.environ:
        from click.shell_completion import add_completion_class

        from foretrain.serving.cli.completion import BashWithColons

        add_completion_class(BashWithColons)
        app.main(arguments, prog_name="foretrain", complete_var=COMPLETION_VARIABLE)
    try:
        with app.make_context("foretrain", arguments or ["--help"]) as context:
            exit_code = app.invoke(context)
    except click.exceptions.Exit as leaving:
        exit_code = leaving.exit_code
    _flush_stdout()
    return exit_code if isinstance(exit_code, int) else 0


def fail(sentence: str, exit_code: int) -> NoReturn:
    """Say what was wrong on stderr and leave."""
    try:
        _flush_stdout()
    except OSError:
        _discard_stdout()
    label = "\033[1;31merror:\033[0m" if sys.stderr.isatty() and "NO_COLOR" not in os.environ else "error:"
    sys.stderr.write(f"{label} {sentence}\n")
    sys.exit(exit_code)


def _flush_stdout() -> None:
    """Write what is buffered while an error can still be reported: at interpreter exit its code is 120."""
    if sys.__stdout__ is not None:
        sys.__stdout__.flush()


def _discard_stdout() -> None:
    """Drop what is buffered: a stream that failed fails again when the interpreter flushes it at exit."""
    if sys.__stdout__ is None:
        return
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.__stdout__.fileno())
    os.close(nowhere)


def _usage(error: Exception) -> str:
    """What is wrong with the command as typed, and where its options are described."""
    format_message = getattr(error, "format_message", lambda: str(error))
    context = getattr(error, "ctx", None)
    where = f" (see {'foretrain' if context is None else context.command_path} --help)"
    return " ".join(format_message().split()).removesuffix(".") + where
