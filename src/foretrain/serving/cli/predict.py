"""`foretrain predict`: what a training step, and the whole job, take on given hardware."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from foretrain.decoding import FILE, SWITCH, number, option
from foretrain.panels import OUTPUT
from foretrain.serving.cli.frame import Command, Output, check_file, write_file
from foretrain.serving.cli.terminal import print_answer, spinner
from foretrain.serving.requests.predict import FitRequest, PredictRequest

if TYPE_CHECKING:
    from foretrain.prediction.answer import MemoryAnswer, Prediction


def _check() -> bool:
    """The option to fail where a step does not fit."""
    check: bool = option(
        SWITCH, "Exit with status 1 if the job does not fit in memory.", default=False, panel=OUTPUT
    )
    return check


def _confidence() -> float:
    confidence: float = option(
        number(above=0, at_most=1),
        "Minimum probability of fitting in memory, for `check`.",
        default=0.5,
        panel=OUTPUT,
    )
    return confidence


@dataclass(frozen=True, kw_only=True)
class FitOutput(Output):
    """What `fit` prints, and when it fails."""

    check: bool = _check()
    confidence: float = _confidence()


@dataclass(frozen=True, kw_only=True)
class PredictOutput(Output):
    """What `predict` prints, writes and draws."""

    timeline: Path | None = option(
        FILE, "Write the timeline of the step as a Chrome trace (for Perfetto).", panel=OUTPUT
    )
    plot: Path | None = option(FILE, "Plot the scaling curve to this .png or .svg file.", panel=OUTPUT)
    check: bool = _check()
    confidence: float = _confidence()


def run(request: PredictRequest, output: PredictOutput) -> int:
    """Predict, write the files asked for, and print."""
    from foretrain.answers import Infeasible
    from foretrain.errors import EXIT_INFEASIBLE
    from foretrain.serving.verbs import predicting

    check_file("--timeline", output.timeline)
    with spinner(f"Predicting {request.model}") as progress:
        answer = predicting.predict(request, progress)
    if isinstance(answer, Infeasible):
        print_answer(answer, output.json)
        return EXIT_INFEASIBLE if output.check else 0
    if output.timeline is not None:
        _write_timeline(answer, output.timeline)
    if output.plot is not None:
        _draw_scaling(answer, output.plot)
    print_answer(answer, output.json)
    return EXIT_INFEASIBLE if output.check and not _fits(answer.memory, output.confidence) else 0


def run_fit(request: FitRequest, output: FitOutput) -> int:
    """Print whether it fits."""
    from foretrain.answers import Infeasible
    from foretrain.errors import EXIT_INFEASIBLE
    from foretrain.serving.verbs import predicting

    with spinner(f"Fitting {request.model}") as progress:
        answer = predicting.fit(request, progress)
    print_answer(answer, output.json)
    fits = not isinstance(answer, Infeasible) and _fits(answer.memory, output.confidence)
    return EXIT_INFEASIBLE if output.check and not fits else 0


def _fits(memory: MemoryAnswer, confidence: float) -> bool:
    return memory.fits and 1 - memory.out_of_memory_probability >= confidence


def _write_timeline(prediction: Prediction, file: Path) -> None:
    """The streams of the step, as a Chrome trace."""
    from foretrain.encoding import to_json
    from foretrain.prediction.timeline import chrome_trace

    title = f"{prediction.workload.source.name} on {prediction.cluster.name}, {prediction.strategy}"
    write_file("--timeline", file, to_json(chrome_trace(prediction.timeline, title)))


def _draw_scaling(prediction: Prediction, file: Path) -> None:
    from foretrain.errors import InvalidRequest
    from foretrain.serving.rendering.charts import save_chart
    from foretrain.serving.views.charts import scaling_chart

    curve = prediction.parallelism.scaling
    if curve is None:
        raise InvalidRequest("--plot draws how a step scales: name more than one device, with --advice")
    save_chart(scaling_chart(curve, prediction.workload.source.name), file)


_PREDICT = Command(
    PredictRequest,
    PredictOutput,
    run,
    "Reports the step time, memory, bottleneck and possible improvements. With a length (--steps, or "
    "--epochs with --samples), also reports time, cost and energy of the whole job.",
    (
        "foretrain predict resnet50 --on rtx3090 --batch 192 --precision fp16 --channels-last",
        "foretrain predict resnet50 --on v100-sxm2-16gb --batch 64 --dataset imagenet-jpeg --storage hdd",
        "foretrain predict llama3-8b --on h100-sxm:8 --strategy zero3 --precision bf16 --batch 1",
        "foretrain predict bert-large --on aws:g5.12xlarge:2 --batch 8 --timeline step.json",
        "foretrain predict llama3-70b --on h100-sxm:8x8 --strategy auto --global-batch 512 --precision bf16",
        "foretrain predict resnet50 --on cluster.yaml --global-batch 256",
        "foretrain predict resnet50 --on aws:g5.xlarge --batch 64 --samples 1281167 --epochs 90 --spot",
    ),
)

_FIT = Command(
    FitRequest,
    FitOutput,
    run_fit,
    "Reports the chance that a step fits into memory, how much it needs, the largest batch, and options that "
    "would make it fit.",
    (
        "foretrain fit llama3-8b --on rtx4090 --lora r=16",
        "foretrain fit resnet50 --on t4 --batch 256 --check",
        "foretrain fit llama3-70b --on h100-sxm:8x8 --strategy auto --global-batch 512 --precision bf16",
    ),
)
COMMANDS = {"predict": _PREDICT, "fit": _FIT}
