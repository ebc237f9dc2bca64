"""Graphs of transformers by their architecture, as public measurements of many devices trained them.

Each is recorded once as a family over batch sizes and kept where all graphs are kept.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from typing import Any

from foretrain.workloads import cache
from foretrain.workloads.family import Family, RecordedAxis, derive_family
from foretrain.workloads.graph import Graph
from foretrain.workloads.options import ResolvedOptions
from foretrain.workloads.workload import BATCHES
from foretrain.workloads.zoo.catalogue import Sizes


@dataclass(frozen=True)
class Transformer:
    """A builder of the zoo (`gpt`, `llama`) with its architecture, and how a step is run."""

    builder: str
    seq_len: int
    options: ResolvedOptions
    config: Mapping[str, Any] = field(default_factory=dict, hash=False)
    name: str = ""


def graph_at(model: Transformer, batch: int) -> Graph:
    """The step of a batch of sequences on one device."""
    return _family(model).at({"batch": batch})


@lru_cache(maxsize=4)
def _family(model: Transformer) -> Family:
    entry = cache.key(what="transformer", model=asdict(model))
    stored = cache.find(entry)
    if isinstance(stored, Family):
        return stored
    recorded = derive_family((RecordedAxis("batch", *BATCHES),), [_traced(model, batch) for batch in BATCHES])
    cache.keep(entry, recorded)
    return recorded


def _traced(model: Transformer, batch: int) -> Graph:
    import torch

    from foretrain.workloads.tracing.step import trace

    build = getattr(importlib.import_module("foretrain.workloads.zoo.transformers"), model.builder)
    attention = model.options.attention
    with torch.device("meta"):
        example = build(Sizes(batch, model.seq_len, attention=attention), **model.config)  # type: ignore[arg-type]
    return trace(example, model.options)
