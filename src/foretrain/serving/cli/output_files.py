"""Files that commands write: refused before anything is computed where that can be told, written whole."""

from __future__ import annotations

from pathlib import Path


def check_file(option: str, file: Path) -> None:
    """Refuse a folder, and a file in a folder that is not there."""
    from foretrain.errors import InvalidRequest

    if file.is_dir():
        raise InvalidRequest(f"{option} {file} is a folder: name a file")
    if not file.absolute().parent.is_dir():
        raise InvalidRequest(f"{option} {file}: there is no folder {file.parent}")


def write_file(option: str, file: Path, text: str) -> None:
    """Write the file, or say that it cannot be written; readers never see half of it."""
    from foretrain.errors import BackendFailed
    from foretrain.facts.user_data import write_atomically

    try:
        write_atomically(file, text)
    except OSError as error:
        raise BackendFailed(f"{option} {file} cannot be written: {error.strerror or error}") from error
