"""`foretrain learn resources`: train an Inspector on the runs in the store."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from foretrain.decoding import FILE, TEXT, choice, option, texts, whole_number
from foretrain.errors import InvalidRequest, MissingData
from foretrain.learning.resources.options import GROUPINGS, NETWORKS, READOUTS
from foretrain.panels import FIT, OUTPUT, STORED
from foretrain.serving.cli.frame import Command, Output
from foretrain.serving.requests import Request

if TYPE_CHECKING:
    from foretrain.learning.resources.learn import Learned
    from foretrain.store.runs import Run


@dataclass(frozen=True, kw_only=True)
class LearnResourcesRequest(Request):
    """Which runs an Inspector is trained on, and how."""

    VERB = "learn resources"
    COMMON = ("runs", "model", "start", "out", "json")

    runs: Path | None = option(
        FILE,
        "Parquet file of runs, as `foretrain runs export` writes it (default: the store).",
        metavar="FILE",
        panel=STORED,
    )
    store: str | None = option(
        TEXT, "The store of runs, if not the default one.", metavar="FILE|URL", panel=STORED
    )
    model: tuple[str, ...] = option(texts(), "Only runs of these models.", default=(), panel=STORED)
    strategy: tuple[str, ...] = option(
        texts(by_comma=False),
        "Only runs with these strategies, e.g. for a transfer.",
        default=(),
        panel=STORED,
    )
    network: str = option(choice(*NETWORKS), "Graph network.", default="gcn", panel=FIT)
    readout: str = option(choice(*READOUTS), "Readout of the graph.", default="set2set", panel=FIT)
    grouping: str = option(
        choice(*GROUPINGS), "Grouping of the operators.", default="proportional", panel=FIT
    )
    start: Path | None = option(
        FILE,
        "Transfer this Inspector (its JSON, or `shipped`) instead of training a new one.",
        metavar="FILE",
        panel=FIT,
    )
    epochs: int = option(whole_number(1), "Most epochs of a member.", default=400, panel=FIT)
    members: int = option(whole_number(1), "Members of the ensemble.", default=3, panel=FIT)
    folds: int = option(whole_number(2), "Folds of models left out for the accuracy.", default=5, panel=FIT)
    seed: int = option(whole_number(0), "Seed of all that is random.", default=0, panel=FIT)
    out: Path | None = option(
        FILE, "JSON to write, the weights beside it (default: your own Inspector, which `resources` uses).",
        panel=OUTPUT,
    )  # fmt: skip


def run(request: LearnResourcesRequest, output: Output) -> None:
    """Train, print the accuracy on models left out, and write the files."""
    from foretrain.learning.resources.artefact import own_file, save
    from foretrain.serving.cli.terminal import print_json, print_line, spinner

    file = request.out or own_file()
    if file.suffix != ".json":
        raise InvalidRequest(f"`out` {file}: end the name in .json; the weights go beside it")
    with spinner("Training an Inspector") as progress:
        learned, unused = learn_from(_runs(request), request, progress)
    written = save(learned.inspector, file)
    if output.json:
        print_json(_plain(learned, unused, written))
        return
    _show(learned, unused)
    print_line(f"Written: {written[0]} and {written[1].name}")


def learn_from(
    runs: list[Run], request: LearnResourcesRequest, progress: Any
) -> tuple[Learned, dict[str, int]]:
    """The Inspector trained on runs, and why others were not used."""
    from foretrain.learning.resources.artefact import SHIPPED, load
    from foretrain.learning.resources.learn import learn
    from foretrain.learning.resources.options import InspectorOptions, TrainingOptions
    from foretrain.learning.resources.samples import resource_samples, sample_interval_seconds

    progress("reading the runs")
    samples, unused = resource_samples(runs, lambda model: progress(f"predicting {model}"))
    reasons: dict[str, int] = {}
    for each in unused:
        reasons[each.reason] = reasons.get(each.reason, 0) + 1
    if not samples:
        why = next(iter(reasons), "there are none")
        raise MissingData(f"none of {len(runs)} runs can train an Inspector: {why}")
    start = None
    if request.start is not None:
        start = load(SHIPPED if str(request.start) == "shipped" else request.start)
    learned = learn(
        samples,
        sample_interval_seconds(runs),
        InspectorOptions(network=request.network, readout=request.readout, grouping=request.grouping),
        TrainingOptions(
            epochs=request.epochs, members=request.members, folds=request.folds, seed=request.seed
        ),
        start,
        progress,
    )
    return learned, reasons


def _runs(request: LearnResourcesRequest) -> list[Run]:
    if request.runs is not None:
        from foretrain.store.exchange.parquet_files import read_parquet

        runs = [*read_parquet(request.runs)]
    else:
        from foretrain.store import open_store
        from foretrain.store.queries import RunQuery

        with open_store(request.store) as store:
            runs = [*store.runs(RunQuery())]
    if not runs:
        raise MissingData("there are no stored runs; `foretrain campaign FILE` measures some")
    return [
        run
        for run in runs
        if (not request.model or run.setting.get("model") in request.model)
        and (not request.strategy or run.setting.get("strategy") in request.strategy)
    ]


def _plain(learned: Learned, unused: dict[str, int], written: tuple[Path, Path]) -> dict[str, Any]:
    from foretrain.encoding import encode
    from foretrain.learning.resources.samples import RESOURCES

    left_out = learned.left_out
    methods = {"inspector": left_out.inspector, "timeline": left_out.timeline, "mean": left_out.mean}
    return {
        "runs": learned.samples,
        "models": list(learned.models),
        "unused": unused,
        "left_out_mean_error": {
            name: {
                resource.value: left_out.error(predicted, place) for place, resource in enumerate(RESOURCES)
            }
            for name, predicted in methods.items()
        },
        "by_strategy": encode(dict(learned.inspector.by_strategy)),
        "files": [str(each) for each in written],
    }


def _show(learned: Learned, unused: dict[str, int]) -> None:
    from foretrain.learning.resources.samples import RESOURCES
    from foretrain.serving.cli.terminal import Column, print_line, print_table

    left_out = learned.left_out
    print_line(f"{learned.samples} runs of {len(learned.models)} models", "bold")
    columns = [
        Column("mean error on models left out"),
        *(Column(each.value, right=True) for each in RESOURCES),
    ]
    rows = [
        (name, *(f"{left_out.error(predicted, place):.1%}" for place in range(len(RESOURCES))))
        for name, predicted in (
            ("Inspector", left_out.inspector),
            ("timeline, constants fitted", left_out.timeline),
            ("mean of the other models", left_out.mean),
        )
    ]
    print_table(columns, rows)
    print_line()
    strategies = learned.inspector.by_strategy.items()
    print_table(
        [
            Column("strategy"),
            Column("runs", right=True),
            Column("Inspector", right=True),
            Column("timeline", right=True),
        ],
        [
            (name, str(each.runs), f"{each.inspector:.1%}", f"{each.timeline:.1%}")
            for name, each in strategies
        ],
    )
    for reason, count in unused.items():
        print_line(f"{count} not used: {reason}")


RESOURCES_COMMAND = Command(
    LearnResourcesRequest,
    Output,
    run,
    details="Trains an ensemble of graph networks on measured bursts and validates it on held-out models. "
    "`foretrain resources` then uses it where it is more accurate than the timeline.",
    examples=(
        "foretrain learn resources",
        "foretrain learn resources --runs runs.parquet --out mine.json",
        "foretrain learn resources --strategy ps-async --start shipped --out async.json",
    ),
)
RESOURCES_SUMMARY = "Train the Inspector, which predicts bursts and idle gaps, on your runs."
