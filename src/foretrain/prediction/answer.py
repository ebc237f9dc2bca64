"""What `predict` answers, for one device, many, or a heterogeneous cluster: frozen, complete when built."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, final

from foretrain.answers import Answer
from foretrain.encoding import encode
from foretrain.estimates import Part, Quantiles
from foretrain.prediction.advice.bottleneck import Bottleneck
from foretrain.prediction.memory.estimate import MemoryEstimate
from foretrain.prediction.operators.pricing import Knowledge
from foretrain.prediction.scenario import Throughput
from foretrain.prediction.spread import KnowledgeClass
from foretrain.prediction.step.parallel import Traffic
from foretrain.prediction.timeline import Timeline
from foretrain.units import format_bytes, format_duration
from foretrain.workloads.workload import Workload, description

if TYPE_CHECKING:
    from foretrain.facts.hardware import Cluster
    from foretrain.prediction.advice.remedies import MemoryRemedy
    from foretrain.prediction.advice.scaling_curve import ScalingCurve
    from foretrain.prediction.heterogeneous.division import BatchSplit
    from foretrain.workloads.training_configs import ConfigReport


@dataclass(frozen=True, slots=True)
class MemoryPart:
    """One use of memory."""

    name: str
    bytes: float


@dataclass(frozen=True, slots=True)
class MemoryAnswer:
    """Memory of the fullest device: how much, of what, whether it fits, and what would make it fit.

    It `fits` if the step as predicted runs in the capacity; it may still run out of memory, with the
    probability given, because the prediction has an error. `parts` are of the moment at which most is
    allocated, which is in the phase of the largest of `phase_bytes`: the peak of each phase, of tensors
    without the cache of the allocator.
    """

    bytes: Quantiles
    capacity_bytes: float
    fits: bool
    out_of_memory_probability: float
    parts: tuple[MemoryPart, ...]
    source: str
    largest_batch: int
    advice: tuple[MemoryRemedy, ...]
    phase_bytes: dict[str, float]

    @property
    def fullest_phase(self) -> str:
        """The phase in which most is allocated."""
        return max(self.phase_bytes, key=lambda phase: self.phase_bytes[phase])


@dataclass(frozen=True, slots=True)
class StepPart:
    """One part of a step, and what its time rests on."""

    name: str
    seconds: float
    source: str


@dataclass(frozen=True, slots=True)
class StepAnswer:
    """The time of a step. `parts` sum to the median; `hidden_parts` overlap them.

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
    """Share of the device's time that a model predicts, and the operators without a rule."""

    modelled_share: float
    unmodelled: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RankedLayout:
    """Another layout that was predicted in full, and how much slower it is than the best."""

    strategy: str
    micro_batch: int
    step_seconds: float
    memory_bytes: float
    slower: float


@dataclass(frozen=True, slots=True)
class BestOfFamily:
    """The best layout of one family of strategies, and how much slower it is than the best of all."""

    family: str
    layout: str
    slower: float


