"""Predictions made before a run."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from foretrain import __version__
from foretrain.store.runs import PredictionMade


def prediction_of(setting: Mapping[str, Any]) -> PredictionMade | None:
    """TEMPORARY until branch store delivers."""
    import foretrain as ft
    from foretrain.errors import ForetrainError, Infeasible

    try:
        answer = ft.predict(**{**setting, "advice": False})
    except ForetrainError as e:
        return None
    if isinstance(answer, Infeasible):
        return None
    s = answer.step.seconds
    return PredictionMade(made_at=datetime.now(UTC), version=__version__, knowledge=answer.knowledge.value, p10_seconds=s.p10, p50_seconds=s.p50, p90_seconds=s.p90)
