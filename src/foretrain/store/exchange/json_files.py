"""Runs as JSON: `{"format": ..., "runs": [...]}` with every field of a run."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from foretrain.errors import InvalidData
from foretrain.store.exchange.plain import Malformed, plain, run_from
from foretrain.store.exchange.whole_files import written_whole
from foretrain.store.runs import Run

FORMAT = "foretrain runs 1"


def write_json(file: Path, chunks: Iterator[list[Run]]) -> int:
    """Write runs; returns their number."""
    count = 0
    with written_whole(file) as partial, partial.open("w", encoding="utf-8") as stream:
        stream.write(f'{{"format": "{FORMAT}", "runs": [')
        for chunk in chunks:
            for run in chunk:
                stream.write(",\n" if count else "\n")
                stream.write(json.dumps(plain(run), allow_nan=False, default=str))
                count += 1
        stream.write("\n]}\n")
    return count


def read_json(file: Path) -> list[Run]:
    """The runs of a file."""
    try:
        content = json.loads(file.read_bytes())
    except (ValueError, RecursionError) as error:
        raise InvalidData(
            str(file), f"is not JSON ({error}); `foretrain runs export` writes such files"
        ) from error
    if not isinstance(content, dict) or not isinstance(content.get("runs"), list):
        raise InvalidData(str(file), "has no list `runs`; `foretrain runs export` writes such files")
    if content.get("format") != FORMAT:
        raise InvalidData(str(file), f"is of format {content.get('format')!r}; this version reads {FORMAT!r}")
    runs = []
    for place, row in enumerate(content["runs"], 1):
        try:
            runs.append(run_from(row))
        except Malformed as error:
            raise InvalidData(str(file), str(error), place) from error
    return runs
