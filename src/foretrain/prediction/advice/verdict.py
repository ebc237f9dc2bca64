"""What sets the pace on many devices: "network choke" or "GPU choke", and whether to add devices."""

from __future__ import annotations

from foretrain.prediction.advice.bottleneck import Bottleneck, Limit
from foretrain.prediction.advice.scaling_curve import ScalingCurve
from foretrain.prediction.advice.speeding_up import Advice
from foretrain.prediction.evaluation import Outcome
from foretrain.units import format_bytes

_HELPS = 1.05
"""A change in devices that brings less than this does not help."""


def verdict(outcome: Outcome, advice: tuple[Advice, ...], scaling: ScalingCurve | None) -> Bottleneck:
    """What sets the pace, in a word and in a sentence."""
    kind = _limit(outcome)
    sentence = _TOLD[kind](outcome)
    more = "" if kind is Limit.MEMORY else _more_or_fewer(outcome, scaling)
    return Bottleneck(kind, f"{sentence}; {more}" if more else sentence, advice)


def _limit(outcome: Outcome) -> Limit:
    """The longest of what a step spends its time on; memory first, since nothing runs without it."""
    run = outcome.spread.run
    if not outcome.memory.fits:
        return Limit.MEMORY
    if outcome.input.seconds > outcome.spread.seconds:
        return Limit.INPUT
    spent = {
        Limit.GPU: run.computing_seconds,
        Limit.NETWORK: run.exposed_seconds,
        Limit.LAUNCH: run.waiting_seconds,
    }
    return max(spent, key=lambda limit: spent[limit])


def _of_memory(outcome: Outcome) -> str:
    needed, capacity = outcome.memory.bytes, outcome.memory.capacity_bytes
    where = f" of stage {outcome.fullest[0] + 1}" if len(outcome.spread.run.stages) > 1 else ""
    return (
        f"the step needs {format_bytes(needed)} on the fullest device{where}, which has "
        f"{format_bytes(capacity)}"
    )


def _of_input(outcome: Outcome) -> str:
    ratio = outcome.input.seconds / outcome.spread.seconds
    return f"the devices wait for their samples: loading takes {ratio:.1f} times as long as training on them"


def _of_network(outcome: Outcome) -> str:
    run, longest = outcome.spread.run, max(outcome.spread.traffic, key=lambda each: each.seconds)
    share = run.exposed_seconds / outcome.seconds
    return (
        f"network choke: devices wait for exchanges {share:.0%} of the step, longest for {longest.name} "
        f"({format_bytes(longest.bytes)} over {longest.tier})"
    )


def _of_launches(outcome: Outcome) -> str:
    share = outcome.spread.run.waiting_seconds / outcome.seconds
    return (
        f"hosts cannot launch kernels as quickly as devices run them: these are idle {share:.0%} of the step"
    )


def _of_devices(outcome: Outcome) -> str:
    run = outcome.spread.run
    computing, waiting = run.computing_seconds / outcome.seconds, run.exposed_seconds / outcome.seconds
    said = f"GPU choke: devices compute {computing:.0%} of the step and wait for exchanges {waiting:.0%}"
    if run.bubble_seconds > 0:
        said += f", for other stages {run.bubble_seconds / outcome.seconds:.0%}"
    return said


_TOLD = {
    Limit.MEMORY: _of_memory,
    Limit.INPUT: _of_input,
    Limit.NETWORK: _of_network,
    Limit.LAUNCH: _of_launches,
    Limit.GPU: _of_devices,
}


def _more_or_fewer(outcome: Outcome, scaling: ScalingCurve | None) -> str:
    """What the curve says about adding devices."""
    if scaling is None:
        return ""
    devices = outcome.question.hardware.devices
    speeds = {point.devices: point.samples_per_second for point in scaling.points}
    here = speeds.get(devices, outcome.samples_per_second)
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
