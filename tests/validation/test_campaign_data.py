"""The committed runs of the campaigns: every trial of the file once, tables and page as the data has them."""

from __future__ import annotations

import csv
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from validation.resources_data import DATA, burst_rows, run_rows

from foretrain.learning.resources.samples import steady_window
from foretrain.measuring.campaigns.campaign import read_campaign
from foretrain.measuring.campaigns.trials import trials_of
from foretrain.store.exchange.parquet_files import read_parquet
from foretrain.store.runs import Resource, Run, Status
from validation import experiments

CAMPAIGNS = Path(__file__).parents[2] / "campaigns"
FILES = {"batch_sizes": experiments.BATCH_SIZES, "resources": experiments.RESOURCES}


@cache
def runs(name: str) -> list[Run]:
    return sorted(read_parquet(FILES[name]), key=lambda run: run.started_at)


def rows(name: str) -> list[dict[str, str]]:
    with (DATA / name).open(encoding="utf-8", newline="") as stream:
        return list(csv.DictReader(stream))


def as_text(row: dict[str, Any]) -> dict[str, str]:
    return {name: str(value) for name, value in row.items()}


@pytest.mark.parametrize("name", FILES)
def test_every_trial_of_the_campaign_is_there_once(name: str) -> None:
    planned = {trial.key: trial for trial in trials_of(read_campaign(CAMPAIGNS / f"{name}.yaml"))}
    keys = [run.trial for run in runs(name)]
    assert len(keys) == len(set(keys)) == len(planned)
    for run in runs(name):
        assert run.setting == planned[str(run.trial)].setting
        assert run.status is Status.COMPLETED
        assert run.prediction is None or run.prediction.made_at < run.started_at


def test_steps_and_series_of_every_worker_are_recorded() -> None:
    for run in runs("resources"):
        workers = set(range(run.environment.nodes))
        window = steady_window(run)
        assert {each.worker for each in run.steps} == workers
        assert window is not None
        assert 0 <= window[0] < window[1] <= run.seconds
        for resource in (Resource.CPU, Resource.MEMORY):
            assert {each.worker for each in run.series if each.resource is resource} >= workers
        if len(workers) > 1:
            assert {each.worker for each in run.series if each.resource is Resource.TRANSMIT} >= workers


def test_the_tables_are_those_of_the_runs() -> None:
    assert rows("runs.csv") == [as_text(row) for row in run_rows(runs("resources"))]
    some = runs("resources")[:20]
    trials = {run.trial for run in some}
    of_some = [row for row in rows("bursts.csv") if row["trial"] in trials]
    assert of_some == [as_text(row) for row in burst_rows(some)]


def test_the_page_has_the_tables_of_the_runs() -> None:
    page = experiments.PAGE.read_text(encoding="utf-8")
    tables = [
        experiments.batch_sizes_table(runs("batch_sizes"), model) for model in ("voice-linear", "mnist-cnn")
    ]
    tables.append(experiments.errors_table(runs("resources"), "strategy", experiments.strategy_of))
    for lines in tables:
        assert "\n".join(lines) in page
