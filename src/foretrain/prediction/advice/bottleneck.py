"""What limits the speed of a step: memory, input, launches, the network, or the device itself.

In this order: a step that does not fit is limited by memory; one that waits for its samples by input. One
device is limited by launches if its host launches slower than it computes. Many devices are limited by what
most of the step is spent on: computing ("GPU choke"), exposed communication ("network choke"), or launches.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from foretrain.prediction.advice.changes import Advice
from foretrain.prediction.cost_models import WAITING, Binding, binding
from foretrain.prediction.scenario import Evaluation
from foretrain.units import format_bytes
from foretrain.workloads.graph import Phase

if TYPE_CHECKING:
    from foretrain.prediction.advice.scaling_curve import ScalingCurve

_HELPS = 1.05
"""A change in devices that brings less than this does not help."""
_NEGLIGIBLE = 1e-6
"""Share of the step below which a wait for launches is rounding."""


class Limit(StrEnum):
    """What may limit a step."""

    GPU = "gpu"
    NETWORK = "network"
    INPUT = "input"
    LAUNCH = "launch"
    MEMORY = "memory"


@dataclass(frozen=True, slots=True)
class Bottleneck:
    """What limits a step, in a word and in a sentence, and what would change it, with its gain."""

    kind: Limit
    verdict: str
    advice: tuple[Advice, ...]


def bottleneck(
    now: Evaluation, advice: tuple[Advice, ...] = (), scaling: ScalingCurve | None = None
) -> Bottleneck:
    """What limits a step."""
    kind = _limit(now)
    sentence = _SENTENCES[kind](now)
    more = "" if kind is Limit.MEMORY else _more_or_fewer(now, scaling)
    return Bottleneck(kind, f"{sentence}; {more}" if more else sentence, advice)


def _limit(now: Evaluation) -> Limit:
    run = now.step.run
    if not now.memory.fits:
        return Limit.MEMORY
    if now.input.seconds > now.step.seconds:
        return Limit.INPUT
    if now.configuration.layout.devices == 1:
        return Limit.LAUNCH if run.waiting_seconds > _NEGLIGIBLE * now.seconds else Limit.GPU
    spent = {
        Limit.GPU: run.computing_seconds,
        Limit.NETWORK: run.exposed_seconds,
        Limit.LAUNCH: run.waiting_seconds,
    }
    return max(spent, key=lambda limit: spent[limit])


def _of_memory(now: Evaluation) -> str:
    needed, capacity = format_bytes(now.memory.bytes), format_bytes(now.memory.capacity_bytes)
    where = ""
    if now.configuration.layout.devices > 1:
        stages = len(now.step.run.stages)
        where = f" on the fullest device{f' of stage {now.fullest[0] + 1}' if stages > 1 else ''}"
    return f"the step needs {needed} of memory{where}, and the device has {capacity}"


def _of_input(now: Evaluation) -> str:
    slowest = max(now.input.estimate.parts, key=lambda part: part.value).name
    ratio = now.input.seconds / now.step.seconds if now.step.seconds else float("inf")
    return f"devices wait for samples: {slowest} takes {ratio:.1f}x as long as training on them"


def _of_launches(now: Evaluation) -> str:
    idle = now.step.run.waiting_seconds / now.seconds
    return f"launch-bound: the host launches kernels slower than the device runs them; it idles {idle:.0%}"


def _of_network(now: Evaluation) -> str:
    longest = max(now.step.traffic, key=lambda each: each.seconds)
    share = now.step.run.exposed_seconds / now.seconds
    return (
        f"network choke: devices wait for communication {share:.0%} of the step, longest for {longest.name} "
        f"({format_bytes(longest.bytes)} over {longest.tier})"
    )


_BOUND_BY = {
    Binding.ARITHMETIC: "arithmetic throughput",
    Binding.BANDWIDTH: "memory bandwidth",
    Binding.SIZE: "start-up of kernels too small to fill it",
}


def _of_device(now: Evaluation) -> str:
    """What takes most of the devices' time, and the largest single part."""
    run = now.step.run
    sentence, reason = "GPU choke", _reason(now)
    if now.configuration.layout.devices > 1:
        computing, waiting = run.computing_seconds / now.seconds, run.exposed_seconds / now.seconds
        sentence += f": devices compute {computing:.0%} of the step, wait for communication {waiting:.0%}"
        if run.bubble_seconds > 0:
            sentence += f", idle in the pipeline bubble {run.bubble_seconds / now.seconds:.0%}"
        return f"{sentence}; {reason}" if reason else sentence
    return f"{sentence}: {reason}" if reason else sentence


def _reason(now: Evaluation) -> str:
    """What binds the operators, and the largest single part."""
    by_limit, phases = binding(now.step.priced), tuple(f"{phase} " for phase in Phase)
    parts = [
        part for part in now.step.estimate.visible if part.name != WAITING and part.name.startswith(phases)
    ]
    busy, total = sum(part.value for part in parts), sum(by_limit.values())
    if not parts or not busy or not total:
        return ""
    limit = max(by_limit, key=lambda each: by_limit[each])
    largest = max(parts, key=lambda part: part.value)
    device = now.context.hardware.device.kind.upper()
    reason = f"{device} {_BOUND_BY[limit]} ({by_limit[limit] / total:.0%} of {device} time)"
    return f"{reason}; largest part: {largest.name} ({largest.value / busy:.0%})"


_SENTENCES = {
    Limit.MEMORY: _of_memory,
    Limit.INPUT: _of_input,
    Limit.NETWORK: _of_network,
    Limit.LAUNCH: _of_launches,
    Limit.GPU: _of_device,
}


def _more_or_fewer(now: Evaluation, scaling: ScalingCurve | None) -> str:
    """What the curve says about adding devices."""
    if scaling is None:
        return ""
    devices = now.context.hardware.devices
    speeds = {point.devices: point.samples_per_second for point in scaling.points}
    here = speeds.get(devices, now.samples_per_second)
    best = scaling.best
    if best is not None and best < devices and speeds.get(best, here) > _HELPS * here:
        fewer = f"{best} GPU{' is' if best == 1 else 's are'}"
        return f"{fewer} {speeds[best] / here:.2f}x faster than {devices}"
    more = speeds.get(2 * devices)
    if more is None:
        return ""
    gain = f"twice the GPUs would be {more / here:.2f}x faster"
    return f"{gain}: do not add any" if more / here < _HELPS else gain
