"""Files of jobs and times: what they may hold, and what is refused with the row named."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from foretrain.errors import InvalidData, InvalidRequest, MissingData
from foretrain.estimates import Quantiles
from foretrain.scheduling.files import job_from, read_job, read_jobs, read_times, times_of
from foretrain.scheduling.problem import Configuration

HEADER = "job,submit_seconds,deadline_seconds,weight_usd_per_second"
TYPES = ("NC6", "NC12")


def jobs_file(folder: Path, *rows: str, header: str = HEADER) -> Path:
    file = folder / "jobs.csv"
    file.write_text("\n".join([header, *rows]) + "\n", encoding="utf-8")
    return file


def times_file(folder: Path, *rows: str, header: str = "job,node_type,gpus,seconds") -> Path:
    file = folder / "times.csv"
    file.write_text("\n".join([header, *rows]) + "\n", encoding="utf-8")
    return file


def test_a_row_becomes_a_job(tmp_path: Path) -> None:
    more = ",priority,user,budget_usd,movable,checkpoint_seconds,restart_seconds,minimum_run_seconds"
    file = jobs_file(tmp_path, "a, 5 ,100,0.25,3,alice,20usd,no,1,2,30", header=HEADER + more)
    times = times_of(read_times(times_file(tmp_path, "a,NC6,1,50"), TYPES)["a"])
    job = job_from(read_jobs(file).entries[0], times)
    assert (job.name, job.submit_seconds, job.deadline_seconds) == ("a", 5, 100)
    assert (job.weight_usd_per_second, job.priority, job.user, job.budget_usd) == (0.25, 3, "alice", 20)
    assert not job.switching.movable
    assert (job.switching.checkpoint_seconds, job.switching.minimum_run_seconds) == (1, 30)
    assert job.seconds == {Configuration("NC6", 1): 50}


def test_empty_cells_are_not_given(tmp_path: Path) -> None:
    entry = read_jobs(jobs_file(tmp_path, "a,0,1,0,,", header=HEADER + ",user,budget_usd")).entries[0]
    assert (entry.user, entry.budget_usd) == ("", None)
    assert job_from(entry, times_of(())).budget_usd == math.inf


def test_no_rows_are_no_jobs(tmp_path: Path) -> None:
    assert read_jobs(jobs_file(tmp_path)).entries == ()


def test_impossible_deadlines_are_allowed(tmp_path: Path) -> None:
    entries = read_jobs(jobs_file(tmp_path, "a,100,50,1", "b,0,-3,1")).entries
    assert [each.deadline_seconds for each in entries] == [50, -3]


@pytest.mark.parametrize(
    ("row", "complaint"),
    [
        ("a,nan,1,0", "`submit_seconds` is 'nan'"),
        ("a,-1,1,0", "`submit_seconds` is '-1'; it must be a number of at least 0"),
        ("a,0,inf,0", "`deadline_seconds` is 'inf'"),
        ("a,0,1,-0.1", "`weight_usd_per_second` is '-0.1'"),
        ("a,0,soon,0", "`deadline_seconds` is 'soon'"),
        ("a,0,,0", "`deadline_seconds` is required"),
        (",0,1,0", "`job` is required"),
        ("a,0,1", "ends before the column weight_usd_per_second"),
        ("a,0,1,0,7", "more cells than columns"),
    ],
)
def test_malformed_rows_are_refused_by_number(tmp_path: Path, row: str, complaint: str) -> None:
    with pytest.raises(InvalidData, match=r"jobs\.csv: row 3: ") as refused:
        read_jobs(jobs_file(tmp_path, "ok,0,1,0", row))
    assert complaint in str(refused.value)


def test_duplicates_name_both_rows(tmp_path: Path) -> None:
    with pytest.raises(InvalidData, match="row 4: job 'a' stands in row 2 already"):
        read_jobs(jobs_file(tmp_path, "a,0,1,0", "b,0,1,0", "a,0,1,0"))


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "is empty"),
        ("name,submit_seconds\n", "no column `job`"),
        ("job,job\n", "listed more than once"),
        (f"{HEADER},prioritty\na,0,1,0,1\n", "did you mean priority"),
        (f"{HEADER},movable\na,0,1,0,maybe\n", "it must be yes or no"),
    ],
)
def test_malformed_files_are_refused(tmp_path: Path, text: str, complaint: str) -> None:
    file = tmp_path / "jobs.csv"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(InvalidData) as refused:
        read_jobs(file)
    assert complaint in str(refused.value)


def test_files_that_are_none(tmp_path: Path) -> None:
    with pytest.raises(MissingData, match="there is no file"):
        read_jobs(tmp_path / "none.csv")
    with pytest.raises(InvalidRequest, match="is a folder"):
        read_jobs(tmp_path)
    (tmp_path / "binary.csv").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InvalidData, match="is not a CSV file"):
        read_jobs(tmp_path / "binary.csv")


def test_options_of_predictions_are_kept_apart(tmp_path: Path) -> None:
    file = jobs_file(tmp_path, "a,0,1,0,resnet50,3", "b,0,1,0,,", header=HEADER + ",model,epochs")
    jobs = read_jobs(file, ("model", "epochs"))
    assert jobs.predicted == {"a": {"model": "resnet50", "epochs": "3"}}
    with pytest.raises(InvalidData, match="no field 'model'"):
        read_jobs(file)


def test_yaml_has_the_same_keys(tmp_path: Path) -> None:
    file = tmp_path / "jobs.yaml"
    file.write_text(
        "jobs:\n"
        "  - {job: 7, submit_seconds: 0, deadline_seconds: 9, weight_usd_per_second: 1, movable: false,\n"
        "     times: [{node_type: NC6, gpus: 1, seconds: 4}], model: x}\n",
        encoding="utf-8",
    )
    jobs = read_jobs(file, ("model",))
    (entry,) = jobs.entries
    assert (entry.job, entry.movable) == ("7", False)
    assert times_of(entry.times).seconds == {Configuration("NC6", 1): 4}
    assert jobs.predicted == {"7": {"model": "x"}}


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("jobs: [3]\n", "entry 1: 3 is not a list"),
        ("jobs: [{job: a}]\n", "entry 1: `submit_seconds` is required"),
        ("other: 1\n", "has the key 'other'"),
        ("jobs:\n", "has no list `jobs`"),
        (
            "jobs: [{job: a, submit_seconds: .nan, deadline_seconds: 1, weight_usd_per_second: 0}]\n",
            "entry 1",
        ),
    ],
)
def test_malformed_yaml_is_refused(tmp_path: Path, text: str, complaint: str) -> None:
    file = tmp_path / "jobs.yaml"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(InvalidData) as refused:
        read_jobs(file)
    assert complaint in str(refused.value)


def test_one_job_is_submitted_now(tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text("{job: a, deadline_seconds: 9, weight_usd_per_second: 1}\n", encoding="utf-8")
    assert read_job(file, (), 42.0).entries[0].submit_seconds == 42


def test_where_a_job_runs(tmp_path: Path) -> None:
    file = jobs_file(tmp_path, "a,0,1,0,NC24:4@0+2,0.5", header=HEADER + ",running_on,done")
    (entry,) = read_jobs(file).entries
    assert entry.running_on is not None
    assert entry.running_on.configuration == Configuration("NC24", 4, 2)
    assert (entry.running_on.nodes, entry.done) == ((0, 2), 0.5)
    for wrong in ("NC24", "NC24:0@1", "NC24:1@", "NC24:1@1+1"):
        with pytest.raises(InvalidData, match="running_on"):
            read_jobs(jobs_file(tmp_path, f"a,0,1,0,{wrong}", header=HEADER + ",running_on"))


@pytest.mark.parametrize(
    ("row", "complaint"),
    [
        ("a,NC6,1,nan", "`seconds` is 'nan'; it must be a number above 0"),
        ("a,NC6,1,0", "`seconds` is '0'"),
        ("a,NC6,1,-5", "`seconds` is '-5'"),
        ("a,NC6,1,inf", "`seconds` is 'inf'"),
        ("a,NC6,0,5", "`gpus` is '0'"),
        ("a,NC6,1.5,5", "`gpus` is '1.5'"),
        ("a,NC7,1,5", "no node type 'NC7'; did you mean NC6"),
        ("a,NC12,2,7", "a on 2 GPUs on NC12 stands in row 2 already"),
        (",NC6,1,5", "`job` is required"),
    ],
)
def test_malformed_times_are_refused_by_number(tmp_path: Path, row: str, complaint: str) -> None:
    with pytest.raises(InvalidData, match=r"times\.csv: row 3: ") as refused:
        read_times(times_file(tmp_path, "a,NC12,2,7", row), TYPES)
    assert complaint in str(refused.value)


def test_a_file_of_times_has_rows(tmp_path: Path) -> None:
    with pytest.raises(InvalidData, match="has no rows"):
        read_times(times_file(tmp_path), TYPES)


def test_intervals_of_times(tmp_path: Path) -> None:
    header = "job,node_type,gpus,seconds,p10_seconds,p90_seconds"
    file = times_file(tmp_path, "a,NC6,1,100,80,150", "a,NC12,2,50,,", header=header)
    assert times_of(read_times(file, TYPES)["a"]).spread == Quantiles(1.0, 1.0, 1.5)  # medians of 0.8, 1
    with pytest.raises(InvalidData, match="row 2: `seconds` 100 is the median"):
        read_times(times_file(tmp_path, "a,NC6,1,100,120,150", header=header), TYPES)


def test_several_nodes_only_where_a_job_may_span_them(tmp_path: Path) -> None:
    times = times_of(
        read_times(
            times_file(tmp_path, "a,NC6,1,9,1", "a,NC6,1,5,2", header="job,node_type,gpus,seconds,nodes"),
            TYPES,
        )["a"]
    )
    alone, wide = read_jobs(
        jobs_file(tmp_path, "a,0,1,0,", "b,0,1,0,2", header=HEADER + ",max_nodes")
    ).entries
    assert set(job_from(alone, times).seconds) == {Configuration("NC6", 1)}
    assert set(job_from(wide, times).seconds) == {Configuration("NC6", 1), Configuration("NC6", 1, 2)}
