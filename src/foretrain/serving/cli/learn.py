"""`foretrain learn`: regression on a user's own timings."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from foretrain.decoding import FILE, choice, option, texts
from foretrain.panels import OUTPUT
from foretrain.serving.cli.frame import Command, CommandFamily, Output, check_file
from foretrain.serving.cli.learn_resources import RESOURCES_COMMAND, RESOURCES_SUMMARY
from foretrain.serving.requests import LearnRequest, Request


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
    from foretrain.serving import verbs
    from foretrain.serving.cli.terminal import print_answer, spinner

    check_file("--save", output.save)
    if output.save is not None and not is_model_file(output.save):
        raise InvalidRequest(f"--save {output.save}: end the name in .json")
    if output.plot is not None:
        from foretrain.serving.rendering.charts import check_format

        check_format(output.plot)
    with spinner("Learning") as progress:
        answer = verbs.learn(request, progress)
    if output.save is not None:
        save(answer.model, output.save)
    if output.plot is not None:
        from foretrain.serving.rendering.charts import save_chart
        from foretrain.serving.views.charts import residuals_chart

        save_chart(residuals_chart(answer), output.plot)
    written = {"Model": output.save, "Plot": output.plot}
    lines = [f"{what}: {file}" for what, file in written.items() if file is not None]
    print_answer(answer, output.json, lines)


@dataclass(frozen=True, kw_only=True)
class LayersRequest(Request):
    """Lines of layers from profiles."""

    VERB = "learn layers"

    profiles: tuple[str, ...] = option(
        texts("profiles", by_comma=False),
        "Files of `foretrain profile MODEL --json`, all of one device.",
        required=True,
        positional=True,
        metavar="PROFILE",
    )
    predict: tuple[str, ...] = option(
        texts("profiles", by_comma=False),
        "Profiles of other models to predict by the lines of the first ones.",
        default=(),
    )
    complexity: str = option(
        choice("operations", "predicted"),
        "What c is: operations of the published table, or foretrain's own prediction of the layer.",
        default="operations",
    )


def run_layers(request: LayersRequest, output: Output) -> None:
    """Fit the lines of all profiles, predict the others, print."""
    from foretrain.learning.regression.layers import learn_layers, read_profile
    from foretrain.serving.cli.terminal import print_answer

    fitted, others = (
        [read_profile(Path(file)) for file in files] for files in (request.profiles, request.predict)
    )
    answer = learn_layers(fitted, others, request.complexity)
    print_answer(answer, output.json)


COMMAND = CommandFamily(
    {
        "layers": (
            "Fit one line t = b0 + b1 c per layer type to profiles, and predict whole networks.",
            Command(
                LayersRequest,
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
        "resources": (RESOURCES_SUMMARY, RESOURCES_COMMAND),
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
