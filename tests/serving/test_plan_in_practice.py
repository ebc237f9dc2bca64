"""`foretrain plan` as people in a hurry use it: odd files, scripts with arguments, regions, closed pipes."""

from __future__ import annotations

import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest

from foretrain.facts.offers import all_offers
from foretrain.serving.verbs.predicting import region_names

Run = Callable[..., CompletedProcess[str]]
SMALL = ("plan", "mnist-cnn", "--samples", "60000", "--epochs", "2000", "--gpu", "t4", "--cloud", "aws")


@pytest.mark.parametrize("option", ["--html", "--emit-to"])
def test_a_folder_is_no_file(run_here: Run, tmp_path: Path, option: str) -> None:
    run = run_here(*SMALL, "--emit", "slurm", option, str(tmp_path))
    assert (run.returncode, run.stdout) == (2, "")
    assert run.stderr == f"error: {option} {tmp_path} is a folder: name a file\n"
    assert not list(tmp_path.iterdir())


def test_a_file_that_cannot_be_written_is_named_as_it_was_typed(run_here: Run) -> None:
    run = run_here(*SMALL, "--html", "/proc/plan.html")
    assert run.returncode == 4
    assert run.stderr.startswith("error: --html /proc/plan.html cannot be written: ")


@pytest.mark.parametrize("target", ["torchrun", "slurm", "skypilot", "ray"])
def test_a_script_has_arguments_and_a_named_file_says_its_own_name(
    run_here: Run, tmp_path: Path, target: str
) -> None:
    file = tmp_path / "my job"
    run = run_here(*SMALL, "--emit", target, "--emit-to", str(file), "--script", "train.py --lr 0.1")
    assert run.stdout.splitlines()[-1].endswith(shlex.quote(str(file)))
    text = file.read_text()
    assert "train.py --lr 0.1" in text or "['train.py', '--lr', '0.1']" in text
    (start,) = (line for line in text.splitlines() if "Start it:" in line)
    assert "'my job'" in start


@pytest.mark.parametrize(
    ("script", "problem"), [("", "--script: is empty; give a value"), ("a 'b", "No closing quotation")]
)
def test_a_script_that_is_none(run_here: Run, tmp_path: Path, script: str, problem: str) -> None:
    run = run_here(*SMALL, "--emit", "slurm", "--emit-to", str(tmp_path / "x"), "--script", script)
    assert run.returncode == 2 and problem in run.stderr


@pytest.mark.parametrize("form", [(), ("--json",)])
def test_the_exit_code_survives_a_reader_that_leaves(form: tuple[str, ...]) -> None:
    command = [sys.executable, "-m", "foretrain", *SMALL, "--budget", "0.0001usd", "--ci", *form]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None and running.stderr is not None
        running.stdout.close()
        message = running.stderr.read()
    assert (running.returncode, message) == (1, "")


def test_regions_with_commas_of_their_own_are_found_as_they_are_shown() -> None:
    lists = {offer.region for offer in all_offers() if "," in offer.region}
    assert lists, "otherwise this test has nothing to say"
    for region in lists:
        assert region_names((region.strip(" ,"),)) == (region,)
    first = min(lists)
    assert region_names((f"us-east-1, {first.strip(' ,')} ,us-west-2",)) == ("us-east-1", first, "us-west-2")
    assert region_names(("nowhere,us-east-1",)) == ("nowhere", "us-east-1")
    assert region_names(()) == region_names((" , ",)) == ()


def test_the_region_of_a_plan_can_be_asked_for(predicted: Callable[..., dict[str, Any]]) -> None:
    job = ("plan", "mnist-cnn", "--samples", "60000", "--epochs", "2000", "--cloud", "vast")
    found = predicted(*job, "--max-gpus", "1")
    chosen = next(each for each in found["plans"] if "," in each["region"])
    again = predicted(*job, "--max-gpus", "1", "--region", chosen["region"].strip(" ,"))
    assert {each["region"] for each in again["plans"]} == {chosen["region"]}
    assert chosen["instance"] in {each["instance"] for each in again["plans"]}


def test_the_page_cites_what_the_time_of_a_step_rests_on_and_not_memory(
    run_here: Run, tmp_path: Path
) -> None:
    file = tmp_path / "plan.html"
    run_here(*SMALL, "--html", str(file))
    _, _, rest = file.read_text().partition(">time of a step</td>")
    step, _, memory = rest.partition(">memory</td>")
    assert "memory of timm models" not in step and "memory of timm models" in memory


@pytest.mark.parametrize("command", ["plan", "guide"])
def test_ctrl_c_while_it_loads_leaves_without_a_traceback(command: str) -> None:
    """The import of the commands is interrupted, before click handles interrupts."""
    script = (
        "import sys, builtins\n"
        "from foretrain.serving.cli import main\n"
        "real = builtins.__import__\n"
        "def importing(name, *more):\n"
        "    if name == 'foretrain.serving.cli.app':\n"
        "        raise KeyboardInterrupt\n"
        "    return real(name, *more)\n"
        "builtins.__import__ = importing\n"
        f"main(['{command}'])\n"
    )
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (run.returncode, run.stdout) == (130, "")
    assert run.stderr == "interrupted before the answer was complete\n"


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (("--steps", "-5"), "--steps is '-5'; it must be a whole number of at least 1"),
        (
            ("--steps", "10", "--eval-every", "5"),
            "--eval-every requires --eval-samples, the samples of each evaluation",
        ),
    ],
)
@pytest.mark.parametrize(
    "command", [("predict", "mnist-cnn", "--on", "t4"), ("plan", "mnist-cnn", "--gpu", "t4")]
)
def test_jobs_that_make_no_sense(
    run_here: Run, command: tuple[str, ...], options: tuple[str, ...], problem: str
) -> None:
    run = run_here(*command, "--batch", "64", *options)
    assert run.returncode == 2 and problem in run.stderr


def test_one_step_is_one_step(run_here: Run) -> None:
    one = run_here("predict", "mnist-cnn", "--on", "t4", "--batch", "64", "--steps", "1", "--samples", "64")
    assert "Job of 1 step: " in one.stdout and " 1 step, " in one.stdout


def test_the_launch_file_of_a_plan_over_the_limits_is_called_that(run_here: Run, tmp_path: Path) -> None:
    file = str(tmp_path / "x.sh")
    run = run_here(*SMALL, "--deadline", "1s", "--emit", "torchrun", "--emit-to", file)
    assert run.stdout.splitlines()[-1].startswith(
        f"Launch file of that plan, which does not keep the limits: {file}; start it with: "
    )
