"""The user's files: where foretrain keeps what it was given, and how any file is written.

A regular file is written beside its place and renamed into it, so that readers see the old or the new content
whole, also if this process dies. A rename would replace a symbolic link, a device or a FIFO itself instead of
writing through it: the target of a link is what is replaced, and a device or FIFO is opened and written.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
import stat
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

from foretrain.errors import BackendFailed, InvalidRequest

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
    if file.is_block_device():
        raise InvalidRequest(f"{name} {file} is a disk: name a file on it")
    if not file.absolute().parent.is_dir():
        raise InvalidRequest(f"{name} {file}: there is no folder {file.parent}; make it first")


def read_kept(file: Path, read: Callable[[Path], T]) -> T | None:
    """What `read` makes of a file, kept until the file changes; None where there is none."""
    try:
        status = file.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    value: T = _read_at(file, (status.st_ino, status.st_mtime_ns, status.st_size), read)
    return value


@lru_cache(maxsize=32)
def _read_at(file: Path, changed: tuple[int, int, int], read: Callable[[Path], Any]) -> Any:
    del changed  # part of the cache key: a file that changed is read again
    return read(file)


@contextmanager
def written_whole(name: str, file: Path) -> Iterator[Path]:
    """A path to write the content of an output file to; `file` gets it at the end, all of it or nothing.

    `name` is what the file was given as, e.g. `FILE`. What cannot be written raises `BackendFailed`.
    """
    try:
        with _replacing(file) as partial:
            yield partial
    except OSError as error:
        what = f"{name} {file}".lstrip()
        raise BackendFailed(f"{what} cannot be written: {error.strerror or error}") from error


def write_output(name: str, file: Path, content: str | bytes) -> None:
    """Write a file that the user asked for; `name` is what it was given as, e.g. `FILE`."""
    with written_whole(name, file) as partial:
        partial.write_bytes(_encoded(content))


def write_atomically(path: Path, content: str | bytes) -> None:
    """Write a file of our own, and make its folder if there is none."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with _replacing(path) as partial:
        partial.write_bytes(_encoded(content))


def _encoded(content: str | bytes) -> bytes:
    return content if isinstance(content, bytes) else content.encode()


@contextmanager
def _replacing(path: Path) -> Iterator[Path]:
    """A path to write to, in a folder that goes when the content is at its place or something failed."""
    mode = _mode_of(path)
    is_file = mode is None or stat.S_ISREG(mode)
    is_stream = not is_file or _descriptor(path) is not None
    place = path if is_stream else Path(os.path.realpath(path))
    folder = None if is_stream else place.parent
    with tempfile.TemporaryDirectory(dir=folder, prefix=".foretrain-") as temporary:
        partial = Path(temporary) / place.name
        yield partial
        if is_stream:
            with partial.open("rb") as content, _opened(path) as stream:
                shutil.copyfileobj(content, stream)
            return
        partial.chmod(_default_mode() if mode is None else stat.S_IMODE(mode))
        partial.replace(place)
        _read_at.cache_clear()  # a second write within one tick of the file system's clock


def _mode_of(path: Path) -> int | None:
    """Type and permissions of what a path leads to, None where there is nothing yet."""
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        return None
    if stat.S_ISBLK(mode):
        raise OSError(errno.EINVAL, "it is a disk")
    if not os.access(path, os.W_OK):  # a rename needs no permission on the file that it replaces
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    return mode


_STANDARD = {"/dev/stdout": 1, "/dev/stderr": 2}


def _descriptor(path: Path) -> int | None:
    """The open descriptor that a path names, as in `/dev/stdout` and `/dev/fd/3`, or None.

    It is written through, also where the shell redirected it to a regular file: opening that file anew would
    truncate what stands in it already.
    """
    text = os.path.abspath(path)  # noqa: PTH100 - `resolve` would follow the link to what is open
    numbered = re.fullmatch(r"/(?:dev|proc/self)/fd/(\d+)", text)
    return int(numbered[1]) if numbered else _STANDARD.get(text)


def _opened(path: Path) -> Any:
    """What is no regular file, opened to write, and neither made nor truncated."""
    descriptor = _descriptor(path)
    if descriptor is None:
        return os.fdopen(os.open(path, os.O_WRONLY | os.O_NOCTTY), "wb")
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    return os.fdopen(os.dup(descriptor), "wb")


def _default_mode() -> int:
    """The permissions files are made with: a temporary one has only its owner's."""
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask
