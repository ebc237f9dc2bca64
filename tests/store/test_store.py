"""What a store does, on SQLite and PostgreSQL."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from tests.support.run_strategies import RUNS
from tests.support.runs import HERE, STARTED, assert_same, plain_run, summary_of, whole_run

from foretrain.errors import InvalidRequest, UnknownName
from foretrain.store import RunQuery, open_store
from foretrain.store.runs import Resource, ResourceSeries, Run, Status


def ids_of(runs: list[Run]) -> list[str]:
    return [run.id for run in runs]


def test_a_run_comes_back_whole(url: str) -> None:
    run = whole_run(campaign="seeds", trial="a")
    with open_store(url) as store:
        store.add(run)
        assert_same(store.run(run.id), run)
    with open_store(url) as again:
        assert_same(again.run(run.id[:6]), run)


def test_a_failed_run_comes_back(url: str) -> None:
    run = plain_run(
        status=Status.OUT_OF_MEMORY, exit_code=None, summary=None, message="no memory", command=()
    )
    with open_store(url) as store:
        store.add(run)
        assert_same(store.run(run.id), run)


def test_lists_have_no_arrays_unless_wanted(url: str) -> None:
    run = whole_run()
    with open_store(url) as store:
        store.add(run)
        (listed,) = store.runs()
        assert_same(listed, replace(run, steps=(), series=()))
        (whole,) = store.runs(with_series=True)
        assert_same(whole, run)


def test_queries(url: str) -> None:
    hour = timedelta(hours=1)
    first = plain_run(started_at=STARTED, campaign="c", trial="1")
    second = plain_run(started_at=STARTED + hour, setting={"model": "lenet"}, status=Status.FAILED)
    third = plain_run(started_at=STARTED + 2 * hour, environment=replace(HERE, device="t4"))
    with open_store(url) as store:
        for run in (second, third, first):
            store.add(run)
        cases: dict[RunQuery, list[Run]] = {
            RunQuery(): [third, second, first],
            RunQuery(limit=2): [third, second],
            RunQuery(model="mnist-cnn"): [third, first],
            RunQuery(model="lenet", status=Status.COMPLETED): [],
            RunQuery(device="t4"): [third],
            RunQuery(campaign="c"): [first],
            RunQuery(status=Status.FAILED): [second],
            RunQuery(since=STARTED + hour): [third, second],
            RunQuery(since=(STARTED + 1.5 * hour).astimezone(timezone(3 * hour))): [third],
            RunQuery(ids=(first.id, "unknown")): [first],
        }
        for query, wanted in cases.items():
            assert ids_of(store.runs(query)) == ids_of(wanted), query


def test_equal_environments_are_stored_once(url: str) -> None:
    from sqlalchemy import func, select

    from foretrain.store.opening import open_database
    from foretrain.store.tables import environments

    with open_store(url) as store:
        for _ in range(3):
            store.add(plain_run())
        store.add(plain_run(environment=replace(HERE, versions={"torch": "3"})))
    with open_database(url).reading() as connection:
        assert connection.scalar(select(func.count()).select_from(environments)) == 2


def test_an_id_is_stored_once(url: str) -> None:
    run = whole_run()
    with open_store(url) as store:
        store.add(run)
        with pytest.raises(InvalidRequest, match=f"run {run.id} is stored already"):
            store.add(replace(run, seconds=9.0))
        assert store.run(run.id).seconds == run.seconds


def test_a_campaign_stores_a_trial_once(url: str) -> None:
    run = plain_run(campaign="seeds", trial="resnet18/64")
    with open_store(url) as store:
        store.add(run)
        with pytest.raises(InvalidRequest, match=f"trial 'resnet18/64' .* as run {run.id}"):
            store.add(plain_run(campaign="seeds", trial="resnet18/64"))
        store.add(plain_run(campaign="others", trial="resnet18/64", status=Status.TIMED_OUT))
        store.add(plain_run(campaign="seeds"))
        assert store.trials("seeds") == {"resnet18/64": Status.COMPLETED}
        assert store.trials("others") == {"resnet18/64": Status.TIMED_OUT}
        assert store.trials("none") == {}


def test_add_new_skips_what_is_stored_and_is_all_or_nothing(url: str) -> None:
    first, second, third = plain_run(campaign="c", trial="1"), whole_run(), plain_run()
    with open_store(url) as store:
        assert store.add_new([first, second, first]) == 2
        assert store.add_new([first, second]) == 0
        with pytest.raises(InvalidRequest, match="trial '1'"):
            store.add_new([third, plain_run(campaign="c", trial="1")])
        assert set(ids_of(store.runs())) == {first.id, second.id}


def test_ids_may_be_shortened(url: str) -> None:
    with open_store(url) as store:
        for name in ("abc1", "abc2", "abc", "xyz", "100%"):
            store.add(plain_run(id=name))
        assert store.run("abc").id == "abc"
        assert store.run("x").id == "xyz"
        assert store.run("100%").id == "100%"
        with pytest.raises(InvalidRequest, match="several ids: abc, abc1, abc2"):
            store.run("ab")
        with pytest.raises(UnknownName, match="did you mean abc1"):
            store.run("bc1")
        for nothing in ("", "%"):
            with pytest.raises(UnknownName, match="foretrain runs list"):
                store.run(nothing)


def test_a_deleted_run_leaves_nothing(url: str) -> None:
    from sqlalchemy import func, select

    from foretrain.store.opening import open_database
    from foretrain.store.tables import predictions, series, worker_steps

    gone, kept = whole_run(), plain_run()
    with open_store(url) as store:
        store.add(gone)
        store.add(kept)
        assert store.delete([gone.id, gone.id, "unknown"]) == 1
        assert store.delete([]) == 0
        assert ids_of(store.runs()) == [kept.id]
    with open_database(url).reading() as connection:
        for table in (predictions, series, worker_steps):
            assert connection.scalar(select(func.count()).select_from(table)) == 0


def test_more_ids_than_a_statement_has_parameters(url: str) -> None:
    many = [plain_run(id=f"{index:05}", steps=whole_run().steps) for index in range(1200)]
    with open_store(url) as store:
        assert store.add_new(many) == 1200
        assert len(store.runs(with_series=True)[1100].steps) == 2
        assert store.delete(run.id for run in many) == 1200


def test_what_a_command_prints_is_kept_even_if_it_is_no_text(url: str) -> None:
    raw = b"\xff\x00ok".decode("utf-8", "surrogateescape")
    with open_store(url) as store:
        store.add(plain_run(id="a", message=raw, command=("cat", raw), setting={"model": raw}))
        stored = store.run("a")
    assert stored.message == "\\udcff\\x00ok"
    assert stored.command == ("cat", raw)
    assert stored.setting == {"model": raw}


def test_not_a_number_is_kept_as_such(url: str) -> None:
    with open_store(url) as store:
        store.add(plain_run(id="a", summary=replace(summary_of(0.1), variation=float("nan"))))
        summary = store.run("a").summary
    assert summary is not None
    assert np.isnan(summary.variation)


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"id": ""}, "no id"),
        ({"id": "x" * 65}, "1 to 64 characters"),
        ({"started_at": datetime(2026, 1, 1)}, "no time zone"),
        ({"trial": "a"}, "no campaign"),
        (
            {
                "series": (
                    ResourceSeries(resource=Resource.CPU, worker=0, seconds=np.ones(2), values=np.ones(3)),
                )
            },
            "2 times but 3 values",
        ),
    ],
)
def test_runs_that_contradict_themselves_are_refused(
    tmp_path: Path, changes: dict[str, Any], complaint: str
) -> None:
    with open_store(str(tmp_path / "s")) as store, pytest.raises(InvalidRequest, match=complaint):
        store.add(plain_run(**changes))


def test_the_environment_names_the_store(
    own_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_store() as store:
        assert store.place == str(own_home / "runs.sqlite")
    monkeypatch.setenv("FORETRAIN_STORE", str(tmp_path / "other.sqlite"))
    with open_store() as store:
        assert store.place == str(tmp_path / "other.sqlite")
    with open_store(f"sqlite:///{tmp_path}/third.sqlite") as store:
        assert store.place == str(tmp_path / "third.sqlite")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["other.sqlite", "third.sqlite"]


@pytest.mark.parametrize("name", ["a b.db", "50%.db", "what?x=1#y.db", "über.db", "quo'te\".db"])
def test_any_file_name_will_do(tmp_path: Path, name: str) -> None:
    with open_store(str(tmp_path / "new" / name)) as store:
        store.add(plain_run())
    assert (tmp_path / "new" / name).stat().st_size > 0


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(RUNS)
def test_any_run_comes_back(url: str, run: Run) -> None:
    with open_store(url) as store:
        store.add(run)
        assert_same(store.run(run.id), run)


def test_threads_share_a_store(url: str) -> None:
    with open_store(url) as store, ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda index: store.add(whole_run(id=f"{index}")), range(40)))
        assert len(store.runs()) == 40
