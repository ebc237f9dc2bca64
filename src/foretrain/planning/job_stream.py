"""Rent or buy for a stream of jobs: a number per year, each as long as predicted.

With J jobs per year of h hours each on rented machines, and p the work of a rented hour over an owned one,

    hours owned = J · h · p        sets = ⌈hours owned / hours of a year⌉

where a set is all the machines one job runs on; `rent_or_buy` then answers for one set, used for its share of
the hours. Sets are counted by busy hours alone: jobs that arrive together wait for each other, unless more
sets are bought.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from foretrain.errors import InvalidRequest, MissingData
from foretrain.estimates import Quantiles
from foretrain.facts.hardware import Hardware
from foretrain.facts.running import POWER, default
from foretrain.planning.rent_or_buy import (
    HOURS_PER_CALENDAR_YEAR,
    RentOrBuy,
    RentOrBuyTerms,
    rent_or_buy,
)
from foretrain.units import HOUR

LIST_PRICE = "list_price_usd"


@dataclass(frozen=True, slots=True)
class JobStreamRequest:
    """Jobs per year on machines that are rented now.

    `rent_usd_per_hour` and `price_usd` are for all machines of `hardware`, which one job uses; without a
    price, that of the devices alone counts. Without `usd_per_kwh` electricity is not counted.
    """

    hardware: Hardware
    job_seconds: Quantiles
    jobs_per_year: float
    rent_usd_per_hour: float
    price_usd: float | None = None
    relative_performance: float = 1.0
    usd_per_kwh: float | None = None
    pue: float = 1.0
    hosting_usd_per_year: float = 0.0
    resale_usd: float = 0.0
    resale_after_years: float = 0.0
    discount_rate: float = 0.0

    def __post_init__(self) -> None:
        if not (math.isfinite(self.jobs_per_year) and self.jobs_per_year > 0):
            raise InvalidRequest(f"`jobs_per_year` must be finite and above 0, got {self.jobs_per_year:g}")
        if not (self.job_seconds.p10 > 0 and math.isfinite(self.job_seconds.p90)):
            raise InvalidRequest(
                f"the time of a job must be finite and above 0, got {self.job_seconds.p50:g} s"
            )


@dataclass(frozen=True, slots=True)
class JobStream:
    """The answer. `break_even_years` are infinite (null in JSON) where owning never pays for itself.

    `hours_per_year` is how long the jobs of a year take on owned machines, in all; `by_set` answers for one
    of the `sets`. The intervals are those of a job's time alone.
    """

    hours_per_year: Quantiles
    sets: int
    machines: int
    utilisation: float
    rent_usd_per_year: Quantiles
    price_usd: float
    """Of one set."""
    price_source: str
    devices_only: bool
    """Whether the price is that of the devices without their machines."""
    watts: float
    """Drawn by one set, where electricity counts."""
    break_even_years: Quantiles
    break_even_jobs: float | None
    by_set: RentOrBuy
    verdict: str
    notes: tuple[str, ...]


def rent_or_buy_for_jobs(request: JobStreamRequest) -> JobStream:
    """Whether to rent or to buy for this stream of jobs."""
    hours = request.job_seconds.scale(request.jobs_per_year * request.relative_performance / HOUR)
    sets = math.ceil(hours.p50 / HOURS_PER_CALENDAR_YEAR)
    price, price_source = _price(request)
    watts = 0.0 if request.usd_per_kwh is None else _watts(request.hardware)
    one = RentOrBuyTerms(
        price_usd=price,
        rent_usd_per_hour=request.rent_usd_per_hour,
        relative_performance=request.relative_performance,
        hours_per_year=hours.p50 / sets,
        watts=watts,
        usd_per_kwh=request.usd_per_kwh or 0.0,
        pue=request.pue,
        hosting_usd_per_year=request.hosting_usd_per_year,
        resale_usd=request.resale_usd,
        resale_after_years=request.resale_after_years,
        discount_rate=request.discount_rate,
    )
    answer = rent_or_buy(one)
    years = answer.break_even_years
    return JobStream(
        hours_per_year=hours,
        sets=sets,
        machines=sets * request.hardware.nodes,
        utilisation=one.hours_per_year / HOURS_PER_CALENDAR_YEAR,
        rent_usd_per_year=hours.scale(request.rent_usd_per_hour / request.relative_performance),
        price_usd=price,
        price_source=price_source,
        devices_only=request.price_usd is None,
        watts=watts,
        break_even_years=_years(one, hours, sets),
        break_even_jobs=None if years is None else years * request.jobs_per_year,
        by_set=answer,
        verdict=_verdict(request, answer, sets, price),
        notes=_notes(request, hours, sets),
    )


def _price(request: JobStreamRequest) -> tuple[float, str]:
    """The price of a set, and its source."""
    if request.price_usd is not None:
        return request.price_usd, "price as given"
    device, count = request.hardware.device, request.hardware.devices
    fact = device.sheet.fact(LIST_PRICE)
    if fact is None:
        raise MissingData(
            f"the list price of {device.id} is unknown: give the price of all machines that a job uses"
        )
    note = f", {fact.note}" if fact.note else ""
    return count * float(fact.value), f"{count} x {device.id} at {fact.value:,} USD ({fact.source}{note})"


def _watts(hardware: Hardware) -> float:
    """Power of the machines while they train: TDP of the devices times the ratio of machine power to TDP."""
    return hardware.devices * hardware.device.tdp_watts * default(POWER).quantiles.p50


def _years(one: RentOrBuyTerms, hours: Quantiles, sets: int) -> Quantiles:
    """Years to break even by the interval of the hours: longer jobs pay the price back sooner."""
    sooner_first = []
    for total in (hours.p90, hours.p50, hours.p10):
        used = min(total / sets, HOURS_PER_CALENDAR_YEAR)
        years = rent_or_buy(replace(one, hours_per_year=used)).break_even_years
        sooner_first.append(math.inf if years is None else years)
    return Quantiles(*sooner_first)


def _verdict(request: JobStreamRequest, answer: RentOrBuy, sets: int, price: float) -> str:
    years = answer.break_even_years
    what = request.hardware.name if sets == 1 else f"{sets} sets of {request.hardware.name}"
    if years is None:
        return f"rent: with {request.jobs_per_year:,g} jobs per year owning {what} never pays for itself"
    paid = f"{years:,.1f} years ({years * request.jobs_per_year:,.0f} jobs)"
    if request.resale_after_years and years > request.resale_after_years:
        return (
            f"rent: owning {what} would pay for itself after {paid}, "
            f"but it is sold after {request.resale_after_years:g} years"
        )
    return f"buy {what} for {sets * price:,.0f} USD if the jobs go on for more than {paid}, else rent"


def _notes(request: JobStreamRequest, hours: Quantiles, sets: int) -> tuple[str, ...]:
    notes = []
    if request.price_usd is None:
        notes.append(
            "the price is that of the devices only; host, network and rack would delay the break-even"
        )
    if request.usd_per_kwh is None:
        notes.append("electricity of owned machines is not counted: `usd_per_kwh` is not given")
    if hours.p90 > sets * HOURS_PER_CALENDAR_YEAR:
        needed = math.ceil(hours.p90 / HOURS_PER_CALENDAR_YEAR)
        notes.append(f"jobs as long as the 90th percentile would keep {needed} sets busy")
    return tuple(notes)
