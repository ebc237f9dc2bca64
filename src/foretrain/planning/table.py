"""Evaluate and verify: the plan table, one row for every machine that can run the job.

Machines of one shape take the same time, so configurations and times are computed once for a shape; bill and
emissions differ from offer to offer. `evaluate` predicts all rows; `verify` adds what is only reported.

Models too large for data parallelism: search tensor, pipeline and other layouts on the machines.

A search (`prediction.search`) takes seconds, so machines are searched in the order of a lower bound: the job
computing at their peak without any waiting,

    seconds >= FLOP of the job / (devices · peak)        usd >= seconds · price

and a machine whose bound is beaten in both by a plan already found is excluded: up to the rounding of bills
that loses no plan.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from foretrain.encoding import encode
from foretrain.errors import InvalidRequest, MissingData
from foretrain.estimates import Quantiles
from foretrain.facts.hardware import Hardware
from foretrain.jobs.batch_limits import capacity_bytes, small_step
from foretrain.jobs.bill import Energy, Price, energy_of, price_of_offer
from foretrain.jobs.configurations import (
    ConfigurationSpace,
    Configured,
    NoConfiguration,
    RunConfiguration,
    best_layout,
    configuration_of,
    configure,
)
from foretrain.jobs.configurations import verify as verify_configuration
from foretrain.jobs.job import Job, JobTime, Steps, bill_job, evaluate_each_epoch, job_time
from foretrain.jobs.length import KnownLength
from foretrain.jobs.options import JobOptions
from foretrain.persisted import Malformed, restore
from foretrain.planning.frontier import SEVERAL, Plan
from foretrain.planning.machines import Excluded, Machines, Shape
from foretrain.prediction.kept import keep_result, kept_file, read_result
from foretrain.prediction.scenario import in_usual_precision, model_flop, peak_of
from foretrain.prediction.search.search import step_content
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
        choices[shape] = Configured(bound.hardware, configuration_of(evaluation, steps))
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
            step = step_in(in_usual_precision(workload, (hardware.device,)).options.precision)
            seconds = flop / (peak_of(step, hardware.device) * hardware.devices)
        except MissingData as error:
            best[each.shape] = NoConfiguration(str(error))
            continue
        usd = seconds / HOUR * each.offer.price(spot) * hardware.nodes
        cheapest = best.get(each.shape)
        if not isinstance(cheapest, _Bound) or usd < cheapest.usd:
            best[each.shape] = _Bound(hardware, seconds, usd)
    return best


Choices = Mapping[Shape, Configured | NoConfiguration]


class ChoicesByShape:
    """The choices of a plan, kept on disk: they depend on neither limits nor prices.

    A plan of the same job on the same machines finds them there, verified where they were verified before.
    """

    def __init__(self, space: ConfigurationSpace, machines: Sequence[Machines]) -> None:
        self.space = space
        self.shapes = {each.shape: each.hardware for each in machines}
        self._file = _kept_file(space, self.shapes)
        kept = None if self._file is None else read_result(self._file)
        kept = kept if isinstance(kept, dict) else {}
        self._kept = {kind: kept[kind] if isinstance(kept.get(kind), dict) else {} for kind in _KINDS}
        self._is_new = False

    def choose(self, shape: Shape) -> Configured | NoConfiguration:
        """The configuration chosen on machines of a shape."""
        kept = self._kept[_CHOSEN].get(_name(shape))
        if kept is not None:
            with suppress(Malformed, KeyError, TypeError):
                return self._restore(shape, kept)
        try:
            choice = configure(self.space, self.shapes[shape])
        except MissingData as error:  # e.g. the device does not have the precision
            choice = NoConfiguration(str(error))
        self._add(_CHOSEN, shape, choice)
        return choice

    def verify(self, shape: Shape, chosen: Configured) -> Configured:
        """A choice with all that `predict` would report of it."""
        kept = self._kept[_VERIFIED].get(_name(shape))
        if kept is not None:
            with suppress(Malformed, KeyError, TypeError):
                return Configured(chosen.hardware, self._configuration(kept))
        verified = verify_configuration(chosen)
        self._add(_VERIFIED, shape, verified)
        return verified

    def keep(self) -> None:
        """Write what was added."""
        if self._is_new and self._file is not None:
            keep_result(self._file, self._kept)
        self._is_new = False

    def _restore(self, shape: Shape, plain: Any) -> Configured | NoConfiguration:
        if "reason" in plain:
            return restore(NoConfiguration, plain)
        return Configured(
            self.shapes[shape], self._configuration(plain), space=self.space, compared=plain["compared"]
        )

    def _configuration(self, plain: Any) -> RunConfiguration:
        restored = restore(RunConfiguration, plain["configuration"])
        return replace(restored, job_steps=self.space.steps_at(restored.global_batch))

    def _add(self, kind: str, shape: Shape, choice: Configured | NoConfiguration) -> None:
        plain: Any = choice
        if isinstance(choice, Configured):
            plain = {"configuration": choice.configuration, "compared": choice.compared}
        self._kept[kind][_name(shape)] = encode(plain)
        self._is_new = True


_CHOSEN, _VERIFIED = _KINDS = ("chosen", "verified")


def _name(shape: Shape) -> str:
    return f"{shape.device} {shape.devices_per_node} {shape.nodes} {shape.node}"


def _kept_file(space: ConfigurationSpace, shapes: Mapping[Shape, Hardware]) -> Path | None:
    """Where the choices are kept; None where what they depend on cannot be written down."""
    table = space.table
    content = step_content(table.workload, table.cost_model)
    if content is None or not isinstance(space.length, KnownLength):
        return None
    devices = {hardware.device.id: hardware.device for hardware in shapes.values()}
    nodes = {hardware.node.id: hardware.node for hardware in shapes.values() if hardware.node is not None}
    joined = [(shape, hardware.links, hardware.network) for shape, hardware in shapes.items()]
    of_job = (table.input, space.limits, space.strategies, space.length, space.layouts_of is not None)
    return kept_file("plans", content, joined, devices, nodes, *of_job)


@dataclass(frozen=True, slots=True)
class JobConditions:
    """How the job is run, and the samples of its epochs: what turns a configuration into a job."""

    options: JobOptions
    epoch_samples: int | None

    def time(self, chosen: Configured) -> JobTime:
        """The time of the job in a configuration; `InvalidRequest` where it never ends."""
        configuration, hardware = chosen.configuration, chosen.hardware
        options = evaluate_each_epoch(self.options, self.epoch_samples, configuration.global_batch)
        return job_time(
            configuration.step, configuration.job_steps, hardware.devices, hardware.nodes, options
        )


@dataclass(frozen=True)
class Row:
    """Machines, the configuration chosen on them, and what the whole job takes there."""

    machines: Machines
    chosen: Configured
    time: JobTime
    price: Price
    usd: Quantiles
    energy: Energy | None

    @property
    def job(self) -> Job:
        """The job with its parts, bill and energy."""
        return bill_job(self.time, (self.machines.hardware,), self.price, self.energy, self.price.spot)

    def plan(self, in_time: float, in_budget: float, both: float) -> Plan:
        """The plan of these machines, with its probabilities to meet the limits."""
        energy = self.energy
        return Plan(
            hardware=self.machines.hardware,
            offer=self.machines.offer,
            spot=self.price.spot,
            configuration=self.chosen.configuration,
            seconds=self.time.seconds,
            usd=self.usd,
            kwh=None if energy is None else energy.kwh.p50,
            co2_kg=None if energy is None or energy.co2_kg is None else energy.co2_kg.p50,
            in_time=in_time,
            in_budget=in_budget,
            both=both,
        )


@dataclass(frozen=True)
class PlanTable:
    """All machines that can run the job, those that cannot, and how many combinations were compared."""

    rows: tuple[Row, ...]
    excluded: tuple[Excluded, ...]
    considered: int


def evaluate(
    chosen: ChoicesByShape,
    machines: Sequence[Machines],
    conditions: JobConditions,
    progress: Callable[[str], None],
) -> PlanTable:
    """The job on all machines, in the best configuration of each."""
    choices: dict[Shape, Configured | NoConfiguration] = {}
    for number, (shape, hardware) in enumerate(chosen.shapes.items(), start=1):
        progress(f"pricing {hardware.device.id} ({number} of {len(chosen.shapes)})")
        choices[shape] = chosen.choose(shape)
    return plan_table(machines, choices, conditions)


def plan_table(machines: Sequence[Machines], choices: Choices, conditions: JobConditions) -> PlanTable:
    """The table of machines with the configuration chosen for each shape."""
    times = {shape: _time(choice, conditions) for shape, choice in choices.items()}
    built = [_row(each, choices[each.shape], times[each.shape], conditions.options.spot) for each in machines]
    return PlanTable(
        rows=tuple(each for each in built if isinstance(each, Row)),
        excluded=tuple(each for each in built if isinstance(each, Excluded)),
        considered=sum(choice.compared for choice in choices.values()),
    )


def verify(
    table: PlanTable, indices: Collection[int], conditions: JobConditions, chosen: ChoicesByShape
) -> PlanTable:
    """The table with these rows verified; the same object if they all are."""
    unverified = {
        table.rows[index].machines.shape: table.rows[index].chosen
        for index in indices
        if not table.rows[index].chosen.is_verified
    }
    if not unverified:
        return table
    verified = {shape: chosen.verify(shape, choice) for shape, choice in unverified.items()}
    again = [row.machines for row in table.rows if row.machines.shape in verified]
    changed = plan_table(again, verified, conditions)
    by_name = {row.machines.hardware.name: row for row in changed.rows}
    kept = (
        by_name.get(row.machines.hardware.name) if row.machines.shape in verified else row
        for row in table.rows
    )
    return replace(
        table,
        rows=tuple(row for row in kept if row is not None),
        excluded=(*table.excluded, *changed.excluded),
        considered=table.considered + changed.considered,
    )


def _time(choice: Configured | NoConfiguration, conditions: JobConditions) -> JobTime | NoConfiguration:
    if isinstance(choice, NoConfiguration):
        return choice
    try:
        return conditions.time(choice)
    except InvalidRequest as error:  # interruptions never let the job end
        return NoConfiguration(str(error))


def _row(
    machines: Machines,
    chosen: Configured | NoConfiguration,
    time: JobTime | NoConfiguration,
    spot: bool,
) -> Row | Excluded:
    hardware, offer = machines.hardware, machines.offer
    if isinstance(time, NoConfiguration):
        return Excluded(
            f"{hardware.nodes}{SEVERAL}{offer.provider}:{offer.instance}",
            time.reason,
            time.needed_bytes,
            time.capacity_bytes,
        )
    assert isinstance(chosen, Configured), "only a configuration has a time"
    price = price_of_offer(offer, hardware.nodes, spot)
    energy = energy_of(hardware, time.seconds, offer.provider, offer.region, stated=False)
    return Row(machines, chosen, time, price, price.bill(time.seconds), energy)
