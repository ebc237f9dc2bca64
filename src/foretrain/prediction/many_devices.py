"""A prediction for many devices: the layout, its outcome, the verdict and what would change it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from foretrain.errors import Infeasible, InvalidRequest
from foretrain.facts.devices import Device
from foretrain.facts.hardware import Hardware
from foretrain.prediction.advice.counterfactuals import counterfactuals, curve
from foretrain.prediction.advice.scaling_curve import ScalingCurve
from foretrain.prediction.advice.verdict import verdict
from foretrain.prediction.answer import (
    Coverage,
    FamilyBest,
    MemoryAnswer,
    MemoryRemedy,
    Prediction,
    Runner,
    SpreadAnswer,
    StepAnswer,
    memory_parts,
    step_parts,
)
from foretrain.prediction.collectives.network import network_of
from foretrain.prediction.cost_models.step_models import StepModel
from foretrain.prediction.evaluation import Attempt, Outcome, Question, evaluate
from foretrain.prediction.memory.estimate import MemoryEstimate, estimate_memory, memory_options
from foretrain.prediction.memory.fitting import largest_batch
from foretrain.prediction.search.search import Ranking, search
from foretrain.prediction.step.input_pipeline import InputOptions
from foretrain.prediction.step.parallel import Setting
from foretrain.prediction.stragglers import usual_jitter
from foretrain.prediction.strategies.layout import layout_of
from foretrain.prediction.timeline import COMPUTE
from foretrain.workloads.graph import Phase
from foretrain.workloads.workload import Workload, graph_at, graph_of

AUTO, SINGLE_PROCESS = "auto", "dp"
_MOST_SUGGESTED = 4
_MANY_CALLS = 5_000
"""The largest batch of a step with more calls is extrapolated: to walk through each takes about a second."""


@dataclass(frozen=True, slots=True)
class Spreading:
    """How a step is to be spread; what is None is chosen.

    `global_batch` is over all devices, in place of the batch of each; `intra` and `inter` name links in place
    of what is known of the hardware; `jitter` is the coefficient of variation of step times between devices,
    the usual one if None.
    """

    strategy: str = "ddp"
    micro_batches: int | None = None
    global_batch: int | None = None
    intra: str | None = None
    inter: str | None = None
    jitter: float | None = None

    def __post_init__(self) -> None:
        for name in ("micro_batches", "global_batch"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise InvalidRequest(f"{name} must be at least 1, got {value}")
        if self.jitter is not None and not 0 <= self.jitter < 1:
            raise InvalidRequest(f"jitter is a share of the step between 0 and 1, got {self.jitter}")

    def jitter_of(self, device: Device) -> float:
        """How much step times vary between such devices; of devices that one process drives none is known."""
        if self.jitter is not None:
            return self.jitter
        return 0.0 if self.strategy == SINGLE_PROCESS else usual_jitter(device)

    @property
    def is_plain(self) -> bool:
        """Whether nothing was asked that concerns more than one device."""
        return self == Spreading(self.strategy) and self.strategy in ("ddp", "dp", "auto")


def question_of(
    workload: Workload, hardware: Hardware, spreading: Spreading, model: StepModel, samples: InputOptions
) -> Question:
    """What is asked about a workload on hardware."""
    network = network_of(hardware, spreading.intra or hardware.links, spreading.inter or hardware.network)
    setting = Setting(hardware.device, network, model)
    return Question(workload, hardware, setting, samples, spreading.jitter_of(hardware.device))


def predict_spread(question: Question, spreading: Spreading, with_advice: bool) -> Prediction:
    """The prediction of a workload spread over devices."""
    ranking: Ranking | None = None
    if spreading.strategy == AUTO:
        found = search(question, _global_batch(question, spreading))
        if isinstance(found, Infeasible):
            raise InvalidRequest(str(found))
        ranking, outcome = found, found.best
    else:
        outcome = evaluate(question, attempt_of(question, spreading))
    return _answer(outcome, spreading, ranking, with_advice)


def _global_batch(question: Question, spreading: Spreading) -> int:
    return spreading.global_batch or own_batch(question.workload) * question.hardware.devices


def own_batch(workload: Workload) -> int:
    """The batch asked for, or that of the model's own example."""
    return workload.sizes.batch or graph_of(workload).batch


