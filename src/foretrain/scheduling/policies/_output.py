"""Keeps what a solver's C code prints off standard output, where the answer in JSON goes."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

_STANDARD_OUTPUT = 1


@contextmanager
def without_output() -> Iterator[None]:
    """Send what is written to the file descriptor of standard output to nowhere.

    HiGHS prints a line when it repairs a solution, whatever its options say. C buffers its output, so the
    buffer is emptied before the descriptor is given back. A process without standard output is left as it is.
    """
    sys.stdout.flush()
    try:
        kept = os.dup(_STANDARD_OUTPUT)
    except OSError:
        yield
        return
    nowhere = os.open(os.devnull, os.O_WRONLY)
    _flush()
    os.dup2(nowhere, _STANDARD_OUTPUT)
    try:
        yield
    finally:
        _flush()
        os.dup2(kept, _STANDARD_OUTPUT)
        os.close(kept)
        os.close(nowhere)


def _flush() -> None:
    """Empty the buffers of the C library, where it can be loaded without a name."""
    if os.name == "posix":
        ctypes.CDLL(None).fflush(None)
