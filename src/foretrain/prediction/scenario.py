"""What is predicted: a workload on a cluster, and how the step is parallelised, priced and fed."""

from __future__ import annotations

from dataclasses import dataclass, field

from foretrain.errors import InvalidRequest
from foretrain.facts.devices import Device
from foretrain.facts.hardware import Cluster, Hardware
from foretrain.prediction.collectives.network import network_of
from foretrain.prediction.cost_models.step_models import CostModel
from foretrain.prediction.operators.catalogue import DEFAULT
from foretrain.prediction.step.input_pipeline import InputOptions
from foretrain.prediction.step.parallel import Environment
from foretrain.prediction.stragglers import default_jitter
from foretrain.prediction.strategies.catalogue import AUTO, strategy_of
from foretrain.prediction.strategies.layout import Layout
from foretrain.prediction.strategies.mixed_precision import on_devices
from foretrain.workloads.workload import Workload, graph_of


@dataclass(frozen=True, slots=True)
class Parallelism:
    """How a step is parallelised; what is None is chosen.

    `global_batch` counts the samples of a step on all devices. `links` and `network` name the links inside
    and between nodes, in place of what is known of the hardware. `jitter` is the coefficient of variation of
    step times across devices. `min_batch` is the smallest batch of a device in a heterogeneous cluster.
    """

    strategy: str = "ddp"
    micro_batches: int | None = None
    global_batch: int | None = None
    min_batch: int | None = None
    links: str | None = None
    network: str | None = None
    jitter: float | None = None

    def __post_init__(self) -> None:
        for name in ("micro_batches", "global_batch", "min_batch"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise InvalidRequest(f"{name} must be at least 1, got {value}")
        if self.jitter is not None and not 0 <= self.jitter < 1:
            raise InvalidRequest(f"jitter must be at least 0 and below 1, got {self.jitter}")

    def jitter_on(self, device: Device) -> float:
        """The coefficient of variation of step times across such devices."""
        if self.jitter is not None:
            return self.jitter
        varies = self.strategy == AUTO or strategy_of(self.strategy).has_jitter
        return default_jitter(device) if varies else 0.0


@dataclass(frozen=True)
class Scenario:
    """A training step to predict. `advice` False leaves out what would change it, which takes most time."""

    workload: Workload
    cluster: Cluster
    parallelism: Parallelism = field(default_factory=Parallelism)
    cost_model: CostModel | str = DEFAULT
    input: InputOptions = field(default_factory=InputOptions)
    advice: bool = True


@dataclass(frozen=True)
class StepContext:
    """What stays the same while configurations of a step are compared on equal nodes."""

    workload: Workload
    hardware: Hardware
    environment: Environment
    input: InputOptions
    jitter: float = 0.0


@dataclass(frozen=True)
class StepConfiguration:
    """A layout, with `batch` samples for each replica in a step, in `micro_batches` equal parts."""

    layout: Layout
    batch: int
    micro_batches: int = 1

    def __post_init__(self) -> None:
        if self.batch % self.micro_batches:
            divisors = [m for m in range(1, self.batch + 1) if self.batch % m == 0]
            raise InvalidRequest(
                f"a batch of {self.batch} samples per replica does not split into {self.micro_batches} equal "
                f"micro-batches; micro_batches can be {', '.join(map(str, divisors[:12]))}"
            )

    @property
    def micro_batch(self) -> int:
        """Samples of one micro-batch."""
        return self.batch // self.micro_batches

    @property
    def global_batch(self) -> int:
        """Samples of a step on all devices together."""
        return self.batch * self.layout.replicas

    @property
    def update_batch(self) -> int:
        """Samples that enter the model in one step: of all replicas, or of those that servers wait for."""
        return self.batch * self.layout.contributions


def step_context(
    workload: Workload,
    hardware: Hardware,
    parallelism: Parallelism,
    cost_model: CostModel,
    input_options: InputOptions,
) -> StepContext:
    """A workload on equal nodes, in the usual precision of their devices unless it was given."""
    workload = on_devices(workload, (hardware.device,))
    links, network = parallelism.links or hardware.links, parallelism.network or hardware.network
    environment = Environment(hardware.device, network_of(hardware, links, network), cost_model)
    jitter = parallelism.jitter_on(hardware.device)
    return StepContext(workload, hardware, environment, input_options, jitter)


def refuse_unread_links(hardware: Hardware, parallelism: Parallelism) -> None:
    """Raise `InvalidRequest` for links or a network that the devices asked for do not use."""
    many = f"{hardware.device.id}:2"
    if parallelism.links and hardware.devices_per_node == 1:
        raise InvalidRequest(
            f"`links` {parallelism.links} has no effect: {hardware.name} has one device per node; use "
            f"several, such as {many}"
        )
    if parallelism.network and hardware.nodes == 1:
        raise InvalidRequest(
            f"`network` {parallelism.network} has no effect: {hardware.name} is one node; use several, "
            f"such as {hardware.device.id}:{hardware.devices_per_node}x2"
        )


def default_batch(workload: Workload) -> int:
    """The batch of the request, or that of the model's own example."""
    return workload.sizes.batch or graph_of(workload).batch


def global_batch(workload: Workload, devices: int, parallelism: Parallelism) -> int:
    """Samples of a step on all devices, where each device is a replica.

    `batch` and `global_batch` may both be given if they agree.
    """
    if parallelism.global_batch is None:
        return default_batch(workload) * devices
    given = workload.sizes.batch
    if given is not None and given * devices != parallelism.global_batch:
        raise InvalidRequest(_disagreement(given, devices, "device", parallelism.global_batch))
    return parallelism.global_batch


def replica_batch(workload: Workload, parallelism: Parallelism, replicas: int) -> int:
    """The batch of each replica. `batch` and `global_batch` may both be given if they agree."""
    if parallelism.global_batch is None:
        return default_batch(workload)
    batch, left = divmod(parallelism.global_batch, replicas)
    if left or not batch:
        near = max(1, round(parallelism.global_batch / replicas)) * replicas
        raise InvalidRequest(
            f"global_batch {parallelism.global_batch} does not divide over {replicas} replicas; "
            f"use a multiple of {replicas}, such as {near}"
        )
    given = workload.sizes.batch
    if given is not None and given != batch:
        raise InvalidRequest(_disagreement(given, replicas, "replica", parallelism.global_batch))
    return batch


def _disagreement(batch: int, count: int, unit: str, global_batch: int) -> str:
    return (
        f"batch {batch} on {count} {unit}{'s' if count > 1 else ''} is a global batch of {batch * count}, "
        f"but global_batch is {global_batch}; give one of them"
    )
