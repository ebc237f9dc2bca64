"""What is told of a step spread over devices, besides its time and memory."""

from __future__ import annotations

from dataclasses import dataclass

from foretrain.prediction.scaling_curve import ScalingCurve
from foretrain.prediction.spreading import Traffic


@dataclass(frozen=True, slots=True)
class Runner:
    """Another layout that was predicted in full, and how it compares."""

    strategy: str
    micro_batch: int
    step_seconds: float
    memory_bytes: float
    slower: float


@dataclass(frozen=True, slots=True)
class FamilyBest:
    """The best layout of one way to divide a model, and how much slower it is than the best of all."""

    family: str
    layout: str
    slower: float


@dataclass(frozen=True, slots=True)
class SpreadAnswer:
    """How a step is spread, what is exchanged, and what more or fewer devices would do.

    `update_batch` are the samples of `global_batch` that enter the model in a step: fewer where servers wait
    for some replicas only. `coordination_ratio` is time on exchanges over time computing; `bubble_seconds` a
    stage's wait for the others; `moved_bytes` all messages of a step. `staleness` is for asynchronous
    updates: how many updates old the parameters are that a gradient was computed with. `runners_up` are from
    a search, `families` the best that each way to divide the model would do there, sketched.
    """

    strategy: str
    degrees: dict[str, int]
    replicas: int
    global_batch: int
    update_batch: int
    micro_batches: int
    network: dict[str, str]
    coordination_ratio: float
    moved_bytes: float
    bubble_seconds: float
    utilisation: dict[str, float]
    exchanges: tuple[Traffic, ...]
    stages: tuple[str, ...]
    fullest_stage: int
    staleness: float | None
    scaling: ScalingCurve | None
    searched: int
    fitting: int
    runners_up: tuple[Runner, ...]
    families: tuple[FamilyBest, ...]
