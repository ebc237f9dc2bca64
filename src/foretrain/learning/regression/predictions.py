"""foretrain's own prediction of every row of a table: the column that the gray box corrects.

Rows need a model, a device and a batch; columns named as options of `predict` (`image_size`, `precision`,
`seq_len`, `optimizer`, `gpus`) are used as such. The predictions are those of the shipped calibrations: the
user's own calibrations may rest on the very timings that are to be predicted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any

from foretrain.answers import Infeasible
from foretrain.errors import ForetrainError, InvalidRequest
from foretrain.facts.devices import device
from foretrain.learning.regression.columns import BATCH, DEVICE, GPUS, MODEL, PREDICTED, role_of
from foretrain.learning.regression.table import TimingTable
from foretrain.prediction.cost_models import OperatorCostModel, step_estimate
from foretrain.workloads.options import WorkloadRequest
from foretrain.workloads.workload import Workload, graph_at, workload_of

_OPTIONS = frozenset(each.name for each in fields(WorkloadRequest)) - {"model", "batch"}
Progress = Callable[[str], None]
UNSTATED_PRECISION = "fp32"
"""Precision of timings whose table does not state it."""


def with_predictions(
    table: TimingTable, model: str = "", progress: Progress = lambda _: None
) -> tuple[TimingTable, str]:
    """The table with a column of predictions, or as it is with the reason why there is none."""
    roles = {role: name for name in table.columns if (role := role_of(name)) is not None}
    if PREDICTED in roles:
        return table, ""
    lacking = [role for role in (MODEL, DEVICE, BATCH) if role not in roles and not (role == MODEL and model)]
    if lacking:
        return table, f"no foretrain prediction of the rows: the table has no column {', '.join(lacking)}"
    known: dict[tuple[Any, ...], float] = {}
    predicted = []
    for row in table.rows():
        options = {name: row[name] for name in row if name in _OPTIONS and row[name] not in (None, "")}
        name = str(row[roles[MODEL]]) if MODEL in roles else model
        gpus = str(row[roles[GPUS]]) if GPUS in roles else "1"
        key = (name, row[roles[DEVICE]], row[roles[BATCH]], gpus, tuple(options.items()))
        if key not in known:
            progress(f"predicting {name}, batch {row[roles[BATCH]]} on {row[roles[DEVICE]]}")
            try:
                known[key] = predicted_seconds(
                    name, str(row[roles[DEVICE]]), _whole(row[roles[BATCH]]), _whole(gpus), options
                )
            except ForetrainError as error:
                return table, f"no foretrain prediction of the rows: {error}"
        predicted.append(known[key])
    return table.with_column(PREDICTED, predicted), ""


def predicted_seconds(
    model: str, device_name: str, batch: int, gpus: int = 1, options: Mapping[str, Any] | None = None
) -> float:
    """The predicted step; on several GPUs of one node by data parallelism."""
    typed = {name: _convert_cell(value) for name, value in (options or {}).items()}
    typed.setdefault("precision", UNSTATED_PRECISION)
    workload = workload_of(WorkloadRequest(model=model, batch=batch, **typed))
    if gpus == 1:
        return step_estimate(
            OperatorCostModel().price(graph_at(workload, batch), device(device_name))
        ).seconds
    return _on_many(workload, f"{device(device_name).id}:{gpus}")


def _on_many(workload: Workload, hardware: str) -> float:
    from foretrain.facts.hardware import cluster
    from foretrain.prediction.predict import predict
    from foretrain.prediction.scenario import Scenario

    answer = predict(
        Scenario(workload=workload, cluster=cluster(hardware), cost_model=OperatorCostModel(), advice=False)
    )
    if isinstance(answer, Infeasible):
        raise InvalidRequest(str(answer))
    return answer.step.seconds.p50


def _whole(value: Any) -> int:
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = 0.5
    if number != int(number) or number < 1:
        raise InvalidRequest(f"{value!r} is not a whole number of at least 1")
    return int(number)


def _convert_cell(value: Any) -> Any:
    """A cell as the option takes it: text of a CSV file as a number where it is one."""
    if isinstance(value, str) and value.strip().isdigit():
        return int(value)
    return value
