"""`foretrain pair`: would two jobs share a device and a link well?"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from foretrain.decoding import FILE, option
from foretrain.serving.cli.frame import Command, Output
from foretrain.serving.requests import OUTPUT, PairRequest

if TYPE_CHECKING:
    from foretrain.prediction.resources.pair_answer import PairAnswer


@dataclass(frozen=True, kw_only=True)
class PairOutput(Output):
    """How it is printed."""

    plot: Path | None = option(FILE, "Draw both jobs on a time axis (PNG, SVG or PDF).", panel=OUTPUT)


def run(request: PairRequest, output: PairOutput) -> None:
    """Print slowdowns and verdict."""
    from foretrain.answers import Infeasible
    from foretrain.serving.cli.terminal import print_infeasible, print_json, spinner
    from foretrain.serving.consumption import pair
    from foretrain.serving.plots import check_format, draw_pair

    if output.plot is not None:
        check_format(output.plot)
    with spinner("Predicting both jobs") as progress:
        answer = pair(request, progress)
    if isinstance(answer, Infeasible):
        print_infeasible(answer, output.json)
        return
    if output.plot is not None:
        draw_pair(answer, output.plot)
    if output.json:
        print_json(answer.to_dict())
    else:
        show(answer)


COMMAND = Command(
    PairRequest,
    PairOutput,
    run,
    details="Overlays the bursts of two jobs: where both need the GPU, its memory or the link at once, they "
    "share it fairly. Kernels of two processes take turns.",
    examples=(
        "foretrain pair resnet50 bert-base --on v100-sxm2-16gb:1x2 --network ethernet-10g --batch 32,8",
        "foretrain pair mnist-cnn voice-conv --on t4 --json",
    ),
)


def show(answer: PairAnswer) -> None:
    """Print how two jobs share a device and a link."""
    from foretrain.prediction.resources.consumption import words
    from foretrain.serving.cli.terminal import Column, print_line, print_table
    from foretrain.units import format_bytes, format_duration

    first = answer.jobs[0]
    print_line(f"Two jobs on {first.cluster.name}, {first.strategy}", "bold")
    columns = [
        Column("job"), Column("batch", right=True), Column("cycle alone", right=True),
        Column("slowdown", right=True), Column("range", right=True), Column("gpu", least=16),
    ]  # fmt: skip
    rows = [
        (
            job.workload.source.name,
            str(job.batch),
            format_duration(job.cycle_seconds),
            f"{slowdown:.2f}x",
            f"{least:.2f} to {most:.2f}",
            words(job.resources[0]),
        )
        for job, slowdown, least, most in zip(
            answer.jobs, answer.pairing.slowdowns, answer.pairing.least, answer.pairing.most, strict=True
        )
    ]
    print_table(columns, rows)
    print_line()
    memory, capacity = format_bytes(answer.memory_bytes), format_bytes(answer.capacity_bytes)
    print_line(f"Memory: {memory} of {capacity}, {'fits' if answer.fits else 'does not fit'}")
    print_line(f"Verdict: {answer.verdict}", "bold")
