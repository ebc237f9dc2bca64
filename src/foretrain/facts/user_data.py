"""Where foretrain keeps what a user gave it: imported prices, measurements, traced graphs."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

from foretrain.errors import InvalidRequest

T = TypeVar("T")


def user_data_dir() -> Path:
    """The user's own data directory: `FORETRAIN_HOME` if set, else the platform's place for it."""
    override = os.environ.get("FORETRAIN_HOME")
    if override:
        return Path(override).expanduser()
    import platformdirs

    return Path(platformdirs.user_data_dir("foretrain", appauthor=False))


def check_file(name: str, file: Path | None) -> None:
    """Refuse a folder, and a file in a folder that does not exist, before anything is computed.

    `name` is what the file was given as, e.g. `FILE`.
    """
    if file is None:
        return
    if file.is_dir():
        raise InvalidRequest(f"{name} {file} is a folder: name a file")
    if not file.absolute().parent.is_dir():
        raise InvalidRequest(f"{name} {file}: there is no folder {file.parent}; make it first")


def read_kept(file: Path, read: Callable[[Path], T]) -> T | None:
    """What `read` makes of a file, kept until the file changes; None where there is none."""
    try:
        changed = file.stat().st_mtime_ns
    except FileNotFoundError:
        return None
    value: T = _read_at(file, changed, read)
    return value


@lru_cache(maxsize=32)
def _read_at(file: Path, changed: int, read: Callable[[Path], Any]) -> Any:
    del changed  # part of the cache key: a file that changed is read again
    return read(file)


def write_atomically(path: Path, content: str | bytes) -> None:
    """Write a file so that readers see the old or the new content whole, also if this process dies."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    temporary = Path(name)
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(content if isinstance(content, bytes) else content.encode())
        temporary.chmod(_mode())
        temporary.replace(path)
        _read_at.cache_clear()  # a second write within one tick of the file system's clock
    finally:
        temporary.unlink(missing_ok=True)  # still there only if something went wrong


def _mode() -> int:
    """The permissions files are made with: a temporary one has only its owner's."""
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask
