"""`foretrain campaign` from the command line: listing, running, resuming, errors, JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest

from foretrain.store import open_store

TRAINING = 'import sys, time; [print("epoch", sys.argv[1], time.sleep(0.02)) for _ in range(3)]'
BROKEN = "import sys; sys.exit(int(sys.argv[1]) // 4)"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("FORETRAIN_STORE", raising=False)
    return tmp_path


def written(folder: Path, script: str, rest: str = "") -> str:
    file = folder / "campaign.yaml"
    command = f"{sys.executable} -c '{script}' {{batch}}"
    file.write_text(f"name: quick\nbatch: [2, 4]\ntimeout: 20s\n{rest}command: {json.dumps(command)}\n")
    return str(file)


Run = Callable[..., CompletedProcess[str]]


def answer(run_here: Run, *arguments: str) -> dict[str, Any]:
    run = run_here("campaign", *arguments, "--json")
    assert run.returncode == 0, run.stderr
    decoded: dict[str, Any] = json.loads(run.stdout)
    return decoded


def test_trials_are_listed_run_and_not_run_again(folder: Path, run_here: Run) -> None:
    file, store = written(folder, TRAINING), str(folder / "runs.sqlite")
    listed = answer(run_here, file, "--store", store, "--dry-run")
    assert (listed["trials"], listed["stored"]) == (2, 0)
    assert sorted(each["setting"]["batch"] for each in listed["pending"]) == [2, 4]
    first = answer(run_here, file, "--store", store, "--limit", "1")
    assert (len(first["runs"]), first["left"], first["statuses"]["completed"]) == (1, 1, 1)
    assert first["runs"][0]["trial"] == listed["pending"][0]["trial"]
    second = answer(run_here, file, "--store", store)
    assert list(second["not_predicted"].values()) == [1]  # the command has no model
    assert (second["stored_before"], len(second["runs"]), second["left"]) == (1, 1, 0)
    third = run_here("campaign", file, "--store", store)
    assert third.returncode == 0
    assert "0 trials run (none), 2 were stored before, 0 left of 2" in third.stdout
    with open_store(store) as opened:
        assert len(opened.trials("quick")) == 2


def test_failures_are_results_and_shown(folder: Path, run_here: Run) -> None:
    run = run_here("campaign", written(folder, BROKEN), "--store", str(folder / "runs.sqlite"))
    assert run.returncode == 0
    assert "1 completed, 1 failed" in run.stdout
    assert "failed: exit code 1" in run.stdout
    assert "2 trials were not predicted" in run.stdout
    assert "2/2" in run.stderr  # progress, a line for each trial where there is no terminal


@pytest.mark.parametrize(
    ("rest", "arguments", "code", "message"),
    [
        ("batchs: 3\n", (), 2, "no field 'batchs'; did you mean batch?"),
        ("", ("--on", "slurm"), 2, "ray or ray=ADDRESS"),
        ("", ("--limit", "0"), 2, "--limit"),
        ("", ("--store", "/proc/none/runs.sqlite"), 4, "/proc/none"),
        ("network: [1Gbit/s, none]\n", ("--on", "ray=127.0.0.1:1"), 2, "nothing limits the network"),
    ],
)
def test_what_cannot_be_run_is_an_error(
    folder: Path, run_here: Run, rest: str, arguments: tuple[str, ...], code: int, message: str
) -> None:
    store = () if "--store" in arguments else ("--store", str(folder / "runs.sqlite"))
    run = run_here("campaign", written(folder, TRAINING, rest), *arguments, *store)
    assert run.returncode == code
    assert message in run.stderr
