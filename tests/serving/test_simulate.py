"""`foretrain simulate` and `schedule`: the documented JSON, tables, charts, and errors that name the row."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.schedules import CLUSTER, JOBS, TIMES, written

import foretrain as ft

Run = Callable[..., CompletedProcess[str]]
CONTRACT = {
    "policy", "total_usd", "execution_usd", "tardiness_usd", "late_jobs", "makespan_seconds",
    "mean_completion_seconds", "decision_seconds", "jobs",
}  # fmt: skip


def options(arguments: list[str]) -> dict[str, Any]:
    """The files of `written` as keywords."""
    jobs, _, cluster, _, times = arguments
    return {"jobs": jobs, "cluster": cluster, "times": times}


def test_json_as_documented(run_here: Run, tmp_path: Path) -> None:
    run = run_here("simulate", *written(tmp_path), "--policy", "fifo", "--json")
    assert (run.returncode, run.stderr) == (0, "")
    answer = json.loads(run.stdout)
    assert set(answer) >= CONTRACT
    assert set(answer["decision_seconds"]) >= {"p50", "p99", "max"}
    assert answer["policy"] == "fifo"
    assert answer["execution_usd"] == pytest.approx(20)  # 20 s at 1 USD/s
    assert answer["tardiness_usd"] == pytest.approx(2 * 5)  # b ends at 20, due at 15
    assert answer["total_usd"] == pytest.approx(30)
    assert answer["bound_usd"] <= 30
    assert (answer["late_jobs"], answer["makespan_seconds"]) == (1, 20)
    assert answer["mean_completion_seconds"] == pytest.approx(13)
    assert [job["finish_seconds"] for job in answer["jobs"]] == [10, 20]


def test_the_default_policy_is_auto(tmp_path: Path) -> None:
    answer = ft.simulate(**options(written(tmp_path)))
    assert isinstance(answer, ft.Outcome)
    assert answer.policy == "auto"
    assert answer.total_usd == pytest.approx(30)


def test_policies_side_by_side(run_here: Run, tmp_path: Path) -> None:
    run = run_here("simulate", *written(tmp_path), "--policy", "fifo,edf")
    assert run.returncode == 0, run.stderr
    assert "Policies, the cheapest first; lower bound" in run.stdout
    answer = ft.simulate(**options(written(tmp_path)), policy=["fifo", "edf"])
    assert isinstance(answer, ft.Comparison)
    assert set(answer.to_dict()) == {"best", "bound_usd", "outcomes", "notes"}
    assert [each["policy"] for each in answer.to_dict()["outcomes"]] == ["fifo", "edf"]


@settings(max_examples=6)
@given(
    family=st.sampled_from(["low", "mixed-scaling", "hybrid", "owned"]),
    policy=st.sampled_from(["fifo", "edf-packed", "priority"]),
    seed=st.integers(0, 50),
    disturbed=st.booleans(),
)
def test_the_cost_is_the_sum_of_its_parts(family: str, policy: str, seed: int, disturbed: bool) -> None:
    answer = ft.simulate(
        generate=family, nodes=2, seed=seed, policy=policy, bound=False, prediction_error=disturbed,
        failures=0.1 if disturbed else 0.0, every="12h" if disturbed else None,
    ).to_dict()  # fmt: skip
    jobs = answer["jobs"]
    assert answer["total_usd"] == pytest.approx(answer["execution_usd"] + answer["tardiness_usd"])
    assert answer["tardiness_usd"] == pytest.approx(sum(job["tardiness_usd"] for job in jobs))
    shares = sum(job["execution_usd"] for job in jobs)
    assert answer["execution_usd"] == pytest.approx(shares + answer["unused_usd"])
    assert answer["late_jobs"] == sum(job["late_seconds"] > 0 for job in jobs)
    assert len(jobs) == 20
    for job in jobs:
        assert job["usd"] == pytest.approx(job["execution_usd"] + job["tardiness_usd"])
        assert job["submit_seconds"] <= job["start_seconds"] < job["finish_seconds"]
        assert job["late_seconds"] == pytest.approx(max(0.0, job["finish_seconds"] - job["deadline_seconds"]))


def test_the_same_seed_gives_the_same_answer() -> None:
    def asked(seed: int) -> float:
        answer = ft.simulate(
            generate="low", nodes=2, seed=seed, policy="edf-packed", bound=False, prediction_error=True
        )
        return float(answer.to_dict()["total_usd"])

    assert asked(4) == asked(4) != asked(5)


# ---------------------------------------------------------------- extreme input


def test_zero_jobs(run_here: Run, tmp_path: Path) -> None:
    run = run_here("simulate", *written(tmp_path, jobs=JOBS.splitlines()[0] + "\n"), "--json")
    answer = json.loads(run.stdout)
    assert (run.returncode, answer["total_usd"], answer["jobs"]) == (0, 0, [])
    assert run_here("simulate", *written(tmp_path, jobs=JOBS.splitlines()[0] + "\n")).returncode == 0


def test_impossible_deadlines_are_late(tmp_path: Path) -> None:
    jobs = JOBS.replace("a,0,12,2", "a,5,-12,2")
    answer = ft.simulate(**options(written(tmp_path, jobs=jobs)), policy="fifo")
    assert isinstance(answer, ft.Outcome)
    assert answer.late_jobs == 1  # b runs first, from 4 to 14; a ends at 24, due at -12
    assert answer.tardiness_usd == pytest.approx(2 * 36)


def test_a_job_that_fits_nowhere_is_reported_and_others_go_on(run_here: Run, tmp_path: Path) -> None:
    times = TIMES.replace("a,one,1,10", "a,one,2,10")
    for table in (times, TIMES.replace("a,one,1,10\n", "")):
        answer = json.loads(run_here("simulate", *written(tmp_path, times=table), "--json").stdout)
        first, second = answer["jobs"]
        assert (first["status"], second["status"]) == ("rejected", "completed")
        assert first["message"]
        assert answer["total_usd"] == pytest.approx(10)


def test_jobs_may_stand_in_any_order(tmp_path: Path) -> None:
    header, first, second = JOBS.splitlines()
    turned = "\n".join([header, second, first]) + "\n"
    one, other = (
        ft.simulate(**options(written(tmp_path, jobs=jobs)), policy="fifo").to_dict()["total_usd"]
        for jobs in (JOBS, turned)
    )
    assert one == other


@pytest.mark.parametrize("policy", ["auto", "price", "greedy", "edf-packed"])
def test_equal_jobs_on_nodes_with_one_gpu(policy: str, tmp_path: Path) -> None:
    names = "abcdef"
    jobs = JOBS.splitlines()[0] + "\n" + "".join(f"{name},0,12,1\n" for name in names)
    times = TIMES.splitlines()[0] + "\n" + "".join(f"{name},one,1,10\n" for name in names)
    answer = ft.simulate(**options(written(tmp_path, jobs=jobs, times=times)), policy=policy)
    assert isinstance(answer, ft.Outcome)
    assert len(answer.completed) == 6
    assert answer.execution_usd == pytest.approx(60)
    least = 8 + 18 + 28 + 38 + 48  # ends at 20, 30 ... due at 12
    assert answer.tardiness_usd >= least * (1 - 1e-9)
    if policy in ("greedy", "edf-packed"):  # these never leave a node idle while jobs wait
        assert answer.tardiness_usd == pytest.approx(least)


def test_a_budget_that_is_too_small_is_reported(tmp_path: Path) -> None:
    jobs = "".join(
        f"{line},{last}\n" for line, last in zip(JOBS.splitlines(), ("budget_usd", 5, 50), strict=True)
    )
    answer = ft.simulate(**options(written(tmp_path, jobs=jobs)), policy="fifo").to_dict()
    assert [job["status"] for job in answer["jobs"]] == ["rejected", "completed"]
    assert "costs at least 10.00 USD, its budget is 5.00 USD" in answer["jobs"][0]["message"]


# ---------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("files", "complaint"),
    [
        ({"jobs": JOBS + "c,nan,5,1\n"}, "row 4: `submit_seconds` is 'nan'"),
        ({"jobs": JOBS + "a,0,5,1\n"}, "row 4: job 'a' stands in row 2 already"),
        ({"times": TIMES + "b,two,1,5\n"}, "row 4: no node type 'two'"),
        ({"times": TIMES + "b,one,1,nan\n"}, "row 4: `seconds` is 'nan'"),
        ({"jobs": ""}, "is empty"),
        ({"cluster": CLUSTER.replace("gpus: 1", "gpus: 0")}, "one: `gpus` is 0"),
        ({"jobs": "job,submit_seconds,deadline_seconds,weight_usd_per_second,done\na,0,1,1,0.5\n"}, "`done`"),
    ],
)
def test_malformed_files_are_refused(
    run_here: Run, tmp_path: Path, files: dict[str, str], complaint: str
) -> None:
    run = run_here("simulate", *written(tmp_path, **files), "--policy", "fifo")
    assert (run.returncode, run.stdout) == (2, "")
    assert complaint in run.stderr


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ((), "no jobs: give a file of jobs, or --generate, or --philly"),
        (("--generate", "lou"), "did you mean low"),
        (("--generate", "low", "--policy", "fiffo"), "did you mean fifo"),
        (("--generate", "low", "--times", "x.csv"), "a generated problem has its own cluster and times"),
        (("--philly", "none.csv", "--policy", "fifo"), "there is no file"),
        (("--generate", "low", "--every", "0", "--policy", "fifo"), "give more than 0"),
        (("--generate", "low", "--html", "nowhere/x.html"), "there is no folder"),
        (("--generate", "low", "--plot", "x.bmp"), "end the name in .png"),
    ],
)
def test_requests_that_make_no_sense(run_here: Run, arguments: tuple[str, ...], complaint: str) -> None:
    run = run_here("simulate", *arguments)
    assert run.returncode in (2, 3)
    assert complaint in run.stderr


def test_jobs_need_a_cluster_and_times(run_here: Run, tmp_path: Path) -> None:
    files = written(tmp_path)
    assert "--cluster is required" in run_here("simulate", files[0]).stderr
    run = run_here("simulate", *files[:3])
    assert "row 2: the times of 'a' are unknown" in run.stderr


# ---------------------------------------------------------------- reports, decisions


def test_reports_and_charts_are_written(run_here: Run, tmp_path: Path) -> None:
    page, chart = tmp_path / "page.html", tmp_path / "chart.svg"
    run = run_here(
        "simulate", *written(tmp_path), "--policy", "fifo,edf", "--html", str(page), "--plot", str(chart)
    )
    assert run.returncode == 0, run.stderr
    text = page.read_text(encoding="utf-8")
    title = "<title>2 jobs scheduled by policy"
    assert all(part in text for part in ("Policies compared", "Who runs where", "cost so far", title))
    assert re.search(r"<td[^>]*>0 s</td>", text)  # a moment, not a duration of 0 us
    assert "http" not in text.replace("http-equiv", "").replace("http://www.w3.org", "")
    assert chart.read_text(encoding="utf-8").startswith("<svg")


def test_one_decision_with_reasons(run_here: Run, tmp_path: Path) -> None:
    run = run_here("schedule", *written(tmp_path), "--policy", "fifo", "--explain")
    assert (run.returncode, run.stderr) == (0, "")
    assert "fifo at 4.00 s: 1 of 2 jobs run on 1 node" in run.stdout
    assert "waits for GPUs: no node has room for 1 GPU on one" in run.stdout
    assert "starts in 10.0 s, when a ends" in run.stdout


def test_the_present_is_read_from_the_file(run_here: Run, tmp_path: Path) -> None:
    extra = (",running_on,done", ",one:1@0,0.9", ",,")
    jobs = "".join(f"{line}{more}\n" for line, more in zip(JOBS.splitlines(), extra, strict=True))
    answer = json.loads(
        run_here("schedule", *written(tmp_path, jobs=jobs), "--policy", "fifo", "--now", "8", "--json").stdout
    )
    assert [job["end_seconds"]["p50"] for job in answer["jobs"]] == pytest.approx([9, 19])
    assert answer["now_seconds"] == 8


def test_what_if(run_here: Run, tmp_path: Path) -> None:
    job = tmp_path / "new.yaml"
    job.write_text(
        "{job: new, deadline_seconds: 10, weight_usd_per_second: 1,\n"
        " times: [{node_type: one, gpus: 1, seconds: 3}]}\n"
    )
    run = run_here("schedule", *written(tmp_path), "--policy", "fifo", "--what-if", str(job))
    assert run.returncode == 0, run.stderr
    assert "If new were submitted now" in run.stdout
    answer = ft.schedule(**options(written(tmp_path)), policy="fifo", what_if=job)
    assert answer.what_if is not None
    assert answer.what_if.added_usd == pytest.approx(3 + 17)  # ends at 27, due at 10
    job.write_text("{job: a, deadline_seconds: 10, weight_usd_per_second: 1}\n")
    assert "is in" in run_here("schedule", *written(tmp_path), "--what-if", str(job)).stderr


def test_the_default_of_repair_may_be_typed(run_here: Run, tmp_path: Path) -> None:
    shown = run_here("simulate", "--help").stdout
    (line,) = [line for line in shown.splitlines() if "--repair" in line]
    default = line.rpartition("[default: ")[2].removesuffix("]")
    assert default == "1h"
    assert run_here("simulate", *written(tmp_path), "--policy", "fifo", "--repair", default).returncode == 0


def test_errors_distinguish_files_of_hardware_and_of_fleets(run_here: Run, tmp_path: Path) -> None:
    jobs, _, fleet, _, times = written(tmp_path)
    hardware = tmp_path / "hardware.yaml"
    hardware.write_text("nodes: [{device: t4, devices: 4, count: 2}]\nnetwork: ethernet-25g\n")
    predicted = run_here("predict", "mnist-cnn", "--on", fleet)
    assert predicted.returncode == 2
    assert "describes the fleet of a scheduler" in predicted.stderr
    simulated = run_here("simulate", jobs, "--cluster", str(hardware), "--times", times)
    assert simulated.returncode == 2
    assert "describes hardware to train on" in simulated.stderr
