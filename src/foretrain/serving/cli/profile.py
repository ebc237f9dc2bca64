"""`foretrain profile`: measured times of operators and layers beside the predicted ones."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from foretrain.decoding import FILE, SWITCH, TEXT, number, option
from foretrain.panels import HERE, OUTPUT, TRACES
from foretrain.serving.cli.frame import Command, Output
from foretrain.serving.requests import Request
from foretrain.workloads.options import BatchOption, ModelOption, PhaseOptions, TrainingOptions

if TYPE_CHECKING:
    from foretrain.measuring.profiling.comparison import Compared, Profile

_MOST_LAYERS = 15
_LEAST_SHARE = 0.002


@dataclass(frozen=True, kw_only=True)
class ProfileRequest(Request, ModelOption, BatchOption, TrainingOptions, PhaseOptions):
    """A model, and where its times come from: this machine or a trace."""

    VERB = "profile"
    COMMON = ("here", "trace", "on", "batch", "seq_len", "image_size", "precision", "optimizer", "json")

    here: bool = option(
        SWITCH, "Run the model on this machine: its GPU, else its CPU.", default=False, panel=HERE
    )
    trace: Path | None = option(
        FILE, "Read a trace that torch.profiler exported on another machine, .json or .json.gz.", panel=TRACES
    )
    on: str | None = option(
        TEXT,
        "The device that `trace` was made on, e.g. rtx3090.",
        metavar="DEVICE",
        complete="device",
        panel=TRACES,
    )
    seconds: float = option(
        number(at_least=0.1), "With `here`: about how long to run.", default=10.0, panel=HERE
    )


@dataclass(frozen=True, kw_only=True)
class ProfileOutput(Output):
    """What `profile` prints and writes."""

    layers: bool = option(SWITCH, "Print all layers, not only the longest.", default=False, panel=OUTPUT)


def run(request: ProfileRequest, output: ProfileOutput) -> None:
    """Measure or read, compare, print."""
    from foretrain.serving.cli.terminal import print_json, spinner
    from foretrain.serving.verbs.profiling import ProfileSource, profile

    with spinner(f"Profiling {request.model}") as progress:
        answer = profile(
            request, ProfileSource(request.here, request.trace, request.on, request.seconds), progress
        )
    if output.json:
        print_json(answer.to_dict())
    else:
        _show(answer, output.layers)


COMMAND = Command(
    ProfileRequest,
    ProfileOutput,
    run,
    "Runs the model under torch.profiler for a few seconds, or reads a trace exported by torch.profiler on "
    "another machine. Prints measured and predicted times side by side.",
    (
        "foretrain profile resnet18 --here --batch 4 --image-size 64",
        "foretrain profile model.py:build --here",
        "foretrain profile resnet50 --trace trace.json.gz --on rtx3090 --batch 64",
    ),
)


def _show(profile: Profile, all_layers: bool) -> None:
    from foretrain.serving.cli.terminal import Column, print_line, print_notes, print_table
    from foretrain.units import format_duration

    prediction = ""
    if profile.predicted_seconds is not None:
        ratio = profile.step_seconds / profile.predicted_seconds
        prediction = f", predicted {format_duration(profile.predicted_seconds)} (ratio {ratio:.2f})"
    print_line(
        f"{profile.model} on {profile.device}, batch {profile.batch}: measured "
        f"{format_duration(profile.step_seconds)} a step{prediction}",
        "bold",
    )
    print_notes(profile.notes)
    columns = [
        Column("phase"), Column("operators"), Column("calls", right=True), Column("measured", right=True),
        Column("share", right=True), Column("predicted", right=True), Column("share ", right=True),
        Column("ratio", right=True),
    ]  # fmt: skip
    rows: list[tuple[str, ...]] = [
        (row.phase.value, row.kind.value, str(row.calls), *_cells(row.compared))
        for row in profile.operators
        if max(row.compared.measured_share, row.compared.predicted_share or 0.0) >= _LEAST_SHARE
    ]
    rows.append(("", "outside operators", "", *_cells(profile.idle)))
    rows += [(phase.value, "all", "", *_cells(compared)) for phase, compared in profile.phases.items()]
    print_table(columns, rows)
    _show_layers(profile, all_layers)


def _show_layers(profile: Profile, all_layers: bool) -> None:
    from foretrain.serving.cli.terminal import Column, print_line, print_table
    from foretrain.units import format_duration

    longest = sorted(profile.layers, key=lambda row: -row.measured_seconds)[:_MOST_LAYERS]
    listed = profile.layers if all_layers else [row for row in profile.layers if row in longest]
    if not listed:
        return
    print_line()
    is_cut = len(listed) < len(profile.layers)
    title = f"Layers (the longest {len(listed)} of {len(profile.layers)})" if is_cut else "Layers"
    print_line(title, "bold")
    titles = ("forward", "predicted", "ratio", "backward", "predicted ", "ratio ")
    columns = [Column("layer"), Column("type"), *(Column(title, right=True) for title in titles)]

    def cells(compared: Compared) -> tuple[str, str, str]:
        return (
            format_duration(compared.measured_seconds),
            _seconds(compared.predicted_seconds),
            _ratio(compared),
        )

    rows = [
        (row.path or "(outside layers)", row.type, *cells(row.forward), *cells(row.backward))
        for row in listed
    ]
    print_table(columns, rows)


def _cells(compared: Compared) -> tuple[str, ...]:
    from foretrain.units import format_duration

    share = "-" if compared.predicted_share is None else f"{compared.predicted_share:.1%}"
    return (
        format_duration(compared.measured_seconds),
        f"{compared.measured_share:.1%}",
        _seconds(compared.predicted_seconds),
        share,
        _ratio(compared),
    )


def _seconds(seconds: float | None) -> str:
    from foretrain.units import format_duration

    return "-" if seconds is None else format_duration(seconds)


def _ratio(compared: Compared) -> str:
    return "-" if compared.ratio is None else f"{compared.ratio:.2f}"
