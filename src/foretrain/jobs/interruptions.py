"""Interruptions of a job: how often it stops, how often to save it, and what saving and restarting take.

The loss of one machine stops the whole job, so rates add up over machines (spot) or devices (failures); a
spot machine may fail too.

With δ the time of a checkpoint and M the mean time between interruptions, the interval of work that loses
least is

    τ = √(2 δ M)                                   (Young 1974)

If interruptions are exponentially distributed and a restart takes R seconds and may itself be interrupted, an
interval of τ and its checkpoint take

    M · e^(R/M) · (e^((τ+δ)/M) - 1)                (Daly 2006, equation 13)

which is exact. It has four parts: the work τ, the checkpoint δ, the repeated work and checkpoint
M (e^x - 1) - (τ + δ), and the restarts (e^x - 1) · M (e^(R/M) - 1), with x = (τ+δ)/M.

References: J. W. Young, "A first order approximation to the optimum checkpoint interval", CACM 17(9), 1974;
J. T. Daly, "A higher order estimate of the optimum checkpoint interval for restart dumps", FGCS 22(3), 2006.
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
    """Interruptions per day of the whole job, and their source."""

    per_day: Quantiles
    source: str

    @property
    def between_seconds(self) -> float:
        """Mean time between interruptions at the median rate; infinite if there are none."""
        return between(self.per_day.p50)


def between(per_day: float) -> float:
    """Mean seconds between interruptions at a daily rate."""
    return DAY / per_day if per_day > 0 else math.inf


def interruptions(devices: int, machines: int, spot: bool, given_per_day: float | None) -> Interruptions:
    """How often a job on `devices` devices in `machines` machines stops.

    `given_per_day` is the user's rate for one machine, spot or not; it replaces the default rates.
    """
    if given_per_day is not None:
        if not (math.isfinite(given_per_day) and given_per_day >= 0):
            raise InvalidRequest(
                f"`interruptions_per_day` must be finite and at least 0, got {given_per_day}"
            )
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
"""An interval this many times the mean time between interruptions never ends: e^50 attempts."""


@dataclass(frozen=True, slots=True)
class Interrupted:
    """Expected overhead of work that is saved every `interval_seconds` and interrupted at random."""

    interval_seconds: float
    checkpoints: float
    interruptions: float
    saving_seconds: float
    rework_seconds: float
    restart_seconds: float

    @property
    def overhead_seconds(self) -> float:
        """Everything that is not work."""
        return self.saving_seconds + self.rework_seconds + self.restart_seconds


def youngs_interval(save_seconds: float, between_seconds: float) -> float:
    """The work between checkpoints that loses least: √(2 δ M). Valid for δ much smaller than M."""
    if save_seconds < 0 or between_seconds <= 0:
        raise InvalidRequest(
            f"the time of a checkpoint must be at least 0 and that between interruptions above 0, got "
            f"{save_seconds:g} s and {between_seconds:g} s"
        )
    return math.sqrt(2 * save_seconds * between_seconds)


def estimate_interruptions(
    work_seconds: float,
    save_seconds: float,
    restart_seconds: float,
    between_seconds: float,
    interval_seconds: float,
) -> Interrupted:
    """The expected overhead of `work_seconds` of work that is saved every `interval_seconds` of work.

    `between_seconds` may be infinite: then only the checkpoints remain. Work shorter than the interval is
    saved once, at its end.
    """
    if not interval_seconds > 0:
        raise InvalidRequest(f"checkpoints must be more than 0 s of work apart, got {interval_seconds:g} s")
    interval = min(interval_seconds, work_seconds)
    stretches = work_seconds / interval if interval > 0 else 0.0
    saving = stretches * save_seconds
    if math.isinf(between_seconds):
        return Interrupted(interval, stretches, 0.0, saving, 0.0, 0.0)
    stretch = interval + save_seconds
    if max(stretch, restart_seconds) > _HOPELESS * between_seconds:
        raise InvalidRequest(
            f"the job never ends: {format_duration(stretch)} between checkpoints (restart "
            f"{format_duration(restart_seconds)}) with an interruption every "
            f"{format_duration(between_seconds)}; save more often, start faster, or use machines that are "
            "interrupted less often"
        )
    attempts_lost = math.expm1(stretch / between_seconds)
    rework = stretches * (between_seconds * attempts_lost - stretch)
    restarts = stretches * attempts_lost * between_seconds * math.expm1(restart_seconds / between_seconds)
    return Interrupted(
        interval, stretches, stretches * attempts_lost, saving, max(0.0, rework), max(0.0, restarts)
    )


_MANY = 500.0
"""Above this mean the normal approximation is accurate to a thousandth of the mean."""


def poisson_quantile(mean: float, share: float) -> float:
    """The `share` quantile of a Poisson distribution."""
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
    """Young's interval; one checkpoint at the end without interruptions or with nothing to save."""
    if math.isinf(stops.between_seconds) or save_seconds == 0:
        return work
    return youngs_interval(save_seconds, stops.between_seconds)


def losses(work: float, save: float, restart: float, stops: Interruptions, lost: Interrupted) -> list[Part]:
    """Repeated work and restarts; their interval covers the rate and the random number of interruptions."""
    value = lost.rework_seconds + lost.restart_seconds
    if value == 0:
        return []
    rare, often = (
        estimate_interruptions(work, save, restart, between(rate), lost.interval_seconds)
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
