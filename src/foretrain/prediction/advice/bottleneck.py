"""What sets the pace of a step: memory, input, launches, or the device's arithmetic or bandwidth.

In this order: a step that does not fit is stopped by memory; one that waits for its samples by input; one
whose host takes longer to launch than the device to compute by launches; all others by the device itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from foretrain.prediction.advice.speeding_up import Advice
from foretrain.prediction.cost_models.priced_step import WAITING, Binding, StepEstimate
from foretrain.prediction.step.input_pipeline import InputPipeline
from foretrain.prediction.step.timing import Timing
from foretrain.units import format_bytes


class Limit(StrEnum):
    """What may set the pace."""

    GPU = "gpu"
    NETWORK = "network"
    INPUT = "input"
    LAUNCH = "launch"
    MEMORY = "memory"


@dataclass(frozen=True, slots=True)
class Bottleneck:
    """What sets the pace, in a word and in a sentence, and what would help, with its gain."""

    kind: Limit
    verdict: str
    advice: tuple[Advice, ...]


def bottleneck(
    timing: Timing, needed_bytes: float, capacity_bytes: float, fits: bool, advice: tuple[Advice, ...]
) -> Bottleneck:
    """What sets the pace of a step that needs so much of a device's memory."""
    if not fits:
        return Bottleneck(Limit.MEMORY, _too_large(needed_bytes, capacity_bytes), advice)
    if _waits_for_input(timing):
        return Bottleneck(Limit.INPUT, _of_input(timing), advice)
    if timing.computing.waiting_seconds > 0:
        return Bottleneck(Limit.LAUNCH, _of_launches(timing.computing), advice)
    return Bottleneck(Limit.GPU, _of_device(timing.computing), advice)


def _too_large(needed: float, capacity: float) -> str:
    return f"the step needs {format_bytes(needed)} of memory and the device has {format_bytes(capacity)}"


def _waits_for_input(timing: Timing) -> bool:
    return timing.input.seconds > timing.computing.seconds


def _of_input(timing: Timing) -> str:
    loading = timing.input
    return (
        f"the device waits for its samples: {slowest_stage(loading)} takes {_times(timing)} as long as "
        f"training on them"
    )


def _times(timing: Timing) -> str:
    ratio = timing.input.seconds / timing.computing.seconds if timing.computing.seconds else float("inf")
    return f"{ratio:.1f} times"


def slowest_stage(loading: InputPipeline) -> str:
    """The stage of the input pipeline that takes longest."""
    return max(loading.estimate.parts, key=lambda part: part.value).name


def _of_launches(step: StepEstimate) -> str:
    idle = step.waiting_seconds / step.seconds
    return (
        f"the host cannot launch kernels as quickly as the device runs them: the device is idle {idle:.0%} "
        "of the step"
    )


_BY = {
    Binding.ARITHMETIC: "its compute: {share:.0%} of its time goes to operators bound by arithmetic",
    Binding.BANDWIDTH: "its memory bandwidth: {share:.0%} of its time goes to operators bound by moving data",
    Binding.SIZE: "starting kernels: {share:.0%} of its time goes to operators too small to fill it",
}


def _of_device(step: StepEstimate) -> str:
    """What takes most of the device's time, and the largest single part."""
    parts = [part for part in step.estimate.visible if part.name != WAITING]
    if not step.binding or not parts or not step.device_seconds:
        return "the device sets the pace"
    binding = max(step.binding, key=lambda each: step.binding[each])
    largest = max(parts, key=lambda part: part.value)
    reason = _BY[binding].format(share=step.binding[binding] / step.device_seconds)
    share = largest.value / step.device_seconds
    return f"the device sets the pace by {reason}; the largest part is {largest.name} ({share:.0%})"