@dataclass(frozen=True, slots=True)
class ParallelismReport:
    """How a step is parallelised, what is exchanged, and how it scales; on one device all degrees are 1.

    `update_batch` are the samples of `global_batch` that enter the model in a step: fewer where servers wait
    for some replicas only. `coordination_ratio` is time of exchanges over time of computing;
    `bubble_seconds` a stage's wait for the others; `moved_bytes` all messages of a step. `staleness` is for
    asynchronous updates: the age, in updates, of the parameters that a gradient was computed with.
    `runners_up` are from a search, `families` the best that each family of strategies would do there.
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
    runners_up: tuple[RankedLayout, ...]
    families: tuple[BestOfFamily, ...]


@dataclass(frozen=True)
class Prediction(Answer):
    """What is predicted of a training step on a cluster.

    `batch` are the samples of each replica in a step, or of all where a heterogeneous cluster `split`s them;
    `fullest_device` is the device that `memory` is about, `pacing_device` the one all others wait for.
    `state_bytes` is the size of a checkpoint of the whole model. `configuration` says what a file gave.
    """

    workload: Workload
    cluster: Cluster
    strategy: str
    batch: int
    tokens: int
    state_bytes: float
    step: StepAnswer
    throughput: Throughput
    memory: MemoryAnswer
    knowledge: Knowledge
    knowledge_class: KnowledgeClass
    bottleneck: Bottleneck
    coverage: Coverage
    parallelism: ParallelismReport
    split: BatchSplit | None
    fullest_device: str
    pacing_device: str
    sources: tuple[str, ...]
    notes: tuple[str, ...]
    timeline: Timeline
    configuration: ConfigReport | None = field(default=None, kw_only=True)

    @property
    def update_batch(self) -> int:
        """Samples that enter the model in one step."""
        return self.parallelism.update_batch

    def to_dict(self) -> dict[str, Any]:
        """The answer as plain data."""
        return {
            "workload": description(self.workload, self.batch, self.tokens),
            "hardware": _hardware(self.cluster, self.strategy),
            **{
                name: encode(getattr(self, name))
                for name in (
                    "knowledge", "knowledge_class", "step", "throughput", "memory", "bottleneck",
                    "parallelism", "split", "coverage", "sources", "notes",
                )
            },
            **({} if self.configuration is None else {"configuration": encode(self.configuration)}),
        }  # fmt: skip

    def summary(self) -> tuple[tuple[str, str], ...]:
        """Time, throughput, memory and bottleneck."""
        step, memory = self.step.seconds, self.memory
        throughput = f"{self.throughput.samples_per_second:,.1f} samples/s, MFU {self.throughput.mfu:.1%}"
        fits = "fits" if memory.fits else "does not fit"
        return (
            ("model", self.workload.source.name),
            ("hardware", f"{self.cluster.name}, {self.strategy}"),
            (
                "step",
                f"{format_duration(step.p50)} (80 % between {format_duration(step.p10)} and "
                f"{format_duration(step.p90)}), {self.knowledge_class.sentence}",
            ),
            ("throughput", throughput),
            ("memory", f"{format_bytes(memory.bytes.p50)} of {format_bytes(memory.capacity_bytes)}, {fits}"),
            ("bottleneck", f"{self.bottleneck.kind}: {self.bottleneck.verdict}"),
        )


@final
@dataclass(frozen=True)
class FitAnswer(Answer):
    """Whether a training step fits into the memory of its devices, and what would make it fit.

    `device` is the fullest one, which `memory` is about.
    """

    workload: Workload
    cluster: Cluster
    strategy: str
    batch: int
    tokens: int
    memory: MemoryAnswer
    device: str
    notes: tuple[str, ...]
    configuration: ConfigReport | None = None

    @property
    def probability(self) -> float:
        """The probability that it does not run out of memory."""
        return 1 - self.memory.out_of_memory_probability

    @property
    def solutions(self) -> tuple[tuple[MemoryRemedy, dict[str, str]], ...]:
        """The changes that make it fit with the options they stand for, those of fewest options first."""
        from foretrain.prediction.advice.remedies import options_of

        fitting = [(each, options_of(each.change, self.device)) for each in self.memory.advice if each.fits]
        return tuple(sorted(fitting, key=lambda solution: len(solution[1])))

    def to_dict(self) -> dict[str, Any]:
        """The answer as plain data; `solutions` are changes with the options of a request they stand for."""
        return {
            "fits": self.memory.fits,
            "probability": self.probability,
            "largest_batch": self.memory.largest_batch,
            "solutions": [
                {"change": remedy.change, "options": options, "bytes": remedy.bytes}
                for remedy, options in self.solutions
            ],
            "workload": description(self.workload, self.batch, self.tokens),
            "hardware": _hardware(self.cluster, self.strategy),
            "memory": encode(self.memory),
            "notes": list(self.notes),
            **({} if self.configuration is None else {"configuration": encode(self.configuration)}),
        }

    def summary(self) -> tuple[tuple[str, str], ...]:
        """The verdict, how much memory of how much, and the largest batch."""
        memory = self.memory
        return (
            ("model", self.workload.source.name),
            ("hardware", f"{self.cluster.name}, {self.strategy}"),
            ("fits", f"{'yes' if memory.fits else 'no'}, with probability {self.probability:.0%}"),
            ("memory", f"{format_bytes(memory.bytes.p50)} of {format_bytes(memory.capacity_bytes)}"),
            ("largest batch", str(memory.largest_batch or "none")),
        )


def _hardware(cluster: Cluster, strategy: str) -> dict[str, Any]:
    groups = [
        {
            "name": label,
            "device": group.device.id,
            "devices_per_node": group.devices_per_node,
            "nodes": group.nodes,
        }
        for label, group in zip(cluster.labels, cluster.groups, strict=True)
    ]
    whole = {"name": cluster.name, "devices": cluster.devices, "nodes": cluster.nodes, "strategy": strategy}
    if not cluster.is_homogeneous:
        return {**whole, "groups": groups}
    only = cluster.groups[0]
    return {**whole, "device": only.device.id, "devices_per_node": only.devices_per_node, "groups": groups}


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
