"""Rent or buy: after how many hours of use does owning a machine win?

Hours are counted on the owned machine. With

    s = rent / relative performance - electricity      saved per hour of use
    electricity = watts / 1000 · PUE · price per kWh
    P = price - resale / (1 + r)^N                     price net of the resale value after N years
    A(t) = (1 - (1 + r)^-t) / ln(1 + r)                present value of 1 per year for t years (t at r = 0)

owning has paid for itself after the t years at which A(t) · (s · hours_per_year - hosting) = P, and over the
N years until the machine is sold it saves A(N) · (s · hours_per_year - hosting) - P. Without
discounting, hosting, electricity and resale this is the price over the rent: $8,000 against $1.50/h are
5,333 h, or 3,733 h if a rented hour does only 70 % of the work of an owned one.

For a stream of jobs, with J jobs per year of h hours each on rented machines, and p the work of a rented hour
over an owned one,

    hours owned = J · h · p        sets = ⌈hours owned / hours of a year⌉

where a set is all the machines one job runs on; the answer is for one set, used for its share of the hours.
Sets are counted by busy hours alone: jobs that arrive together wait for each other, unless more sets are
bought.

Reference: "Multi-GPU Neural Network Training in the Cloud", section Economy, generalised.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any

from foretrain.answers import Answer
from foretrain.encoding import encode
from foretrain.errors import InvalidRequest, MissingData
from foretrain.estimates import Quantiles
from foretrain.facts.devices import device
from foretrain.facts.hardware import Hardware
from foretrain.facts.offers import offer_named
from foretrain.facts.running import OWNED_HOURS, POWER, default
from foretrain.planning.options import OwningOptions, RentOrBuyOptions
from foretrain.units import HOUR, YEAR, format_money

HOURS_PER_CALENDAR_YEAR = YEAR / HOUR
NEGLIGIBLE_RATE = 1e-12
"""Below this rate the annuity formulas lose all digits; the undiscounted ones are exact enough."""
UTILISATION_LEVELS = (0.05, 0.10, 0.20, 0.30, 0.40, 0.50, 0.60, 0.80, 1.00)


def full_time_hours_per_year() -> float:
    """The default use of an owned machine."""
    return default(OWNED_HOURS).quantiles.p50


@dataclass(frozen=True, slots=True)
class RentOrBuyTerms:
    """`RentOrBuyOptions` with rent, hours and power looked up: one machine to buy against one to rent.

    `relative_performance` is the work of a rented hour over that of an owned one. `hours_per_year` is the
    use of the owned machine.
    """

    price_usd: float
    rent_usd_per_hour: float
    relative_performance: float = 1.0
    hours_per_year: float = field(default_factory=full_time_hours_per_year)
    watts: float = 0.0
    usd_per_kwh: float = 0.0
    pue: float = 1.0
    hosting_usd_per_year: float = 0.0
    resale_usd: float = 0.0
    resale_after_years: float = 0.0
    discount_rate: float = 0.0

    def __post_init__(self) -> None:
        self._check_positive("price_usd", "rent_usd_per_hour", "relative_performance", "hours_per_year")
        self._check_not_negative(
            "watts",
            "usd_per_kwh",
            "hosting_usd_per_year",
            "resale_usd",
            "resale_after_years",
            "discount_rate",
        )
        if not (math.isfinite(self.pue) and self.pue >= 1):
            raise InvalidRequest(f"pue is total over IT power, so at least 1; got {self.pue}")
        if self.hours_per_year > HOURS_PER_CALENDAR_YEAR:
            raise InvalidRequest(
                f"a year has {HOURS_PER_CALENDAR_YEAR:.0f} h, not {self.hours_per_year:g}; give at most that"
            )
        if self.resale_usd > self.price_usd:
            raise InvalidRequest(
                f"a resale value of {self.resale_usd:g} USD is above the price of {self.price_usd:g} USD; "
                "give at most that"
            )
        if self.resale_usd > 0 and self.resale_after_years == 0:
            raise InvalidRequest(
                "`resale` requires `resale_after`, the years after which the machine is sold"
            )

    def _check_positive(self, *names: str) -> None:
        for name in names:
            value = getattr(self, name)
            if not (math.isfinite(value) and value > 0):
                raise InvalidRequest(f"{name} must be above 0, got {value:g}")

    def _check_not_negative(self, *names: str) -> None:
        for name in names:
            value = getattr(self, name)
            if not (math.isfinite(value) and value >= 0):
                raise InvalidRequest(f"{name} must not be negative, got {value:g}")


@dataclass(frozen=True, slots=True)
class BreakEven:
    """When owning has paid for itself, in hours of use and in years; None = never.

    `saved_usd` is what owning saves until the machine is sold (present value; negative where renting saves),
    None where no such time was given.
    """

    utilisation: float
    hours_per_year: float
    hours: float | None
    years: float | None
    saved_usd: float | None


@dataclass(frozen=True, slots=True)
class CostCurves:
    """What a chart draws: cumulative cost (present value) of owning and of renting against hours of use."""

    hours: tuple[float, ...]
    own_usd: tuple[float, ...]
    rent_usd: tuple[float, ...]


@dataclass(frozen=True)
class RentOrBuy(Answer):
    """The answer: break-even, its components, the break-even by utilisation, and the curves to draw."""

    request: RentOrBuyTerms
    break_even_hours: float | None
    break_even_years: float | None
    rented_hours_for_the_same_work: float | None
    saved_usd: float | None
    rent_usd_per_owned_hour: float
    electricity_usd_per_hour: float
    net_price_usd: float
    verdict: str
    by_utilisation: tuple[BreakEven, ...]
    curves: CostCurves

    def to_dict(self) -> dict[str, Any]:
        """The answer as plain data."""
        encoded: dict[str, Any] = encode(self)
        return encoded

    def summary(self) -> tuple[tuple[str, str], ...]:
        """Break-even and verdict."""
        hours = "never" if self.break_even_hours is None else f"{self.break_even_hours:,.0f} h of use"
        return (("break-even", hours), ("verdict", self.verdict))


def rent_or_buy(request: RentOrBuyTerms) -> RentOrBuy:
    """The break-even of owning against renting."""
    here = _break_even(request)
    return RentOrBuy(
        request=request,
        break_even_hours=here.hours,
        break_even_years=here.years,
        rented_hours_for_the_same_work=None
        if here.hours is None
        else here.hours / request.relative_performance,
        saved_usd=here.saved_usd,
        rent_usd_per_owned_hour=_rent_per_owned_hour(request),
        electricity_usd_per_hour=_electricity_per_hour(request),
        net_price_usd=_net_price(request),
        verdict=_verdict(request, here),
        by_utilisation=tuple(
            _break_even(replace(request, hours_per_year=level * HOURS_PER_CALENDAR_YEAR))
            for level in UTILISATION_LEVELS
        ),
        curves=_curves(request, here),
    )


def terms_of(options: RentOrBuyOptions) -> RentOrBuyTerms:
    """The terms of a request: rent of its offer, hours of its utilisation, power of its device."""
    return RentOrBuyTerms(
        price_usd=options.price,
        rent_usd_per_hour=hourly_rent(options.rent, options.offer),
        relative_performance=options.relative_performance,
        hours_per_year=hours_of_use(options.hours_per_year, options.utilisation),
        watts=power_draw(options.watts, options.device),
        usd_per_kwh=options.usd_per_kwh,
        pue=options.pue,
        hosting_usd_per_year=options.hosting,
        resale_usd=options.resale,
        resale_after_years=options.resale_after / YEAR,
        discount_rate=options.discount_rate,
    )


def hourly_rent(usd_per_hour: float | None, offer: str | None) -> float:
    """The rent: a number, or the price of a cloud offer (`provider:instance`)."""
    if (usd_per_hour is None) == (offer is None):
        raise InvalidRequest("give the price of renting: either `rent` (USD per hour) or `offer`")
    if usd_per_hour is not None:
        return usd_per_hour
    assert offer is not None
    return offer_named(offer).usd_per_hour


def hours_of_use(hours_per_year: float | None, utilisation: float | None) -> float:
    """Hours of use per year: a number, or a share of the whole year; full time without either."""
    if hours_per_year is not None and utilisation is not None:
        raise InvalidRequest("give `hours_per_year` or `utilisation`, not both")
    if utilisation is None:
        return full_time_hours_per_year() if hours_per_year is None else hours_per_year
    if not 0 < utilisation <= 1:
        raise InvalidRequest(f"`utilisation` must be above 0 and at most 1, got {utilisation:g}")
    return utilisation * HOURS_PER_CALENDAR_YEAR


def power_draw(watts: float | None, devices: str | None) -> float:
    """Watts in use: a number, or the TDP of `device` or `device:count`; 0 without either."""
    if watts is not None and devices is not None:
        raise InvalidRequest("give `watts` or `device`, not both")
    if devices is None:
        return 0.0 if watts is None else watts
    name, _, count = devices.partition(":")
    if count and not (count.isdigit() and int(count) > 0):
        raise InvalidRequest(f"{devices!r} is not DEVICE or DEVICE:COUNT, e.g. rtx2080ti:4")
    return device(name).tdp_watts * int(count or 1)


def _rent_per_owned_hour(request: RentOrBuyTerms) -> float:
    return request.rent_usd_per_hour / request.relative_performance


def _electricity_per_hour(request: RentOrBuyTerms) -> float:
    return request.watts / 1000 * request.pue * request.usd_per_kwh


def _net_price(request: RentOrBuyTerms) -> float:
    discount = (1 + request.discount_rate) ** request.resale_after_years
    return request.price_usd - request.resale_usd / float(discount)


def _present_value_of_one_a_year(years: float, discount_rate: float) -> float:
    if discount_rate < NEGLIGIBLE_RATE:
        return years
    log_growth = math.log1p(discount_rate)
    return -math.expm1(-log_growth * years) / log_growth


def _years_of_present_value(present_value: float, discount_rate: float) -> float | None:
    """The inverse of `_present_value_of_one_a_year`; None if it never reaches that value."""
    if discount_rate < NEGLIGIBLE_RATE:
        return present_value
    log_growth = math.log1p(discount_rate)
    lost = present_value * log_growth
    return -math.log1p(-lost) / log_growth if lost < 1 else None


def _break_even(request: RentOrBuyTerms) -> BreakEven:
    saved_per_hour = _rent_per_owned_hour(request) - _electricity_per_hour(request)
    saved_per_year = saved_per_hour * request.hours_per_year - request.hosting_usd_per_year
    years = None
    if saved_per_year > 0:
        years = _years_of_present_value(_net_price(request) / saved_per_year, request.discount_rate)
    held = _present_value_of_one_a_year(request.resale_after_years, request.discount_rate)
    return BreakEven(
        utilisation=request.hours_per_year / HOURS_PER_CALENDAR_YEAR,
        hours_per_year=request.hours_per_year,
        hours=None if years is None else years * request.hours_per_year,
        years=years,
        saved_usd=held * saved_per_year - _net_price(request) if request.resale_after_years else None,
    )


def _verdict(request: RentOrBuyTerms, here: BreakEven) -> str:
    held = _holding_verdict(request, here.saved_usd)
    if here.hours is None or here.years is None:
        never = f"at {request.hours_per_year:,.0f} h a year owning never pays for itself"
        return f"{held}; {never}" if held else f"rent: {never}"
    if held:
        return f"{held}; owning pays for itself after {here.hours:,.0f} h ({here.years:.1f} years)"
    return f"buy if you will use it for more than {here.hours:,.0f} h ({here.years:.1f} years), else rent"


def _holding_verdict(request: RentOrBuyTerms, saved_usd: float | None) -> str | None:
    """Which of the two saves how much until the machine is sold; None without such a time."""
    if saved_usd is None:
        return None
    choice, cheaper = ("buy", "owning") if saved_usd > 0 else ("rent", "renting")
    years = f"{request.resale_after_years:g} years"
    return f"{choice}: over {years} {cheaper} saves {format_money(abs(saved_usd))}"


def _curves(request: RentOrBuyTerms, here: BreakEven, points: int = 61) -> CostCurves:
    span_years = 2 * here.years if here.years is not None else max(5.0, 2 * request.resale_after_years)
    years = [span_years * index / (points - 1) for index in range(points)]
    worth = [_present_value_of_one_a_year(year, request.discount_rate) for year in years]
    running = _electricity_per_hour(request) * request.hours_per_year + request.hosting_usd_per_year
    rent = _rent_per_owned_hour(request) * request.hours_per_year
    return CostCurves(
        hours=tuple(year * request.hours_per_year for year in years),
        own_usd=tuple(_net_price(request) + running * value for value in worth),
        rent_usd=tuple(rent * value for value in worth),
    )


# ---------------------------------------------------------------- a stream of jobs


LIST_PRICE = "list_price_usd"


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


def rent_or_buy_for_jobs(
    owning: OwningOptions,
    hardware: Hardware,
    job_seconds: Quantiles,
    rent_usd_per_hour: float,
    **terms: float,
) -> JobStream:
    """Whether to rent or to buy the machines of `hardware` for a stream of jobs that each use all of them.

    Rent and `buy_price` are for all of these machines; without a price, that of the devices alone counts.
    Without `usd_per_kwh` electricity is not counted. `terms` are further ones of `RentOrBuyTerms`.
    """
    jobs = owning.jobs_per_year
    if jobs is None:
        raise InvalidRequest("`jobs_per_year` is required: how often the job runs")
    if not (job_seconds.p10 > 0 and math.isfinite(job_seconds.p90)):
        raise InvalidRequest(f"the time of a job must be finite and above 0, got {job_seconds.p50:g} s")
    performance = terms.get("relative_performance", 1.0)
    hours = job_seconds.scale(jobs * performance / HOUR)
    sets = math.ceil(hours.p50 / HOURS_PER_CALENDAR_YEAR)
    price, price_source = _price(owning, hardware)
    watts = 0.0 if owning.usd_per_kwh is None else _watts(hardware)
    one = RentOrBuyTerms(
        price_usd=price,
        rent_usd_per_hour=rent_usd_per_hour,
        hours_per_year=hours.p50 / sets,
        watts=watts,
        usd_per_kwh=owning.usd_per_kwh or 0.0,
        **terms,
    )
    answer = rent_or_buy(one)
    years = answer.break_even_years
    return JobStream(
        hours_per_year=hours,
        sets=sets,
        machines=sets * hardware.nodes,
        utilisation=one.hours_per_year / HOURS_PER_CALENDAR_YEAR,
        rent_usd_per_year=hours.scale(rent_usd_per_hour / performance),
        price_usd=price,
        price_source=price_source,
        devices_only=owning.buy_price is None,
        watts=watts,
        break_even_years=_years(one, hours, sets),
        break_even_jobs=None if years is None else years * jobs,
        by_set=answer,
        verdict=_stream_verdict(jobs, hardware.name, answer, sets),
        notes=_notes(owning, hours, sets),
    )


def _price(owning: OwningOptions, hardware: Hardware) -> tuple[float, str]:
    """The price of a set, and its source."""
    if owning.buy_price is not None:
        return owning.buy_price, "price as given"
    device, count = hardware.device, hardware.devices
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


def _stream_verdict(jobs: float, machines: str, answer: RentOrBuy, sets: int) -> str:
    years = answer.break_even_years
    what = machines if sets == 1 else f"{sets} sets of {machines}"
    held = _holding_verdict(answer.request, None if answer.saved_usd is None else sets * answer.saved_usd)
    if years is None:
        never = f"with {jobs:,g} jobs per year owning {what} never pays for itself"
        return f"{held}; {never}" if held else f"rent: {never}"
    paid = f"{years:,.1f} years ({years * jobs:,.0f} jobs)"
    if held:
        return f"{held}; owning {what} pays for itself after {paid}"
    price = sets * answer.request.price_usd
    return f"buy {what} for {price:,.0f} USD if the jobs go on for more than {paid}, else rent"


def _notes(owning: OwningOptions, hours: Quantiles, sets: int) -> tuple[str, ...]:
    notes = []
    if owning.buy_price is None:
        notes.append(
            "the price is that of the devices only; host, network and rack would delay the break-even"
        )
    if owning.usd_per_kwh is None:
        notes.append("electricity of owned machines is not counted: `usd_per_kwh` is not given")
    if hours.p90 > sets * HOURS_PER_CALENDAR_YEAR:
        needed = math.ceil(hours.p90 / HOURS_PER_CALENDAR_YEAR)
        notes.append(f"jobs as long as the 90th percentile would keep {needed} sets busy")
    return tuple(notes)
