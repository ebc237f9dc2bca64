"""`foretrain learn`: regression on a user's own timings."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from foretrain.decoding import FILE, choice, option, texts
from foretrain.serving.cli.frame import Command, CommandFamily, Output, check_file
from foretrain.serving.cli.learn_resources import RESOURCES_COMMAND, RESOURCES_SUMMARY
from foretrain.serving.requests import OUTPUT, LearnRequest, Request

if TYPE_CHECKING:
    from foretrain.learning.regression.layers import LayersAnswer
    from foretrain.learning.regression.learn import LearnAnswer

_WORST = 3
_LONGEST_FORMULA = 300


@dataclass(frozen=True, kw_only=True)
class LearnOutput(Output):
    """What `learn` prints and writes."""

    save: Path | None = option(FILE, "Save the model for predict --cost-model FILE (.json).", panel=OUTPUT)
    plot: Path | None = option(
        FILE,
        "Draw predicted over measured rows and their residuals into this .png or .svg file.",
        panel=OUTPUT,
    )


def run(request: LearnRequest, output: LearnOutput) -> None:
    """Learn, save and draw if asked for, and print."""
    from foretrain.errors import InvalidRequest
    from foretrain.learning.regression.model import is_model_file, save
    from foretrain.serving import verbs
    from foretrain.serving.cli.terminal import print_json, spinner

    check_file("--save", output.save)
    if output.save is not None and not is_model_file(output.save):
        raise InvalidRequest(f"--save {output.save}: end the name in .json")
    if output.plot is not None:
        from foretrain.serving.plots import check_format

        check_format(output.plot)
    with spinner("Learning") as progress:
        answer = verbs.learn(request, progress)
    if output.save is not None:
        save(answer.model, output.save)
    if output.plot is not None:
        from foretrain.serving.plots import draw_residuals

        draw_residuals(answer, output.plot)
    if output.json:
        print_json(answer.to_dict())
    else:
        show(answer, output)


def show(answer: LearnAnswer, output: LearnOutput | None = None) -> None:
    """Print the model and its errors, and the files written."""
    from foretrain.serving.cli.terminal import Column, print_line, print_notes, print_table

    rows = f"{answer.timings} rows" if answer.timings == answer.configurations else (
        f"{answer.timings} rows of {answer.configurations} configurations")  # fmt: skip
    print_line(f"{answer.target} from {', '.join(answer.features)} ({rows})", "bold")
    for split in answer.splits:
        print_line(f"Left out, {split}: {answer.left_out[split]}")
    print_line()
    columns = [Column("technique"), Column("training", right=True)]
    columns += [Column(split, right=True) for split in answer.splits]
    columns += [Column("median", right=True, expendable=2), Column("p90", right=True, expendable=2)]
    columns.append(Column("parameters", expendable=1))
    first = answer.splits[0]
    print_table(
        columns,
        [
            (
                ranked.technique,
                _percent(ranked.errors[first].selection),
                *(_percent(ranked.errors[split].mean) for split in answer.splits),
                _percent(ranked.errors[first].median),
                _percent(ranked.errors[first].p90),
                ", ".join(f"{name} {_short(value)}" for name, value in ranked.parameters.items()),
            )
            for ranked in answer.ranking
        ],
        title="Mean error on the rows left out, ranked by the error inside the training rows",
    )
    print_line()
    model = answer.model
    print_line(
        f"Chosen: {answer.best.technique} ({answer.best.about}); 80 % interval {model.p10:.2f} to "
        f"{model.p90:.2f} of the prediction"
    )
    if model.formula:
        cut = model.formula[:_LONGEST_FORMULA]
        print_line(cut + (" ..." if len(model.formula) > len(cut) else ""))
    _show_worst(answer)
    notes = [f"{name} takes no part: it needs {reason}" for name, reason in answer.skipped.items()]
    print_notes((*notes, *answer.notes))
    written = output or LearnOutput()
    for what, file in (("Model", written.save), ("Plot", written.plot)):
        if file is not None:
            print_line(f"{what}: {file}")


def _show_worst(answer: LearnAnswer) -> None:
    from foretrain.serving.cli.terminal import print_line

    worst = sorted(answer.held_out, key=lambda row: -abs(row.predicted / row.measured - 1))[:_WORST]
    for row in worst:
        described = ", ".join(f"{name} {_short(value)}" for name, value in row.row.items())
        print_line(
            f"Largest error: {described}: measured {row.measured:.4g}, predicted {row.predicted:.4g} "
            f"({row.predicted / row.measured - 1:+.0%})"
        )


def _percent(value: float) -> str:
    return f"{value:.1%}" if value < 10 else "> 1000%"


def _short(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


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
    from foretrain.serving.cli.terminal import print_json

    fitted, others = (
        [read_profile(Path(file)) for file in files] for files in (request.profiles, request.predict)
    )
    answer = learn_layers(fitted, others, request.complexity)
    if output.json:
        print_json(answer.to_dict())
    else:
        show_layers(answer)


def show_layers(answer: LayersAnswer) -> None:
    from foretrain.serving.cli.terminal import Column, print_line, print_table
    from foretrain.units import format_duration

    print_line(
        f"t = b0 + b1 · c for each type of layer on {answer.device}, from {', '.join(answer.fitted)}", "bold"
    )
    print_table(
        [Column("layer"), Column("layers", right=True), Column("b0", right=True),
         Column(f"b1 per {answer.unit}", right=True)],
        [
            (name, str(line.layers), format_duration(line.start_seconds), f"{line.slope * answer.scale:.3g}")
            for name, line in answer.lines.items()
        ],
    )  # fmt: skip
    print_line()
    print_table(
        [Column("model"), Column("batch", right=True), Column("measured", right=True),
         Column("predicted", right=True), Column("error", right=True), Column("fitted to")],
        [
            (row.model, str(row.batch), format_duration(row.measured_seconds),
             format_duration(row.predicted_seconds), f"{row.error:+.1%}",
             "this model" if row.is_fitted else "others")
            for row in answer.predictions
        ],
    )  # fmt: skip


COMMAND = CommandFamily(
    {
        "layers": (
            "Lines t = b0 + b1 c for each type of layer, from profiles; sums for whole networks.",
            Command(
                LayersRequest,
                Output,
                run_layers,
                "c is the number of operations of a layer. The lines of one network predict others that have "
                "the same types of layers.",
                (
                    "foretrain profile alexnet --here --batch 4 --json > alexnet.json",
                    "foretrain learn layers alexnet.json --predict googlenet.json",
                ),
            ),
        ),
        "resources": (RESOURCES_SUMMARY, RESOURCES_COMMAND),
    },
    "Learns from your own timings what a run takes, and from your runs what resources it uses.",
    Command(
        LearnRequest,
        LearnOutput,
        run,
        "Fits eight techniques of regression to a table (or to stored runs), judges each on rows it has not "
        "seen (at random, or beyond the largest batch, the most GPUs, the devices timed, the deepest "
        "network) and keeps the best. Where rows name a model, a device and a batch, foretrain's own "
        "prediction is one of the inputs (gray box).",
        (
            "foretrain learn timings.csv --target seconds",
            "foretrain learn timings.csv --target seconds --split batch-size,gpu-count --save mine.json",
            "foretrain learn --runs campaign=lab --plot residuals.png",
            "foretrain predict resnet50 --on t4 --batch 64 --cost-model mine.json",
        ),
    ),
)
