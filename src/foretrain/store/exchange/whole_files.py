"""Files that appear when they are complete."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from foretrain.errors import BackendFailed


@contextmanager
def written_whole(file: Path) -> Iterator[Path]:
    """A path to write to; it takes the place of `file` at the end, and is removed if something fails."""
    try:
        with tempfile.TemporaryDirectory(dir=file.absolute().parent, prefix=f".{file.name}.") as folder:
            partial = Path(folder) / file.name
            yield partial
            partial.replace(file)
    except OSError as error:
        raise BackendFailed(f"{file} cannot be written: {error.strerror or error}") from error
