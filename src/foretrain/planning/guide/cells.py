"""A cell of the buyer's guide: a model, a machine, a global batch; figures, or why there are none."""

from __future__ import annotations

from dataclasses import dataclass

from foretrain.estimates import Quantiles
from foretrain.jobs.epoch import Epoch, epoch_in_steps
from foretrain.planning.guide.machines import Machine
from foretrain.planning.guide.runs import Blank, NoRun, Run
from foretrain.planning.speedup import (
    TimeAndCost,
    at_hourly_price,
    scaling_efficiency,
    speedup,
    speedup_per_fold_of_cost,
)
from foretrain.prediction.advice.bottleneck import Limit
from foretrain.units import HOUR

MILLION = 1_000_000


@dataclass(frozen=True)
class Figures:
    """What a step, an epoch and a million samples take.

    Speed-up, efficiency and Δ (`speedup_per_fold_of_cost`) are against one device of the same kind at the
    same global batch, None where that cannot be told. Costs are None without a price, epochs without samples.
    `is_bound`: times are the least the data sheet allows. `choke` says in a word or two what sets the pace.
    """

    run: Run
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
        """The time of as much work on every machine and at every batch."""
        return MILLION / self.run.samples_per_second

    @property
    def time_and_cost(self) -> TimeAndCost | None:
        """Of a million samples; None without a price."""
        usd = self.usd_per_million_samples
        return None if usd is None else TimeAndCost(self.seconds_per_million_samples, usd)


@dataclass(frozen=True, slots=True)
class Cell:
    """A machine (by its place in the guide) with a global batch: `figures`, or `blank` with the reason."""

    machine: int
    batch: int
    figures: Figures | None
    blank: Blank | None = None
    reason: str = ""


def choke_of(limit: Limit, is_cpu: bool = False) -> str:
    """What sets the pace, as the seeds say it: "network choke", "GPU choke"."""
    if limit is Limit.GPU:
        return "CPU choke" if is_cpu else "GPU choke"
    return f"{limit.value} choke"


def cell_of(
    place: int, machine: Machine, batch: int, run: Run | NoRun, one: Run | NoRun, samples: int | None
) -> Cell:
    """The cell of a step; `one` is the step of the same global batch on one device of the kind."""
    if isinstance(run, NoRun):
        return Cell(place, batch, None, run.blank, run.reason)
    epoch = None if samples is None else epoch_in_steps(samples, batch, run.step_seconds, run.moved_bytes)
    price = machine.usd_per_hour
    figures = Figures(
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
    return Cell(place, batch, figures)


def _times(one: Run, run: Run) -> tuple[float, float]:
    return one.step_seconds.p50, run.step_seconds.p50


def _delta(one: Run, run: Run, machine: Machine) -> float:
    """Δ at the machine's prices, or as if each device cost the same."""
    whole, single = machine.usd_per_hour, machine.one_usd_per_hour
    if whole is None or single is None:
        whole, single = float(machine.devices), 1.0
    alone, together = _times(one, run)
    return speedup_per_fold_of_cost(at_hourly_price(alone, single), at_hourly_price(together, whole))
