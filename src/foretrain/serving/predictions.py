"""Predictions of settings: what a run is compared with, made before it or again from the store."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from foretrain.errors import ForetrainError, Infeasible, InvalidRequest
from foretrain.store.runs import Plain, PredictionMade
from foretrain.units import UnitError


def prediction_of(setting: Plain) -> PredictionMade | None:
    """What foretrain predicts of a setting (keywords of `foretrain.predict`); None if it cannot."""
    try:
        return predicted(setting)
    except (ForetrainError, UnitError):
        return None


def predicted(setting: Plain) -> PredictionMade:
    """The same; a setting that cannot be predicted raises an error that says why."""
    import foretrain
    from foretrain.serving import verbs
    from foretrain.serving.requests import PredictRequest, request_from

    missing = [name for name in ("model", "on") if not setting.get(name)]
    if missing:
        raise InvalidRequest(f"the setting does not name `{'` and `'.join(missing)}`")
    request = request_from(PredictRequest, {**setting, "advice": False})
    answer = verbs.predict(request)
    if isinstance(answer, Infeasible):
        raise InvalidRequest(str(answer))
    seconds = answer.step.seconds
    return PredictionMade(
        made_at=datetime.now(UTC),
        version=foretrain.__version__,
        knowledge=answer.knowledge.value,
        p10_seconds=seconds.p10,
        p50_seconds=seconds.p50,
        p90_seconds=seconds.p90,
        memory_bytes=answer.memory.bytes.p50,
        answer=answer.to_dict(),
    )


def setting_of(cells: Mapping[str, str]) -> dict[str, Any]:
    """The setting that cells of a table describe, checked as options of `predict` are.

    What is wrong raises `InvalidRequest` that names the column.
    """
    from foretrain.decoding import options, values
    from foretrain.encoding import encode
    from foretrain.serving.requests import PredictRequest

    switches = {each.name for each in options(PredictRequest) if each.kind.is_switch}
    typed = {name: _switch(name, text) if name in switches else text for name, text in cells.items()}
    for needed in ("model", "on"):
        if not typed.get(needed):
            raise InvalidRequest(f"column {needed} is empty")
    if not (typed.get("batch") or typed.get("global_batch")):
        raise InvalidRequest("column batch is empty")
    chosen: dict[str, Any] = {}
    for name, value in typed.items():
        try:
            chosen |= values(PredictRequest, {name: value})
        except ForetrainError as error:
            raise InvalidRequest(f"column {name}: {error}") from error
    setting: dict[str, Any] = encode({name: _text_of_path(value) for name, value in chosen.items()})
    return setting


def _switch(name: str, text: str) -> bool:
    if text.lower() not in ("1", "true", "yes", "0", "false", "no"):
        raise InvalidRequest(f"column {name} is {text!r}; it must be yes or no")
    return text.lower() in ("1", "true", "yes")


def _text_of_path(value: Any) -> Any:
    from pathlib import Path

    return str(value) if isinstance(value, Path) else value
