"""Training logs, read from what tools write: one form a file."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path

from foretrain.convergence.curves import LEAST_POINTS, Curve, MetricDirection
from foretrain.convergence.logs._base import Log, LogReader, joined
from foretrain.convergence.logs.tensorboard import TensorBoard
from foretrain.convergence.logs.text_logs import METRICS, CsvLog, JsonLines, JsonLog, KerasCsv, MlflowMetrics
from foretrain.errors import ForetrainError, InvalidRequest, MissingData
from foretrain.registry import Registry

__all__ = ["Log", "LogReader", "read_history", "read_log", "readers"]


@cache
def readers() -> Registry[LogReader]:
    """The forms, the more particular first."""
    known: tuple[LogReader, ...] = (
        TensorBoard(),
        KerasCsv(),
        CsvLog(),
        JsonLines(),
        JsonLog(),
        MlflowMetrics(),
    )
    return Registry("form of log", known, name=lambda reader: reader.name)


def read_log(path: Path) -> Log:
    """A log of any known form; a folder is searched for one TensorBoard file or trainer state."""
    if not path.exists():
        raise MissingData(f"no log {path}; give a CSV, JSONL, TensorBoard, trainer_state.json or MLflow file")
    if path.is_dir():
        return _read_folder(path)
    for reader in readers().values():
        if reader.suits(path):
            return reader.read(path)
    forms = (
        ".csv or .tsv (also exported by Weights & Biases, MLflow or TensorBoard), .jsonl, "
        "trainer_state.json, events.out.tfevents.*, Keras' CSVLogger, or the folder of an MLflow run"
    )
    raise InvalidRequest(f"{path.name!r} is no known form of log: {forms}")


def _read_folder(folder: Path) -> Log:
    """The one log in a folder; event files of one folder, and the metrics of an MLflow run, are one log."""
    inside = sorted([*folder.glob("*tfevents*"), *folder.glob("trainer_state.json")])
    within = folder if METRICS in folder.parts else folder / METRICS
    metrics = [path for path in sorted(within.rglob("*")) if path.is_file() and MlflowMetrics().suits(path)]
    logs = inside or metrics
    parts = len(logs) > 1 and (logs is metrics or all(TensorBoard().suits(path) for path in logs))
    if len(logs) == 1:
        return read_log(logs[0])
    if parts:
        return joined(folder.name, [read_log(path) for path in logs])
    names = f" ({', '.join(path.name for path in logs)})" if logs else ""
    raise InvalidRequest(
        f"{folder} is a folder with {len(logs)} logs{names}; name the file, or a folder of TensorBoard "
        "event files, of one trainer_state.json or of one MLflow run"
    )


def read_history(
    folder: Path, metric: str, direction: MetricDirection
) -> tuple[tuple[Curve, ...], tuple[str, ...]]:
    """Curves of the metric in a folder and its subfolders, and why files were left out.

    Runs of one subfolder are a group. A run that ended is taken to have been planned to end there, unless its
    log says otherwise.
    """
    if not folder.is_dir():
        raise MissingData(f"no folder of earlier logs {folder}; give a folder of logs of the same task")
    curves, left_out = [], []
    for path in sorted(folder.rglob("*")):
        if not path.is_file() or not any(reader.suits(path) for reader in readers().values()):
            continue
        group = (
            str(path.parent.relative_to(folder)) if path.parent != folder else str(path.relative_to(folder))
        )
        try:
            log = read_log(path)
            curve = log.curve(metric, direction, group)
        except ForetrainError as error:
            left_out.append(str(error))
            continue
        if len(curve) < LEAST_POINTS:
            left_out.append(f"{path.name}: only {len(curve)} points")
            continue
        curves.append(_with_end(curve, str(path.relative_to(folder))))
    return tuple(curves), tuple(left_out)


def _with_end(curve: Curve, name: str) -> Curve:
    return replace(curve, name=name, planned_steps=curve.planned_steps or curve.last_step)
