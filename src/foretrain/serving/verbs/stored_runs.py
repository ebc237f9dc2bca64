"""Stored runs: list, show, compare, export, import and delete them; validate predictions by them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

from foretrain.answers import Answer
from foretrain.encoding import encode, to_json
from foretrain.errors import ForetrainError, InvalidRequest, MissingData, UnknownName
from foretrain.progress import Progress, no_progress
from foretrain.serving.requests.stored_runs import (
    CompareRunsRequest,
    DeleteRunsRequest,
    ExportRunsRequest,
    ImportRunsRequest,
    ListRunsRequest,
    QueryFields,
    ShowRunRequest,
    ValidateRequest,
)
from foretrain.units import UnitError, format_duration

if TYPE_CHECKING:
    from foretrain.learning.validation import PredictionComparison, Validation
    from foretrain.store import RunQuery
    from foretrain.store.database import Store
    from foretrain.store.runs import PredictionMade, Run, RunFigure, SampleRange

PUBLIC_SUITES = "the accuracy suites on public measurements run with `make validate` in a source checkout"


def _query(request: QueryFields, limit: int | None = None) -> RunQuery:
    """The conditions of a request."""
    from foretrain.store import RunQuery
    from foretrain.store.runs import Status

    return RunQuery(
        model=request.model,
        device=request.device,
        campaign=request.campaign,
        status=None if request.status is None else Status(request.status.replace("-", " ")),
        since=request.since,
        limit=limit,
    )


def _plain_run(run: Run) -> dict[str, Any]:
    """A run as plain data without its arrays, and without the whole answer of its prediction."""
    row: dict[str, Any] = encode(
        {each.name: getattr(run, each.name) for each in fields(run) if each.name not in ("steps", "series")}
    )
    if row["prediction"] is not None:
        del row["prediction"]["answer"]
    return row


def _step_of(run: Run) -> tuple[str, str]:
    """A run and its step time, for summaries."""
    return run.id, run.status.value if run.summary is None else format_duration(run.summary.seconds)


# ---------------------------------------------------------------- list, show, compare


@final
@dataclass(frozen=True)
class RunList(Answer):
    """The newest runs of a store that meet the conditions."""

    store: str
    runs: tuple[Run, ...]
    has_more: bool = False

    def to_dict(self) -> dict[str, Any]:
        """The runs without their samples."""
        return {"store": self.store, "runs": [*map(_plain_run, self.runs)], "has_more": self.has_more}

    def summary(self) -> tuple[tuple[str, str], ...]:
        """The step time of each."""
        return tuple(map(_step_of, self.runs))


def list_runs(request: ListRunsRequest) -> RunList:
    """List the newest stored runs: all, or those of a `model`, a `device` or a `campaign`.

    >>> ft.import_runs("docs/examples/run_timings.csv").added
    4
    >>> [run.setting["batch"] for run in ft.list_runs(limit=2).runs]
    [200, 20]
    """
    from foretrain.store import open_store

    with open_store(request.store) as store:
        runs = store.runs(_query(request, request.limit + 1))
        place = store.place
    return RunList(place, tuple(runs[: request.limit]), has_more=len(runs) > request.limit)


@final
@dataclass(frozen=True)
class RunDetails(Answer):
    """One run, what it used, and its prediction beside the measurement where both are known."""

    run: Run
    resources: tuple[SampleRange, ...]
    comparison: PredictionComparison | None

    def to_dict(self) -> dict[str, Any]:
        """The run with its prediction in full, the use of each resource, and the number of steps."""
        return {
            **_plain_run(self.run),
            "prediction": encode(self.run.prediction),
            "workers": [
                {"worker": each.worker, "node": each.node, "steps": len(each.seconds)}
                for each in self.run.steps
            ],
            "resources": encode(self.resources),
            "comparison": encode(self.comparison),
        }

    def summary(self) -> tuple[tuple[str, str], ...]:
        """The step time."""
        return (_step_of(self.run),)


def show_run(request: ShowRunRequest) -> RunDetails:
    """Show one stored run: steps, resources, prediction and measurement. `id` may be the start of its id.

    >>> ft.import_runs("docs/examples/run_timings.csv").added
    4
    >>> newest = ft.list_runs(limit=1).runs[0]
    >>> ft.show_run(newest.id).run.summary.seconds
    1.005026
    """
    from foretrain.learning.validation import compare_run, why_not_comparable
    from foretrain.store import open_store
    from foretrain.store.runs import resource_use

    with open_store(request.store) as store:
        run = store.run(request.id)
    is_comparable = run.prediction is not None and not why_not_comparable(run)
    comparison = compare_run(run, run.prediction) if run.prediction is not None and is_comparable else None
    return RunDetails(run, resource_use(run), comparison)


@final
@dataclass(frozen=True)
class RunComparison(Answer):
    """Several runs side by side; ratios are to the first."""

    runs: tuple[Run, ...]
    figures: tuple[RunFigure, ...]

    def to_dict(self) -> dict[str, Any]:
        """The runs without their samples, and each quantity of all of them."""
        return {"runs": [*map(_plain_run, self.runs)], "figures": encode(self.figures)}

    def summary(self) -> tuple[tuple[str, str], ...]:
        """The step time of each."""
        return tuple(map(_step_of, self.runs))


def compare_runs(request: CompareRunsRequest) -> RunComparison:
    """Compare stored runs side by side, with ratios to the first. `ids` may be the start of ids.

    >>> ft.import_runs("docs/examples/run_timings.csv").added
    4
    >>> first, second = ft.list_runs(limit=2).runs
    >>> [figure.name for figure in ft.compare_runs(first.id, second.id).figures][:2]
    ['step', 'step p90']
    """
    from foretrain.store import RunQuery, open_store
    from foretrain.store.runs import side_by_side

    with open_store(request.store) as store:
        ids = tuple(dict.fromkeys(store.id_of(each) for each in request.ids))
        if len(ids) < 2:
            raise InvalidRequest("compare takes at least two different runs")
        by_id = {run.id: run for run in store.runs(RunQuery(ids=ids), with_series=True)}
    runs = tuple(by_id[each] for each in ids)
    return RunComparison(runs, side_by_side(runs))


# ---------------------------------------------------------------- export, import, delete


@final
@dataclass(frozen=True)
class RunsExported(Answer):
    """How many runs went into which file."""

    file: Path
    runs: int

    def to_dict(self) -> dict[str, Any]:
        """File and number."""
        return {"file": str(self.file), "runs": self.runs}

    def summary(self) -> tuple[tuple[str, str], ...]:
        """File and number."""
        return (("file", str(self.file)), ("runs", str(self.runs)))


def export_runs(request: ExportRunsRequest, progress: Progress = no_progress) -> RunsExported:
    """Write stored runs to a CSV, Parquet or JSON `file`.

    >>> ft.import_runs("docs/examples/run_timings.csv").added
    4
    >>> ft.export_runs("runs.json", model="resnet50").runs
    4
    """
    from foretrain.facts.user_data import check_file
    from foretrain.store import open_store
    from foretrain.store.exchange import export_runs, form_of

    check_file("FILE", request.file)
    form_of(request.file, request.format)  # an unknown format is refused before the store is opened
    progress(f"writing {request.file}")
    with open_store(request.store) as store:
        if not store.runs(_query(request, 1)):
            raise MissingData(
                f"no run in the store {store.place} meets the conditions; list them: foretrain runs list"
            )
        return RunsExported(request.file, export_runs(store, _query(request), request.file, request.format))


@final
@dataclass(frozen=True)
class RunsImported(Answer):
    """How many runs a file has, and how many of them were not stored already."""

    file: Path
    store: str
    runs: int
    added: int

    def to_dict(self) -> dict[str, Any]:
        """File, store and both numbers."""
        return {"file": str(self.file), "store": self.store, "runs": self.runs, "added": self.added}

    def summary(self) -> tuple[tuple[str, str], ...]:
        """Both numbers."""
        return (("runs", str(self.runs)), ("added", str(self.added)))


def import_runs(request: ImportRunsRequest, progress: Progress = no_progress) -> RunsImported:
    """Add the runs of a `file` to the store, all or none of them; stored runs are not added again.

    >>> ft.import_runs("docs/examples/run_timings.csv").added
    4
    >>> ft.import_runs("docs/examples/run_timings.csv").added
    0
    """
    from foretrain.serving.verbs.run_predictions import described
    from foretrain.store import open_store
    from foretrain.store.exchange import import_runs

    progress(f"reading {request.file}")
    with open_store(request.store) as store:
        total, added = import_runs(store, request.file, described, request.format)
        return RunsImported(request.file, store.place, total, added)


@final
@dataclass(frozen=True)
class RunsDeleted(Answer):
    """How many runs were deleted."""

    deleted: int

    def to_dict(self) -> dict[str, Any]:
        """The number."""
        return {"deleted": self.deleted}

    def summary(self) -> tuple[tuple[str, str], ...]:
        """The number."""
        return (("deleted", str(self.deleted)),)


Confirm = Callable[[Sequence[str], str], bool]
"""Gets the ids of runs and where they are stored; whether to delete them."""


def delete_runs(request: DeleteRunsRequest, confirm: Confirm = lambda _ids, _place: True) -> RunsDeleted:
    """Delete runs from the store, by their `ids` or all of a `campaign`, without asking.

    >>> ft.import_runs("docs/examples/run_timings.csv").added
    4
    >>> ft.delete_runs(ft.list_runs(limit=1).runs[0].id).deleted
    1
    """
    from foretrain.store import open_store

    with open_store(request.store) as store:
        ids = _ids_to_delete(store, request)
        return RunsDeleted(store.delete(ids) if confirm(ids, store.place) else 0)


def _ids_to_delete(store: Store, request: DeleteRunsRequest) -> list[str]:
    from foretrain.store import RunQuery

    if bool(request.ids) == (request.campaign is not None):
        raise InvalidRequest("delete takes either ids of runs or --campaign")
    if request.campaign is None:
        return list(dict.fromkeys(store.id_of(each) for each in request.ids))
    ids = [run.id for run in store.runs(RunQuery(campaign=request.campaign))]
    if not ids:
        known = {run.campaign for run in store.runs() if run.campaign is not None}
        raise UnknownName("campaign", request.campaign, known, "List them: foretrain runs list")
    return ids


# ---------------------------------------------------------------- validate


@dataclass(frozen=True, kw_only=True)
class SkippedRun:
    """A run that was not compared with a prediction made now, and why.

    `before` is whether it was compared with the prediction made before it.
    """

    run: str
    before: bool
    reason: str


@final
@dataclass(frozen=True, kw_only=True)
class ValidateAnswer(Answer):
    """`before` compares the predictions made before the runs, `now` those that foretrain makes today."""

    store: str
    stored_runs: int
    before: Validation | None
    now: Validation | None
    skipped: tuple[SkippedRun, ...]

    def to_dict(self) -> dict[str, Any]:
        """Every comparison, and what was not compared."""
        plain: dict[str, Any] = encode(self)
        return plain

    def summary(self) -> tuple[tuple[str, str], ...]:
        """Mean errors."""
        both = (("before the runs", self.before), ("now", self.now))
        return tuple((name, f"{each.overall.mean:.1%}") for name, each in both if each is not None)


def validate(request: ValidateRequest, progress: Progress = no_progress) -> ValidateAnswer:
    """Compare stored runs with the predictions made before them and with those of today.

    >>> ft.import_runs("docs/examples/run_timings.csv").added
    4
    >>> answer = ft.validate(model="resnet50")
    >>> answer.before is None, answer.now.overall.runs
    (True, 4)
    """
    from foretrain.store import open_store

    with open_store(request.store) as store:
        runs, place = store.runs(_query(request)), store.place
    if not runs:
        raise MissingData(
            f"there are no stored runs in {place} that meet the conditions; `foretrain measure -- COMMAND` "
            f"and `foretrain runs import FILE` store some; {PUBLIC_SUITES}"
        )
    answer = validate_runs(runs, place, progress)
    if answer.before is None and answer.now is None:
        first = answer.skipped[0]
        raise MissingData(
            f"none of the {len(runs)} stored runs can be compared; the newest, {first.run}: {first.reason}"
        )
    return answer


def validate_runs(runs: Sequence[Run], place: str, progress: Progress = no_progress) -> ValidateAnswer:
    """Compare each run with the prediction made before it, and with that of today."""
    from foretrain.learning.validation import compare_run, validation_of, why_not_comparable

    predictions: dict[str, tuple[PredictionMade | None, str]] = {}
    before, now, skipped = [], [], []
    for number, run in enumerate(runs, 1):
        reason = why_not_comparable(run)
        if not reason:
            progress(f"{number} of {len(runs)}")
            if run.prediction is not None:
                before.append(compare_run(run, run.prediction))
            # Runs of the same setting have the same prediction: each setting is predicted once.
            key = to_json(dict(sorted(run.setting.items())))
            if key not in predictions:
                predictions[key] = _predict_setting(run)
            made, reason = predictions[key]
            if made is not None:
                now.append(compare_run(run, made))
        if reason:
            is_before = bool(before) and before[-1].run == run.id
            skipped.append(SkippedRun(run=run.id, before=is_before, reason=reason))
    return ValidateAnswer(
        store=place,
        stored_runs=len(runs),
        before=validation_of(before),
        now=validation_of(now),
        skipped=tuple(skipped),
    )


def _predict_setting(run: Run) -> tuple[PredictionMade | None, str]:
    from foretrain.serving.verbs.run_predictions import predicted

    try:
        return predicted(run.setting), ""
    except (ForetrainError, UnitError) as error:
        return None, f"it cannot be predicted: {error}"
