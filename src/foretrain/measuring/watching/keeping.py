"""From what was gathered to the store: nodes of a job are merged, runs of a killed foretrain recovered."""

from __future__ import annotations

import shutil
import tempfile
import time
from pathlib import Path

from foretrain.errors import ForetrainError, InvalidRequest
from foretrain.measuring.watching.journal import (
    JournalRecord,
    abandoned_journals,
    merge_nodes,
    read_journal,
    write_journal,
)
from foretrain.measuring.watching.watch import Watched, channel_folder, node_journal, run_of
from foretrain.store.runs import Run

_POLL_SECONDS = 0.5
PROVENANCE = "measure"
RECOVERED = "measure, recovered"


def joined_nodes(folder: Path, nodes: int, wait_seconds: float) -> JournalRecord:
    """What all nodes of a job gathered. Nodes that do not end in time are left out of the result."""
    deadline = time.monotonic() + wait_seconds
    while True:
        parts = _ended_parts(folder, nodes)
        if len(parts) == nodes or time.monotonic() > deadline:
            return merge_nodes(parts)
        time.sleep(_POLL_SECONDS)


def _ended_parts(folder: Path, nodes: int) -> list[JournalRecord]:
    """The nodes whose commands have ended, the first node always."""
    files = [node_journal(folder, node) for node in range(nodes)]
    parts = [read_journal(file) for file in files if file.exists()]
    return [part for part in parts if part.end is not None]


def check_store(url: str | None) -> None:
    """Open the store before hours of training, so that one that cannot be written is refused now."""
    from foretrain.store import open_store

    with open_store(url):
        pass


def keep(run: Run, url: str | None) -> str:
    """Store a run; returns the place of the store."""
    from foretrain.store import open_store

    with open_store(url) as store:
        store.add(run)
        return store.place


def rescue(watched: Watched) -> Path:
    """Where a run stays that cannot be stored: in its journal, or in a file of the temporary folder."""
    if not watched.problem:
        return watched.journal
    file = Path(tempfile.gettempdir()) / f"foretrain-{watched.gathered.head.id}.jsonl"
    write_journal(file, watched.gathered)
    return file


def recover(url: str | None) -> tuple[Run, ...]:
    """Store the runs whose foretrain was killed, and those that could not be stored at their end."""
    from foretrain.store import open_store

    recovered = []
    with open_store(url) as store:
        for file in abandoned_journals():
            try:
                run = run_of(read_journal(file), RECOVERED)
            except (ForetrainError, OSError):  # it stays for its owner to look at
                continue
            try:
                store.add(run)
                recovered.append(run)
            except InvalidRequest:  # it was stored before its journal could be removed
                pass
            file.unlink(missing_ok=True)
            shutil.rmtree(channel_folder(run.id), ignore_errors=True)
    return tuple(recovered)
