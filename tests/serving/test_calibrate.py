"""`foretrain calibrate`: a user's timings and the machine's own, kept whole or not at all."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest
from tests.support.kineto_traces import gpu_trace
from tests.support.this_machine import calibrated_machine, run_of

from foretrain.facts.devices import device
from foretrain.learning.user_calibration import from_benchmarks
from foretrain.measuring import micro_benchmarks, trials
from foretrain.prediction.corrections.files import measurements_file
from foretrain.prediction.corrections.timings import measured_steps
from foretrain.prediction.operators.cpu import calibration_file, calibration_of
from foretrain.store import open_store

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


def test_a_step_timed_on_several_gpus_takes_its_time_and_moves_others(run_here: Run, tmp_path: Path) -> None:
    def predicted(*options: str) -> dict[str, Any]:
        run = run_here("predict", "cifar-resnet20", "--batch", "64", "--no-advice", "--json", *options)
        assert run.returncode == 0, run.stderr
        answer: dict[str, Any] = json.loads(run.stdout)
        return answer

    four, one = ("--on", "v100-sxm2-16gb:4", "--strategy", "zero=1"), ("--on", "v100-sxm2-16gb")
    before, alone = predicted(*four), predicted(*one)
    seconds = 1.5 * before["step"]["seconds"]["p50"]
    header = f"{HEADER},devices,strategy"
    file = written(tmp_path, f"cifar-resnet20,v100-sxm2-16gb,64,{seconds},4,zero=1", header=header)
    run = run_here("calibrate", file, "--json")
    assert (run.returncode, run.stderr) == (0, "")
    assert json.loads(run.stdout)["steps"][0]["ratio"] == pytest.approx(1.5, rel=1e-3)
    after = predicted(*four)
    assert after["step"]["seconds"]["p50"] == pytest.approx(seconds, rel=1e-3)
    assert sum(part["seconds"] for part in after["step"]["parts"]) == pytest.approx(seconds, rel=1e-3)
    assert after["knowledge"] == "measured"
    now = predicted(*one)  # one GPU shares the set-up, not the strategy
    assert alone["step"]["seconds"]["p50"] < now["step"]["seconds"]["p50"] < seconds
    assert now["knowledge"] != "measured"


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
    # Operators of microseconds beside other tests are timed badly; what is refused has tests of its own.
    monkeypatch.setattr(from_benchmarks, "check_believable", lambda *_: None)
    run = run_here("calibrate", "--here", "--seconds", "0.1", "--json")
    assert run.returncode == 0
    # How many lines of progress there are depends on how busy the machine is.
    assert all(line.startswith("calibrate: ") for line in run.stderr.splitlines())
    answer = json.loads(run.stdout)
    assert answer["device_id"] == "here"
    assert calibration_file("here").is_file()
    found = calibration_of(device("here"))
    assert {"linear forward", "elementwise backward", "softmax backward"} <= set(found.families)
    assert all(each >= 0 for fit in found.families.values() for each in fit.seconds_per.values())


def _elements(trial: trials.OperatorTrial) -> list[int]:
    sizes = []
    for operand in trial.operands:
        count = 1
        for side in operand.shape:
            count *= side
        sizes.append(count)
    return sizes


@pytest.mark.parametrize(
    ("seconds", "sentence"),
    [
        ("1.6", "it looks like milliseconds: in seconds it is 0.0016"),
        ("1600", "it looks like microseconds: in seconds it is 0.0016"),
        ("0.0000001", "it looks like a time of one sample"),
        ("60", "check the model, the device and the batch size"),
    ],
)
def test_a_time_in_another_unit_is_refused_with_what_it_looks_like(
    run_here: Run, tmp_path: Path, seconds: str, sentence: str
) -> None:
    run = run_here("calibrate", written(tmp_path, "mnist-cnn,t4,64,0.002", f"mnist-cnn,t4,32,{seconds}"))
    assert run.returncode == 2
    assert "timings.csv, row 3: step_seconds is" in run.stderr
    assert sentence in run.stderr
    assert not measurements_file().exists()


def test_a_prediction_right_after_measuring_it_contains_the_measurement(
    run_here: Run, tmp_path: Path
) -> None:
    asked = ("predict", "mnist-cnn", "--on", "t4", "--batch", "64", "--no-advice", "--json")
    before = json.loads(run_here(*asked).stdout)
    seconds = 2.5 * before["step"]["seconds"]["p50"]
    run_here("calibrate", written(tmp_path, f"mnist-cnn,t4,64,{seconds}"))
    after = json.loads(run_here(*asked).stdout)
    assert after["step"]["seconds"]["p50"] == pytest.approx(seconds)
    assert after["step"]["seconds"]["p10"] < seconds < after["step"]["seconds"]["p90"]
    assert after["knowledge"] == "measured"


def test_an_odd_timing_is_pointed_out_and_moves_other_devices_and_models_little(
    run_here: Run, tmp_path: Path
) -> None:
    asked = [("mnist-cnn", "rtx3090"), ("mnist-cnn", "a100-sxm-80gb"), ("resnet18", "t4")]

    def predictions() -> list[float]:
        answers = [
            run_here("predict", model, "--on", on, "--batch", "8", "--no-advice", "--json").stdout
            for model, on in asked
        ]
        return [json.loads(answer)["step"]["seconds"]["p50"] for answer in answers]

    before = predictions()
    measured = json.loads(run_here("predict", "mnist-cnn", "--on", "t4", "--batch", "64", "--json").stdout)[
        "step"
    ]["seconds"]["p50"]
    run = run_here("calibrate", written(tmp_path, f"mnist-cnn,t4,64,{20 * measured}"))
    assert run.returncode == 0
    assert "Caution: 1 of 1 timings are more than 3 times off" in run.stdout
    assert "foretrain calibrate forget timings-t4" in run.stdout
    moved = [now / then for now, then in zip(predictions(), before, strict=True)]
    assert all(0.4 < ratio < 2.5 for ratio in moved), moved


def test_calibrations_are_listed_shown_and_forgotten(run_here: Run, tmp_path: Path) -> None:
    asked = ("predict", "mnist-cnn", "--on", "t4", "--batch", "32", "--no-advice", "--json")
    before = run_here(*asked).stdout
    assert "no calibrations yet" in run_here("calibrate", "list").stdout
    run_here("calibrate", written(tmp_path, "mnist-cnn,t4,64,0.02", "mnist-cnn,v100-sxm2-16gb,64,0.02"))
    listed = json.loads(run_here("calibrate", "list", "--json").stdout)
    assert [each["name"] for each in listed] == ["timings-t4", "timings-v100-sxm2-16gb"]
    assert "timings-t4" in run_here("calibrate", "list").stdout
    shown = json.loads(run_here("calibrate", "show", "timings-t4", "--json").stdout)
    assert (shown["samples"], shown["fitted_on"]) == (1, {"models": ["mnist-cnn"]})
    assert shown["content"]["steps"][0]["step_seconds"] == 0.02
    assert "mnist-cnn" in run_here("calibrate", "show", "timings-t4").stdout
    assert run_here(*asked).stdout != before
    for name in ("timings-t4", "timings-v100-sxm2-16gb"):
        assert "predictions are as they were" in run_here("calibrate", "forget", name).stdout
    assert run_here(*asked).stdout == before
    again = run_here("calibrate", "forget", "timings-t4")
    assert (again.returncode, again.stdout) == (2, "")
    assert "no calibration 'timings-t4'" in again.stderr


def test_an_exported_calibration_is_imported_elsewhere(
    run_here: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_here("calibrate", written(tmp_path, "mnist-cnn,t4,64,0.02"))
    file = tmp_path / "t4.json"
    assert run_here("calibrate", "export", "timings-t4", str(file)).returncode == 0
    asked = ("predict", "mnist-cnn", "--on", "t4", "--batch", "32", "--no-advice", "--json")
    here = run_here(*asked).stdout
    monkeypatch.setenv("FORETRAIN_HOME", str(tmp_path / "another"))
    assert run_here(*asked).stdout != here
    run = run_here("calibrate", "import", str(file))
    assert run.returncode == 0, run.stderr
    assert "Imported timings-t4: 1 samples" in run.stdout
    assert run_here(*asked).stdout == here


def _changed(good: dict[str, Any], **changes: Any) -> str:
    return json.dumps({**good, **changes})


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda good: json.dumps(good)[:200], "is not JSON or is truncated"),
        (lambda _: '{"model": "resnet50"}', "is not a calibration of foretrain"),
        (lambda _: "[1, 2]", "is not a calibration of foretrain"),
        (lambda good: _changed(good, version=99), "written by a newer foretrain"),
        (lambda good: _changed(good, version="new"), "has the version 'new'"),
        (lambda good: _changed(good, kind="weather"), "of the unknown kind 'weather'"),
        (lambda good: _changed(good, name="../../etc"), "is no name of a calibration"),
        (lambda good: _changed(good, name="timings-v100"), "is called 'timings-v100'"),
        (lambda good: _changed(good, device="t44", name="timings-t44"), "which is unknown here"),
        (lambda good: _changed(good, samples=0), "fitted on 0 samples"),
        (lambda good: _changed(good, residual_spread=1e9), "residual spread of 1000000000.0"),
        (lambda good: _changed(good, software=3), "software is 3; it must be a mapping"),
        (lambda good: _changed(good, content={}), "has incomplete content"),
        (
            lambda good: json.dumps({name: good[name] for name in ("format", "version", "kind")}),
            "name is missing",
        ),
    ],
)
def test_a_bad_calibration_file_is_refused_with_a_sentence(
    run_here: Run, tmp_path: Path, change: Callable[[dict[str, Any]], str], sentence: str
) -> None:
    run_here("calibrate", written(tmp_path, "mnist-cnn,t4,64,0.02"))
    file = tmp_path / "calibration.json"
    run_here("calibrate", "export", "timings-t4", str(file))
    file.write_text(change(json.loads(file.read_text())))
    kept = measurements_file().read_text()
    run = run_here("calibrate", "import", str(file))
    assert (run.returncode, run.stdout) == (2, "")
    assert sentence in run.stderr
    assert measurements_file().read_text() == kept


@pytest.mark.usefixtures("quick_measurement")
def test_the_operators_of_another_machine_are_not_those_of_this_one(run_here: Run, tmp_path: Path) -> None:
    calibrated_machine()
    file = tmp_path / "here.json"
    run_here("calibrate", "export", "operators-here", str(file))
    assert run_here("calibrate", "import", str(file)).returncode == 0
    file.write_text(_changed(json.loads(file.read_text()), device_name="This machine: another"))
    run = run_here("calibrate", "import", str(file))
    assert run.returncode == 2
    assert "was made on 'This machine: another'" in run.stderr
    assert "Forgot operators-here" in run_here("calibrate", "forget", "operators-here").stdout
    assert not calibration_file("here").exists()


def test_a_trace_corrects_the_kinds_of_operators_of_its_device(run_here: Run, tmp_path: Path) -> None:
    model = tmp_path / "model.py"
    model.write_text(
        "import torch\n\ndef build():\n    return (torch.nn.Sequential(torch.nn.Linear(8, 4)), "
        "torch.ones(2, 8), lambda out: out.sum())\n"
    )
    named = f"{model}:build"
    step = ("--optimizer", "sgd", "--precision", "fp32")
    asked = ("predict", named, "--on", "rtx3090", *step, "--no-advice", "--json")
    before = run_here(*asked).stdout
    trace = gpu_trace(tmp_path / "trace.json")
    given = ("--trace", str(trace), "--model", named, "--on", "rtx3090", *step)
    run = run_here("calibrate", *given, "--json")
    assert run.returncode == 0, run.stderr
    answer = json.loads(run.stdout)
    assert answer["calibration"]["name"] == "kinds-rtx3090"
    after = json.loads(run_here(*asked).stdout)
    measured = answer["profile"]["step_seconds"]
    assert after["step"]["seconds"]["p10"] <= measured <= after["step"]["seconds"]["p90"]
    assert after["knowledge"] == "measured"
    assert "rtx3090" in run_here("calibrate", *given).stdout
    run_here("calibrate", "forget", "kinds-rtx3090")
    assert run_here(*asked).stdout == before


def test_a_trace_needs_its_model_and_device(run_here: Run, tmp_path: Path) -> None:
    run = run_here("calibrate", "--trace", str(tmp_path / "t.json"))
    assert run.returncode == 2
    assert "--trace needs --model" in run.stderr


@pytest.mark.usefixtures("quick_measurement")
def test_stored_runs_calibrate_this_machine(run_here: Run, tmp_path: Path) -> None:
    calibrated_machine()
    url = str(tmp_path / "runs.sqlite")
    empty = run_here("calibrate", "--runs", "--store", url)
    assert empty.returncode == 3
    assert "no completed run matches" in empty.stderr
    with open_store(url) as store:
        for model in ("mnist-cnn", "voice-linear"):
            for batch in (4, 8, 16):
                setting: dict[str, Any] = {"model": model, "on": "here", "batch": batch, "optimizer": "sgd"}
                seconds = json.loads(run_here(*_asked(setting)).stdout)["step"]["seconds"]["p50"]
                store.add(run_of(1.5 * seconds, predicted_seconds=seconds, **setting))
    run = run_here("calibrate", "--runs", "--store", url, "--json")
    assert run.returncode == 0, run.stderr
    ((answer),) = json.loads(run.stdout)["calibrations"]
    assert answer["before"]["mean"] == pytest.approx(1 / 3)
    assert answer["left_out"]["mean"] < answer["before"]["mean"]
    assert "workers-here" in run_here("calibrate", "--runs", "--store", url).stdout
    assert "constant" in run_here("calibrate", "show", "workers-here").stdout
    none = run_here("calibrate", "--runs", "--store", url, "--campaign", "other")
    assert none.returncode == 3


def _asked(setting: dict[str, Any]) -> tuple[str, ...]:
    options = [word for name in ("on", "batch", "optimizer") for word in (f"--{name}", str(setting[name]))]
    return ("predict", setting["model"], *options, "--no-advice", "--json")
