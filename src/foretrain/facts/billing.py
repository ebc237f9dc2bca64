"""What a rental is billed: clouds round the time up to their granularity and charge at least a minimum."""

from __future__ import annotations

import math
from dataclasses import dataclass

from foretrain.errors import InvalidRequest
from foretrain.facts.sheets import Kind
from foretrain.units import HOUR

ROUNDING_DIGITS = 6
"""2412.0000000000005 s is 67 hundredths of an hour, not 68: units are counted to a millionth."""


@dataclass(frozen=True, slots=True)
class BillingTerms:
    """How time is counted: rounded up to whole `granularity_seconds`, and never below `minimum_seconds`.

    A granularity of 0 bills the exact time. `egress_usd_per_gb` is the price of 10⁹ bytes sent to the
    internet, where it is known.
    """

    granularity_seconds: float
    minimum_seconds: float
    kind: Kind
    source: str
    egress_usd_per_gb: float | None = None
    note: str = ""

    def __post_init__(self) -> None:
        for name, value in (
            ("granularity_seconds", self.granularity_seconds),
            ("minimum_seconds", self.minimum_seconds),
        ):
            if not (math.isfinite(value) and value >= 0):
                raise InvalidRequest(f"{name} must be a finite number of at least 0, not {value}")


UNKNOWN_TERMS = BillingTerms(
    0.0, 0.0, Kind.ASSUMED, "", note="billing terms not known: the exact time is billed"
)
"""For providers with unknown terms, and for owned machines."""


def billed_seconds(seconds: float, terms: BillingTerms) -> float:
    """The time on the bill: ⌈max(t, minimum) / granularity⌉ · granularity; nothing for no time."""
    if not (math.isfinite(seconds) and seconds >= 0):
        raise InvalidRequest(f"cannot bill {seconds} seconds; give a finite time of at least 0")
    if seconds == 0:
        return 0.0
    charged = max(seconds, terms.minimum_seconds)
    if terms.granularity_seconds == 0:
        return charged
    return math.ceil(round(charged / terms.granularity_seconds, ROUNDING_DIGITS)) * terms.granularity_seconds


def billed_usd(seconds: float, usd_per_hour: float, terms: BillingTerms) -> float:
    """What renting for `seconds` costs, in USD: the billed time at the hourly price, unrounded."""
    if not (math.isfinite(usd_per_hour) and usd_per_hour >= 0):
        raise InvalidRequest(f"cannot bill at {usd_per_hour} USD an hour; give a finite price of at least 0")
    return billed_seconds(seconds, terms) / HOUR * usd_per_hour
