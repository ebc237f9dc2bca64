"""Trials really run here: training, failures, limits of memory and time, commands, a killed campaign."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from foretrain.measuring.campaigns.local import LocalRunner, run_command
from foretrain.measuring.campaigns.trials import Trial
from foretrain.measuring.distributed_trials.namespaces import named, why_not
from foretrain.store import RunQuery, open_store
from foretrain.store.runs import NODE, OTHER_PROCESSES, Resource, Status

NAMESPACES = pytest.mark.skipif(why_not() is not None, reason=f"no namespaces here: {why_not()}")
CNN = Trial("test", {"model": "mnist-cnn", "batch": 4, "optimizer": "momentum"}, "here", steps=6, timeout=60)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("FORETRAIN_HOME", str(tmp_path / "home"))
    yield tmp_path


@NAMESPACES
def test_two_workers_and_a_server_train_and_are_sampled() -> None:
    point = {**CNN.point, "workers": 2, "strategy": "ps-async", "network": "100Mbit/s"}
    with LocalRunner(run_command) as runner:
        outcome = runner.run(replace(CNN, point=point))
    assert outcome.status is Status.COMPLETED
    assert [(each.worker, len(each.seconds)) for each in outcome.steps] == [(0, 6), (1, 6)]
    assert all((each.ends <= outcome.seconds).all() and (each.seconds > 0).all() for each in outcome.steps)
    assert (outcome.environment.nodes, outcome.environment.devices_per_node) == (2, 1)
    sampled = {(each.resource, each.worker): each for each in outcome.series}
    for resource in (Resource.CPU, Resource.MEMORY, Resource.TRANSMIT, Resource.RECEIVE):
        assert {worker for kind, worker in sampled if kind is resource} >= {0, 1, 2}
    assert sampled[Resource.CPU, 2].label == "server"
    assert sampled[Resource.CPU, NODE].label == OTHER_PROCESSES
    # every worker pushes 1.7 MB of gradients a step
    sent = sampled[Resource.TRANSMIT, 0]
    assert (sent.values[1:] * (sent.seconds[1:] - sent.seconds[:-1])).sum() > 6 * 1.5e6


@NAMESPACES
def test_failures_are_outcomes_and_the_next_trial_has_a_new_crew() -> None:
    with LocalRunner(run_command) as runner:
        large = replace(CNN, point={**CNN.point, "batch": 100_000}, memory=1.5e9)
        outcome = runner.run(large)
        assert outcome.status is Status.OUT_OF_MEMORY
        assert "allocate" in outcome.message
        crew = runner.processes
        wrong = replace(CNN, point={**CNN.point, "image_size": 29})
        outcome = runner.run(wrong)
        assert outcome.status is Status.FAILED
        assert "image_size 29 does not fit" in outcome.message
        assert runner.processes == crew  # all answered
        outcome = runner.run(replace(CNN, steps=100_000, timeout=0.5))
        assert outcome.status is Status.TIMED_OUT
        assert "0.5 s" in outcome.message
        assert runner.processes == ()
        assert runner.run(CNN).status is Status.COMPLETED
    assert not [name for name in named() if f"-{os.getpid()}-" in name]


@NAMESPACES
def test_a_killed_worker_counts_as_out_of_memory() -> None:
    with LocalRunner(run_command) as runner:
        assert runner.run(CNN).status is Status.COMPLETED
        os.kill(runner.processes[0], signal.SIGKILL)
        outcome = runner.run(CNN)
        assert (outcome.status, outcome.steps) == (Status.OUT_OF_MEMORY, ())
        assert "SIGKILL" in outcome.message


def command(script: str, **changes: object) -> Trial:
    trial = replace(CNN, point={"batch": 3}, command=f"{sys.executable} -c '{script}' {{batch}}")
    return replace(trial, **changes)  # type: ignore[arg-type]


PRINTING = 'import sys, time; [print("batch", sys.argv[1], time.sleep(0.05)) for _ in range(6)]'


def test_a_command_is_watched(home: Path) -> None:
    outcome = run_command(command(PRINTING))
    assert (outcome.status, outcome.exit_code) == (Status.COMPLETED, 0)
    assert {each.resource for each in outcome.series} >= {Resource.CPU, Resource.MEMORY}
    assert not [file for file in home.rglob("*") if file.suffix == ".jsonl"]


@pytest.mark.usefixtures("home")
def test_a_command_that_fails_hangs_or_needs_too_much_memory() -> None:
    outcome = run_command(command("raise SystemExit(7)"))
    assert (outcome.status, outcome.exit_code) == (Status.FAILED, 7)
    outcome = run_command(command("import time; time.sleep(60)", timeout=1.0))
    assert outcome.status is Status.TIMED_OUT
    outcome = run_command(command("bytearray(10**9)", memory=2e8))
    assert outcome.status is Status.OUT_OF_MEMORY
    assert run_command(replace(CNN, command="no-such-command")).status is Status.FAILED


CAMPAIGN = """
import sys
from pathlib import Path
from foretrain.measuring.campaigns.campaign import Campaign, ModelEntry
from foretrain.measuring.campaigns.local import LocalRunner, run_command
from foretrain.measuring.campaigns.running import run_campaign
from foretrain.store import open_store

campaign = Campaign(name="killed", models=(ModelEntry(model="mnist-cnn"),), batch=(1, 2, 3, 4, 5, 6), steps=6)
with open_store(sys.argv[1]) as store:
    run_campaign(campaign, store, lambda: LocalRunner(run_command), lambda _: None)
"""


@NAMESPACES
def test_a_campaign_killed_in_the_middle_loses_nothing_and_runs_nothing_twice(home: Path) -> None:
    place = str(home / "runs.sqlite")
    arguments = [sys.executable, "-c", CAMPAIGN, place]
    with open_store(place) as store:
        with subprocess.Popen(arguments) as process:
            while len(store.trials("killed")) < 2:
                assert process.poll() is None
                time.sleep(0.05)
            process.kill()
        before = {run.id for run in store.runs(RunQuery(campaign="killed"))}
        subprocess.run(arguments, check=True, timeout=120)
        runs = store.runs(RunQuery(campaign="killed"))
    assert before <= {run.id for run in runs}
    assert sorted(run.setting["batch"] for run in runs) == [1, 2, 3, 4, 5, 6]
    assert all(run.status is Status.COMPLETED for run in runs)
    assert not [name for name in named() if f"-{process.pid}-" in name]
