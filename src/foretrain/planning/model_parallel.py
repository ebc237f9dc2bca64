"""Models too large for data parallelism: search tensor, pipeline and other layouts on the machines.

A search (`prediction.search`) takes seconds, so machines are searched in the order of a lower bound: the job
computing at their peak without any waiting,

    seconds >= FLOP of the job / (devices · peak)        usd >= seconds · price

and a machine whose bound is beaten in both by a plan already found is excluded: up to the rounding of bills
that loses no plan.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cache

from foretrain.errors import MissingData
from foretrain.facts.hardware import Hardware
from foretrain.jobs.batch_limits import small_step
from foretrain.jobs.configurations import (
    ConfigurationSpace,
    Configured,
    NoConfiguration,
    best_layout,
    configuration_of,
)
from foretrain.jobs.device_memory import capacity_bytes
from foretrain.jobs.job import Steps
from foretrain.planning.machines import Machines, Shape
from foretrain.prediction.step.throughput import model_flop, peak
from foretrain.prediction.strategies.mixed_precision import on_devices
from foretrain.units import HOUR
from foretrain.workloads.graph import Graph, state_bytes
from foretrain.workloads.workload import Workload

_MOST_SEARCHED = 12
"""Shapes that are searched at most; the others are excluded."""


@dataclass(frozen=True)
class _Bound:
    """Machines of one shape, and the least time and cost of the job on them, where they are cheapest."""

    hardware: Hardware
    seconds: float
    usd: float

    def is_beaten_by(self, seconds: float, usd: float) -> bool:
        return seconds <= self.seconds and usd <= self.usd


def search_layouts(
    space: ConfigurationSpace,
    machines: Iterable[Machines],
    global_batch: int,
    spot: bool,
    progress: Callable[[str], None],
) -> dict[Shape, Configured | NoConfiguration]:
    """The best layout of each shape, or why it was not searched."""
    table, steps = space.table, space.steps_at(global_batch)
    bounds = _bounds(table.workload, machines, steps, global_batch, spot)
    choices: dict[Shape, Configured | NoConfiguration] = {
        shape: bound for shape, bound in bounds.items() if isinstance(bound, NoConfiguration)
    }
    points: list[tuple[float, float]] = []
    searched = 0
    promising = [(shape, bound) for shape, bound in bounds.items() if isinstance(bound, _Bound)]
    for shape, bound in sorted(promising, key=lambda item: item[1].seconds * item[1].usd):
        if any(bound.is_beaten_by(*point) for point in points):
            choices[shape] = NoConfiguration("another plan is faster and cheaper than these at their peak")
            continue
        if searched == _MOST_SEARCHED:
            choices[shape] = NoConfiguration(
                f"not among the {_MOST_SEARCHED} most promising, which were searched"
            )
            continue
        searched += 1
        progress(f"searching layouts on {bound.hardware.name} ({searched} of at most {_MOST_SEARCHED})")
        evaluation = best_layout(table.workload, table.cost_model, bound.hardware, global_batch, table.input)
        if evaluation is None:
            choices[shape] = NoConfiguration("no layout of the model fits")
            continue
        training = steps.quantiles.p50 * evaluation.seconds
        points.append((training, training * bound.usd / bound.seconds))
        choices[shape] = Configured(bound.hardware, configuration_of(evaluation, steps), is_verified=True)
    return choices


def _bounds(
    workload: Workload, machines: Iterable[Machines], steps: Steps, global_batch: int, spot: bool
) -> dict[Shape, _Bound | NoConfiguration]:
    @cache
    def step_in(precision: str) -> Graph:
        return small_step(replace(workload, options=replace(workload.options, precision=precision)))

    graph = step_in(workload.options.precision)
    flop = model_flop(graph) / graph.samples * global_batch * steps.quantiles.p50
    state = state_bytes(graph)
    best: dict[Shape, _Bound | NoConfiguration] = {}
    for each in machines:
        hardware = each.hardware
        if state / hardware.devices > capacity_bytes(hardware.device):
            best[each.shape] = NoConfiguration("parameters and optimizer state alone do not fit")
            continue
        try:
            step = step_in(on_devices(workload, (hardware.device,)).options.precision)
            seconds = flop / (peak(step, hardware.device) * hardware.devices)
        except MissingData as error:
            best[each.shape] = NoConfiguration(str(error))
            continue
        usd = seconds / HOUR * each.offer.price(spot) * hardware.nodes
        cheapest = best.get(each.shape)
        if not isinstance(cheapest, _Bound) or usd < cheapest.usd:
            best[each.shape] = _Bound(hardware, seconds, usd)
    return best
