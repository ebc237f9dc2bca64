"""What commands print and write: the options they share, JSON, and files that are written whole."""

from __future__ import annotations

import shlex
import sys
from dataclasses import dataclass
from pathlib import Path

from foretrain.decoding import SWITCH, option
from foretrain.serving.requests import OUTPUT


@dataclass(frozen=True, kw_only=True)
class Output:
    """Options of the command line alone; commands add their own."""

    json: bool = option(SWITCH, "Print JSON instead of tables.", default=False, panel=OUTPUT)


def command_line() -> str:
    """The command line as it was typed, quoted for a shell: reports print what made them."""
    return shlex.join(["foretrain", *sys.argv[1:]])


def check_file(flag: str, file: Path | None) -> None:
    """Refuse a folder, and a file in a folder that does not exist, before anything is computed."""
    from foretrain.errors import InvalidRequest

    if file is None:
        return
    if file.is_dir():
        raise InvalidRequest(f"{flag} {file} is a folder: name a file")
    if not file.absolute().parent.is_dir():
        raise InvalidRequest(f"{flag} {file}: there is no folder {file.parent}")


def write_file(flag: str, file: Path, text: str) -> None:
    """Write the file as a whole: readers never see half of it."""
    from foretrain.errors import BackendFailed
    from foretrain.facts.user_data import write_atomically

    try:
        write_atomically(file, text)
    except OSError as error:
        raise BackendFailed(f"{flag} {file} cannot be written: {error.strerror or error}") from error
