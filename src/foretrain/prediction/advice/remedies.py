"""What would make a step fit into memory: each remedy is computed, not guessed.

A smaller batch, activation checkpointing, an 8-bit optimizer, an optimizer on the host; on one device ZeRO
over several, on many the layouts of the same devices and global batch that do fit.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from foretrain.answers import Infeasible
from foretrain.errors import ForetrainError
from foretrain.prediction.memory.estimate import MemoryEstimate, estimate_memory, memory_options
from foretrain.prediction.scenario import Evaluation, evaluate
from foretrain.prediction.search.search import search
from foretrain.prediction.strategies.program import MemoryOptions
from foretrain.workloads.executed import OPTIMIZER, is_offloaded
from foretrain.workloads.graph import Graph

_MAX_ZERO_DEVICES = 64
_MAX_LAYOUTS = 4
_CHECKPOINTING = "checkpoint activations"
_EIGHT_BIT = "optimizer adamw-8bit"
_OFFLOAD = "offload optimizer"
_ZERO = re.compile(r"ZeRO-(?P<stage>\d) over (?P<devices>\d+) devices")
_WITH_TWO_MOMENTS = ("adam", "adamw", "adamw-fused")


@dataclass(frozen=True, slots=True)
class MemoryRemedy:
    """A change, what the fullest device would then need, and whether that fits."""

    change: str
    bytes: float
    fits: bool


def options_of(change: str, device: str) -> dict[str, str]:
    """The options of a request that a change stands for, as they are typed; a switch has no value."""
    options: dict[str, str] = {}
    for part in change.split(", "):
        zero = _ZERO.fullmatch(part)
        if zero:
            options |= {"on": f"{device}:{zero['devices']}", "strategy": f"zero{zero['stage']}"}
        elif part == _CHECKPOINTING:
            options["checkpoint_activations"] = ""
        else:
            name, _, value = part.partition(" ")
            options[name] = value
    return options


def remedies(now: Evaluation, largest_batch: int) -> tuple[MemoryRemedy, ...]:
    """What would make a step fit that does not, or how far each change gets; empty if it fits already."""
    return () if now.memory.fits else tuple(_remedies(now, largest_batch))


def _remedies(now: Evaluation, largest_batch: int) -> Iterator[MemoryRemedy]:
    if 0 < largest_batch < now.configuration.batch:
        smaller = _smaller(now, largest_batch)
        if smaller is not None:
            yield _remedy(f"batch {smaller.configuration.batch}", smaller.memory)
    checkpointed = _with_checkpointing(now)
    if checkpointed is not None:
        yield _remedy(_CHECKPOINTING, checkpointed.memory)
    quantises = now.context.workload.options.optimizer in _WITH_TWO_MOMENTS
    if quantises:
        yield _remedy(_EIGHT_BIT, _with(now, eight_bit_optimizer=True))
    on_host = _with_options(now, offload=(*now.context.workload.options.offload, OPTIMIZER))
    if on_host is not None and not is_offloaded(now.graph, OPTIMIZER):
        yield _remedy(_OFFLOAD, on_host.memory)
    if now.configuration.layout.devices > 1:
        yield from _layouts(now)
        return
    alone = [*_zero(now)]
    yield from alone
    if checkpointed is not None and not any(each.fits for each in alone) and not checkpointed.memory.fits:
        if quantises:
            yield _remedy(f"{_CHECKPOINTING}, {_EIGHT_BIT}", _with(checkpointed, eight_bit_optimizer=True))
        for each in _zero(checkpointed):
            yield replace(each, change=f"{_CHECKPOINTING}, {each.change}")


def _remedy(change: str, memory: MemoryEstimate) -> MemoryRemedy:
    return MemoryRemedy(change, memory.bytes, memory.fits)


def _smaller(now: Evaluation, batch: int) -> Evaluation | None:
    """The largest batch that fits, in micro-batches of the present number where it divides."""
    rounds = now.configuration.micro_batches
    try:
        return evaluate(now.context, replace(now.configuration, batch=batch - batch % rounds))
    except ForetrainError:
        return None


def _with_checkpointing(now: Evaluation) -> Evaluation | None:
    """The same step with activation checkpointing, if it is not on already and the model has blocks."""
    if now.context.workload.options.checkpoint_activations:
        return None
    return _with_options(now, checkpoint_activations=True)


def _with_options(now: Evaluation, **options: object) -> Evaluation | None:
    """The same step with other options; None where that is not possible."""
    workload = now.context.workload
    try:
        workload = replace(workload, options=replace(workload.options, **options))  # type: ignore[arg-type]
        return evaluate(replace(now.context, workload=workload), now.configuration)
    except ForetrainError:
        return None


def _options(now: Evaluation) -> tuple[Graph, MemoryOptions]:
    """The fullest stage's graph and how it spends memory."""
    run, stage = now.step.run, now.fullest[0]
    return run.stages[stage].graph, memory_options(
        run.stages[stage], run.in_flight[stage], now.configuration.layout, now.context.environment.network
    )


def _with(now: Evaluation, **changes: object) -> MemoryEstimate:
    graph, options = _options(now)
    changed = replace(options, **changes)  # type: ignore[arg-type]
    return estimate_memory(graph, now.context.environment.device, changed)


def _zero(now: Evaluation) -> Iterator[MemoryRemedy]:
    """Each stage of ZeRO over the fewest devices that suffice, or over the most tried."""
    for stage in (1, 2, 3):
        devices = 2
        while True:
            memory = _with(now, zero_stage=stage, data_parallel=devices)
            if memory.fits or devices * 2 > _MAX_ZERO_DEVICES:
                yield _remedy(f"ZeRO-{stage} over {devices} devices", memory)
                break
            devices *= 2


def _layouts(now: Evaluation) -> Iterator[MemoryRemedy]:
    """Layouts of the same devices and global batch that do fit, the fastest first."""
    ranking = search(now.context, now.configuration.global_batch)
    if isinstance(ranking, Infeasible):
        return
    for other in ranking.evaluations[:_MAX_LAYOUTS]:
        yield _remedy(layout_text(other), other.memory)


def layout_text(evaluation: Evaluation) -> str:
    """A configuration as a request would give it."""
    configuration = evaluation.configuration
    text = f"strategy {configuration.layout.name}, micro_batches {configuration.micro_batches}"
    if evaluation.context.workload.options.checkpoint_activations:
        text += ", checkpoint_activations"
    return text
