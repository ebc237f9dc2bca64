"""What may be chosen about a forecast: the training log, its target, and what else is known of the run."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from foretrain.decoding import FILE, TEXT, choice, number, option
from foretrain.panels import LOG

REFERENCE_LAW = "besiroglu-2024"
"""The scaling law by which a loss is expected by default, and where the law of a choice predicts none."""


@dataclass(frozen=True, kw_only=True)
class LogContext:
    """What is known of the run that wrote a log, besides the log."""

    planned_steps: float | None = option(
        number(above=0), "Planned length of the run that wrote `log`, in the unit of the log.", panel=LOG
    )
    schedule: str | None = option(
        TEXT,
        "Learning-rate schedule of `log`: linear, linear:0.4, cosine, step:0.5,0.75, constant.",
        panel=LOG,
    )
    history: Path | None = option(
        FILE, "Folder with logs of earlier runs of the same task and metric.", metavar="FOLDER", panel=LOG
    )


@dataclass(frozen=True)
class LogRequest(LogContext):
    """When a training log reaches its target."""

    log: Path = option(
        FILE,
        "Training log: CSV (also of W&B, MLflow, Keras), JSONL, TensorBoard events, trainer_state.json.",
        required=True,
        positional=True,
        metavar="LOG",
    )
    target: str = option(
        TEXT,
        "Target value of a metric, e.g. loss=0.3 or accuracy=0.94.",
        required=True,
        metavar="METRIC=VALUE",
    )
    direction: str | None = option(
        choice("up", "down"),
        "Whether the metric improves upwards or downwards (default: inferred).",
        panel=LOG,
    )
