"""Interruptions.

How often a job stops: spot machines that are taken back, and anything that fails.

One machine less stops the whole job, so rates add up over machines (spot) or devices (failures); a spot
machine may fail too.

How often to save a job that may be interrupted, and what saving and redoing take.

With `save` the time δ a checkpoint takes and `between` the mean time M between interruptions, saving every

    τ = √(2 δ M)                                   (Young 1974)

seconds of work loses least. Interruptions that come at random times (exponentially) make each stretch of τ
and its checkpoint take, with restarts of R seconds that may be interrupted themselves,

    M · e^(R/M) · (e^((τ+δ)/M) - 1)                (Daly 2006, equation 13)

which is exact, and falls into four: the work τ, the checkpoint δ, the work and checkpoint done again
M (e^x - 1) - (τ + δ), and the restarts (e^x - 1) · M (e^(R/M) - 1), with x = (τ+δ)/M.

References: J. W. Young, "A first order approximation to the optimum checkpoint interval", CACM 17(9), 1974;
J. T. Daly, "A higher order estimate of the optimum checkpoint interval for restart dumps", FGCS 22(3), 2006.

How many of something rare happen: quantiles of a Poisson distribution.

What interruptions take from a job, as parts of its time: work done again, and restarts.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist

from foretrain.errors import InvalidRequest
from foretrain.estimates import Part, Quantiles
from foretrain.facts.running import FAILURES, SPOT_INTERRUPTIONS, default
from foretrain.units import DAY, format_duration


@dataclass(frozen=True, slots=True)
class Interruptions:
    """Interruptions a day of the whole job, and what says so."""

    per_day: Quantiles
    source: str

    @property
    def between_seconds(self) -> float:
        """Mean time between two, by the median rate; infinite if there are none."""
        return between(self.per_day.p50)


def between(per_day: float) -> float:
    """Mean seconds between interruptions of a rate a day."""
    return DAY / per_day if per_day > 0 else math.inf


def interruptions(devices: int, machines: int, spot: bool, given_per_day: float | None) -> Interruptions:
    """How often a job on so many devices in so many machines stops.

    `given_per_day` is the user's word for one machine, spot or not, and takes the place of what is known.
    """
    if given_per_day is not None:
        if not (math.isfinite(given_per_day) and given_per_day >= 0):
            raise InvalidRequest(f"{given_per_day} interruptions a day: give a finite number of at least 0")
        rate = given_per_day * machines
        return Interruptions(Quantiles(rate, rate, rate), "interruptions as given")
    failing = default(FAILURES)
    rates = failing.quantiles.scale(devices)
    if not spot:
        return Interruptions(rates, f"failures ({failing.kind}: {failing.source})")
    taken = default(SPOT_INTERRUPTIONS)
    of_spot = taken.quantiles.scale(machines)
    both = Quantiles(of_spot.p10 + rates.p10, of_spot.p50 + rates.p50, of_spot.p90 + rates.p90)
    return Interruptions(both, f"spot interruptions ({taken.kind}: {taken.source})")


_HOPELESS = 50.0
"""A stretch of so many mean times between interruptions never ends: e^50 attempts."""


@dataclass(frozen=True, slots=True)
class Interrupted:
    """Expected seconds of work that is saved every `interval_seconds` and interrupted now and then."""

    interval_seconds: float
    checkpoints: float
    interruptions: float
    saving_seconds: float
    rework_seconds: float
    restart_seconds: float

    @property
    def overhead_seconds(self) -> float:
        """All that is not work."""
        return self.saving_seconds + self.rework_seconds + self.restart_seconds


def youngs_interval(save_seconds: float, between_seconds: float) -> float:
    """The work between checkpoints that loses least: √(2 δ M). Valid while δ is far below M."""
    if save_seconds < 0 or between_seconds <= 0:
        raise InvalidRequest(
            f"a checkpoint of {save_seconds:g} s and interruptions every {between_seconds:g} s: the first "
            "must be at least 0, the second above 0"
        )
    return math.sqrt(2 * save_seconds * between_seconds)


def interrupted(
    work_seconds: float,
    save_seconds: float,
    restart_seconds: float,
    between_seconds: float,
    interval_seconds: float,
) -> Interrupted:
    """What so much work takes beside itself, expected, if it is saved every `interval_seconds` of work.

    `between_seconds` may be infinite: then only the checkpoints remain. Work shorter than the interval is
    saved once, at its end.
    """
    if not interval_seconds > 0:
        raise InvalidRequest(f"checkpoints every {interval_seconds:g} s of work: give more than 0")
    interval = min(interval_seconds, work_seconds)
    stretches = work_seconds / interval if interval > 0 else 0.0
    saving = stretches * save_seconds
    if math.isinf(between_seconds):
        return Interrupted(interval, stretches, 0.0, saving, 0.0, 0.0)
    stretch = interval + save_seconds
    if max(stretch, restart_seconds) > _HOPELESS * between_seconds:
        raise InvalidRequest(
            f"{format_duration(stretch)} from one checkpoint to the next (restart "
            f"{format_duration(restart_seconds)}) with an interruption every "
            f"{format_duration(between_seconds)}: such a job never ends; save more often, start "
            "faster, or take machines that last longer"
        )
    attempts_lost = math.expm1(stretch / between_seconds)
    rework = stretches * (between_seconds * attempts_lost - stretch)
    restarts = stretches * attempts_lost * between_seconds * math.expm1(restart_seconds / between_seconds)
    return Interrupted(
        interval, stretches, stretches * attempts_lost, saving, max(0.0, rework), max(0.0, restarts)
    )


_MANY = 500.0
"""Above it the normal approximation is right to a thousandth of the mean."""


def poisson_quantile(mean: float, share: float) -> float:
    """The smallest count that at least `share` of all outcomes do not exceed."""
    if mean > _MANY:
        return max(0.0, mean + NormalDist().inv_cdf(share) * math.sqrt(mean))
    count, probability = 0, math.exp(-mean)
    total = probability
    while total < share:
        count += 1
        probability *= mean / count
        total += probability
    return float(count)


REDOING, RESTARTING = "work done again", "restarts"


def best_interval(save_seconds: float, stops: Interruptions, work: float) -> float:
    """Young's; one checkpoint at the end where nothing interrupts or nothing is to be saved."""
    if math.isinf(stops.between_seconds) or save_seconds == 0:
        return work
    return youngs_interval(save_seconds, stops.between_seconds)


def losses(work: float, save: float, restart: float, stops: Interruptions, lost: Interrupted) -> list[Part]:
    """Work done again and restarts: by the rate of interruptions, and by how many of them happen to come."""
    value = lost.rework_seconds + lost.restart_seconds
    if value == 0:
        return []
    rare, often = (
        interrupted(work, save, restart, between(rate), lost.interval_seconds)
        for rate in (stops.per_day.p10, stops.per_day.p90)
    )
    fewest, most = (poisson_quantile(lost.interruptions, share) for share in (0.1, 0.9))
    below = math.hypot(
        1 - (rare.rework_seconds + rare.restart_seconds) / value, max(0.0, 1 - fewest / lost.interruptions)
    )
    above = math.hypot(
        (often.rework_seconds + often.restart_seconds) / value - 1, max(0.0, most / lost.interruptions - 1)
    )
    both = ((REDOING, lost.rework_seconds), (RESTARTING, lost.restart_seconds))
    return [
        Part(name, seconds, stops.source, below=seconds * min(1.0, below), above=seconds * above)
        for name, seconds in both
    ]
