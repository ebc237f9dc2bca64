"""What `predict` answers for a cluster whose nodes differ."""

from __future__ import annotations

from dataclasses import dataclass

from foretrain.facts.clusters import Cluster
from foretrain.prediction.answers import Coverage, MemoryAnswer, StepAnswer
from foretrain.prediction.bottleneck import Bottleneck
from foretrain.prediction.operators._base import Knowledge
from foretrain.prediction.timing import Throughput
from foretrain.workloads.workload import Workload


@dataclass(frozen=True, slots=True)
class Share:
    """What one group of equal nodes does in a step.

    `nodes_used` of its `nodes` take part; `batches` are those of their devices. `seconds` is the step of the
    device with most samples if it waited for none that is slower, `computing_seconds` what of it is not spent
    on exchanges. `largest_batch` is what its memory holds, at most the global batch. A group that is left out
    has no batches, and no times or memory to tell.
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
class SplitAnswer:
    """Who trains on how many samples, who is left out, and whether the slow ones help.

    `paced_by` is the device all wait for, `moved_bytes` all messages of a step.
    """

    global_batch: int
    least_batch: int
    shares: tuple[Share, ...]
    left_out: tuple[str, ...]
    paced_by: str
    network: dict[str, str]
    moved_bytes: float
    verdict: str


@dataclass(frozen=True)
class MixedPrediction:
    """What is predicted of a workload on a cluster whose nodes differ.

    `step` is that of the device all others wait for; `memory` that of the `fullest` device.
    """

    workload: Workload
    cluster: Cluster
    strategy: str
    tokens: int
    split: SplitAnswer
    step: StepAnswer
    throughput: Throughput
    memory: MemoryAnswer
    fullest: str
    knowledge: Knowledge
    bottleneck: Bottleneck
    coverage: Coverage
    sources: tuple[str, ...]
    notes: tuple[str, ...]
