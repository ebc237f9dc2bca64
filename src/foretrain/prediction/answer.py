"""What predict answers.

What `predict` answers: frozen, and the same on every face.

What is told of a step spread over devices, besides its time and memory.

What `predict` answers for a cluster whose nodes differ.
"""

from __future__ import annotations

from dataclasses import dataclass

from foretrain.estimates import Part, Quantiles
from foretrain.facts.clusters import Cluster
from foretrain.facts.hardware import Hardware
from foretrain.prediction.advice.bottleneck import Bottleneck
from foretrain.prediction.advice.scaling_curve import ScalingCurve
from foretrain.prediction.memory.estimate import MemoryEstimate
from foretrain.prediction.operators._base import Knowledge
from foretrain.prediction.step.parallel import Traffic
from foretrain.prediction.step.timing import Throughput
from foretrain.prediction.timeline import Timeline
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
    spread: ParallelismReport | None = None
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


@dataclass(frozen=True, slots=True)
class Runner:
    """Another layout that was predicted in full, and how it compares."""

    strategy: str
    micro_batch: int
    step_seconds: float
    memory_bytes: float
    slower: float


@dataclass(frozen=True, slots=True)
class BestOfFamily:
    """The best layout of one way to divide a model, and how much slower it is than the best of all."""

    family: str
    layout: str
    slower: float


@dataclass(frozen=True, slots=True)
class ParallelismReport:
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
    families: tuple[BestOfFamily, ...]


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
