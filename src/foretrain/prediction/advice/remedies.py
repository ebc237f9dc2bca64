"""What would make a step fit into memory: each remedy is computed, not guessed.

A smaller batch, activation checkpointing, an 8-bit optimizer, an optimizer on the host; on one device ZeRO
over several, on many the layouts of the same devices and global batch that do fit. Where none of them is
enough, the smallest combinations that are.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import Any

from foretrain.answers import Infeasible
from foretrain.errors import ForetrainError
from foretrain.prediction.kept import keep_result, read_result
from foretrain.prediction.memory.estimate import MemoryEstimate, estimate_memory, fits_memory
from foretrain.prediction.scenario import Evaluation, FullestDevice, StepConfiguration, fullest_device
from foretrain.prediction.search.search import kept_beside, search
from foretrain.prediction.strategies.strategy import DATA_PARALLEL, SHARDED, layout_of
from foretrain.workloads.executed import OPTIMIZER, is_offloaded

_MAX_ZERO_DEVICES = 64
_ALL_STATE = 3
"""The stage of ZeRO that shards parameters too."""
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


def find_remedies(now: Evaluation, largest_batch: int) -> tuple[MemoryRemedy, ...]:
    """What would make a step fit that does not, or how far each change gets; empty if it fits already.

    They are kept on disk, since most of them are simulated and some are searched.
    """
    if now.memory.fits:
        return ()
    file = kept_beside("remedies", now.context, now.configuration, largest_batch)
    if file is not None:
        with suppress(TypeError):  # what is kept cannot be read
            return tuple(MemoryRemedy(*each) for each in read_result(file))
    computed = _try_remedies(now, largest_batch)
    if file is not None:
        keep_result(file, [(each.change, each.bytes, each.fits) for each in computed])
    return computed


def _try_remedies(now: Evaluation, largest_batch: int) -> tuple[MemoryRemedy, ...]:
    fitting = [*_remedies(now, largest_batch)]
    if not any(each.fits and not _needs_more_devices(each) for each in fitting):
        fitting += _smallest_combinations(now, (*_memory_changes(now),))
    if not any(each.fits for each in fitting):
        fitting += _smallest_combinations(now, (*_memory_changes(now),), over_several=True)
    return tuple(fitting)


def _needs_more_devices(remedy: MemoryRemedy) -> bool:
    return any(_ZERO.fullmatch(part) for part in remedy.change.split(", "))


def _remedies(now: Evaluation, largest_batch: int) -> Iterator[MemoryRemedy]:
    if 0 < largest_batch < now.configuration.batch:
        yield from _smaller(now, largest_batch)
    options, fullest = now.context.workload.options, now.fullest_device
    checkpointed = None if options.checkpoint_activations else _with_options(now, checkpoint_activations=True)
    if checkpointed is not None:
        yield _remedy(_CHECKPOINTING, checkpointed.memory)
    quantises = options.optimizer in _WITH_TWO_MOMENTS
    if quantises:
        yield _remedy(_EIGHT_BIT, _with(fullest, eight_bit_optimizer=True))
    on_host = _with_options(now, offload=(*options.offload, OPTIMIZER))
    if on_host is not None and not is_offloaded(now.graph, OPTIMIZER):
        yield _remedy(_OFFLOAD, on_host.memory)
    if now.configuration.layout.devices > 1:
        yield from _layouts(now)
        return
    alone = [*_zero(fullest)]
    yield from alone
    if checkpointed is not None and not any(each.fits for each in alone) and not checkpointed.memory.fits:
        if quantises:
            yield _remedy(f"{_CHECKPOINTING}, {_EIGHT_BIT}", _with(checkpointed, eight_bit_optimizer=True))
        for each in _zero(checkpointed):
            yield replace(each, change=f"{_CHECKPOINTING}, {each.change}")


def _remedy(change: str, memory: MemoryEstimate) -> MemoryRemedy:
    return MemoryRemedy(change, memory.bytes, memory.fits)


def _smaller(now: Evaluation, largest: int) -> Iterator[MemoryRemedy]:
    """The largest batch that fits, in micro-batches of the present number where it divides."""
    batch = largest - largest % now.configuration.micro_batches
    with suppress(ForetrainError):
        memory = fullest_device(now.context, replace(now.configuration, batch=batch)).memory
        yield _remedy(f"batch {batch}", memory)


def _with_options(now: Evaluation, **options: object) -> FullestDevice | None:
    """The fullest device of the same step with other options; None where that is not possible."""
    workload = now.context.workload
    try:
        workload = replace(workload, options=replace(workload.options, **options))  # type: ignore[arg-type]
        return fullest_device(replace(now.context, workload=workload), now.configuration)
    except ForetrainError:
        return None


def _with(fullest: FullestDevice, **changes: object) -> MemoryEstimate:
    changed = replace(fullest.options, **changes)  # type: ignore[arg-type]
    return estimate_memory(fullest.graph, fullest.device, changed)


def _zero(fullest: FullestDevice) -> Iterator[MemoryRemedy]:
    """Each stage of ZeRO over the fewest devices that suffice, or over the most tried."""
    for stage in (1, 2, _ALL_STATE):
        yield _fewest_devices(fullest, stage)


def _fewest_devices(fullest: FullestDevice, stage: int) -> MemoryRemedy:
    devices = 2
    while devices * 2 <= _MAX_ZERO_DEVICES and not fits_memory(
        fullest.graph,
        fullest.device,
        replace(fullest.options, zero_stage=stage, data_parallel=devices),
    ):
        devices *= 2
    memory = _with(fullest, zero_stage=stage, data_parallel=devices)
    return _remedy(f"ZeRO-{stage} over {devices} devices", memory)


def _layouts(now: Evaluation) -> Iterator[MemoryRemedy]:
    """Layouts of the same devices and global batch that do fit, the fastest first."""
    ranking = search(now.context, now.configuration.global_batch)
    if isinstance(ranking, Infeasible):
        return
    for each in ranking.fastest[:_MAX_LAYOUTS]:
        text = layout_text(each.candidate.configuration, each.candidate.is_checkpointed)
        yield MemoryRemedy(text, each.bytes, fits=True)


@dataclass(frozen=True)
class _MemoryChange:
    """One change of a combination: of options of the workload, of the configuration, or of memory.

    Two changes of one `subject` exclude each other.
    """

    text: str
    subject: str
    options: Mapping[str, Any] = field(default_factory=dict)
    configuration: Mapping[str, Any] = field(default_factory=dict)
    memory: Mapping[str, Any] = field(default_factory=dict)


def _memory_changes(now: Evaluation) -> Iterator[_MemoryChange]:
    """What may be combined, in the order in which people try it."""
    options, configuration = now.context.workload.options, now.configuration
    layout, hardware = configuration.layout, now.context.hardware
    if not options.checkpoint_activations and not options.forward_only:
        yield _MemoryChange(_CHECKPOINTING, "activations", {"checkpoint_activations": True})
    if options.optimizer in _WITH_TWO_MOMENTS:
        yield _MemoryChange(_EIGHT_BIT, "optimizer", memory={"eight_bit_optimizer": True})
    if layout.devices == 1 and configuration.batch > 1:
        yield _MemoryChange("batch 1", "batch", configuration={"batch": 1, "micro_batches": 1})
    elif layout.pipeline == 1 and configuration.micro_batch > 1:  # keeps the global batch
        rounds = configuration.batch
        yield _MemoryChange(f"micro_batches {rounds}", "batch", configuration={"micro_batches": rounds})
    is_data_parallel = layout.replication in (DATA_PARALLEL, SHARDED) and layout.replicas == layout.devices
    if layout.devices > 1 and is_data_parallel and layout.zero_stage < _ALL_STATE:
        sharded = layout_of(f"zero{_ALL_STATE}", layout.devices, hardware.devices_per_node)
        yield _MemoryChange(f"strategy {sharded.name}", "layout", configuration={"layout": sharded})
    if OPTIMIZER not in options.offload and options.optimizer is not None:
        yield _MemoryChange(_OFFLOAD, "optimizer", {"offload": (*options.offload, OPTIMIZER)})


def _smallest_combinations(
    now: Evaluation, changes: Sequence[_MemoryChange], over_several: bool = False
) -> list[MemoryRemedy]:
    """All combinations of the fewest changes that fit.

    `over_several`: one device becomes several, which share state by ZeRO-3; as few as suffice.
    """
    if over_several and now.configuration.layout.devices > 1:
        return []
    for size in range(1 if over_several else 2, len(changes) + 1):
        fitting = [*_fitting(now, combinations(changes, size), over_several)]
        if fitting:
            return fitting
    return []


def _fitting(
    now: Evaluation, candidates: Iterator[Sequence[_MemoryChange]], over_several: bool
) -> Iterator[MemoryRemedy]:
    for changes in candidates:
        if len({each.subject for each in changes}) < len(changes):
            continue
        fullest = _with_changes(now, changes)
        if fullest is None:
            continue
        text = ", ".join(each.text for each in changes)
        if over_several:
            zero = _fewest_devices(fullest, _ALL_STATE)
            remedy = replace(zero, change=f"{text}, {zero.change}")
        else:
            remedy = _remedy(text, fullest.memory)
        if remedy.fits:
            yield remedy


def _with_changes(now: Evaluation, changes: Sequence[_MemoryChange]) -> FullestDevice | None:
    """The fullest device of the step with all the changes; None where that is not possible."""
    options = {name: value for each in changes for name, value in each.options.items()}
    configuration = {name: value for each in changes for name, value in each.configuration.items()}
    memory = {name: value for each in changes for name, value in each.memory.items()}
    workload = now.context.workload
    try:
        workload = replace(workload, options=replace(workload.options, **options))
        context = replace(now.context, workload=workload)
        fullest = fullest_device(context, replace(now.configuration, **configuration))
    except ForetrainError:  # a model without blocks, or that takes no batch of one
        return None
    return replace(fullest, options=replace(fullest.options, **memory))


def layout_text(configuration: StepConfiguration, is_checkpointed: bool) -> str:
    """A configuration as a request would give it."""
    text = f"strategy {configuration.layout.name}, micro_batches {configuration.micro_batches}"
    return f"{text}, checkpoint_activations" if is_checkpointed else text
