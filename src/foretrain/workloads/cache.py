"""Traced graphs on disk, found by content: model source, options, library versions and our own recorder.

Files are JSON tables, compressed, with a checksum. Calls share their signatures (operator, specs, settings)
and module names through tables. Of a model of many equal blocks, the graphs of a few are stored (`depth`), so
that a 70-billion-parameter model's step takes tens of kilobytes and is quick to load.

Entries are written in one step, so concurrent writers and readers never see half of one; an entry that cannot
be trusted is treated as absent and written anew.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import zlib
from dataclasses import asdict
from functools import lru_cache
from pathlib import Path
from typing import Any

from foretrain.facts.user_data import user_data_dir, write_atomically
from foretrain.workloads.depth import NotDerivable, deepen
from foretrain.workloads.family import Family, RecordedAxis
from foretrain.workloads.graph import Buffer, Call, Graph, Layer, Nature, Phase, Role, Spec
from foretrain.workloads.options import ResolvedOptions

FORMAT = 3
_DIGEST_BYTES = 16
_MAGIC = b"foretrain-graph\n"


class Corrupt(Exception):
    """A stored graph that cannot be trusted: truncated, altered, or of another format."""


def dump(item: Graph | Family) -> bytes:
    """A graph or family as bytes."""
    tables = _family_tables(item) if isinstance(item, Family) else _step_tables(item)
    packed = zlib.compress(json.dumps({"format": FORMAT, **tables}, separators=(",", ":")).encode(), level=3)
    return _MAGIC + hashlib.blake2b(packed, digest_size=_DIGEST_BYTES).digest() + packed


def load(stored: bytes) -> Graph | Family:
    """What `dump` stored; raises `Corrupt` for anything else."""
    if not stored.startswith(_MAGIC):
        raise Corrupt("not a stored graph")
    digest = stored[len(_MAGIC) : len(_MAGIC) + _DIGEST_BYTES]
    packed = stored[len(_MAGIC) + _DIGEST_BYTES :]
    if hashlib.blake2b(packed, digest_size=_DIGEST_BYTES).digest() != digest:
        raise Corrupt("checksum does not match")
    tables = json.loads(zlib.decompress(packed))
    if tables["format"] != FORMAT:
        raise Corrupt(f"format {tables['format']}, expected {FORMAT}")
    return _family(tables) if "axes" in tables else _step(tables)


def _family_tables(item: Family) -> dict[str, Any]:
    return {
        "graph": _graph_tables(item.recorded),
        "axes": item.axes,
        "corners": item.corners,
        "counts": item.counts,
        **({} if item.deeper is None else {"deeper": _family_tables(item.deeper), "extra": item.extra}),
    }


def _family(tables: dict[str, Any]) -> Family:
    return Family(
        axes=tuple(RecordedAxis(*axis) for axis in tables["axes"]),
        recorded=_graph(tables["graph"]),
        corners=tuple(_specs(corner) for corner in tables["corners"]),
        counts=tuple((samples, tokens) for samples, tokens in tables["counts"]),
        deeper=_family(tables["deeper"]) if "deeper" in tables else None,
        extra=tables.get("extra", 0),
    )


def _step_tables(graph: Graph) -> dict[str, Any]:
    if graph.repeats is None:
        return {"graph": _graph_tables(graph)}
    low, high, extra = graph.repeats
    return {"graph": _graph_tables(low), "deeper": _graph_tables(high), "extra": extra}


def _step(tables: dict[str, Any]) -> Graph:
    graph = _graph(tables["graph"])
    if "deeper" not in tables:
        return graph
    try:
        return deepen(graph, _graph(tables["deeper"]), tables["extra"])
    except NotDerivable as error:
        raise Corrupt(f"its blocks do not fit each other: {error}") from error


def _graph_tables(graph: Graph) -> dict[str, Any]:
    signatures: dict[str, int] = {}
    modules: dict[str, int] = {}
    calls = []
    for call in graph.calls:
        signature = json.dumps(
            (call.name, call.phase, call.inputs, call.outputs, call.settings, call.nature, call.recomputed)
        )
        calls.append(
            (
                signatures.setdefault(signature, len(signatures)),
                modules.setdefault(call.module, len(modules)),
                call.reads,
                call.writes,
                call.forward,
            )
        )
    return {
        "specs": graph.specs,
        "signatures": [json.loads(signature) for signature in signatures],
        "modules": list(modules),
        "calls": calls,
        "buffers": graph.buffers,
        "layers": graph.layers,
        "counts": (graph.batch, graph.samples, graph.tokens),
        "options": asdict(graph.options),
        "trained": graph.trained,
        "notes": graph.notes,
        "is_whole_step": graph.is_whole_step,
    }


def _specs(rows: list[Any]) -> tuple[Spec, ...]:
    return tuple(Spec(tuple(shape), dtype) for shape, dtype in rows)


def _graph(tables: dict[str, Any]) -> Graph:
    signatures = [
        (name, Phase(phase), tuple(inputs), tuple(outputs), settings, Nature(nature), recomputed)
        for name, phase, inputs, outputs, settings, nature, recomputed in tables["signatures"]
    ]
    modules = tables["modules"]
    roles = {role.value: role for role in Role}
    batch, samples, tokens = tables["counts"]
    return Graph(
        specs=_specs(tables["specs"]),
        calls=tuple(
            _call(signatures[signature], modules[module], reads, writes, forward)
            for signature, module, reads, writes, forward in tables["calls"]
        ),
        buffers=tuple(
            Buffer(spec, born, dies, roles[role], name) for spec, born, dies, role, name in tables["buffers"]
        ),
        layers=tuple(
            Layer(path, kind, tuple(outputs), parameters)
            for path, kind, outputs, parameters in tables["layers"]
        ),
        batch=batch,
        samples=samples,
        tokens=tokens,
        options=ResolvedOptions(**{**tables["options"], "offload": tuple(tables["options"]["offload"])}),
        trained=tuple(tables["trained"]),
        notes=tuple(tables["notes"]),
        is_whole_step=tables["is_whole_step"],
    )


def _call(
    signature: tuple[Any, ...], module: str, reads: list[int], writes: list[int], forward: int | None
) -> Call:
    name, phase, inputs, outputs, settings, nature, recomputed = signature
    return Call(
        name,
        phase,
        module,
        inputs,
        outputs,
        tuple(reads),
        tuple(writes),
        settings,
        nature,
        forward,
        recomputed,
    )


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
    """The entry of that key, or None if it is missing or invalid."""
    if entry in _unkept:
        return _unkept[entry]
    file = _file(entry)
    try:
        # By time of writing, since another process may have replaced the file.
        return _load(file, file.stat().st_mtime_ns)
    except (OSError, Corrupt, ValueError, KeyError, TypeError, IndexError):
        return None


@lru_cache(maxsize=8)
def _load(file: Path, written_ns: int) -> Graph | Family:
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