def attempt_of(question: Question, spreading: Spreading) -> Attempt:
    """The layout a strategy stands for, with the batch of each replica and its micro-batches."""
    hardware = question.hardware
    layout = layout_of(spreading.strategy, hardware.devices, hardware.devices_per_node)
    if spreading.global_batch is None:
        batch = own_batch(question.workload)
    else:
        batch, left = divmod(spreading.global_batch, layout.replicas)
        if left or not batch:
            near = max(1, round(spreading.global_batch / layout.replicas)) * layout.replicas
            raise InvalidRequest(
                f"a global batch of {spreading.global_batch} does not share out over {layout.replicas} "
                f"replicas; {near} would"
            )
    if spreading.micro_batches is not None:
        return Attempt(layout, batch, spreading.micro_batches)
    if layout.pipeline == 1:
        return Attempt(layout, batch)
    return _best_split(question, Attempt(layout, batch))


def _best_split(question: Question, whole: Attempt) -> Attempt:
    """The micro-batches that make a pipeline fastest within memory: all powers of two are tried."""
    layout, batch = whole.layout, whole.batch
    sizes = [1 << power for power in range(batch.bit_length()) if batch % (1 << power) == 0]
    tried = [
        evaluate(question, Attempt(layout, batch, batch // size))
        for size in sizes
        if layout.chunks == 1 or (batch // size) % layout.pipeline == 0
    ]
    if not tried:
        return whole
    fitting = [outcome for outcome in tried if outcome.memory.fits] or tried
    return min(fitting, key=lambda outcome: outcome.seconds).attempt


def _answer(outcome: Outcome, spreading: Spreading, ranking: Ranking | None, with_advice: bool) -> Prediction:
    question, spread, attempt = outcome.question, outcome.spread, outcome.attempt
    is_batch_fixed = spreading.global_batch is not None
    advice = counterfactuals(outcome, is_batch_fixed) if with_advice and outcome.memory.fits else ()
    found_curve = curve(outcome, is_batch_fixed) if with_advice else None
    memory = _memory(outcome, with_advice)
    notes = [*question.setting.network.notes, *spread.notes]
    if spread.priced.basis:
        notes.append(f"corrected by {spread.priced.basis}")
    return Prediction(
        workload=question.workload,
        hardware=question.hardware,
        strategy=attempt.layout.name,
        graph=outcome.graph,
        batch=attempt.batch,
        memory=memory,
        step=step_answer(outcome),
        throughput=outcome.throughput,
        knowledge=spread.priced.knowledge,
        bottleneck=verdict(outcome, advice, found_curve),
        coverage=Coverage(spread.modelled_share, spread.unmodelled),
        sources=tuple(dict.fromkeys((*outcome.total.sources, memory.source))),
        notes=tuple(dict.fromkeys(notes)),
        spread=_spread_answer(outcome, ranking, found_curve),
        timeline=spread.run.timeline,
    )


def step_answer(outcome: Outcome) -> StepAnswer:
    """The time of a step, as it is answered."""
    run, total = outcome.spread.run, outcome.total
    return StepAnswer(
        seconds=total.quantiles,
        forward_seconds=run.phases[Phase.FORWARD],
        backward_seconds=run.phases[Phase.BACKWARD],
        optimizer_seconds=run.phases[Phase.OPTIMIZER],
        input_seconds=outcome.input.seconds,
        communication_seconds=outcome.spread.communication_seconds,
        exposed_communication_seconds=run.exposed_seconds,
        waiting_for_launches_seconds=run.waiting_seconds,
        parts=step_parts(total.visible),
        hidden_parts=step_parts(total.hidden),
    )


def _memory(outcome: Outcome, with_advice: bool) -> MemoryAnswer:
    memory = outcome.memory
    remedies: tuple[MemoryRemedy, ...] = ()
    if with_advice and not memory.fits:
        remedies = tuple(_what_fits(outcome))
    return MemoryAnswer(
        bytes=memory.estimate.quantiles,
        capacity_bytes=memory.capacity_bytes,
        fits=memory.fits,
        parts=memory_parts(memory),
        source=", ".join(memory.estimate.sources),
        largest_batch=_largest_batch(outcome),
        advice=remedies,
    )


def _largest_batch(outcome: Outcome) -> int:
    """The largest batch of a replica that fits, trained in as many micro-batches."""
    attempt, question = outcome.attempt, outcome.question
    layout = attempt.layout
    if layout.tensor * layout.context * layout.expert * layout.pipeline > 1:
        larger = evaluate(question, replace(attempt, batch=4 * attempt.batch)).memory
        return _extrapolated(outcome, larger) * attempt.micro_batches
    options = memory_options(outcome.spread.run.stages[0], 1.0, layout)
    device = question.setting.device

    def memory_at(size: int) -> MemoryEstimate:
        return estimate_memory(graph_at(question.workload, size), device, options)

    if len(outcome.graph.calls) > _MANY_CALLS:
        found = _extrapolated(outcome, memory_at(4 * attempt.micro_batch))
        return (found + memory_at(found + 1).fits) * attempt.micro_batches  # a full device fragments less
    return (
        largest_batch(lambda size: graph_at(question.workload, size), device, options) * attempt.micro_batches
    )


def _extrapolated(outcome: Outcome, larger: MemoryEstimate) -> int:
    """The largest micro-batch that fits, from what four times as large a one needs: memory grows evenly."""
    attempt, memory = outcome.attempt, outcome.memory
    per_sample = (larger.bytes - memory.bytes) / (3 * attempt.micro_batch)
    if per_sample <= 0:
        return attempt.micro_batch if memory.fits else 0
    return max(0, attempt.micro_batch + math.floor((memory.capacity_bytes - memory.bytes) / per_sample))


def _what_fits(outcome: Outcome) -> Iterator[MemoryRemedy]:
    """Layouts of the same devices and global batch that do fit, the fastest first."""
    found = search(outcome.question, outcome.attempt.global_batch)
    if isinstance(found, Infeasible):
        yield MemoryRemedy(str(found), outcome.memory.bytes, fits=False)
        return
    for other in found.outcomes[:_MOST_SUGGESTED]:
        yield MemoryRemedy(_named(other), other.memory.bytes, fits=True)


def _named(outcome: Outcome) -> str:
    said = f"--strategy {outcome.attempt.layout.name} --micro-batches {outcome.attempt.micro_batches}"
    if outcome.question.workload.options.checkpoint_activations:
        said += " --checkpoint-activations"
    return said


def _spread_answer(outcome: Outcome, ranking: Ranking | None, scaling: ScalingCurve | None) -> SpreadAnswer:
    spread, attempt = outcome.spread, outcome.attempt
    network = outcome.question.setting.network
    tiers = {"inside a node": network.intra, "between nodes": network.inter}
    return SpreadAnswer(
        strategy=attempt.layout.name,
        degrees={axis.value: degree for axis, degree in attempt.layout.degrees.items()},
        replicas=attempt.layout.replicas,
        global_batch=attempt.global_batch,
        update_batch=outcome.update_batch,
        micro_batches=attempt.micro_batches,
        network={where: tier.name for where, tier in tiers.items() if tier is not None},
        coordination_ratio=spread.coordination_ratio,
        moved_bytes=spread.moved_bytes,
        bubble_seconds=spread.run.bubble_seconds,
        utilisation=_utilisation(outcome),
        exchanges=spread.traffic,
        stages=spread.run.stage_names,
        fullest_stage=outcome.fullest[0],
        staleness=spread.staleness,
        scaling=scaling,
        searched=len(ranking.candidates) if ranking else 0,
        fitting=ranking.fitting if ranking else 0,
        runners_up=tuple(_runners_up(ranking)) if ranking else (),
        families=tuple(_families(ranking)) if ranking else (),
    )


def _utilisation(outcome: Outcome) -> dict[str, float]:
    """The share of the step that each kind of stream works, on the busiest device."""
    run = outcome.spread.run
    found = {COMPUTE: run.computing_seconds / outcome.seconds}
    found["exchange"] = min(1.0, outcome.spread.communication_seconds / outcome.seconds)
    return found


def _families(ranking: Ranking) -> Iterator[FamilyBest]:
    found = ranking.best_with
    quickest = min((each.sketch.seconds for each in found.values()), default=1.0)
    for family, candidate in sorted(found.items(), key=lambda item: item[1].sketch.seconds):
        yield FamilyBest(family, candidate.name, candidate.sketch.seconds / quickest)


def _runners_up(ranking: Ranking) -> Iterator[Runner]:
    for other in ranking.outcomes[1:]:
        yield Runner(
            strategy=_named(other),
            micro_batch=other.attempt.micro_batch,
            step_seconds=other.seconds,
            memory_bytes=other.memory.bytes,
            slower=other.seconds / ranking.best.seconds,
        )
