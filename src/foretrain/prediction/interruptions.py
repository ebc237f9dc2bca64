"""How often a job stops: spot machines that are taken back, and anything that fails.

One machine less stops the whole job, so rates add up over machines (spot) or devices (failures); a spot
machine may fail too.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from foretrain.errors import InvalidRequest
from foretrain.estimates import Quantiles
from foretrain.facts.running import FAILURES, SPOT_INTERRUPTIONS, default
from foretrain.units import DAY


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
