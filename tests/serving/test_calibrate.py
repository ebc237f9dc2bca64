"""`foretrain calibrate`: a user's timings and the machine's own, kept whole or not at all."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from foretrain.facts.devices import device
from foretrain.measuring import micro_benchmarks, trials
from foretrain.prediction.cost_models.user_timings import measured_steps, measurements_file
from foretrain.prediction.operators.cpu import calibration_file, calibration_of

Run = Callable[..., CompletedProcess[str]]
HEADER = "model,device,batch,step_seconds"


def written(folder: Path, *lines: str, header: str = HEADER) -> str:
    """A file of timings."""
    file = folder / "timings.csv"
    file.write_text("\n".join((header, *lines)) + "\n")
    return str(file)


def test_timings_are_predicted_and_kept(run_here: Run, tmp_path: Path) -> None:
    file = written(tmp_path, "mnist-cnn,t4,64,0.02", "mnist-cnn,t4,64,0.04", "mnist-cnn,Tesla T4,32,0.02")
    run = run_here("calibrate", file, "--json")
    assert (run.returncode, run.stderr) == (0, "")
    answer = json.loads(run.stdout)
    assert [(step["batch"], step["device"]) for step in answer["steps"]] == [(64, "t4"), (32, "t4")]
    first = answer["steps"][0]
    assert first["step_seconds"] == pytest.approx(0.03)  # the median of both
    assert first["ratio"] == pytest.approx(0.03 / first["predicted_seconds"])
    assert answer["kept"] == 2
    assert len(measured_steps()) == 2


def test_the_same_configuration_replaces_and_others_are_added(run_here: Run, tmp_path: Path) -> None:
    run_here("calibrate", written(tmp_path, "mnist-cnn,t4,64,0.02"))
    header = f"{HEADER},optimizer"
    run = run_here(
        "calibrate", written(tmp_path, "mnist-cnn,t4,64,0.03,", "mnist-cnn,t4,64,0.04,sgd", header=header)
    )
    assert run.returncode == 0
    assert "to correct later predictions: 2." in run.stdout
    assert sorted(step.step_seconds for step in measured_steps()) == [0.03, 0.04]


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("mnist-cnn,t4,64,0", "step_seconds '0' is not a time in seconds above 0"),
        ("mnist-cnn,t4,64,fast", "step_seconds 'fast' is not a time"),
        ("mnist-cnn,t4,64,inf", "step_seconds 'inf' is not a time"),
        ("mnist-cnn,t4,1.5,0.1", "batch '1.5' is not a whole number of at least 1"),
        ("mnist-cnn,t4,64", "more or fewer values than the header has columns"),
        ("mnist-cnn,t4,64,0.1,7", "more or fewer values"),
        ("mnist-cnn,t4,,0.1", "batch is empty"),
        ("mnist-cnn,t44,64,0.1", "no device 't44'; did you mean t4"),
        ("mnist-cmm,t4,64,0.1", "mnist-cmm"),
    ],
)
def test_a_bad_line_is_named_and_nothing_is_kept(
    run_here: Run, tmp_path: Path, line: str, sentence: str
) -> None:
    run = run_here("calibrate", written(tmp_path, "mnist-cnn,t4,64,0.02", line))
    assert run.returncode == 2
    assert "timings.csv, row 3: " in run.stderr
    assert sentence in run.stderr
    assert not measurements_file().exists()


@pytest.mark.parametrize(
    ("header", "line", "sentence"),
    [
        ("model,device,step_seconds", "a,t4,1", "lacks the column batch"),
        (f"{HEADER},seqlen", "a,t4,1,1,1", "unknown column 'seqlen'; did you mean seq_len?"),
        (f"{HEADER},precision", "mnist-cnn,t4,1,1,fp31", "precision 'fp31' is not one of fp32"),
        (f"{HEADER},compile", "mnist-cnn,t4,1,1,maybe", "compile 'maybe' is neither yes nor no"),
        (HEADER, "", "has no timings"),
    ],
)
def test_a_bad_table_says_what_would_work(
    run_here: Run, tmp_path: Path, header: str, line: str, sentence: str
) -> None:
    run = run_here("calibrate", written(tmp_path, line, header=header))
    assert (run.returncode, run.stdout) == (2, "")
    assert sentence in run.stderr
    assert not measurements_file().exists()


def test_files_that_are_none(run_here: Run, tmp_path: Path) -> None:
    assert "there is no file" in run_here("calibrate", str(tmp_path / "absent.csv")).stderr
    assert "is a folder" in run_here("calibrate", str(tmp_path)).stderr
    (tmp_path / "binary.csv").write_bytes(b"\xff\xfe\x00")
    assert "is not a CSV file" in run_here("calibrate", str(tmp_path / "binary.csv")).stderr


def test_one_of_both_must_be_asked_for(run_here: Run, tmp_path: Path) -> None:
    for arguments in ((), ("--here", written(tmp_path))):
        run = run_here("calibrate", *arguments)
        assert run.returncode == 2
        assert "either a file of timings or --here" in run.stderr


@pytest.mark.usefixtures("quick_measurement")
def test_this_machine_is_timed_kept_and_predicted_with(
    run_here: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = [trial for trial in trials.trials() if sum(_elements(trial)) < 2**16]
    monkeypatch.setattr(trials, "trials", lambda: tuple(small))
    monkeypatch.setattr(micro_benchmarks, "_FOOTPRINT", 2**20)
    run = run_here("calibrate", "--here", "--seconds", "0.1", "--json")
    assert (run.returncode, run.stderr) == (0, "")
    answer = json.loads(run.stdout)
    assert answer["device_id"] == "here"
    assert calibration_file("here").is_file()
    found = calibration_of(device("here"))
    assert {"linear forward", "elementwise backward", "softmax backward"} <= set(found.families)
    assert all(each >= 0 for fit in found.families.values() for each in fit.seconds_per.values())


def _elements(trial: trials.Trial) -> list[int]:
    sizes = []
    for operand in trial.operands:
        count = 1
        for side in operand.shape:
            count *= side
        sizes.append(count)
    return sizes
