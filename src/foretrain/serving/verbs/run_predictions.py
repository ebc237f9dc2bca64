"""Predictions of settings: what a run is compared with, made before it or again from the store."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from foretrain.answers import Infeasible
from foretrain.errors import ForetrainError, InvalidRequest
from foretrain.store.runs import Environment, Plain, PredictionMade
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
    from foretrain.serving.requests import request_from
    from foretrain.serving.requests.predicting import PredictRequest
    from foretrain.serving.verbs.predicting import predict

    for name, what in (("model", "model"), ("on", "hardware")):
        if not setting.get(name):
            raise InvalidRequest(f"its setting names no {what}")
    request = request_from(PredictRequest, {**setting, "advice": False})
    answer = predict(request)
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


def described(cells: Mapping[str, str]) -> tuple[dict[str, Any], Environment]:
    """The setting that cells of a table describe, and its hardware as far as it is known.

    Cells are checked as options of `predict` are. What is wrong raises an `InvalidRequest` with the column.
    """
    from foretrain.decoding import options, values
    from foretrain.encoding import encode
    from foretrain.serving.requests.predicting import PredictRequest

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
    return setting, hardware_of(setting["on"])


def hardware_of(on: str) -> Environment:
    """What `on` names; a name that foretrain does not know stays a name."""
    from foretrain.facts.hardware import cluster

    try:
        machines = cluster(on)
    except ForetrainError:
        return Environment(device=on, device_name=on)
    devices = [group.device for group in machines.groups]
    return Environment(
        device="+".join(dict.fromkeys(device.id for device in devices)),
        device_name=" and ".join(dict.fromkeys(device.name for device in devices)),
        devices_per_node=max(group.devices // group.nodes for group in machines.groups),
        nodes=machines.nodes,
    )


def _switch(name: str, text: str) -> bool:
    if text.lower() not in ("1", "true", "yes", "0", "false", "no"):
        raise InvalidRequest(f"column {name} is {text!r}; it must be yes or no")
    return text.lower() in ("1", "true", "yes")


def _text_of_path(value: Any) -> Any:
    from pathlib import Path

    return str(value) if isinstance(value, Path) else value
