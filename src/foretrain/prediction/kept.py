"""Results that take long to compute, kept on disk by content.

An entry is found by everything it depends on: what was asked, foretrain's own files, and what it has learned
on this machine. So nothing has to be removed when one of them changes; a folder that cannot be written to
costs speed, not correctness.
"""

from __future__ import annotations

import hashlib
import json
import zlib
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from foretrain.facts.user_data import user_data_dir, write_atomically

_LEARNED = ("devices", "calibrations", "measurements.json")
"""What of the user's data predictions depend on."""


def kept_file(kind: str, *content: object) -> Path:
    """The file of a result; `content` is what it depends on, of classes that `repr` writes in full."""
    known = (content, _package(), _learned_state(user_data_dir()))
    digest = hashlib.blake2b(repr(known).encode(), digest_size=20).hexdigest()
    return user_data_dir() / kind / f"{digest}.json.z"


def read_result(file: Path) -> Any:
    """The plain data of a file; None if it is missing or cannot be read."""
    with suppress(OSError, ValueError, zlib.error):
        return json.loads(zlib.decompress(file.read_bytes()))
    return None


def keep_result(file: Path, plain: Any) -> None:
    """Write plain data."""
    with suppress(OSError):
        write_atomically(file, zlib.compress(json.dumps(plain, separators=(",", ":")).encode(), level=3))


@cache
def _package() -> str:
    """A digest of foretrain's own files by time and size: results of another version are not trusted."""
    return _stamps(Path(__file__).resolve().parent.parent)


def _learned_state(home: Path) -> str:
    """The same of what the user added that predictions use."""
    return "".join(_stamps(home / name) for name in _LEARNED)


def _stamps(place: Path) -> str:
    paths = place.rglob("*") if place.is_dir() else (place,)
    files = [path for path in paths if path.is_file() and path.suffix != ".pyc"]
    stamps = sorted((str(path), path.stat().st_size, path.stat().st_mtime_ns) for path in files)
    return hashlib.blake2b(json.dumps(stamps).encode(), digest_size=16).hexdigest()
