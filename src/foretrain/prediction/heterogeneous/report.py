"""How the batch of a step is split over the groups of a heterogeneous cluster, as it is answered."""

from __future__ import annotations

from dataclasses import dataclass

from foretrain.prediction.operators._base import Knowledge


@dataclass(frozen=True, slots=True)
class GroupShare:
    """What one group of equal nodes does in a step.

    `nodes_used` of its `nodes` take part; `batches` are those of their devices. `seconds` is the step of the
    device with most samples if it waited for no slower one, `computing_seconds` what of it is not
    communication. `largest_batch` is what its memory holds, at most the global batch. An excluded group has
    no batches, times or memory.
    """

    group: str
    device: str
    devices_per_node: int
    nodes: int
    nodes_used: int
    batches: tuple[int, ...]
    samples: int
    seconds: float | None
    computing_seconds: float | None
    knowledge: Knowledge | None
    memory_bytes: float | None
    capacity_bytes: float
    largest_batch: int
    fits: bool


@dataclass(frozen=True, slots=True)
class BatchSplit:
    """The samples of each group, which groups are excluded, and whether the slow ones help.

    `pacing_device` is the device all others wait for.
    """

    global_batch: int
    min_batch: int
    shares: tuple[GroupShare, ...]
    excluded: tuple[str, ...]
    pacing_device: str
    verdict: str
