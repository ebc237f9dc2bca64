"""`foretrain resources` and `foretrain pair`: what a step uses over its time, and how two jobs share it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from foretrain.decoding import FILE, option
from foretrain.panels import OUTPUT
from foretrain.serving.cli.frame import Command, Output
from foretrain.serving.cli.terminal import print_answer, spinner
from foretrain.serving.requests.resources import PairRequest, ResourcesRequest

if TYPE_CHECKING:
    from foretrain.answers import Infeasible
    from foretrain.serving.views.blocks import Chart

Drawn = TypeVar("Drawn")


@dataclass(frozen=True, kw_only=True)
class ResourcesOutput(Output):
    """What `resources` prints and draws."""

    plot: Path | None = option(FILE, "Draw the bursts on a time axis (PNG, SVG or PDF).", panel=OUTPUT)


@dataclass(frozen=True, kw_only=True)
class PairOutput(Output):
    """What `pair` prints and draws."""

    plot: Path | None = option(FILE, "Draw both jobs on a time axis (PNG, SVG or PDF).", panel=OUTPUT)


def _resources(request: ResourcesRequest, output: ResourcesOutput) -> None:
    """Print the four resources, and the table of changes."""
    from foretrain.serving.verbs.consumption import resources
    from foretrain.serving.views.charts import consumption_chart

    _check_plot(output.plot)
    with spinner(f"Predicting {request.model}") as progress:
        answer = resources(request, progress)
    _draw(answer, consumption_chart, output.plot)
    print_answer(answer, output.json)


def _pair(request: PairRequest, output: PairOutput) -> None:
    """Print slowdowns and verdict."""
    from foretrain.serving.verbs.consumption import pair
    from foretrain.serving.views.charts import pair_chart

    _check_plot(output.plot)
    with spinner("Predicting both jobs") as progress:
        answer = pair(request, progress)
    _draw(answer, pair_chart, output.plot)
    print_answer(answer, output.json)


def _check_plot(file: Path | None) -> None:
    """Refuse a format that cannot be drawn before anything is predicted."""
    from foretrain.serving.rendering.charts import check_format

    if file is not None:
        check_format(file)


def _draw(answer: Drawn | Infeasible, chart_of: Callable[[Drawn], Chart], file: Path | None) -> None:
    """Draw an answer if asked for; a job that cannot run has no chart."""
    from foretrain.answers import Infeasible
    from foretrain.serving.rendering.charts import save_chart

    if file is not None and not isinstance(answer, Infeasible):
        save_chart(chart_of(answer), file)


_RESOURCES = Command(
    ResourcesRequest,
    ResourcesOutput,
    _resources,
    details="Reports burst amount, burst duration and idle duration of compute, memory, network transmit and "
    "network receive for one worker. Derived from the timeline of the step, or predicted by the "
    "Inspector, a graph network trained on measured runs.",
    examples=(
        "foretrain resources resnet50 --on v100-sxm2-16gb:1x2 --network ethernet-10g --strategy ps-sync",
        "foretrain resources resnet50 --on v100-sxm2-16gb --what-if gpu=rtx2080ti --what-if batch=64",
        "foretrain resources gpt2 --on a100-sxm-80gb:8 --strategy fsdp --plot bursts.svg",
    ),
)
_PAIR = Command(
    PairRequest,
    PairOutput,
    _pair,
    details="Overlays the resource usage of two jobs. Where both need the GPU, its memory or the link at the "
    "same time, they share it fairly. Kernels of different processes take turns.",
    examples=(
        "foretrain pair resnet50 bert-base --on v100-sxm2-16gb:1x2 --network ethernet-10g --batch 32,8",
        "foretrain pair mnist-cnn voice-conv --on t4 --json",
    ),
)
COMMANDS = {"resources": _RESOURCES, "pair": _PAIR}
