"""What is learned from a user's own logs and timings: converge, learn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from foretrain.errors import InvalidRequest
from foretrain.serving.requests import ConvergeRequest, LearnRequest
from foretrain.serving.verbs.predicting import Progress, no_progress

if TYPE_CHECKING:
    from foretrain.convergence.forecast import Convergence
    from foretrain.learning.regression.learn import LearnAnswer
    from foretrain.learning.regression.table import Table

PREDICTED = "predicted_seconds"
"""The column of foretrain's own prediction in a table to learn from."""


def converge(request: ConvergeRequest) -> Convergence:
    """When a training log reaches its target."""
    from foretrain.convergence.from_log import converge as core

    return core(request)


def learn(
    request: LearnRequest, progress: Progress = no_progress, rows: Sequence[Mapping[str, Any]] = ()
) -> LearnAnswer:
    """The regression that predicts a user's own timings best; `rows` in place of a table or stored runs."""
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


def _learning_table(request: LearnRequest) -> tuple[Table, str | None]:
    from foretrain.learning.regression.table import STEP_SECONDS, read_table, table_of_runs
    from foretrain.store import open_store
    from foretrain.store.queries import parse_query

    if request.table is not None:
        return read_table(request.table), request.target
    with open_store(request.store) as store:
        runs, place = store.runs(parse_query(request.runs or "")), store.place
    target = request.target or STEP_SECONDS
    return table_of_runs(runs, f"runs of {place}", target), target
