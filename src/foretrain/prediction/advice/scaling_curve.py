"""How a step scales with the number of devices: efficiency, the knee, and the best number.

    efficiency(n) = samples per second on n devices / (n · samples per second on one)

The knee is the last number up to which every doubling brought at least three quarters of what it could; the
best number is the one that trains most samples per second, the fewest of equals. Numbers of devices whose
memory is too small for the step are no candidates for either.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

from foretrain.errors import ForetrainError
from foretrain.facts.hardware import Hardware
from foretrain.prediction.collectives.network import Network, network_of
from foretrain.prediction.scenario import Evaluation, StepConfiguration, StepContext, evaluate
from foretrain.prediction.strategies.strategy import Layout, layout_of

WORTH_DOUBLING = 1.5
"""Three quarters of the factor two that a doubling could bring."""
_EQUAL = 0.99  # throughputs within 1 % count as equal: then the fewest devices are best
_MAX_DEVICES = 1024
_MAX_POINTS = 8  # each point is evaluated in full; the largest counts are kept
_USUAL_NODE = 8  # GPUs of a node where the machine is not named


@dataclass(frozen=True, slots=True)
class ScalingPoint:
    """A number of devices. Efficiency is against the fewest devices of the curve on which the step fits."""

    devices: int
    placement: str
    global_batch: int
    step_seconds: float
    samples_per_second: float
    efficiency: float
    exposed_share: float
    fits: bool


@dataclass(frozen=True, slots=True)
class ScalingCurve:
    """Points by number of devices, the last one worth doubling to, and the one that trains most.

    `knee` and `best` are None where the step fits on no number of devices.
    """

    points: tuple[ScalingPoint, ...]
    is_batch_fixed: bool
    knee: int | None
    best: int | None


Measure = Callable[[int], ScalingPoint | None]


def scaling_curve(counts: Sequence[int], measure: Measure, is_batch_fixed: bool) -> ScalingCurve | None:
    """The curve through some numbers of devices; `measure` returns None where a number is impossible."""
    points = [point for point in map(measure, counts) if point is not None]
    if not points:
        return None
    baseline = next((point for point in points if point.fits), points[0])
    each = baseline.samples_per_second / baseline.devices
    points = [replace(point, efficiency=point.samples_per_second / point.devices / each) for point in points]
    possible = [point for point in points if point.fits]
    if not possible:
        return ScalingCurve(tuple(points), is_batch_fixed, None, None)
    most = max(point.samples_per_second for point in possible)
    best = next(point.devices for point in possible if point.samples_per_second >= _EQUAL * most)
    return ScalingCurve(tuple(points), is_batch_fixed, _knee(possible), best)


def _knee(points: Sequence[ScalingPoint]) -> int:
    knee = points[0].devices
    for before, point in pairwise(points):
        gain = point.samples_per_second / before.samples_per_second
        if gain < WORTH_DOUBLING ** math.log2(point.devices / before.devices):
            break
        knee = point.devices
    return knee


@dataclass(frozen=True, eq=False)
class ResizedStep:
    """The same strategy on other numbers of devices, at the same batch per device or in all.

    Each number is evaluated once, for the curve and for what-ifs.
    """

    now: Evaluation
    is_batch_fixed: bool
    _known: dict[int, Evaluation] = field(default_factory=dict)

    def on(self, devices: int) -> Evaluation:
        """The step on some number of devices; raises `ForetrainError` where that is impossible."""
        if devices not in self._known:
            self._known[devices] = self._evaluate(devices)
        return self._known[devices]

    def _evaluate(self, devices: int) -> Evaluation:
        context, configuration = with_devices(self.now, devices, self.is_batch_fixed)
        if configuration == self.now.configuration and context.environment == self.now.context.environment:
            return self.now
        return evaluate(context, configuration)


def curve_of(resized: ResizedStep) -> ScalingCurve | None:
    """The curve through doublings of the devices, up to twice the present number."""

    def measure(devices: int) -> ScalingPoint | None:
        try:
            return _point(resized.on(devices))
        except ForetrainError:
            return None

    return scaling_curve(_counts(resized.now), measure, resized.is_batch_fixed)


def _counts(now: Evaluation) -> list[int]:
    """Doublings from the fewest devices the layout takes to twice the present number, and that number."""
    devices, count = now.context.hardware.devices, now.configuration.layout.model_degree
    most = min(max(2 * devices, _USUAL_NODE), max(_MAX_DEVICES, devices))
    counts = {number for number in (devices, 2 * devices) if number <= most}
    while count <= most:
        counts.add(count)
        count *= 2
    return sorted(counts)[-_MAX_POINTS:]


def _point(then: Evaluation) -> ScalingPoint:
    hardware = then.context.hardware
    return ScalingPoint(
        devices=hardware.devices,
        placement=f"{hardware.devices_per_node}x{hardware.nodes}",
        global_batch=then.configuration.global_batch,
        step_seconds=then.seconds,
        samples_per_second=then.samples_per_second,
        efficiency=1.0,
        exposed_share=then.step.run.exposed_seconds / then.seconds,
        fits=then.fits,
    )


def with_devices(
    now: Evaluation, devices: int, is_batch_fixed: bool
) -> tuple[StepContext, StepConfiguration]:
    """The same step on another number of devices of the same kind: fuller nodes first, then more of them."""
    context = resize(now.context, devices)
    layout = _resize_layout(now.configuration.layout, context.hardware)
    if not is_batch_fixed:
        return context, replace(now.configuration, layout=layout)
    batch, left = divmod(now.configuration.global_batch, layout.replicas)
    if left or not batch:
        raise ForetrainError(f"{now.configuration.global_batch} samples do not divide by {layout.replicas}")
    return context, StepConfiguration(layout, batch, _micro_batches(now.configuration, batch))


def resize(context: StepContext, devices: int) -> StepContext:
    """The same on another number of devices of the same kind."""
    hardware = _resize_hardware(context.hardware, devices)
    return over(replace(context, hardware=hardware), _resize_network(context, hardware))


def over(context: StepContext, network: Network) -> StepContext:
    """The same on another network."""
    return replace(context, environment=replace(context.environment, network=network))


def _micro_batches(now: StepConfiguration, batch: int) -> int:
    """Micro-batches of the present size, where a batch is trained in several at all."""
    if now.micro_batches == 1 or batch % now.micro_batch:
        return now.micro_batches if batch % now.micro_batches == 0 else 1
    return batch // now.micro_batch


def _resize_hardware(hardware: Hardware, devices: int) -> Hardware:
    held = hardware.node.devices if hardware.node else hardware.devices_per_node
    full = max(held, min(devices, _USUAL_NODE)) if hardware.nodes == 1 and not hardware.node else held
    per_node = min(devices, full)
    if devices % per_node and devices % held == 0:
        per_node = held
    if devices % per_node:
        raise ForetrainError(f"{devices} devices do not fill nodes of {per_node}")
    count = devices // per_node
    name = f"{hardware.device.id}:{per_node}" + (f"x{count}" if count > 1 else "")
    return replace(hardware, name=name, devices_per_node=per_node, nodes=count)


def _resize_network(context: StepContext, hardware: Hardware) -> Network:
    """The same links where they are known; what only larger hardware needs is taken from facts."""
    old = context.environment.network
    several, many = hardware.devices_per_node > 1, hardware.nodes > 1
    known = old
    if (many and old.inter is None) or (several and old.intra is None):
        known = network_of(hardware)
    return replace(
        known,
        devices_per_node=hardware.devices_per_node,
        nodes=hardware.nodes,
        intra=(old.intra or known.intra) if several else None,
        inter=(old.inter or known.inter) if many else None,
    )


def _resize_layout(layout: Layout, hardware: Hardware) -> Layout:
    """The same strategy on other hardware; model-parallel degrees stay, the replicas change."""
    if "=" not in layout.name or layout.servers is not None:
        return layout_of(layout.name, hardware.devices, hardware.devices_per_node)
    if hardware.devices % (layout.model_degree * layout.expert):
        raise ForetrainError(f"{hardware.devices} devices do not hold {layout.model_degree} each")
    replicas = hardware.devices // layout.model_degree // layout.expert
    if layout.zero_stage:
        shard = replicas if layout.data == 1 else min(layout.shard, replicas)
        if replicas % shard:
            raise ForetrainError(f"{replicas} replicas do not share state in groups of {shard}")
        return replace(layout, shard=shard, data=replicas // shard)
    return replace(layout, data=replicas)
