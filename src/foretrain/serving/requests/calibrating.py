"""The requests of calibrate: what to learn from, and calibrations by name or file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from foretrain.decoding import FILE, SWITCH, TEXT, number, option
from foretrain.panels import HERE, MODEL, STORED, TRACES
from foretrain.serving.requests import Request, StoreOption
from foretrain.workloads.options import MODEL_NAME, BatchOption, PhaseOptions, TrainingOptions


@dataclass(frozen=True, kw_only=True)
class CalibrateRequest(Request, BatchOption, TrainingOptions, PhaseOptions, StoreOption):
    """Your own timings, this machine, stored runs, or a profiler's trace."""

    COMMON = "here runs trace json"
    DETAILS = (
        "Optional columns of TIMINGS: precision, seq_len, image_size, optimizer, attention, channels_last, "
        "compile."
    )
    EXAMPLES = (
        "foretrain calibrate --here",
        "foretrain calibrate timings.csv",
        "foretrain calibrate --runs --campaign batch_sizes --held-out half",
        "foretrain calibrate --trace trace.json.gz --model resnet50 --on rtx3090 --batch 64",
    )

    timings: Path | None = option(
        FILE, "CSV with columns model,device,batch,step_seconds and optional columns.", positional=True,
        metavar="TIMINGS",
    )  # fmt: skip
    here: bool = option(
        SWITCH, "Time operators on this machine: its GPU, else its CPU.", default=False, panel=HERE
    )
    seconds: float = option(
        number(at_least=0.1), "Duration in seconds, with `here`.", default=75.0, panel=HERE
    )
    runs: bool = option(
        SWITCH, "Fit this machine to stored runs of CPU workers.", default=False, panel=STORED
    )
    model: str | None = option(
        MODEL_NAME,
        "With `runs`: only runs of this model. With `trace`: the traced model.",
        complete="model",
        panel=MODEL,
    )
    device: str | None = option(
        TEXT, "With `runs`: only runs on this device.", complete="device", panel=STORED
    )
    campaign: str | None = option(
        TEXT, "With `runs`: only runs of this campaign.", metavar="NAME", panel=STORED
    )
    held_out: str = option(
        TEXT,
        "With `runs`: held-out models: `each` in turn, `half` of them, or names.",
        default="each",
        metavar="MODELS",
        panel=STORED,
    )
    trace: Path | None = option(
        FILE, "Trace of `model` on `on`, exported by torch.profiler (.json or .json.gz).", panel=TRACES
    )
    on: str | None = option(
        TEXT,
        "With `trace`: device on which it was recorded.",
        metavar="DEVICE",
        complete="device",
        panel=TRACES,
    )


@dataclass(frozen=True, kw_only=True)
class ListCalibrationsRequest(Request):
    """All calibrations."""


@dataclass(frozen=True, kw_only=True)
class CalibrationRequest(Request):
    """One calibration."""

    name: str = option(
        TEXT,
        "Name of the calibration, as listed by `calibrate list`.",
        required=True,
        positional=True,
        metavar="NAME",
    )


@dataclass(frozen=True, kw_only=True)
class ExportCalibrationRequest(CalibrationRequest):
    """One calibration, and the file to write."""

    file: Path = option(FILE, "File to write.", required=True, positional=True)


@dataclass(frozen=True, kw_only=True)
class ImportCalibrationRequest(Request):
    """A calibration file."""

    file: Path = option(
        FILE, "File written by `calibrate export`, here or on another machine.", required=True,
        positional=True,
    )  # fmt: skip
