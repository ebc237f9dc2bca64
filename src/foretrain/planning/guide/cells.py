"""Cells of the buyer's guide: a model, a machine and a global batch; figures, or why there are none.

    batch of a device = global batch / replicas

Where that does not fit into memory it is trained in the fewest equal micro-batches that fit. Times, memory
and verdicts are those of `foretrain predict` for the same request. A machine is CPUs, GPUs or a cloud
instance, which has its own price. Other hardware is priced by the cheapest current offer of as many devices
of its kind in one machine; where there is none it has no price.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from foretrain.errors import InvalidRequest, MissingData
from foretrain.estimates import Quantiles
from foretrain.facts.devices import THIS_MACHINE, Device, devices
from foretrain.facts.hardware import Hardware, hardware
from foretrain.facts.offers import Offer, search
from foretrain.facts.options import OfferQuery
from foretrain.jobs.epochs import Epoch, epoch_in_steps
from foretrain.planning.speedup import (
    TimeAndCost,
    at_hourly_price,
    scaling_efficiency,
    speedup,
    speedup_per_fold_of_cost,
)
from foretrain.prediction.advice.bottleneck import Limit, find_bottleneck
from foretrain.prediction.cost_models import CostModel
from foretrain.prediction.operators.cpu import calibration_of
from foretrain.prediction.operators.pricing import Knowledge
from foretrain.prediction.options import InputOptions, Parallelism
from foretrain.prediction.scenario import (
    Evaluation,
    StepConfiguration,
    StepContext,
    evaluate,
    in_usual_precision,
    step_context,
)
from foretrain.prediction.strategies.strategy import AUTO, Layout, layout_of, words
from foretrain.units import HOUR, format_bytes
from foretrain.workloads.workload import Workload

CPU_BY_DATA_SHEET = "epyc-7742"
"""The default CPU where that of this machine was not measured: its peak and bandwidth are known."""
GPUS = ("rtx4090", "a100-sxm-80gb", "h100-sxm")
"""The default GPUs: three classes of price, all with current offers."""
COUNTS = (1, 2, 4, 8)
MILLION = 1_000_000


@dataclass(frozen=True)
class Machine:
    """A row of the guide. `offer` has its price; None without a current offer.

    `is_bound`: only the data sheet of the device is known, which bounds times from below.
    `one_usd_per_hour` is the price of one such device at the same provider, or its share of the machine.
    """

    hardware: Hardware
    offer: Offer | None
    one_usd_per_hour: float | None
    is_bound: bool = False

    @property
    def name(self) -> str:
        """The name of the hardware."""
        return self.hardware.name

    @property
    def devices(self) -> int:
        """Devices in all its nodes."""
        return self.hardware.devices

    @property
    def is_cpu(self) -> bool:
        """Whether its devices are CPUs."""
        return self.hardware.device.is_cpu

    @property
    def usd_per_hour(self) -> float | None:
        """The hourly price of all its nodes on demand."""
        return None if self.offer is None else self.offer.usd_per_hour * self.hardware.nodes


def default_machines(clouds: tuple[str, ...] = ()) -> tuple[Machine, ...]:
    """A CPU, and 1, 2, 4 and 8 of GPUs of three classes."""
    return machines_named((default_cpu(), *GPUS), COUNTS, clouds)


def default_cpu() -> str:
    """The CPU of this machine if it was measured, else one known by its data sheet."""
    own = devices().find(THIS_MACHINE)
    return own.id if own is not None and _is_measured(own) else CPU_BY_DATA_SHEET


def machines_named(
    names: Sequence[str], counts: Sequence[int] = (), clouds: tuple[str, ...] = ()
) -> tuple[Machine, ...]:
    """The machines of these names, each once; a GPU without a count is taken in each of `counts`."""
    if any(count < 1 for count in counts):
        raise InvalidRequest(f"`counts` of GPUs must be at least 1, got {', '.join(map(str, counts))}")
    written = dict.fromkeys(text for name in names for text in _with_counts(name, counts))
    return tuple(machine_of(hardware(text), clouds) for text in written)


def machine_of(written: Hardware, clouds: tuple[str, ...] = ()) -> Machine:
    """Hardware with its price; `clouds` restricts the offers."""
    is_bound = written.device.is_cpu and not _is_measured(written.device)
    offer = written.offer or _cheapest(written.device, written.devices_per_node, clouds)
    return Machine(written, offer, _price_of_one(written.device, offer), is_bound)


def one_of(machine: Machine) -> Hardware:
    """One device of the kind of a machine."""
    return machine.hardware if machine.devices == 1 else hardware(machine.hardware.device.id)


def _with_counts(name: str, counts: Sequence[int]) -> list[str]:
    known = devices()
    if not counts or name not in known or known[name].is_cpu:
        return [name]
    return [name if count == 1 else f"{name}:{count}" for count in counts]


def _is_measured(device: Device) -> bool:
    try:
        calibration_of(device)
    except MissingData:
        return False
    return True


def _cheapest(device: Device, count: int, clouds: tuple[str, ...]) -> Offer | None:
    if device.is_cpu:
        return None
    offers = search(OfferQuery(gpu=device.id, count=count, cloud=clouds))
    return next((offer for offer in offers if offer.device == device.id), None)


def _price_of_one(device: Device, offer: Offer | None) -> float | None:
    if offer is None:
        return None
    one = None if offer.historical else _cheapest(device, 1, (offer.provider,))
    return offer.usd_per_device_hour if one is None else one.usd_per_hour


class Blank(StrEnum):
    """Why there is no figure."""

    UNEVEN = "does not divide evenly"
    MEMORY = "does not fit"
    UNKNOWN = "unknown"


class NoRun(NamedTuple):
    """A step that is impossible or unknown, and why."""

    blank: Blank
    reason: str


@dataclass(frozen=True, slots=True)
class CellStep:
    """A step of a global batch. Memory is of the fullest device; `moved_bytes` of all messages of a step.

    `coordination_ratio` is the time of communication, overlapped or not, over that of computing.
    """

    step_seconds: Quantiles
    samples_per_second: float
    memory_bytes: float
    capacity_bytes: float
    micro_batches: int
    moved_bytes: float
    coordination_ratio: float
    limit: Limit
    verdict: str
    knowledge: Knowledge
    notes: tuple[str, ...]


@dataclass(frozen=True)
class CellFigures:
    """What a step, an epoch and a million samples take.

    Speed-up, efficiency and Δ (`speedup_per_fold_of_cost`) are against one device of the same kind at the
    same global batch, None where that is unknown. Costs are None without a price, epochs without samples.
    `is_bound`: times are the least the data sheet allows. `choke` names what limits the speed.
    """

    run: CellStep
    is_bound: bool
    choke: str
    epoch: Epoch | None
    usd_per_epoch: Quantiles | None
    usd_per_million_samples: float | None
    speedup: float | None
    efficiency: float | None
    speedup_per_fold_of_cost: float | None

    @property
    def seconds_per_million_samples(self) -> float:
        """The time of the same work on every machine and at every batch."""
        return MILLION / self.run.samples_per_second

    @property
    def time_and_cost(self) -> TimeAndCost | None:
        """Of a million samples; None without a price."""
        usd = self.usd_per_million_samples
        return None if usd is None else TimeAndCost(self.seconds_per_million_samples, usd)


@dataclass(frozen=True, slots=True)
class GuideCell:
    """A machine (by its index in the guide) with a global batch: `figures`, or `blank` with the reason."""

    machine: int
    batch: int
    figures: CellFigures | None
    blank: Blank | None = None
    reason: str = ""


def choke_of(limit: Limit, is_cpu: bool = False) -> str:
    """What limits the speed, in the words of the references: "network choke", "GPU choke"."""
    if limit is Limit.GPU:
        return "CPU choke" if is_cpu else "GPU choke"
    return f"{limit.value} choke"


def cell_of(
    index: int,
    machine: Machine,
    batch: int,
    run: CellStep | NoRun,
    one: CellStep | NoRun,
    samples: int | None,
) -> GuideCell:
    """The cell of a step; `one` is the step of the same global batch on one device of the same kind."""
    if isinstance(run, NoRun):
        return GuideCell(index, batch, None, run.blank, run.reason)
    epoch = None if samples is None else epoch_in_steps(samples, batch, run.step_seconds, run.moved_bytes)
    price = machine.usd_per_hour
    figures = CellFigures(
        run=run,
        is_bound=machine.is_bound,
        choke=choke_of(run.limit, machine.is_cpu),
        epoch=epoch,
        usd_per_epoch=None if epoch is None or price is None else epoch.seconds.scale(price / HOUR),
        usd_per_million_samples=None if price is None else MILLION / run.samples_per_second / HOUR * price,
        speedup=None if isinstance(one, NoRun) else speedup(*_times(one, run)),
        efficiency=None if isinstance(one, NoRun) else scaling_efficiency(*_times(one, run), machine.devices),
        speedup_per_fold_of_cost=None if isinstance(one, NoRun) else _delta(one, run, machine),
    )
    return GuideCell(index, batch, figures)


def _times(one: CellStep, run: CellStep) -> tuple[float, float]:
    return one.step_seconds.p50, run.step_seconds.p50


def _delta(one: CellStep, run: CellStep, machine: Machine) -> float:
    """Δ at the prices of the machine, or with an equal price for each device."""
    whole, single = machine.usd_per_hour, machine.one_usd_per_hour
    if whole is None or single is None:
        whole, single = float(machine.devices), 1.0
    alone, together = _times(one, run)
    return speedup_per_fold_of_cost(at_hourly_price(alone, single), at_hourly_price(together, whole))


def layout_on(strategy: str, hardware: Hardware) -> Layout:
    """The layout that shares the batch over all devices; other strategies raise `InvalidRequest`."""
    if strategy != AUTO:
        layout = layout_of(strategy, hardware.devices, hardware.devices_per_node)
        if _shares_the_batch(layout, hardware):
            return layout
    raise InvalidRequest(
        f"a guide shares the batch over all devices, which `strategy` {strategy} does not: choose one of "
        f"{', '.join(_strategies_on(hardware))}"
    )


def _shares_the_batch(layout: Layout, hardware: Hardware) -> bool:
    return layout.servers is None and layout.replicas == hardware.devices


def _strategies_on(hardware: Hardware) -> Iterator[str]:
    """The strategies of one word that share the batch over all devices."""
    for word in words():
        try:
            layout = layout_of(word, hardware.devices, hardware.devices_per_node)
        except InvalidRequest:
            continue
        if _shares_the_batch(layout, hardware):
            yield word


def runs(
    workload: Workload, hardware: Hardware, strategy: str, batches: Sequence[int], model: CostModel
) -> Iterator[CellStep | NoRun]:
    """A step of each global batch, in the given ascending order: a micro-batch too large stays so."""
    try:
        layout = layout_on(strategy, hardware)
        workload = in_usual_precision(workload, (hardware.device,))
        context = step_context(workload, hardware, Parallelism(strategy=strategy), model, InputOptions())
    except (InvalidRequest, MissingData) as error:
        yield from (NoRun(Blank.UNKNOWN, str(error)) for _ in batches)
        return
    too_large = math.inf
    refused: NoRun | None = None
    for batch in batches:
        if batch % layout.replicas:
            yield _uneven(batch, layout)
            continue
        if refused is None:
            run, too_large = _or_unknown(context, layout, batch // layout.replicas, too_large)
            refused = run if isinstance(run, NoRun) else None
        yield refused or run


def _uneven(batch: int, layout: Layout) -> NoRun:
    near = max(1, round(batch / layout.replicas)) * layout.replicas
    return NoRun(
        Blank.UNEVEN,
        f"a batch of {batch:,} does not divide evenly over {layout.replicas} devices; {near:,} does",
    )


def _or_unknown(
    context: StepContext, layout: Layout, batch: int, too_large: float
) -> tuple[CellStep | NoRun, float]:
    try:
        return _fitting(context, layout, batch, too_large)
    except (InvalidRequest, MissingData) as error:
        return NoRun(Blank.UNKNOWN, str(error)), too_large


def _fitting(
    context: StepContext, layout: Layout, batch: int, too_large: float
) -> tuple[CellStep | NoRun, float]:
    """A step of `batch` on each device in the fewest micro-batches that fit; and the least that does not."""
    for parts in (count for count in range(1, batch + 1) if batch % count == 0):
        if batch // parts >= too_large:
            continue
        evaluation = evaluate(context, StepConfiguration(layout, batch, parts))
        if evaluation.memory.fits:
            return _run(evaluation), too_large
        too_large = batch // parts
    memory = evaluation.memory
    reason = (
        f"a micro-batch of 1 does not fit into {context.environment.device.id}: it needs "
        f"{format_bytes(memory.bytes)} of {format_bytes(memory.capacity_bytes)}"
    )
    return NoRun(Blank.MEMORY, reason), too_large


def _run(evaluation: Evaluation) -> CellStep:
    limit, memory = find_bottleneck(evaluation), evaluation.memory
    return CellStep(
        step_seconds=evaluation.total.quantiles,
        samples_per_second=evaluation.samples_per_second,
        memory_bytes=memory.bytes,
        capacity_bytes=memory.capacity_bytes,
        micro_batches=evaluation.configuration.micro_batches,
        moved_bytes=evaluation.step.moved_bytes,
        coordination_ratio=evaluation.step.coordination_ratio,
        limit=limit.kind,
        verdict=limit.verdict,
        knowledge=evaluation.step.priced.knowledge,
        notes=(*evaluation.context.environment.network.notes, *evaluation.step.notes),
    )
