"""Steps of timm models at every batch size, traced once and kept in a folder outside the code."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from rich.console import Console
from rich.progress import track

import foretrain.workloads
from foretrain.errors import ForetrainError, UnknownName
from foretrain.facts.user_data import write_atomically
from foretrain.workloads.cache import Corrupt, dump, key, load
from foretrain.workloads.family import Family, NotDerivable, RecordedAxis, derive_family
from foretrain.workloads.readers.image_libraries import TIMM, TimmModel, read_timm
from foretrain.workloads.zoo.catalogue import BuildOptions

BATCHES = (8, 16)
"""Traced at both; the graphs at other batch sizes follow."""
PROCESSES = 2


@dataclass(frozen=True)
class Wanted:
    """One model as it was run. `fused_attention` is how timm computed attention at the time."""

    model: str
    precision: str
    image_size: int | None = None
    fused_attention: bool = True
    channels_last: bool = False
    forward_only: bool = False


@cache
def architecture_family(model: str) -> str:
    """The timm source file a model is defined in: models of one file share their building blocks."""
    name = _source(model).architecture.split(".")[0]
    import timm  # only after torchvision is patched

    module: str = timm.model_entrypoint(name).__module__
    return module.rsplit(".", 1)[-1]


def sampled(models: Iterable[str], per_family: int) -> list[str]:
    """At most `per_family` models of each family, chosen by a hash of the name; unknown names are left."""
    taken: dict[str, list[str]] = {}
    for model in sorted(set(models), key=name_hash):
        try:
            listed = taken.setdefault(architecture_family(model), [])
        except UnknownName:
            continue
        if len(listed) < per_family:
            listed.append(model)
    return sorted(model for listed in taken.values() for model in listed)


def name_hash(name: str) -> str:
    """A fixed, arbitrary order of names."""
    return hashlib.sha256(name.encode()).hexdigest()


def families(wanted: Iterable[Wanted], folder: Path) -> Iterator[tuple[Wanted, Family]]:
    """The graphs of all that can be traced; those not in `folder` yet are traced now, two at a time."""
    listed = list(wanted)
    missing = [
        item for item in listed if _stored(item, folder) is None and not _failure(item, folder).exists()
    ]
    if missing:
        with ProcessPoolExecutor(PROCESSES, initializer=os.nice, initargs=(10,)) as pool:
            waiting = [pool.submit(_trace, item, folder) for item in missing]
            for done in track(as_completed(waiting), "Tracing", len(waiting), console=Console(stderr=True)):
                done.result()
    for item in listed:
        family = _stored(item, folder)
        if family is not None:
            yield item, family


def failures(wanted: Iterable[Wanted], folder: Path) -> list[str]:
    """Why the others could not be traced."""
    files = (_failure(item, folder) for item in wanted)
    return [file.read_text(encoding="utf-8") for file in files if file.exists()]


def _trace(item: Wanted, folder: Path) -> None:
    import torch

    from foretrain.workloads.options import ResolvedOptions
    from foretrain.workloads.tracing.step import trace

    torch.set_num_threads(1)
    options = ResolvedOptions(
        precision=item.precision,
        optimizer="momentum",
        channels_last=item.channels_last,
        forward_only=item.forward_only,
    )
    try:
        source = _source(item.model)
        from timm.layers.config import set_fused_attn  # only after torchvision is patched

        set_fused_attn(item.fused_attention)
        graphs = []
        for batch in BATCHES:
            example = source.example(BuildOptions(batch=batch, image_size=item.image_size))
            example.module.train(not item.forward_only)
            graphs.append(trace(example, options))
        write_atomically(_file(item, folder), dump(derive_family((RecordedAxis("batch", *BATCHES),), graphs)))
    except (ForetrainError, NotDerivable) as error:
        write_atomically(_failure(item, folder), f"{item.model}: {error}".encode())


@cache
def _source(model: str) -> TimmModel:
    return read_timm(TIMM + model)


def _stored(item: Wanted, folder: Path) -> Family | None:
    try:
        stored = load(_file(item, folder).read_bytes())
    except (OSError, Corrupt):
        return None
    return stored if isinstance(stored, Family) else None


def _file(item: Wanted, folder: Path) -> Path:
    content = {"wanted": repr(item), "source": _source(item.model).fingerprint(), "tracer": _tracer()}
    return folder / f"{key(**content)}.graph"


def _failure(item: Wanted, folder: Path) -> Path:
    return _file(item, folder).with_suffix(".txt")


@cache
def _tracer() -> str:
    """A digest of the tracer's own source: a changed tracer traces anew."""
    root = Path(next(iter(foretrain.workloads.__path__)))
    total = hashlib.sha256()
    for file in sorted((root / "tracing").glob("*.py")):
        total.update(file.read_bytes())
    return total.hexdigest()
