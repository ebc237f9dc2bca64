"""Where foretrain keeps what a user gave it: imported prices, measurements, traced graphs."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from foretrain.errors import InvalidRequest


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
    finally:
        temporary.unlink(missing_ok=True)  # still there only if something went wrong


def _mode() -> int:
    """The permissions files are made with: a temporary one has only its owner's."""
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask
