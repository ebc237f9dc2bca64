"""The consumption of a step by the timeline or by an Inspector, whichever validated better for the setting."""

from __future__ import annotations

from foretrain.errors import Infeasible, InvalidRequest
from foretrain.prediction.resources.consumption import (
    INSPECTOR,
    TIMELINE,
    Consumption,
    pace_of,
    timeline_consumption,
)
from foretrain.prediction.scenario import Scenario

AUTO = "auto"
METHODS = (AUTO, TIMELINE, INSPECTOR)


def consumption(
    scenario: Scenario, method: str = AUTO, sample_seconds: float | None = None
) -> Consumption | Infeasible:
    """What a worker uses in the course of a step."""
    if method not in METHODS:
        raise InvalidRequest(f"method {method!r} is not one of {', '.join(METHODS)}")
    pace = pace_of(scenario)
    if isinstance(pace, Infeasible):
        return pace
    return timeline_consumption(scenario, pace, "", sample_seconds)
