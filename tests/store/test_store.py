"""What a store does, on SQLite and PostgreSQL."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.support.runs import HERE, STARTED, assert_same, plain_run, prediction_of, summary_of, whole_run

from foretrain.errors import InvalidRequest, UnknownName
from foretrain.store import RunQuery, open_store
from foretrain.store.runs import Resource, Run, Series, Status, StepSummary, WorkerSteps


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
            {"series": (Series(resource=Resource.CPU, worker=0, seconds=np.ones(2), values=np.ones(3)),)},
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
    assert sorted(path.name for path in tmp_path.iterdir()) == ["home", "other.sqlite", "third.sqlite"]


TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12)
NUMBERS = st.floats(1e-6, 1e9)
PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
ARRAYS = st.lists(st.floats(0, 1e6), max_size=20).map(np.array)
SUMMARIES = st.builds(
    StepSummary,
    seconds=NUMBERS,
    p10_seconds=NUMBERS,
    p90_seconds=NUMBERS,
    steps=st.integers(0, 10**6),
    warm_up_steps=st.integers(0, 100),
    variation=NUMBERS,
    input_share=st.none() | st.floats(0, 1),
    source=TEXTS,
)
STEPS = st.builds(
    WorkerSteps,
    worker=st.integers(-1, 99),
    node=st.integers(0, 9),
    ends=ARRAYS,
    seconds=ARRAYS,
    input_seconds=ARRAYS,
)
SERIES = ARRAYS.flatmap(
    lambda array: st.builds(
        Series,
        resource=st.sampled_from(Resource),
        worker=st.integers(-1, 99),
        node=st.integers(0, 9),
        label=TEXTS,
        seconds=st.just(array),
        values=st.just(array[::-1].copy()),
    )
)
RUNS = st.builds(
    plain_run,
    started_at=st.datetimes(datetime(1990, 1, 1), datetime(2200, 1, 1), timezones=st.just(UTC)),
    seconds=NUMBERS,
    status=st.sampled_from(Status),
    exit_code=st.none() | st.integers(-64, 255),
    command=st.lists(st.text(max_size=10), max_size=4).map(tuple),
    setting=st.dictionaries(st.text(max_size=10), PLAIN, max_size=4),
    environment=st.builds(
        type(HERE),
        device=TEXTS,
        device_name=TEXTS,
        nodes=st.integers(1, 9),
        memory_bytes=st.integers(0, 2**50),
        versions=st.dictionaries(TEXTS, TEXTS, max_size=3),
    ),
    provenance=TEXTS,
    summary=st.none() | SUMMARIES,
    prediction=st.none() | NUMBERS.map(prediction_of),
    steps=st.lists(STEPS, max_size=3).map(tuple),
    series=st.lists(SERIES, max_size=3).map(tuple),
    message=TEXTS,
    campaign=TEXTS,
)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(RUNS)
def test_any_run_comes_back(url: str, run: Run) -> None:
    with open_store(url) as store:
        store.add(run)
        assert_same(store.run(run.id), run)
