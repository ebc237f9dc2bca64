"""What becomes of a workload spread in one way over hardware: time, memory and throughput together.

`StepContext` is what stays the same while ways to spread it are compared; `StepConfiguration` is one of the ways.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from foretrain.errors import InvalidRequest
from foretrain.estimates import Estimate, longest, sequence
from foretrain.facts.hardware import Hardware
from foretrain.prediction.memory.estimate import MemoryEstimate, layout_memory
from foretrain.prediction.step.input_pipeline import InputOptions, InputPipeline, input_pipeline
from foretrain.prediction.step.parallel import Environment, Spread, spread
from foretrain.prediction.step.parameter_servers import parameter_server_step
from foretrain.prediction.step.timing import Throughput, model_flop, peak
from foretrain.prediction.stragglers import with_slowest
from foretrain.prediction.strategies.layout import Layout
from foretrain.workloads.graph import Graph
from foretrain.workloads.workload import Workload, graph_at


@dataclass(frozen=True)
class StepContext:
    """A workload on hardware, and what tells its time.

    `jitter` is the coefficient of variation of step times between devices, as measured.
    """

    workload: Workload
    hardware: Hardware
    environment: Environment
    input: InputOptions
    jitter: float = 0.0


@dataclass(frozen=True)
class StepConfiguration:
    """A layout, with `batch` samples for each replica in a step, in so many micro-batches."""

    layout: Layout
    batch: int
    micro_batches: int = 1

    def __post_init__(self) -> None:
        if self.batch % self.micro_batches:
            whole = [m for m in range(1, self.batch + 1) if self.batch % m == 0]
            raise InvalidRequest(
                f"{self.batch} samples for each replica do not split into {self.micro_batches} equal "
                f"micro-batches; {', '.join(map(str, whole[:12]))} would do"
            )

    @property
    def micro_batch(self) -> int:
        """Samples of one micro-batch."""
        return self.batch // self.micro_batches

    @property
    def global_batch(self) -> int:
        """Samples of a step on all devices together."""
        return self.batch * self.layout.replicas


@dataclass(frozen=True, eq=False)
class Evaluation:
    """What becomes of an attempt. `graph` is one micro-batch of the whole model."""

    configuration: StepConfiguration
    graph: Graph
    spread: Spread
    input: InputPipeline
    total: Estimate
    context: StepContext

    @property
    def seconds(self) -> float:
        """The median of a step."""
        return self.total.value

    @property
    def update_batch(self) -> int:
        """Samples that enter the model in one step: of all replicas, or of those that servers wait for."""
        return self.configuration.batch * self.configuration.layout.contributions

    @property
    def samples_per_second(self) -> float:
        """Samples of all devices together, as far as they enter the model."""
        return self.update_batch / self.seconds

    @cached_property
    def fullest(self) -> tuple[int, MemoryEstimate]:
        """The stage whose devices need most memory, and what they need."""
        run = self.spread.run
        device = self.context.environment.device
        return layout_memory(run.stages, run.in_flight, self.configuration.layout, device)

    @property
    def memory(self) -> MemoryEstimate:
        """Memory of the fullest device."""
        return self.fullest[1]

    @property
    def throughput(self) -> Throughput:
        """What gets done in a second, by all devices together; MFU is of their joint peak."""
        rounds = self.configuration.micro_batches * self.configuration.layout.contributions
        device = self.context.environment.device
        whole = peak(self.graph, device) * self.configuration.layout.devices
        return Throughput(
            self.samples_per_second,
            self.graph.tokens * rounds / self.seconds if self.graph.tokens else None,
            model_flop(self.graph) * rounds / self.seconds / whole,
        )


def evaluate(context: StepContext, configuration: StepConfiguration) -> Evaluation:
    """Spread a workload in one way, and see."""
    graph = graph_at(context.workload, configuration.micro_batch)
    return evaluation_of(context, configuration, graph, _spread(context, configuration, graph))


def _spread(context: StepContext, configuration: StepConfiguration, graph: Graph) -> Spread:
    if configuration.layout.servers is not None:
        return parameter_server_step(
            graph, configuration.layout, configuration.micro_batches, context.environment, context.jitter
        )
    return spread(graph, configuration.layout, configuration.micro_batches, context.environment)


def evaluation_of(
    context: StepContext, configuration: StepConfiguration, graph: Graph, found: Spread
) -> Evaluation:
    """An outcome with input and stragglers added to a spread step."""
    loading = _loading(context, configuration, graph)
    total = found.estimate
    if configuration.layout.servers is None:  # servers have waited already
        total = with_slowest(total, configuration.layout.devices, context.jitter)
    if loading.estimate.parts:
        total = longest(total, loading.estimate) if loading.overlaps else sequence((total, loading.estimate))
    return Evaluation(configuration, graph, found, loading, total, context)


def _loading(context: StepContext, configuration: StepConfiguration, graph: Graph) -> InputPipeline:
    """Samples of one device in a step; the devices of a node read from one storage."""
    on_node = min(context.hardware.devices_per_node, configuration.layout.devices)
    one = input_pipeline(graph, context.environment.device, context.input, readers=on_node)
    return one.times(configuration.micro_batches)
