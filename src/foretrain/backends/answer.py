"""What a real run answers: what became of the jobs, and forecast against bill, slot by slot."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from foretrain.answers import Answer
from foretrain.backends.node_book import NodeInterval, billed_usd
from foretrain.encoding import encode
from foretrain.scheduling.accounting import Outcome
from foretrain.scheduling.problem import Fleet
from foretrain.store.schedules import Row
from foretrain.units import format_money


@dataclass(frozen=True, kw_only=True)
class RunSlot:
    """The time from one decision to the next, and its cost: as forecast at its start, and as billed.

    The forecast is the price of the nodes that the decision switched on, up to the next event that the
    predicted times lead to expect.
    """

    start_seconds: float
    event: str
    subject: str
    forecast_seconds: float
    billed_seconds: float
    forecast_usd: float
    billed_usd: float


@dataclass(frozen=True, slots=True)
class SlotForecast:
    """What a decision was expected to cost until the next event."""

    position: int
    start_seconds: float
    event: str
    subject: str
    forecast_seconds: float
    forecast_usd: float
    decision_seconds: float

    def row(self) -> dict[str, Any]:
        """As it is stored."""
        row: dict[str, Any] = encode(self)
        return row


def slot_forecast(row: Row) -> SlotForecast:
    """From its row."""
    return SlotForecast(**{name: row[name] for name in SlotForecast.__dataclass_fields__})


def compare_slots(
    forecasts: Sequence[SlotForecast], intervals: Sequence[NodeInterval], fleet: Fleet, end: float
) -> tuple[RunSlot, ...]:
    """Forecast and bill of every slot that cost something; the last one ends at `end`."""
    ends = [each.start_seconds for each in forecasts[1:]] + [end]
    slots = (
        RunSlot(
            start_seconds=each.start_seconds,
            event=each.event,
            subject=each.subject,
            forecast_seconds=each.forecast_seconds,
            billed_seconds=until - each.start_seconds,
            forecast_usd=each.forecast_usd,
            billed_usd=billed_usd(intervals, fleet, each.start_seconds, until),
        )
        for each, until in zip(forecasts, ends, strict=False)
    )
    return tuple(slot for slot in slots if slot.forecast_usd or slot.billed_usd)


@dataclass(frozen=True, kw_only=True)
class RealRun(Answer):
    """A schedule that ran for real.

    `simulated_usd` is the execution cost of the whole schedule as simulated before it began; None where that
    was not asked for.
    """

    name: str
    backend: str
    outcome: Outcome
    slots: tuple[RunSlot, ...]
    simulated_usd: float | None = None

    @property
    def forecast_usd(self) -> float:
        """The forecasts of all slots."""
        return sum(slot.forecast_usd for slot in self.slots)

    @property
    def billed_usd(self) -> float:
        """The bill of all slots."""
        return sum(slot.billed_usd for slot in self.slots)

    @property
    def difference(self) -> float:
        """Forecast against bill: (bill - forecast) / bill, 0 where nothing was billed."""
        return (self.billed_usd - self.forecast_usd) / self.billed_usd if self.billed_usd else 0.0

    def to_dict(self) -> dict[str, Any]:
        """The contract of `foretrain run --json`: that of `simulate`, and the slots."""
        return {
            **self.outcome.to_dict(),
            "name": self.name,
            "backend": self.backend,
            "forecast_usd": self.forecast_usd,
            "billed_usd": self.billed_usd,
            "difference": self.difference,
            "simulated_usd": self.simulated_usd,
            "slots": [encode(slot) for slot in self.slots],
        }

    def summary(self) -> tuple[tuple[str, str], ...]:
        """The main figures."""
        return (
            *self.outcome.summary(),
            ("backend", self.backend),
            ("forecast of slots", format_money(self.forecast_usd)),
            ("billed", f"{format_money(self.billed_usd)} ({self.difference:+.2%} of the bill)"),
        )
