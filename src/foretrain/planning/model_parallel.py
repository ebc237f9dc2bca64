"""Models too large for data parallelism: machines on which tensor, pipeline and other layouts are searched.

A search (`prediction.searching`) takes seconds, so machines are taken in the order of what they could be at
best, computing at their peak with nothing to wait for,

    seconds >= FLOP of the job / (devices · peak)        usd >= seconds · price

and those that even so would be beaten in both by a plan already found are left out: no plan is lost by that,
but for the rounding of bills.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from foretrain.errors import ForetrainError, Infeasible, MissingData
from foretrain.facts.hardware import Hardware
from foretrain.jobs.device_memory import capacity_bytes
from foretrain.jobs.job import Steps
from foretrain.jobs.length import Length
from foretrain.jobs.smallest_step import small_step
from foretrain.planning.frontier import Way
from foretrain.planning.machines import Machines, Reasons, Shape
from foretrain.prediction.cost_models.step_models import CostModel
from foretrain.prediction.step.input_pipeline import InputOptions
from foretrain.prediction.step.throughput import model_flop, peak
from foretrain.units import HOUR
from foretrain.workloads.graph import Phase, state_bytes
from foretrain.workloads.workload import Workload

if TYPE_CHECKING:
    from foretrain.prediction.evaluation import Evaluation

_MOST_SEARCHED = 12
"""Shapes that are searched; the others are named as left out."""


@dataclass(frozen=True)
class Divided:
    """The best layout on some machines."""

    hardware: Hardware
    way: Way
    forward_seconds: float
    steps: Steps
    is_settled: bool = True

    def settle(self) -> bool:
        """It was predicted in full already."""
        return True


@dataclass(frozen=True)
class _Bound:
    """Machines of one shape, and the least they could take: time, and money where they are cheapest."""

    shape: Shape
    hardware: Hardware
    seconds: float
    usd: float

    def is_beaten_by(self, seconds: float, usd: float) -> bool:
        return seconds <= self.seconds and usd <= self.usd


def divided(
    workload: Workload,
    model: CostModel,
    length: Length,
    global_batch: int,
    found: Iterable[Machines],
    samples_from: InputOptions,
    spot: bool,
    left_out: Reasons,
    progress: Callable[[str], None],
) -> Iterator[tuple[Shape, Divided]]:
    """The best layouts, shape by shape, as far as they matter."""
    steps = length.steps_at(global_batch)
    known: list[tuple[float, float]] = []
    bounds = _bounds(workload, found, steps, global_batch, spot, left_out)
    searched = 0
    for bound in sorted(bounds, key=lambda each: each.seconds * each.usd):
        if any(bound.is_beaten_by(*point) for point in known):
            left_out.add("even at their peak another plan is faster and cheaper", bound.hardware.name)
            continue
        if searched == _MOST_SEARCHED:
            left_out.add(
                f"not among the {_MOST_SEARCHED} most promising, which were searched", bound.hardware.name
            )
            continue
        searched += 1
        progress(f"searching layouts on {bound.hardware.name} ({searched} of at most {_MOST_SEARCHED})")
        evaluation = best_layout(workload, model, bound.hardware, global_batch, samples_from)
        if evaluation is None:
            left_out.add("no layout of the model fits", bound.hardware.name)
            continue
        forward = evaluation.step.run.phases[Phase.FORWARD]
        training = steps.quantiles.p50 * evaluation.seconds
        known.append((training, training * bound.usd / bound.seconds))
        yield bound.shape, Divided(bound.hardware, way_of(evaluation, steps), forward, steps)


def _bounds(
    workload: Workload,
    found: Iterable[Machines],
    steps: Steps,
    global_batch: int,
    spot: bool,
    left_out: Reasons,
) -> list[_Bound]:
    graph = small_step(workload)
    flop = model_flop(graph) / graph.samples * global_batch * steps.quantiles.p50
    state = state_bytes(graph)
    best: dict[Shape, _Bound] = {}
    for each in found:
        hardware = each.hardware
        if state / hardware.devices > capacity_bytes(hardware.device):
            left_out.add("parameters and optimizer state alone do not fit", hardware.name)
            continue
        try:
            seconds = flop / (peak(graph, hardware.device) * hardware.devices)
        except MissingData as error:
            left_out.add(str(error), hardware.name)
            continue
        bound = _Bound(
            each.shape, hardware, seconds, seconds / HOUR * each.offer.price(spot) * hardware.nodes
        )
        if each.shape not in best or bound.usd < best[each.shape].usd:
            best[each.shape] = bound
    return list(best.values())


def best_layout(
    workload: Workload,
    model: CostModel,
    hardware: Hardware,
    global_batch: int,
    samples_from: InputOptions,
) -> Evaluation | None:
    """The fastest of all layouts on some hardware; None if none fits."""
    from foretrain.prediction.scenario import Parallelism, step_context
    from foretrain.prediction.search.search import search

    parallelism = Parallelism(links=hardware.links, network=hardware.network)
    context = step_context(workload, hardware, parallelism, model, samples_from)
    try:
        found = search(context, global_batch)
    except ForetrainError:
        return None
    return None if isinstance(found, Infeasible) else found.best


def way_of(evaluation: Evaluation, steps: Steps) -> Way:
    """How a job is run, from what became of an attempt."""
    configuration = evaluation.configuration
    return Way(
        strategy=configuration.layout.name,
        batch=configuration.batch,
        micro_batches=configuration.micro_batches,
        global_batch=configuration.global_batch,
        checkpoint_activations=evaluation.context.workload.options.checkpoint_activations,
        steps=round(steps.quantiles.p50),
        step_seconds=evaluation.total.quantiles,
        memory_bytes=evaluation.memory.bytes,
        knowledge=evaluation.step.priced.knowledge,
    )
