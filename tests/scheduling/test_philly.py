"""The Philly trace as a problem: submissions, times and nodes as the trace has them."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from foretrain.errors import InvalidData, MissingData
from foretrain.scheduling.accounting import JobStatus
from foretrain.scheduling.generators import read_trace, trace_fleet, trace_problem
from foretrain.scheduling.policies import policies
from foretrain.scheduling.problem import Configuration
from foretrain.scheduling.simulation import simulate

ROWS = """timestamp,duration,num_gpus,gpu_time,cluster
2017-10-09 07:00:00,2951.0,1,2951.0,x
2017-10-09 06:00:00,600.0,2,1200.0,x
2017-10-09 08:00:00,7200.0,16,115200.0,x
"""


def trace(folder: Path, text: str = ROWS) -> Path:
    file = folder / "jobs.csv.gz"
    file.write_bytes(gzip.compress(text.encode()))
    return file


def test_jobs_in_order_of_submission(tmp_path: Path) -> None:
    problem = trace_problem(trace(tmp_path), trace_fleet(4))
    assert [job.submit_seconds for job in problem.jobs] == [0, 3600, 7200]
    assert problem.jobs[0].seconds[Configuration("server-2", 2)] == pytest.approx(600)
    assert problem.jobs[1].seconds[Configuration("server-2", 1)] == pytest.approx(2951)
    assert problem.jobs[2].seconds == {Configuration("server-2", 8, 2): 7200}
    for job in problem.jobs:
        assert 1 <= (job.deadline_seconds - job.submit_seconds) / job.fastest_seconds <= 3


def test_the_same_seed_gives_the_same_problem(tmp_path: Path) -> None:
    file = trace(tmp_path)
    assert trace_problem(file, trace_fleet(4), 3) == trace_problem(file, trace_fleet(4), 3)
    assert trace_problem(file, trace_fleet(4), 3) != trace_problem(file, trace_fleet(4), 4)
    assert len(trace_problem(file, trace_fleet(4), most_jobs=1).jobs) == 1


def test_a_replay_ends(tmp_path: Path) -> None:
    outcome = simulate(
        trace_problem(trace(tmp_path), trace_fleet(2)), policies()["fifo-packed"], keeps_history=False
    )
    assert {job.status for job in outcome.jobs} == {JobStatus.COMPLETED}
    assert outcome.history == ()


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("timestamp,duration\n", "row 1: lacks the column num_gpus"),
        ("timestamp,duration,num_gpus\nyesterday,5,1\n", "row 2: cannot be read"),
        ("timestamp,duration,num_gpus\n2017-10-09 07:00:00,nan,1\n", "row 2: lasts nan s"),
        ("timestamp,duration,num_gpus\n2017-10-09 07:00:00,5,0\n", "row 2: lasts 5.0 s on 0 GPUs"),
        ("timestamp,duration,num_gpus\n2017-10-09 07:00:00,5\n", "row 2: cannot be read"),
    ],
)
def test_malformed_rows_are_refused_by_number(tmp_path: Path, text: str, complaint: str) -> None:
    with pytest.raises(InvalidData, match=complaint):
        list(read_trace(trace(tmp_path, text)))


def test_files_that_are_none(tmp_path: Path) -> None:
    with pytest.raises(MissingData):
        list(read_trace(tmp_path / "none.csv"))
    (tmp_path / "plain.csv.gz").write_text(ROWS)
    with pytest.raises(InvalidData, match="is not a CSV file"):
        list(read_trace(tmp_path / "plain.csv.gz"))
