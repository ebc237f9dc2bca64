"""The example of docs/backends.md: what it shows is what its files have, and `foretrain run` executes it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

Run = Callable[..., CompletedProcess[str]]
ROOT = Path(__file__).parents[2]
FILES = [
    str(ROOT / "docs" / "examples" / name) for name in ("run_jobs.csv", "run_cluster.yaml", "run_times.csv")
]
JOBS, CLUSTER, TIMES = FILES


def test_the_page_shows_the_files() -> None:
    page = (ROOT / "docs" / "backends.md").read_text(encoding="utf-8")
    assert Path(JOBS).read_text(encoding="utf-8") in page
    assert Path(CLUSTER).read_text(encoding="utf-8").split("\n", 1)[1] in page
    assert page.count("foretrain run ") >= 3


def test_the_example_runs_and_is_resumed_without_starting_twice(run_here: Run, tmp_path: Path) -> None:
    line = (
        "run",
        JOBS,
        "--cluster",
        CLUSTER,
        "--times",
        TIMES,
        "--folder",
        str(tmp_path / "first"),
        "--json",
    )
    for _ in range(2):
        ran = run_here(*line)
        assert ran.returncode == 0, ran.stderr
        jobs = json.loads(ran.stdout)["jobs"]
        assert {each["job"]: (each["status"], each["starts"]) for each in jobs} == dict.fromkeys(
            ("digits", "digits-large-batch", "evaluate"), ("completed", 1)
        )


def test_a_job_that_fails_is_in_the_first_line(run_here: Run, tmp_path: Path) -> None:
    jobs, times = tmp_path / "jobs.csv", tmp_path / "times.csv"
    jobs.write_text(
        "job,submit_seconds,deadline_seconds,weight_usd_per_second,command\nbad,0,60,0.001,false\n"
    )
    times.write_text("job,node_type,gpus,seconds\nbad,desk,1,1\n")
    folder = str(tmp_path / "folder")
    ran = run_here("run", str(jobs), "--cluster", CLUSTER, "--times", str(times), "--folder", folder)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.splitlines()[0].endswith("none late, 1 failed")
