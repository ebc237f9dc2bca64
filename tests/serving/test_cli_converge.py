"""`foretrain converge`."""

import json
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import numpy as np
import pytest

Run = Callable[..., CompletedProcess[str]]


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "log.csv"
    steps = np.arange(100, 6000, 100)
    values = 2.0 * (steps / 100) ** -0.5 + 0.2
    rows = (f"{step},{step / 500},{value:.5f}\n" for step, value in zip(steps, values, strict=True))
    path.write_text("step,epoch,loss\n" + "".join(rows))
    return path


def test_json_has_the_promised_keys(run_here: Run, log: Path) -> None:
    run = run_here("converge", str(log), "--target", "loss=0.4", "--json")
    assert (run.returncode, run.stderr) == (0, "")
    found = json.loads(run.stdout)
    assert found["reaches"] is True
    assert found["steps"]["p10"] <= found["steps"]["p50"] <= found["steps"]["p90"]
    assert found["steps"]["p50"] == pytest.approx(10_000, rel=0.1)
    assert found["epochs"]["p50"] == pytest.approx(20, rel=0.1)
    assert set(found["final_value"]) == {"p10", "p50", "p90"}
    assert "power-law" in found["method"]


def test_a_target_out_of_reach_is_an_answer(run_here: Run, log: Path) -> None:
    run = run_here("converge", str(log), "--target", "loss=0.1", "--planned-steps", "10000")
    assert run.returncode == 0
    assert run.stdout.startswith("loss=0.1 is unlikely by the planned end, step 10,000")
    assert "after step" in run.stdout


def test_the_plot_and_what_drives_the_uncertainty(run_here: Run, log: Path, tmp_path: Path) -> None:
    plot = tmp_path / "fan.svg"
    run = run_here("converge", str(log), "--target", "loss=0.4", "--plot", str(plot))
    assert run.returncode == 0
    assert "What drives the uncertainty:" in run.stdout
    assert plot.read_text().startswith("<svg")


def test_a_history_of_earlier_runs(run_here: Run, log: Path, tmp_path: Path) -> None:
    folder = tmp_path / "runs"
    folder.mkdir()
    for index in range(5):
        steps = np.arange(200, 20_001, 200)
        values = (2.0 + 0.05 * index) * (steps / 100) ** -0.5 + 0.2
        rows = (f"{step},{value:.5f}\n" for step, value in zip(steps, values, strict=True))
        (folder / f"run{index}.csv").write_text("step,loss\n" + "".join(rows))
    run = run_here(
        "converge",
        str(log),
        "--target",
        "loss=0.4",
        "--planned-steps",
        "20000",
        "--history",
        str(folder),
        "--json",
    )
    found = json.loads(run.stdout)
    assert found["steps"]["p50"] == pytest.approx(10_000, rel=0.1)
    assert "run0.csv" in found["neighbours"]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--target", "loss"), "write METRIC=NUMBER"),
        (("--target", "acc=1"), "no metric 'acc'"),
        (("--target", "loss=0.4", "--schedule", "cosine"), "--schedule requires --planned-steps"),
        (("--target", "loss=0.4", "--planned-steps", "10"), "the log goes to step 5900"),
        (
            ("--target", "loss=0.4", "--direction", "left"),
            "--direction is 'left'; it must be one of up, down",
        ),
    ],
)
def test_mistakes_get_a_sentence(run_here: Run, log: Path, arguments: tuple[str, ...], sentence: str) -> None:
    run = run_here("converge", str(log), *arguments)
    assert (run.returncode, run.stdout) == (2, "")
    assert sentence in run.stderr


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        (("3", "2", "1"), "3 points of loss; a curve needs at least 4"),
        (("nan",) * 6, "column 'loss' has no number in any of its 6 rows (all NaN)"),
        (("0.7",) * 6, "the log is flat: loss stays at 0.7 in all 6 points"),
    ],
)
def test_logs_that_say_nothing_are_refused(
    run_here: Run, tmp_path: Path, values: tuple[str, ...], sentence: str
) -> None:
    path = tmp_path / "log.csv"
    path.write_text("step,loss\n" + "".join(f"{step},{value}\n" for step, value in enumerate(values, 1)))
    run = run_here("converge", str(path), "--target", "loss=0.1")
    assert (run.returncode, run.stdout) == (2, "")
    assert sentence in run.stderr
