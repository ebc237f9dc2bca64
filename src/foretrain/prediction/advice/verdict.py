"""What sets the pace on many devices: "network choke" or "GPU choke", and whether to add devices."""

from __future__ import annotations

from foretrain.prediction.advice.bottleneck import Bottleneck, Limit
from foretrain.prediction.advice.scaling_curve import ScalingCurve
from foretrain.prediction.advice.speeding_up import Advice
from foretrain.prediction.evaluation import Evaluation
from foretrain.units import format_bytes

_HELPS = 1.05
"""A change in devices that brings less than this does not help."""


def verdict(evaluation: Evaluation, advice: tuple[Advice, ...], scaling: ScalingCurve | None) -> Bottleneck:
    """What sets the pace, in a word and in a sentence."""
    kind = _limit(evaluation)
    sentence = _TOLD[kind](evaluation)
    more = "" if kind is Limit.MEMORY else _more_or_fewer(evaluation, scaling)
    return Bottleneck(kind, f"{sentence}; {more}" if more else sentence, advice)


def _limit(evaluation: Evaluation) -> Limit:
    """The longest of what a step spends its time on; memory first, since nothing runs without it."""
    run = evaluation.spread.run
    if not evaluation.memory.fits:
        return Limit.MEMORY
    if evaluation.input.seconds > evaluation.spread.seconds:
        return Limit.INPUT
    spent = {
        Limit.GPU: run.computing_seconds,
        Limit.NETWORK: run.exposed_seconds,
        Limit.LAUNCH: run.waiting_seconds,
    }
    return max(spent, key=lambda limit: spent[limit])


def _of_memory(evaluation: Evaluation) -> str:
    needed, capacity = evaluation.memory.bytes, evaluation.memory.capacity_bytes
    where = f" of stage {evaluation.fullest[0] + 1}" if len(evaluation.spread.run.stages) > 1 else ""
    return (
        f"the step needs {format_bytes(needed)} on the fullest device{where}, which has "
        f"{format_bytes(capacity)}"
    )


def _of_input(evaluation: Evaluation) -> str:
    ratio = evaluation.input.seconds / evaluation.spread.seconds
    return f"the devices wait for their samples: loading takes {ratio:.1f} times as long as training on them"


def _of_network(evaluation: Evaluation) -> str:
    run, longest = evaluation.spread.run, max(evaluation.spread.traffic, key=lambda each: each.seconds)
    share = run.exposed_seconds / evaluation.seconds
    return (
        f"network choke: devices wait for exchanges {share:.0%} of the step, longest for {longest.name} "
        f"({format_bytes(longest.bytes)} over {longest.tier})"
    )


def _of_launches(evaluation: Evaluation) -> str:
    share = evaluation.spread.run.waiting_seconds / evaluation.seconds
    return (
        f"hosts cannot launch kernels as quickly as devices run them: these are idle {share:.0%} of the step"
    )


def _of_devices(evaluation: Evaluation) -> str:
    run = evaluation.spread.run
    computing, waiting = run.computing_seconds / evaluation.seconds, run.exposed_seconds / evaluation.seconds
    said = f"GPU choke: devices compute {computing:.0%} of the step and wait for exchanges {waiting:.0%}"
    if run.bubble_seconds > 0:
        said += f", for other stages {run.bubble_seconds / evaluation.seconds:.0%}"
    return said


_TOLD = {
    Limit.MEMORY: _of_memory,
    Limit.INPUT: _of_input,
    Limit.NETWORK: _of_network,
    Limit.LAUNCH: _of_launches,
    Limit.GPU: _of_devices,
}


def _more_or_fewer(evaluation: Evaluation, scaling: ScalingCurve | None) -> str:
    """What the curve says about adding devices."""
    if scaling is None:
        return ""
    devices = evaluation.context.hardware.devices
    speeds = {point.devices: point.samples_per_second for point in scaling.points}
    here = speeds.get(devices, evaluation.samples_per_second)
    more = speeds.get(2 * devices)
    if speeds.get(scaling.best, here) > _HELPS * here and scaling.best < devices:
        gain = speeds[scaling.best] / here
        return f"fewer are faster: {scaling.best} of them train {gain:.2f} times as fast"
    if more is None:
        return ""
    gain = more / here
    if gain < _HELPS:
        return f"twice as many devices would bring {gain:.2f}x: do not add any"
    return f"twice as many devices would bring {gain:.2f}x"
