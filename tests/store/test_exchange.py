"""Runs in files: whole round trips, atomic writing and reading, and errors that name row and column."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.support.run_strategies import RUNS
from tests.support.runs import assert_same, plain_run, whole_run

from foretrain.errors import BackendFailed, InvalidData, InvalidRequest, MissingData
from foretrain.store import RunQuery, open_store
from foretrain.store.exchange import export_runs, import_runs, parquet_files
from foretrain.store.exchange.parquet_files import read_parquet, write_parquet
from foretrain.store.exchange.plain import read_json, write_json
from foretrain.store.runs import Environment, Resource, ResourceSeries, Run, Status


def as_given(cells: Mapping[str, str]) -> tuple[dict[str, Any], Environment]:
    """A setting without checks, numbers as such."""
    if "model" not in cells:
        raise InvalidRequest("column model is empty")
    setting = {name: int(text) if text.isdecimal() else text for name, text in cells.items()}
    device, _, count = cells["on"].partition(":")
    return setting, Environment(device=device, device_name=device, devices_per_node=int(count or 1))


def exported(tmp_path: Path, name: str, runs: list[Run]) -> Path:
    with open_store(str(tmp_path / "source.sqlite")) as store:
        store.add_new(runs)
        assert export_runs(store, RunQuery(), tmp_path / name) == len(runs)
    return tmp_path / name


def imported(tmp_path: Path, file: Path) -> dict[str, Run]:
    with open_store(str(tmp_path / "target.sqlite")) as store:
        total, added = import_runs(store, file, as_given)
        assert total == added
        assert import_runs(store, file, as_given) == (total, 0)
        return {run.id: run for run in store.runs(with_series=True)}


@pytest.mark.parametrize("name", ["runs.parquet", "runs.json"])
def test_whole_runs_go_through_a_file(tmp_path: Path, name: str) -> None:
    odd = ResourceSeries(
        resource=Resource.MEMORY,
        worker=-1,
        seconds=np.array([0.1, 0.2, 0.3]),
        values=np.array([np.nan, 2**40 + 1, 5.0]),
    )
    runs = [
        whole_run(campaign="c", trial="1"),
        plain_run(status=Status.FAILED, exit_code=None, summary=None, message="died", command=()),
        whole_run(series=(odd,), environment=replace(whole_run().environment, nodes=2)),
    ]
    file = exported(tmp_path, name, runs)
    stored = imported(tmp_path, file)
    for run in runs:
        assert_same(stored[run.id], run)


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(RUNS, min_size=1, max_size=3), st.sampled_from(["parquet", "json"]))
def test_any_runs_go_through_a_file(tmp_path: Path, runs: list[Run], suffix: str) -> None:
    file = tmp_path / f"runs.{suffix}"
    write, read = (write_parquet, read_parquet) if suffix == "parquet" else (write_json, read_json)
    assert write(file, iter([runs[:1], runs[1:]])) == len(runs)
    for stored, given_run in zip(read(file), runs, strict=True):
        assert_same(stored, given_run)


def test_a_file_of_parquet_holds_what_the_store_holds_exactly(tmp_path: Path) -> None:
    noise = np.random.default_rng(3)
    series = ResourceSeries(
        resource=Resource.CPU,
        worker=0,
        seconds=np.cumsum(noise.uniform(0.04, 0.06, 500)),
        values=noise.random(500),
    )
    file = exported(tmp_path, "runs.parquet", [plain_run(id="a", series=(series,))])
    with open_store(str(tmp_path / "source.sqlite")) as store:
        (source,) = store.run("a").series
    (target,) = imported(tmp_path, file)["a"].series
    assert source.seconds.tolist() == target.seconds.tolist()
    assert source.values.tolist() == target.values.tolist()


def test_parquet_is_compact(tmp_path: Path) -> None:
    noise = np.random.default_rng(3)
    series = tuple(
        ResourceSeries(
            resource=Resource.CPU,
            worker=index,
            seconds=np.cumsum(noise.uniform(0.04, 0.06, 2000)),
            values=noise.random(2000),
        )
        for index in range(10)
    )  # fmt: skip
    file = exported(tmp_path, "runs.parquet", [plain_run(series=series)])
    assert file.stat().st_size / (10 * 2000) < 6.5  # bytes per sample, of 16 as doubles


def test_scalars_go_through_csv(tmp_path: Path) -> None:
    run = whole_run(
        campaign="c", trial="1", setting={"model": "a,b", "on": "here", "batch": 8, "device": "odd"}
    )
    failed = plain_run(
        status=Status.TIMED_OUT, exit_code=None, summary=None, message='say "no"\nmore', command=()
    )
    stored = imported(tmp_path, exported(tmp_path, "runs.csv", [run, failed]))
    answerless = replace(run.prediction, answer={}) if run.prediction else None
    environment = replace(run.environment, cores=0, memory_bytes=0, versions={})
    expected = replace(run, steps=(), series=(), prediction=answerless, environment=environment)
    assert_same(stored[run.id], expected)
    assert_same(stored[failed.id], replace(failed, environment=environment))


def test_timings_become_runs(tmp_path: Path) -> None:
    file = tmp_path / "timings.csv"
    file.write_text(
        "model,device,batch,step_seconds\nresnet18,t4,64,0.2\nresnet18,t4,64,0.2\nresnet18,t4,64,0.3\n"
    )
    runs = list(imported(tmp_path, file).values())
    assert len(runs) == 3  # equal rows are repeats
    assert sorted(run.summary.seconds for run in runs if run.summary) == [0.2, 0.2, 0.3]
    for run in runs:
        assert run.setting == {"model": "resnet18", "on": "t4", "batch": 64}
        assert (run.environment.device, run.status, run.provenance) == (
            "t4",
            Status.COMPLETED,
            "import timings.csv",
        )


def test_the_device_is_that_of_the_hardware(tmp_path: Path) -> None:
    file = tmp_path / "timings.csv"
    file.write_text("model,on,batch,step_seconds,nodes\nresnet18,t4:8,64,0.2,2\n")
    (run,) = imported(tmp_path, file).values()
    assert (run.environment.device, run.setting["on"]) == ("t4", "t4:8")
    assert (run.environment.devices_per_node, run.environment.nodes) == (8, 2)
    file.write_text("model,on,device,batch,step_seconds\nresnet18,lab.yaml,t4,64,0.2\n")
    assert {each.environment.device for each in imported(tmp_path, file).values()} == {"t4"}


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "row 1: lacks the column model;"),
        ("model,batch,step_seconds\n", "row 1: lacks the column device or on"),
        ("model,on,step_seconds\n", "lacks the column batch or global_batch"),
        ("model,on,batch\n", "lacks the column step_seconds"),
        ("model,on,batch,step_seconds,on\n", "names the column 'on' twice"),
        ("model,on,batch,step_seconds\n", "has no rows"),
        ("model,on,batch,step_seconds\na,b,1,2\na,b,1\n", "row 3: more or fewer values"),
        ("model,on,batch,step_seconds\na,b,1,2,3\n", "row 2: more or fewer values"),
        (
            "model,on,batch,step_seconds\na,b,1,fast\n",
            "row 2: column step_seconds is 'fast'; it must be a time",
        ),
        ("model,on,batch,step_seconds\na,b,1,nan\n", "row 2: column step_seconds is 'nan'"),
        ("model,on,batch,step_seconds\na,b,1,0\n", "row 2: column step_seconds is '0'"),
        ("model,on,batch,step_seconds\na,b,1,\n", "row 2: column step_seconds is empty"),
        ("model,on,batch,step_seconds\n,b,1,2\n", "row 2: column model is empty"),
        (
            "model,on,batch,step_seconds,nodes\na,b,1,2,x\n",
            "row 2: column nodes is 'x'; it must be a whole number",
        ),
        (
            "model,on,batch,step_seconds,status\na,b,1,2,x\n",
            "row 2: column status is 'x'; it must be one of completed",
        ),
        (
            "model,on,batch,step_seconds,started_at\na,b,1,2,x\n",
            "row 2: column started_at is 'x'; it must be a time",
        ),
        (
            "model,on,batch,step_seconds,command\na,b,1,2,{}\n",
            "row 2: column command is '{}'; it must be a list",
        ),
    ],
)
def test_malformed_csv_is_refused_with_row_and_column(tmp_path: Path, text: str, complaint: str) -> None:
    file = tmp_path / "timings.csv"
    file.write_text(text)
    with open_store(str(tmp_path / "target.sqlite")) as store:
        with pytest.raises(InvalidData) as refused:
            import_runs(store, file, as_given)
        assert complaint in str(refused.value)
        assert store.runs() == []


@pytest.mark.parametrize("name", ["runs.csv", "runs.json", "runs.parquet"])
def test_binary_rubbish_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"PAR1\xff\xfe\x00rubbish")
    with open_store(str(tmp_path / "s")) as store, pytest.raises(InvalidData, match=f"{name}: is not"):
        import_runs(store, tmp_path / name, as_given)


def changed(tmp_path: Path, change: Mapping[str, Any]) -> Path:
    """An exported file whose second run has other values in some fields."""
    file = exported(tmp_path, "runs.json", [whole_run(id="b"), whole_run(id="a")])
    content = json.loads(file.read_text())
    for path, value in change.items():
        target = content["runs"][1]
        *parents, last = path.split(".")
        for parent in parents:
            target = target[int(parent)] if parent.isdecimal() else target[parent]
        target[last] = value
    file.write_text(json.dumps(content))
    return file


@pytest.mark.parametrize(
    ("field", "value", "complaint"),
    [
        ("id", 7, "id is 7; it must be text"),
        ("started_at", "today", "started_at is 'today'; it must be a time"),
        (
            "started_at",
            "2026-01-01T00:00:00",
            "started_at is '2026-01-01T00:00:00'; it must be a time with its zone",
        ),
        ("seconds", "1", "seconds is '1'; it must be a number"),
        ("status", "fine", "status is 'fine'; it must be one of completed"),
        ("exit_code", 1.5, "exit_code is 1.5; it must be a whole number"),
        ("command", "ls", "command is 'ls'; it must be a list of words"),
        ("setting", [], "setting is []; it must be a mapping"),
        ("environment", None, "environment is missing"),
        ("environment.device", None, "environment.device is missing; it must be text"),
        ("summary.steps", None, "summary.steps is missing; it must be a whole number"),
        ("steps", {}, "steps is {}; it must be a list"),
        ("series", "x", "series is 'x'; it must be a list"),
        ("series.1.values", ["x"], "series[1].values is ['x']; it must be a list of numbers"),
        ("series.1.resource", "soup", "series[1].resource is 'soup'; it must be one of cpu"),
        ("steps.0", 3, "steps[0] is 3; it must be a mapping of fields"),
    ],
)
def test_malformed_json_is_refused_with_run_and_field(
    tmp_path: Path, field: str, value: Any, complaint: str
) -> None:
    *parents, last = field.split(".")
    if last.isdecimal():
        file = exported(tmp_path, "runs.json", [whole_run(id="b"), whole_run(id="a")])
        content = json.loads(file.read_text())
        content["runs"][1][parents[0]][int(last)] = value
        file.write_text(json.dumps(content))
    else:
        file = changed(tmp_path, {field: value})
    with open_store(str(tmp_path / "target.sqlite")) as store:
        with pytest.raises(InvalidData) as refused:
            import_runs(store, file, as_given)
        assert f"row 2: {complaint}" in str(refused.value)
        assert store.runs() == []


def test_other_json_is_refused(tmp_path: Path) -> None:
    for text, complaint in (
        ("[1]", "has no list `runs`"),
        ('{"runs": []}', "is of format None; this version reads"),
    ):
        (tmp_path / "x.json").write_text(text)
        with open_store(str(tmp_path / "s")) as store, pytest.raises(InvalidData, match=complaint):
            import_runs(store, tmp_path / "x.json", as_given)


def test_other_parquet_is_refused(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    newer = pa.table({"x": [1]}).replace_schema_metadata({"format": "foretrain runs 9"})
    for table, complaint in (
        (pa.table({"x": [1]}), "holds no runs"),
        (newer, "is of format 'foretrain runs 9'"),
    ):
        pq.write_table(table, tmp_path / "x.parquet")
        with open_store(str(tmp_path / "s")) as store, pytest.raises(InvalidData, match=complaint):
            import_runs(store, tmp_path / "x.parquet", as_given)


def test_formats_are_chosen_by_name_or_given(tmp_path: Path) -> None:
    with open_store(str(tmp_path / "s.sqlite")) as store:
        store.add(plain_run())
        with pytest.raises(InvalidRequest, match=r"end the name in \.csv, \.parquet or \.json"):
            export_runs(store, RunQuery(), tmp_path / "runs.xls")
        assert export_runs(store, RunQuery(), tmp_path / "runs.txt", "csv") == 1
        assert len(list(csv.reader((tmp_path / "runs.txt").read_text().splitlines()))) == 2
        with pytest.raises(MissingData, match="there is no file"):
            import_runs(store, tmp_path / "none.csv", as_given)


def test_a_file_is_written_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = exported(tmp_path, "runs.parquet", [plain_run(id="a")])
    before = file.read_bytes()

    def full(_: Run) -> dict[str, Any]:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(parquet_files, "_row", full)
    complaint = r"runs\.parquet cannot be written: No space left"
    with (
        open_store(str(tmp_path / "source.sqlite")) as store,
        pytest.raises(BackendFailed, match=complaint),
    ):
        export_runs(store, RunQuery(), file)
    assert file.read_bytes() == before
    assert {path.name for path in tmp_path.iterdir()} <= {"runs.parquet", "source.sqlite", "home"}
