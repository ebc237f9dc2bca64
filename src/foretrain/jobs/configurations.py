"""The best run configuration of a job on given machines: strategy, batch of each device and micro-batches.

    job = steps to the end (global batch) · seconds of a step (strategy, batch, micro-batches)

Plain data parallelism is compared at every batch size in closed form (`prediction.search.sketch`), which is
exact. Sharding the state (ZeRO, FSDP) only pays through the memory it frees, so it is compared where a larger
batch would be faster but does not fit, or where nothing fits. These steps are predicted in full, in the order
of a lower bound, their computing alone, until no bound is below the best that fits: what ranks is what
`predict` reports. Of configurations that take about the same time the smallest global batch is preferred: it
departs least from common practice.

Memory is estimated (`batch_limits`), and simulated wherever the estimate is near the capacity, so that no
configuration is dropped on an estimate. `configure` chooses; `verify` adds what only the reported
configurations need: simulated memory far below the capacity, and exact probabilities to run out of it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from foretrain.answers import Infeasible
from foretrain.errors import ForetrainError, InvalidRequest
from foretrain.estimates import Quantiles
from foretrain.facts.devices import Device
from foretrain.facts.hardware import Hardware
from foretrain.jobs.batch_limits import capacity_bytes, largest_batch
from foretrain.jobs.job import RepeatedStep, Steps
from foretrain.jobs.length import Length
from foretrain.jobs.options import BatchLimits
from foretrain.jobs.step_table import StepTable, on_device, step_table, with_weights_stored
from foretrain.prediction.corrections.apply import resolve_cost_model
from foretrain.prediction.cost_models import CostModel
from foretrain.prediction.memory.estimate import (
    MemoryEstimate,
    chance_to_exceed,
    estimate_memory,
    out_of_memory_probability,
)
from foretrain.prediction.operators.pricing import DEFAULT, Knowledge
from foretrain.prediction.options import InputOptions
from foretrain.prediction.scenario import fix_precision, in_usual_precision, refuse_precision
from foretrain.prediction.spread import (
    KnowledgeClass,
    probability_within_prediction,
    surprise,
    traits_of,
)
from foretrain.prediction.stragglers import default_jitter, slowdown
from foretrain.prediction.strategies.program import MemoryOptions
from foretrain.prediction.strategies.sharded import STAGES as ZERO_STAGES
from foretrain.prediction.strategies.strategy import (
    DATA_PARALLEL,
    MixedPrecision,
    layout_of,
    plan_words,
    shards_state,
)
from foretrain.units import format_bytes
from foretrain.workloads.graph import Graph, Phase, checkpoint_bytes
from foretrain.workloads.workload import Workload

if TYPE_CHECKING:
    from foretrain.prediction.scenario import Evaluation

_EQUAL = 0.02
"""Configurations this close in time count as equal."""
_WORTH_SHARDING = 0.05
"""The gain from a larger batch below which sharding is not considered."""
_NEAR = 1.5
"""Estimated memory within this factor of the capacity is simulated: estimates were off by up to 1.26."""
_SEVERAL = 2
"""Replicas beyond the second change nothing in the memory of a device, so one simulation serves all."""
SAFE = 0.1
"""The largest chance of running out of memory that is chosen where there is a choice: p90 of memory fits."""


@dataclass(frozen=True, slots=True)
class RunConfiguration:
    """How a job runs on some machines, and what a step takes.

    `batch` is of each replica in a step, `memory_bytes` of the fullest device, `state_bytes` of a checkpoint.
    """

    strategy: str
    precision: str
    weights: str
    batch: int
    micro_batches: int
    global_batch: int
    checkpoint_activations: bool
    job_steps: Steps
    step_seconds: Quantiles
    forward_seconds: float
    memory_bytes: float
    out_of_memory_probability: float
    state_bytes: float
    knowledge: Knowledge
    knowledge_class: KnowledgeClass

    @property
    def is_safe(self) -> bool:
        """Whether the 90th percentile of its memory fits."""
        return self.out_of_memory_probability <= SAFE

    @property
    def reliability(self) -> float:
        """The probability that the step fits into memory and that its interval means anything."""
        return (1 - self.out_of_memory_probability) * (1 - surprise(self.knowledge_class))

    @property
    def within_prediction(self) -> float:
        """The probability that the step takes no longer than predicted."""
        return probability_within_prediction(self.knowledge_class)

    @property
    def steps(self) -> int:
        """Steps of the whole job."""
        return round(self.job_steps.quantiles.p50)

    @property
    def step(self) -> RepeatedStep:
        """What `jobs.job.job` needs to know of a step."""
        return RepeatedStep(self.step_seconds, self.forward_seconds, self.global_batch, self.state_bytes)


@dataclass(frozen=True, slots=True)
class ConfigurationCandidate:
    """A configuration to compare: seconds of a step and of all steps, and memory of each device.

    `out_of_memory` is the least chance to run out of memory, exact where it decides whether that is safe.
    `evaluation` is the full prediction, where there is one.
    """

    strategy: str
    micro_batch: int
    micro_batches: int
    devices: int
    seconds: float
    training_seconds: float
    memory_bytes: float
    out_of_memory: float
    evaluation: Evaluation | None = None

    @property
    def global_batch(self) -> int:
        """Samples of a step."""
        return self.micro_batch * self.micro_batches * self.devices

    @property
    def is_safe(self) -> bool:
        """Whether the 90th percentile of its memory fits."""
        return self.out_of_memory <= SAFE

    @property
    def is_plain(self) -> bool:
        """Whether it is plain data parallelism."""
        return self.strategy == DATA_PARALLEL


class Candidates(NamedTuple):
    """Configurations that fit on some machines, the best first, and how many were compared.

    Those predicted in full are listed as far as they were predicted: the others are slower than the best.
    """

    fitting: tuple[ConfigurationCandidate, ...]
    compared: int


@dataclass(frozen=True)
class Configured:
    """The configuration chosen on some machines, and how many were compared.

    Until it is verified, `space` is where it was chosen and `candidate` what it was chosen as; a choice of an
    earlier process has no candidate.
    """

    hardware: Hardware
    configuration: RunConfiguration
    candidate: ConfigurationCandidate | None = None
    space: ConfigurationSpace | None = None
    compared: int = 0

    @property
    def is_verified(self) -> bool:
        """Whether all of the configuration is as `predict` has it."""
        return self.space is None


@dataclass(frozen=True, slots=True)
class NoConfiguration:
    """Why a job cannot run on some machines; with the least memory it needs where that is the reason."""

    reason: str
    needed_bytes: float | None = None
    capacity_bytes: float | None = None
    compared: int = 0


@dataclass(frozen=True, eq=False)
class ConfigurationSpace:
    """The configurations of a job to compare on the machines of its step table.

    `layouts_of` is the workload to search all layouts of in place of sharded configurations, if requested.
    """

    table: StepTable
    length: Length
    limits: BatchLimits
    strategies: tuple[str, ...]
    layouts_of: Workload | None = None
    in_other_precisions: dict[str, ConfigurationSpace] = field(default_factory=dict)

    @cached_property
    def steps_at(self) -> Callable[[int], Steps]:
        """The steps of the job by global batch."""
        return cache(self.length.steps_at)

    @cached_property
    def recomputing(self) -> ConfigurationSpace | None:
        """The same space with activation checkpointing; None where that is not possible or already on."""
        table = self.table
        options = table.workload.options
        if options.checkpoint_activations or options.forward_only:
            return None
        lean_options = replace(options, checkpoint_activations=True)
        workload = fix_precision(replace(table.workload, options=lean_options))
        try:
            lean = step_table(workload, table.cost_model, self.limits, table.machines.values(), table.input)
            # Batches are found out here, because recording them may fail.
            return replace(self, table=lean) if lean.batches else None
        except InvalidRequest:
            return None

    def on(self, device: Device) -> ConfigurationSpace:
        """The same space in the usual precision of a device, where precision was not given."""
        table = on_device(self.table, device)
        if table is self.table:
            return self
        other = replace(self, table=table)
        return self.in_other_precisions.setdefault(table.workload.options.precision, other)

    @cached_property
    def sharding(self) -> ConfigurationSpace:
        """The same space with weights stored as sharded strategies do."""
        return replace(self, table=with_weights_stored(self.table, MixedPrecision.MASTER_WEIGHTS))

    def shares_out(self, hardware: Hardware) -> bool:
        """Whether any batch can be divided evenly over the devices."""
        return any(self.limits.rounds(batch, hardware.devices) for batch in self.table.batches)

    def least_bytes(self, hardware: Hardware) -> float:
        """The least memory the smallest batch needs on each device."""
        stage = max(ZERO_STAGES.values()) if hardware.devices > 1 else 0
        table = self.sharding.table if stage else self.table
        least = table.memory.bytes(table.batches[0], stage, hardware.devices, False, hardware.device)
        return least + self.table.communicator_bytes(hardware)


def configuration_space(
    workload: Workload,
    machines: Iterable[Hardware],
    length: Length,
    limits: BatchLimits,
    strategies: tuple[str, ...],
    model: CostModel,
    input_options: InputOptions,
    search_layouts: bool = False,
) -> ConfigurationSpace:
    """The configurations of a job on any of these machines; steps are priced once for all of them."""
    table = step_table(workload, model, limits, machines, input_options)
    return ConfigurationSpace(table, length, limits, strategies, workload if search_layouts else None)


def best_configuration(
    workload: Workload,
    hardware: Hardware,
    length: Length,
    limits: BatchLimits | None = None,
    strategies: tuple[str, ...] | None = None,
    model: CostModel | str = DEFAULT,
    input_options: InputOptions | None = None,
    search_layouts: bool = False,
) -> RunConfiguration | Infeasible:
    """The verified configuration in which a job on given machines takes the least time.

    Where nothing fits at a given global batch, tensor, pipeline and other layouts are searched.
    """
    strategies = strategies or plan_words()
    limits = (limits or BatchLimits()).up_to(largest_batch(workload, length.epoch_samples))
    prices, samples = resolve_cost_model(model, workload), input_options or InputOptions()
    space = configuration_space(
        workload, (hardware,), length, limits, strategies, prices, samples, search_layouts
    )
    answer = configure(space, hardware)
    if isinstance(answer, Configured):
        return verify(answer).configuration
    if limits.global_batch is not None and may_search_layouts(limits, strategies):
        evaluation = best_layout(workload, prices, hardware, limits.global_batch, samples)
        if evaluation is not None:
            return configuration_of(evaluation, length.steps_at(limits.global_batch))
    return _infeasible(workload, hardware, answer)


def _infeasible(workload: Workload, hardware: Hardware, why: NoConfiguration) -> Infeasible:
    name = workload.source.name
    alternative = "try a smaller batch or sequence, more or larger devices, or another precision"
    if why.needed_bytes is None or why.capacity_bytes is None:
        return Infeasible(name, f"another batch or machine than {hardware.name}", why.reason, alternative)
    needed = f"{format_bytes(why.needed_bytes)} on each device of {hardware.name}"
    return Infeasible(name, needed, f"only {format_bytes(why.capacity_bytes)}", alternative)


def may_search_layouts(limits: BatchLimits, strategies: Iterable[str]) -> bool:
    """Whether a model too large for data parallelism may use other layouts: at one global batch only."""
    is_free = limits.global_batch is not None and limits.micro_batches is None
    return is_free and set(strategies) == set(plan_words())


def configure(space: ConfigurationSpace, hardware: Hardware) -> Configured | NoConfiguration:
    """The best configuration; with activation checkpointing where nothing fits without.

    Raises `MissingData` for a device that does not have the precision.
    """
    space = space.on(hardware.device)
    refuse_precision(hardware.device, space.table.workload.options.precision)
    without = candidates(space, hardware)
    if without.fitting:
        return _choose(space, hardware, without.fitting[0], without.compared)
    lean = space.recomputing
    recomputed = Candidates((), 0) if lean is None else candidates(lean, hardware)
    compared = without.compared + recomputed.compared
    if lean is not None and recomputed.fitting:
        return _choose(lean, hardware, recomputed.fitting[0], compared)
    return replace(why_not(space, hardware), compared=compared)


def _choose(
    space: ConfigurationSpace, hardware: Hardware, best: ConfigurationCandidate, compared: int
) -> Configured:
    return Configured(hardware, _estimate(space, hardware, best), best, space, compared)


def verify(chosen: Configured) -> Configured:
    """The choice with all that `predict` would report of it; the same object if it has that already."""
    candidate, space, hardware = chosen.candidate, chosen.space, chosen.hardware
    if space is None:
        return chosen
    if candidate is None:
        again = configure(space, hardware)
        assert isinstance(again, Configured), "it was chosen before"
        return verify(again)
    if candidate.evaluation is None:
        return Configured(hardware, _with_memory(space, hardware, candidate))
    evaluation, table = candidate.evaluation, space.table
    if space.layouts_of is not None:
        model, batch = table.cost_model, candidate.global_batch
        evaluation = best_layout(space.layouts_of, model, hardware, batch, table.input) or evaluation
    return Configured(hardware, configuration_of(evaluation, space.steps_at(candidate.global_batch)))


def why_not(space: ConfigurationSpace, hardware: Hardware) -> NoConfiguration:
    """Why no configuration fits on some machines."""
    if not space.shares_out(hardware):
        return NoConfiguration("the batch does not divide evenly over the GPUs")
    if hardware.devices == 1 and DATA_PARALLEL not in space.strategies:
        return NoConfiguration("one GPU has no state to shard")
    return NoConfiguration(
        "the model does not fit into GPU memory",
        (space.recomputing or space).least_bytes(hardware),
        capacity_bytes(hardware.device),
    )


def candidates(space: ConfigurationSpace, hardware: Hardware) -> Candidates:
    """The configurations that fit, the best first."""
    plain = list(_plain(space, hardware))
    fitting: list[ConfigurationCandidate] = []
    if DATA_PARALLEL in space.strategies:
        fitting = [each for each in (_fitting(space, hardware, each) for each in plain) if each]
    best = min((each.training_seconds for each in fitting if each.is_safe), default=math.inf)
    faster = [each for each in plain if each.training_seconds < best * (1 - _WORTH_SHARDING)]
    others: list[tuple[ConfigurationCandidate, ConfigurationSpace]] = []
    for strategy in space.strategies if hardware.devices > 1 else ():
        if strategy != DATA_PARALLEL:
            is_sharded = shards_state(layout_of(strategy, hardware.devices, hardware.devices_per_node))
            stored, batches_of = (space.sharding, faster) if is_sharded else (space, plain)
            others += [(_bound(stored, strategy, each, hardware), stored) for each in batches_of]
    fitting += _predicted(others, hardware, fitting, best)
    return Candidates(_rank(fitting), len(plain) + len(others))


def _predicted(
    bounds: Sequence[tuple[ConfigurationCandidate, ConfigurationSpace]],
    hardware: Hardware,
    known: Sequence[ConfigurationCandidate],
    best: float,
) -> list[ConfigurationCandidate]:
    """Configurations predicted in full, by their lower bounds, as long as one may be among the best.

    Whether a step fits takes longer than its time, so it is found out only of those that may be chosen: where
    they are faster than the best so far, and of the others about as fast in the order of preference, up to
    the first that is safe.
    """
    fitting: dict[int, ConfigurationCandidate] = {}
    waiting: dict[int, ConfigurationCandidate] = {}
    ordered = sorted(bounds, key=lambda each: each[0].training_seconds)
    for place, (bound, space) in enumerate(ordered):
        if bound.training_seconds > best * (1 + _EQUAL):
            break
        timed = _timed(space, hardware, bound)
        if timed is None:
            continue
        if timed.training_seconds >= best:
            waiting[place] = timed
        elif (candidate := _if_it_fits(timed)) is not None:
            fitting[place] = candidate
            best = timed.training_seconds if candidate.is_safe else best
    limit = best * (1 + _EQUAL)
    equal = [(-1, each) for each in known if each.is_safe]
    equal += (fitting | waiting).items()
    for place, each in sorted(equal, key=lambda item: (_preference(item[1]), item[0])):
        if each.training_seconds > limit:
            continue
        candidate = _if_it_fits(each) if place in waiting else each
        if candidate is not None:
            fitting |= {place: candidate} if place in waiting else {}
            if candidate.is_safe:
                break
    return [fitting[place] for place in sorted(fitting)]


def _timed(
    space: ConfigurationSpace, hardware: Hardware, bound: ConfigurationCandidate
) -> ConfigurationCandidate | None:
    """The time of a configuration; None where it cannot be laid out or its tensors alone do not fit."""
    if bound.memory_bytes > _NEAR * capacity_bytes(hardware.device):
        return None
    evaluation = _evaluate(space.table, hardware, bound)
    if evaluation is None:
        return None
    steps = space.steps_at(bound.global_batch).quantiles.p50
    return replace(
        bound,
        seconds=evaluation.seconds,
        training_seconds=steps * evaluation.seconds,
        evaluation=evaluation,
    )


def _if_it_fits(timed: ConfigurationCandidate) -> ConfigurationCandidate | None:
    """A configuration with its simulated memory; None if it does not fit."""
    evaluation = timed.evaluation
    assert evaluation is not None, "it was predicted in full"
    if not evaluation.memory.fits:
        return None
    chance = _chance(evaluation.memory, partial(getattr, evaluation, "out_of_memory_probability"))
    return replace(timed, memory_bytes=evaluation.memory.bytes, out_of_memory=chance)


def _plain(space: ConfigurationSpace, hardware: Hardware) -> Iterator[ConfigurationCandidate]:
    """Plain data parallelism at every batch size, whether it fits or not."""
    group = space.table.reduction(hardware)
    for batch in space.table.batches:
        rounds = space.limits.rounds(batch, hardware.devices)
        if not rounds:
            continue
        seconds = space.table.replica(batch, hardware.device).seconds([group], np.array(rounds))[0]
        for micro_batches, computing in zip(rounds, seconds.tolist(), strict=True):
            yield _candidate(space, DATA_PARALLEL, batch, micro_batches, hardware, computing)


def _bound(
    space: ConfigurationSpace, strategy: str, plain: ConfigurationCandidate, hardware: Hardware
) -> ConfigurationCandidate:
    """The same batch with another strategy, whose step takes at least the passes of its micro-batches."""
    step = space.table.replica(plain.micro_batch, hardware.device)
    computing = plain.micro_batches * max(step.body, step.host[0])
    return _candidate(space, strategy, plain.micro_batch, plain.micro_batches, hardware, computing)


def _candidate(
    space: ConfigurationSpace,
    strategy: str,
    batch: int,
    micro_batches: int,
    hardware: Hardware,
    computing: float,
) -> ConfigurationCandidate:
    devices, loading = hardware.devices, space.table.loading(batch, hardware)
    computing *= slowdown(devices, default_jitter(hardware.device))
    waiting = loading.seconds * micro_batches
    seconds = max(computing, waiting) if loading.overlaps else computing + waiting
    steps = space.steps_at(batch * micro_batches * devices).quantiles.p50
    stage = ZERO_STAGES.get(strategy, 0)
    memory = space.table.memory.bytes(batch, stage, devices, micro_batches > 1, hardware.device)
    memory += space.table.communicator_bytes(hardware)
    chance = chance_to_exceed(capacity_bytes(hardware.device), memory)
    return ConfigurationCandidate(
        strategy, batch, micro_batches, devices, seconds, steps * seconds, memory, chance
    )


def _fitting(
    space: ConfigurationSpace, hardware: Hardware, plain: ConfigurationCandidate
) -> ConfigurationCandidate | None:
    """Plain data parallelism if it fits, its memory simulated where the estimate is near the capacity."""
    share = plain.memory_bytes / capacity_bytes(hardware.device)
    if not 1 / _NEAR < share < _NEAR:
        return plain if share <= 1 else None
    simulation = _simulation(space, hardware, plain)
    memory = estimate_memory(*simulation)
    if not memory.fits:
        return None
    chance = _chance(memory, partial(out_of_memory_probability, memory, *simulation))
    return replace(plain, memory_bytes=memory.bytes, out_of_memory=chance)


def _chance(memory: MemoryEstimate, exactly: Callable[[], float]) -> float:
    """The least chance to run out of memory; exact, which takes simulations, only between safe and not."""
    least, most = (
        chance_to_exceed(memory.capacity_bytes, size) for size in (memory.least_bytes, memory.most_bytes)
    )
    return exactly() if least <= SAFE < most else least


def _simulation(
    space: ConfigurationSpace, hardware: Hardware, plain: ConfigurationCandidate
) -> tuple[Graph, Device, MemoryOptions]:
    """What is simulated to find the memory of plain data parallelism, the same on two devices and on more."""
    options = MemoryOptions(
        data_parallel=min(hardware.devices, _SEVERAL),
        keep_gradients=plain.micro_batches > 1,
        communicator_bytes=space.table.communicator_bytes(hardware),
    )
    return space.table.graph(plain.micro_batch), hardware.device, options


def _rank(fitting: Sequence[ConfigurationCandidate]) -> tuple[ConfigurationCandidate, ...]:
    """Safe ones first, by time, but of those about as fast as the fastest the smallest global batch first."""
    if not fitting:
        return ()
    risky = [each for each in fitting if not each.is_safe]
    if 0 < len(risky) < len(fitting):
        return (*_rank([each for each in fitting if each.is_safe]), *_rank(risky))
    limit = min(each.training_seconds for each in fitting) * (1 + _EQUAL)
    equal = [each for each in fitting if each.training_seconds <= limit]
    equal.sort(key=_preference)
    slower = (each for each in fitting if each.training_seconds > limit)
    return (*equal, *sorted(slower, key=lambda each: each.training_seconds))


def _preference(of: ConfigurationCandidate) -> tuple[int, bool, int]:
    """The order of configurations that are about as fast."""
    return of.global_batch, not of.is_plain, -of.micro_batch


def _estimate(
    space: ConfigurationSpace, hardware: Hardware, candidate: ConfigurationCandidate
) -> RunConfiguration:
    """The configuration of a candidate, with the least probability to run out of memory."""
    steps, rounds = space.steps_at(candidate.global_batch), candidate.micro_batches
    if candidate.evaluation is not None:
        return configuration_of(candidate.evaluation, steps, candidate.out_of_memory)
    table, options = space.table, space.table.workload.options
    step = table.replica(candidate.micro_batch, hardware.device)
    loading = table.loading(candidate.micro_batch, hardware).times(rounds)
    jitter = default_jitter(hardware.device)
    return RunConfiguration(
        strategy=candidate.strategy,
        precision=options.precision,
        weights=options.weights,
        batch=candidate.micro_batch * rounds,
        micro_batches=rounds,
        global_batch=candidate.global_batch,
        checkpoint_activations=options.checkpoint_activations,
        job_steps=steps,
        step_seconds=step.estimate(table.reduction(hardware), rounds, loading, jitter).quantiles,
        forward_seconds=step.forward_seconds(rounds),
        memory_bytes=candidate.memory_bytes,
        out_of_memory_probability=candidate.out_of_memory,
        state_bytes=table.state_bytes,
        knowledge=step.step.knowledge,
        knowledge_class=traits_of(step.step.graph, step.step, hardware.device).known,
    )


def _with_memory(
    space: ConfigurationSpace, hardware: Hardware, plain: ConfigurationCandidate
) -> RunConfiguration:
    """Plain data parallelism, whose time is exact, with its memory simulated."""
    simulation = _simulation(space, hardware, plain)
    memory = estimate_memory(*simulation)
    chance = out_of_memory_probability(memory, *simulation)
    return replace(
        _estimate(space, hardware, plain), memory_bytes=memory.bytes, out_of_memory_probability=chance
    )


def _evaluate(table: StepTable, hardware: Hardware, candidate: ConfigurationCandidate) -> Evaluation | None:
    """The full prediction; None if it cannot be laid out or its tensors alone do not fit."""
    from foretrain.prediction.options import Parallelism
    from foretrain.prediction.scenario import StepConfiguration, evaluate, may_fit, step_context

    parallelism = Parallelism(links=hardware.links, network=hardware.network)
    context = step_context(table.workload, hardware, parallelism, table.cost_model, table.input)
    layout = layout_of(candidate.strategy, hardware.devices, hardware.devices_per_node)
    batch = candidate.micro_batch * candidate.micro_batches
    configuration = StepConfiguration(layout, batch, candidate.micro_batches)
    try:
        return evaluate(context, configuration) if may_fit(context, configuration) else None
    except ForetrainError:
        return None


def best_layout(
    workload: Workload, model: CostModel, hardware: Hardware, global_batch: int, input_options: InputOptions
) -> Evaluation | None:
    """The fastest of all layouts (data, tensor, pipeline ...) on some hardware; None if none fits."""
    from foretrain.prediction.options import Parallelism
    from foretrain.prediction.scenario import step_context
    from foretrain.prediction.search.search import search

    parallelism = Parallelism(links=hardware.links, network=hardware.network)
    workload = in_usual_precision(workload, (hardware.device,))
    context = step_context(workload, hardware, parallelism, model, input_options)
    try:
        ranking = search(context, global_batch)
    except ForetrainError:
        return None
    return None if isinstance(ranking, Infeasible) else ranking.best


def configuration_of(evaluation: Evaluation, steps: Steps, chance: float | None = None) -> RunConfiguration:
    """The run configuration of an evaluated step; `chance`, if given, is that to run out of memory."""
    configuration, options = evaluation.configuration, evaluation.context.workload.options
    return RunConfiguration(
        strategy=configuration.layout.name,
        precision=options.precision,
        weights=options.weights,
        batch=configuration.batch,
        micro_batches=configuration.micro_batches,
        global_batch=configuration.global_batch,
        checkpoint_activations=options.checkpoint_activations,
        job_steps=steps,
        step_seconds=evaluation.total.quantiles,
        forward_seconds=evaluation.step.run.phases[Phase.FORWARD],
        memory_bytes=evaluation.memory.bytes,
        out_of_memory_probability=evaluation.out_of_memory_probability if chance is None else chance,
        state_bytes=checkpoint_bytes(evaluation.graph),
        knowledge=evaluation.step.priced.knowledge,
        knowledge_class=evaluation.knowledge_class,
    )
