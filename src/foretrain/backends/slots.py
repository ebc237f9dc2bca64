"""The time between decisions: its forecast as stored, and compared with the bill."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from foretrain.backends.answer import RunSlot
from foretrain.backends.node_book import NodeInterval, billed_usd
from foretrain.encoding import encode
from foretrain.scheduling.problem import Fleet
from foretrain.store.schedules import Row


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
