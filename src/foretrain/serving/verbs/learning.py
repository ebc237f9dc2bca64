"""What is learned from a user's own logs, timings, profiles and runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

from foretrain.answers import Answer
from foretrain.decoding import part
from foretrain.encoding import encode
from foretrain.errors import InvalidRequest, MissingData
from foretrain.progress import Progress, no_progress
from foretrain.serving.requests.learning import (
    ConvergeRequest,
    LearnLayersRequest,
    LearnRequest,
    LearnResourcesRequest,
)

if TYPE_CHECKING:
    from foretrain.convergence.forecast import Convergence
    from foretrain.learning.regression.layers import LayersAnswer
    from foretrain.learning.regression.learn import LearnAnswer
    from foretrain.learning.regression.table import TimingTable
    from foretrain.learning.resources.learn import Learned
    from foretrain.store.runs import Run

PREDICTED = "predicted_seconds"
"""The column of foretrain's own prediction in a table to learn from."""


def converge(request: ConvergeRequest) -> Convergence:
    """Predict when a training log reaches its target.

    >>> answer = ft.converge("docs/examples/loss.csv", target="loss=0.7")
    >>> answer.reaches
    True
    """
    from foretrain.convergence.forecast import converge as core

    return core(request)


def learn(
    request: LearnRequest, progress: Progress = no_progress, rows: Sequence[Mapping[str, Any]] = ()
) -> LearnAnswer:
    """Learn what runs take from a table of timings (a CSV file or rows as dicts), or from stored `runs`.

    >>> rows = [{"batch": batch, "seconds": 0.01 + 0.002 * batch} for batch in (4, 8, 16, 24, 32, 48, 64)]
    >>> answer = ft.learn(rows, target="seconds", technique="linear", split="batch-size")
    >>> answer.model.formula
    'seconds = 0.01 + 0.002 · (batch)'
    >>> round(answer.model.predict([{"batch": 128}])[0].p50, 3)
    0.266
    """
    from foretrain.learning.regression.learn import learn as core
    from foretrain.learning.regression.predictions import with_predictions
    from foretrain.learning.regression.table import sample_of, table_of

    if (request.table is not None) + (request.runs is not None) + bool(rows) != 1:
        raise InvalidRequest("learn takes either a `table` of timings or `runs` of the store")
    table, target = (table_of(rows), request.target) if rows else _learning_table(request)
    if target is None:
        raise InvalidRequest(f"give `target`, the column to predict: one of {', '.join(table.columns)}")
    problem = ""
    features = request.features
    if request.gray_box:
        table, problem = with_predictions(table, request.model or "", progress)
        features = (*features, PREDICTED) if features and PREDICTED in table.columns else features
    sample = sample_of(table, target, tuple(dict.fromkeys(features)), request.drop_missing)
    if problem:
        sample = replace(sample, notes=(*sample.notes, problem))
    return core(sample, request.split, request.technique, progress)


def _learning_table(request: LearnRequest) -> tuple[TimingTable, str | None]:
    from foretrain.learning.regression.table import STEP_SECONDS, read_table, table_of_runs
    from foretrain.store import open_store
    from foretrain.store.runs import parse_query

    if request.table is not None:
        return read_table(request.table), request.target
    with open_store(request.store) as store:
        runs, place = store.runs(parse_query(request.runs or "")), store.place
    target = request.target or STEP_SECONDS
    return table_of_runs(runs, f"runs of {place}", target), target


def learn_layers(request: LearnLayersRequest) -> LayersAnswer:
    """Fit one line per layer type to `profiles` (files of `profile`), and predict other profiles by it.

    >>> from pathlib import Path
    >>> profile = ft.profile("mnist-cnn", here=True, batch=2, seconds=0.1)
    >>> _ = Path("profile.json").write_text(profile.to_json())
    >>> "convolution forward" in ft.learn_layers("profile.json").lines
    True
    """
    from foretrain.learning.regression.layers import learn_layers as core
    from foretrain.learning.regression.layers import read_profile

    fitted, others = (
        [read_profile(Path(file)) for file in files] for files in (request.profiles, request.predict)
    )
    return core(fitted, others, request.complexity)


# ---------------------------------------------------------------- resources


@final
@dataclass(frozen=True)
class ResourcesLearned(Answer):
    """A trained Inspector with its accuracy, why runs were not used and how many, and the files written."""

    learned: Learned
    unused: Mapping[str, int]
    files: tuple[Path, Path]

    def to_dict(self) -> dict[str, Any]:
        """Errors on models left out, by method and resource."""
        from foretrain.learning.resources.samples import RESOURCES

        left_out = self.learned.left_out
        methods = {"inspector": left_out.inspector, "timeline": left_out.timeline, "mean": left_out.mean}
        return {
            "runs": self.learned.samples,
            "models": list(self.learned.models),
            "unused": dict(self.unused),
            "left_out_mean_error": {
                name: {
                    resource.value: left_out.error(predicted, place)
                    for place, resource in enumerate(RESOURCES)
                }
                for name, predicted in methods.items()
            },
            "by_strategy": encode(dict(self.learned.inspector.by_strategy)),
            "files": [str(each) for each in self.files],
        }

    def summary(self) -> tuple[tuple[str, str], ...]:
        """What it was trained on, and where it is."""
        return (("runs", str(self.learned.samples)), ("file", str(self.files[0])))


def learn_resources(request: LearnResourcesRequest, progress: Progress = no_progress) -> ResourcesLearned:
    """Train the Inspector, which predicts bursts and idle gaps, on stored runs with resource samples.

    >>> ft.learn_resources(model="resnet50")
    Traceback (most recent call last):
        ...
    foretrain.errors.MissingData: there are no stored runs; `foretrain campaign FILE` measures some
    """
    from foretrain.learning.resources.artefact import SHIPPED, load, own_file, save
    from foretrain.learning.resources.learn import learn as core
    from foretrain.learning.resources.options import InspectorOptions, InspectorTraining
    from foretrain.learning.resources.samples import resource_samples, sample_interval_seconds

    file = request.out or own_file()
    if file.suffix != ".json":
        raise InvalidRequest(f"`out` {file}: end the name in .json; the weights go beside it")
    runs = _runs_to_learn_from(request)
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
    learned = core(
        samples,
        sample_interval_seconds(runs),
        part(InspectorOptions, request),
        part(InspectorTraining, request),
        start,
        progress,
    )
    return ResourcesLearned(learned, reasons, save(learned.inspector, file))


def _runs_to_learn_from(request: LearnResourcesRequest) -> list[Run]:
    if request.runs is not None:
        from foretrain.store.exchange.parquet_files import read_parquet

        runs = [*read_parquet(request.runs)]
    else:
        from foretrain.store import open_store
        from foretrain.store.runs import RunQuery

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
