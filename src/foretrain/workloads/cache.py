"""Traced graphs on disk, found by content: model source, options, library versions and our own recorder.

Entries are written in one step, so concurrent writers and readers never see half of one; an entry that cannot
be trusted is treated as absent and written anew.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from functools import lru_cache
from pathlib import Path
from typing import Any

from foretrain.facts.user_data import user_data_dir, write_atomically
from foretrain.workloads.family import Family
from foretrain.workloads.graph import Graph
from foretrain.workloads.storage import FORMAT, Corrupt, dump, load

_unkept: dict[str, Graph | Family] = {}
"""Entries of this process alone, oldest first."""
_MOST_UNKEPT = 64


def cache_dir() -> Path:
    """Where traced graphs are kept."""
    return user_data_dir() / "graphs"


def key(**content: Any) -> str:
    """The key of an entry: a digest of everything it depends on."""
    text = json.dumps({"format": FORMAT, "recorder": _recorder(), **content}, sort_keys=True, default=str)
    return hashlib.blake2b(text.encode(), digest_size=20).hexdigest()


def find(entry: str) -> Graph | Family | None:
    """The entry of that key, or None if there is none that can be trusted."""
    if entry in _unkept:
        return _unkept[entry]
    file = _file(entry)
    try:
        return _loaded(file, file.stat().st_mtime_ns)
    except (OSError, Corrupt, ValueError, KeyError, TypeError, IndexError):
        return None


@lru_cache(maxsize=8)
def _loaded(file: Path, written_ns: int) -> Graph | Family:
    """The content of a file as it was written then; the last few stay in memory, since searches return."""
    del written_ns
    return load(file.read_bytes())


def keep(entry: str, item: Graph | Family, on_disk: bool = True) -> None:
    """Store an entry. A folder that cannot be written to costs speed, not correctness."""
    if not on_disk:
        while len(_unkept) >= _MOST_UNKEPT:
            _unkept.pop(next(iter(_unkept)))
        _unkept[entry] = item
        return
    with contextlib.suppress(OSError):
        write_atomically(_file(entry), dump(item))


@lru_cache(maxsize=1)
def _recorder() -> str:
    """A digest of the code that makes graphs: what another version of it recorded is not trusted."""
    here = Path(__file__).parent
    files = [*sorted((here / "tracing").glob("*.py")), here / "graph.py"]
    return hashlib.blake2b(b"".join(file.read_bytes() for file in files), digest_size=8).hexdigest()


def _file(entry: str) -> Path:
    return cache_dir() / entry[:2] / f"{entry[2:]}.graph"
