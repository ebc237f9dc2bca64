"""The user's own folder: newer prices, measured devices, caches."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


def home() -> Path:
    """`$FORETRAIN_HOME`, or the platform's folder for user data. It need not exist yet."""
    chosen = os.environ.get("FORETRAIN_HOME")
    if chosen:
        return Path(chosen).expanduser()
    import platformdirs

    return Path(platformdirs.user_data_dir("foretrain", appauthor=False))


def write_atomically(path: Path, text: str) -> None:
    """Write a file so that readers see the old or the new text whole, also if this process dies."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    temporary = Path(name)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as stream:
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
