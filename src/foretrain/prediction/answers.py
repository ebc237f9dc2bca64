"""What `predict` answers: frozen, and the same on every face."""

from __future__ import annotations

from dataclasses import dataclass

from foretrain.estimates import Part, Quantiles
from foretrain.facts.hardware import Hardware
from foretrain.prediction.bottleneck import Bottleneck
from foretrain.prediction.memory import MemoryEstimate
from foretrain.prediction.operators._base import Knowledge
from foretrain.prediction.spread_answer import SpreadAnswer
from foretrain.prediction.timeline import Timeline
from foretrain.prediction.timing import Throughput
from foretrain.workloads.graph import Graph
from foretrain.workloads.workload import Workload


@dataclass(frozen=True, slots=True)
class MemoryPart:
    """One use of memory."""

    name: str
    bytes: float


@dataclass(frozen=True, slots=True)
class MemoryRemedy:
    """A change, what the step would then need, and whether that fits."""

    change: str
    bytes: float
    fits: bool


@dataclass(frozen=True, slots=True)
class MemoryAnswer:
    """Memory of the fullest device: how much, of what, whether it fits, and what would make it fit."""

    bytes: Quantiles
    capacity_bytes: float
    fits: bool
    parts: tuple[MemoryPart, ...]
    source: str
    largest_batch: int
    advice: tuple[MemoryRemedy, ...]


@dataclass(frozen=True, slots=True)
class StepPart:
    """One part of a step, and what its time rests on."""

    name: str
    seconds: float
    source: str


@dataclass(frozen=True, slots=True)
class StepAnswer:
    """The time of a step. `parts` sum to the median; `hidden_parts` happen in their shadow.

    Forward, backward and optimizer are the device's time from phase to phase, waits for launches included.
    """

    seconds: Quantiles
    forward_seconds: float
    backward_seconds: float
    optimizer_seconds: float
    input_seconds: float
    communication_seconds: float
    exposed_communication_seconds: float
    waiting_for_launches_seconds: float
    parts: tuple[StepPart, ...]
    hidden_parts: tuple[StepPart, ...]


@dataclass(frozen=True, slots=True)
class Coverage:
    """How much of the device's time is told by a model, and the operators no rule knows."""

    modelled_share: float
    unmodelled: tuple[str, ...]


@dataclass(frozen=True)
class Prediction:
    """What is predicted of a workload on hardware.

    `graph` is one micro-batch of the whole model; `batch` the samples of each replica in a step. `spread`
    says how the step is spread over devices, and is None on one device; so is the `timeline` of streams.
    """

    workload: Workload
    hardware: Hardware
    strategy: str
    graph: Graph
    batch: int
    memory: MemoryAnswer
    step: StepAnswer
    throughput: Throughput
    knowledge: Knowledge
    bottleneck: Bottleneck
    coverage: Coverage
    sources: tuple[str, ...]
    notes: tuple[str, ...]
    spread: SpreadAnswer | None = None
    timeline: Timeline | None = None

    @property
    def update_batch(self) -> int:
        """Samples that enter the model in one step."""
        return self.batch if self.spread is None else self.spread.update_batch


def step_parts(parts: tuple[Part, ...]) -> tuple[StepPart, ...]:
    """The parts that take time, longest first."""
    ordered = sorted(parts, key=lambda part: -part.value)
    return tuple(StepPart(part.name, part.value, part.source) for part in ordered if part.value > 0)


def memory_parts(estimate: MemoryEstimate) -> tuple[MemoryPart, ...]:
    """Parts of one name together, largest first."""
    by_name: dict[str, float] = {}
    for part in estimate.estimate.visible:
        by_name[part.name] = by_name.get(part.name, 0.0) + part.value
    ordered = sorted(by_name.items(), key=lambda item: -item[1])
    return tuple(MemoryPart(name, size) for name, size in ordered if size > 0)
