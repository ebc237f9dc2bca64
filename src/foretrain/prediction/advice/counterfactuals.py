"""What if: the same training with more or fewer devices, other links, another batch or precision."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from foretrain.errors import ForetrainError
from foretrain.facts.devices import device as known_device
from foretrain.facts.hardware import Hardware
from foretrain.facts.nodes import Node, nodes
from foretrain.prediction.advice.scaling_curve import ScalingCurve, ScalingPoint, scaling_curve
from foretrain.prediction.advice.speeding_up import Advice
from foretrain.prediction.collectives.network import Network, network_of, with_factor
from foretrain.prediction.evaluation import Evaluation, StepConfiguration, StepContext, evaluate
from foretrain.prediction.strategies.layout import Layout, layout_of

_FAST = ("nvlink", "nvswitch")
_MOST_DEVICES = 1024
_MOST_POINTS = 8


@dataclass(frozen=True)
class _Change:
    name: str
    made: Callable[[], tuple[StepContext, StepConfiguration]]


def counterfactuals(now: Evaluation, is_batch_fixed: bool = False) -> tuple[Advice, ...]:
    """What each change would bring, as samples per second of all devices over those of now.

    Other numbers of devices are tried at the same batch for each, or, if that `is_batch_fixed`, in all.
    """
    found = (_tried(now, change) for change in _changes(now, is_batch_fixed))
    return tuple(advice for advice in found if advice is not None)


def _tried(now: Evaluation, change: _Change) -> Advice | None:
    """None where a change cannot be made: half of one device, a precision the device lacks."""
    try:
        then = evaluate(*change.made())
    except ForetrainError:
        return None
    return Advice(
        change=change.name,
        gain=then.samples_per_second / now.samples_per_second,
        step_seconds=then.seconds,
        samples_per_second=then.samples_per_second,
        memory_bytes=then.memory.bytes,
        fits=then.memory.fits,
    )


def _changes(now: Evaluation, is_batch_fixed: bool) -> Iterator[_Change]:
    context, configuration = now.context, now.configuration
    devices = context.hardware.devices
    yield _Change("2x GPUs", lambda: _with_devices(now, 2 * devices, is_batch_fixed))
    if devices > 1:
        yield _Change("half the GPUs", lambda: _with_devices(now, devices // 2, is_batch_fixed))
    yield _Change("2x batch", lambda: (context, replace(configuration, batch=2 * configuration.batch)))
    yield _Change("accumulate 2 batches", lambda: (context, _accumulated(configuration)))
    yield from _of_links(now)
    precision = context.workload.options.precision
    if precision in ("fp32", "tf32"):
        sheet = context.environment.device.sheet
        half = next((name for name in ("bf16", "fp16") if sheet.has(f"{name}_tensor_flop_per_second")), None)
        if half is not None:
            yield _Change(half, lambda: (_in_precision(context, half), configuration))


def _accumulated(configuration: StepConfiguration) -> StepConfiguration:
    return replace(
        configuration, batch=2 * configuration.batch, micro_batches=2 * configuration.micro_batches
    )


def _of_links(now: Evaluation) -> Iterator[_Change]:
    context, network = now.context, now.context.environment.network
    if network.intra is not None and network.intra.kind not in _FAST:
        link = fast_link(context.hardware)
        if link is not None:
            one_node = replace(context.hardware, node=None, nodes=1)
            inside = replace(network, intra=network_of(one_node, intra=link).intra)
            yield _Change(
                f"NVLink ({link}) instead of {network.intra.name}",
                lambda: (_over(context, inside), now.configuration),
            )
    if network.inter is not None:
        yield _Change(
            "2x network", lambda: (_over(context, with_factor(network, inter=2.0)), now.configuration)
        )
    elif network.intra is not None:
        yield _Change(
            "2x links", lambda: (_over(context, with_factor(network, intra=2.0)), now.configuration)
        )


def fast_link(hardware: Hardware) -> str | None:
    """The NVLink of machines with devices of the same generation; else of the oldest known ones."""
    with_nvlink = [node for node in nodes().values() if node.intra.kind in _FAST]
    alike = [
        node for node in with_nvlink if known_device(node.device).generation == hardware.device.generation
    ]
    pool = alike or with_nvlink
    if not pool:
        return None
    oldest = min(pool, key=lambda node: (node.intra.nominal_bytes_per_second_per_direction, node.id))
    return f"{oldest.intra.id}:{_links(oldest)}"


def _links(node: Node) -> int:
    return int(node.sheet.number("intra_links_per_device"))


def _over(context: StepContext, network: Network) -> StepContext:
    return replace(context, environment=replace(context.environment, network=network))


def _in_precision(context: StepContext, precision: str) -> StepContext:
    workload = context.workload
    return replace(
        context, workload=replace(workload, options=replace(workload.options, precision=precision))
    )


def curve(now: Evaluation, is_batch_fixed: bool) -> ScalingCurve | None:
    """The same strategy on other numbers of devices, at the same batch for each, or in all."""

    def measure(devices: int) -> ScalingPoint | None:
        try:
            then = evaluate(*_with_devices(now, devices, is_batch_fixed))
        except ForetrainError:
            return None
        return _point(then)

    counts = _counts(now)
    found = scaling_curve(counts, measure, is_batch_fixed)
    return None if found is None else _with_efficiency(found)


def _counts(now: Evaluation) -> list[int]:
    """Doublings from the fewest devices the layout takes to twice as many as there are, and these."""
    layout, devices = now.configuration.layout, now.context.hardware.devices
    count = layout.tensor * layout.context * layout.pipeline
    most = min(max(2 * devices, 8), max(_MOST_DEVICES, devices))
    found = {number for number in (devices, 2 * devices) if number <= most}
    while count <= most:
        found.add(count)
        count *= 2
    return sorted(found)[-_MOST_POINTS:]


def _point(then: Evaluation) -> ScalingPoint:
    hardware = then.context.hardware
    return ScalingPoint(
        devices=hardware.devices,
        placement=f"{hardware.devices_per_node}x{hardware.nodes}",
        global_batch=then.configuration.global_batch,
        step_seconds=then.seconds,
        samples_per_second=then.samples_per_second,
        efficiency=1.0,
        exposed_share=then.spread.run.exposed_seconds / then.seconds,
        fits=then.memory.fits,
    )


def _with_efficiency(found: ScalingCurve) -> ScalingCurve:
    first = found.points[0]
    each = first.samples_per_second / first.devices
    points = tuple(
        replace(point, efficiency=point.samples_per_second / point.devices / each) for point in found.points
    )
    return replace(found, points=points)


def _with_devices(
    now: Evaluation, devices: int, is_batch_fixed: bool
) -> tuple[StepContext, StepConfiguration]:
    """The same question on so many devices of the same kind: fuller nodes first, then more of them."""
    hardware = _resized(now.context.hardware, devices)
    network = _resized_network(now.context, hardware)
    layout = _resized_layout(now.configuration.layout, hardware)
    context = _over(replace(now.context, hardware=hardware), network)
    if not is_batch_fixed:
        return context, replace(now.configuration, layout=layout)
    batch, left = divmod(now.configuration.global_batch, layout.replicas)
    if left or not batch:
        raise ForetrainError(
            f"{now.configuration.global_batch} samples do not share out over {layout.replicas}"
        )
    micro_batches = _as_small(now.configuration, batch)
    return context, StepConfiguration(layout, batch, micro_batches)


def _as_small(now: StepConfiguration, batch: int) -> int:
    """Micro-batches that are as small as those of now, where a batch is trained in several at all."""
    if now.micro_batches == 1 or batch % now.micro_batch:
        return now.micro_batches if batch % now.micro_batches == 0 else 1
    return batch // now.micro_batch


def _resized(hardware: Hardware, devices: int) -> Hardware:
    held = hardware.node.devices if hardware.node else hardware.devices_per_node
    full = max(held, min(devices, 8)) if hardware.nodes == 1 and not hardware.node else held
    per_node = min(devices, full)
    if devices % per_node and devices % held == 0:
        per_node = held
    if devices % per_node:
        raise ForetrainError(f"{devices} devices do not fill nodes of {per_node}")
    count = devices // per_node
    name = f"{hardware.device.id}:{per_node}" + (f"x{count}" if count > 1 else "")
    return replace(hardware, name=name, devices_per_node=per_node, nodes=count)


def _resized_network(context: StepContext, hardware: Hardware) -> Network:
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


def _resized_layout(layout: Layout, hardware: Hardware) -> Layout:
    """The same strategy on other hardware; model-parallel degrees stay, the replicas change."""
    model = layout.tensor * layout.context * layout.pipeline
    if "=" not in layout.name or layout.servers is not None:
        return layout_of(layout.name, hardware.devices, hardware.devices_per_node)
    if hardware.devices % (model * layout.expert):
        raise ForetrainError(f"{hardware.devices} devices do not hold {model} each")
    replicas = hardware.devices // model // layout.expert
    if layout.zero_stage:
        shard = replicas if layout.data == 1 else min(layout.shard, replicas)
        if replicas % shard:
            raise ForetrainError(f"{replicas} replicas do not share state in groups of {shard}")
        return replace(layout, shard=shard, data=replicas // shard)
    return replace(layout, data=replicas)
