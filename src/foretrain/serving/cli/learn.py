"""`foretrain learn`: regression on a user's own timings."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from foretrain.decoding import FILE, option
from foretrain.panels import OUTPUT
from foretrain.serving.cli.frame import Command, CommandFamily, Output, check_file
from foretrain.serving.requests.learn import LearnLayersRequest, LearnRequest, LearnResourcesRequest


@dataclass(frozen=True, kw_only=True)
class LearnOutput(Output):
    """What `learn` prints and writes."""

    save: Path | None = option(
        FILE, "Save the model (.json) for use with predict --cost-model FILE.", panel=OUTPUT
    )
    plot: Path | None = option(
        FILE,
        "Plot predicted against measured values, with residuals, to this .png or .svg file.",
        panel=OUTPUT,
    )


def run(request: LearnRequest, output: LearnOutput) -> None:
    """Learn, save and draw if asked for, and print."""
    from foretrain.errors import InvalidRequest
    from foretrain.learning.regression.model import is_model_file, save
    from foretrain.serving.cli.terminal import print_answer, spinner
    from foretrain.serving.verbs import learning

    check_file("--save", output.save)
    if output.save is not None and not is_model_file(output.save):
        raise InvalidRequest(f"--save {output.save}: end the name in .json")
    if output.plot is not None:
        from foretrain.serving.rendering.charts import check_format

        check_format(output.plot)
    with spinner("Learning") as progress:
        answer = learning.learn(request, progress)
    if output.save is not None:
        save(answer.model, output.save)
    if output.plot is not None:
        from foretrain.serving.rendering.charts import save_chart
        from foretrain.serving.views.charts import residuals_chart

        save_chart(residuals_chart(answer), output.plot)
    written = {"Model": output.save, "Plot": output.plot}
    lines = [f"{what}: {file}" for what, file in written.items() if file is not None]
    print_answer(answer, output.json, lines)


def run_layers(request: LearnLayersRequest, output: Output) -> None:
    """Fit the lines of all profiles, predict the others, print."""
    from foretrain.serving.cli.terminal import print_answer
    from foretrain.serving.verbs import learning

    print_answer(learning.learn_layers(request), output.json)


def run_resources(request: LearnResourcesRequest, output: Output) -> None:
    """Train an Inspector, print its accuracy on models left out."""
    from foretrain.serving.cli.terminal import print_answer, spinner
    from foretrain.serving.verbs import learning

    with spinner("Training an Inspector") as progress:
        answer = learning.learn_resources(request, progress)
    print_answer(answer, output.json)


COMMAND = CommandFamily(
    {
        "layers": (
            "Fit one line t = b0 + b1 c per layer type to profiles, and predict whole networks.",
            Command(
                LearnLayersRequest,
                Output,
                run_layers,
                "c is the number of operations of a layer. Lines fitted to one network predict other "
                "networks with the same layer types.",
                (
                    "foretrain profile alexnet --here --batch 4 --json > alexnet.json",
                    "foretrain learn layers alexnet.json --predict googlenet.json",
                ),
            ),
        ),
        "resources": (
            "Train the Inspector, which predicts bursts and idle gaps, on your runs.",
            Command(
                LearnResourcesRequest,
                Output,
                run_resources,
                details="Trains an ensemble of graph networks on measured bursts and validates it on "
                "held-out models. `foretrain resources` then uses it where it beats the timeline.",
                examples=(
                    "foretrain learn resources",
                    "foretrain learn resources --runs runs.parquet --out mine.json",
                    "foretrain learn resources --strategy ps-async --start shipped --out async.json",
                ),
            ),
        ),
    },
    "Learns run times from your own timings, and resource usage from your stored runs.",
    Command(
        LearnRequest,
        LearnOutput,
        run,
        "Fits eight regression techniques to a table (or to stored runs), validates each on held-out rows "
        "(random, or extrapolating to larger batches, more GPUs, other devices or deeper networks) and "
        "keeps the best. If the rows name a model, a device and a batch, foretrain's own prediction is one "
        "of the features (gray box).",
        (
            "foretrain learn timings.csv --target seconds",
            "foretrain learn timings.csv --target seconds --split batch-size,gpu-count --save mine.json",
            "foretrain learn --runs campaign=lab --plot residuals.png",
            "foretrain predict resnet50 --on t4 --batch 64 --cost-model mine.json",
        ),
    ),
)
