"""A lock that ends with the process that holds it."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from foretrain.errors import BackendFailed, InvalidRequest


@contextmanager
def hold(file: Path, subject: str) -> Iterator[None]:
    """Hold the lock of a file; if another process holds it, the error names `subject` and that process.

    The kernel releases the lock when its process ends, however it ends: there are no stale locks. The file
    itself stays, with the id of its last holder for the error message.
    """
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise BackendFailed(
            f"cannot lock {subject}: {error}; set FORETRAIN_HOME to a folder of yours"
        ) from error
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(handle, 32, 0).decode(errors="replace").strip() or "unknown"
            raise InvalidRequest(
                f"{subject} is running on this store already (process {holder}); wait for it "
                "or give this one another name"
            ) from None
        os.ftruncate(handle, 0)
        os.pwrite(handle, str(os.getpid()).encode(), 0)
        yield
    finally:
        os.close(handle)
