"""`foretrain validate`: how well foretrain predicts the user's own runs."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from subprocess import CompletedProcess
from typing import Any

import pytest
from tests.support.runs import HERE, plain_run, summary_of
from tests.support.runs import prediction_of as prediction

from foretrain.serving.verbs.run_predictions import hardware_of, predicted, prediction_of
from foretrain.store import open_store
from foretrain.store.runs import Run, Status

Command = Callable[..., CompletedProcess[str]]
SETTING = {"model": "mnist-cnn", "on": "t4", "batch": 64, "precision": "fp32"}


def t4_run(seconds: float, **changes: Any) -> Run:
    values: dict[str, Any] = {
        "setting": SETTING,
        "summary": summary_of(seconds),
        "environment": replace(HERE, device="t4"),
    }
    return plain_run(**(values | changes))


def test_a_setting_is_predicted_as_predict_does() -> None:
    made = predicted(SETTING)
    assert made.p10_seconds < made.p50_seconds < made.p90_seconds
    assert made.knowledge == "calibrated"
    assert made.memory_bytes is not None
    assert made.answer["step"]["seconds"]["p50"] == made.p50_seconds


@pytest.mark.parametrize(
    "setting",
    [
        {},
        {"model": "mnist-cnn"},
        {"model": "none", "on": "t4"},
        SETTING | {"batches": 3},
        {"model": 3, "on": 4},
    ],
)
def test_what_cannot_be_predicted_is_none(setting: dict[str, Any]) -> None:
    assert prediction_of(setting) is None


def test_hardware_is_described_as_far_as_it_is_known() -> None:
    instance = hardware_of("aws:g4dn.12xlarge:2")
    assert (instance.device, instance.devices_per_node, instance.nodes) == ("t4", 4, 2)
    assert hardware_of("Tesla T4").device == "t4"
    assert hardware_of("unheard-of").device == "unheard-of"


@pytest.mark.parametrize("arguments", [(), ("--json",), ("--model", "resnet50")])
def test_without_stored_runs_data_is_missing(run_here: Command, arguments: tuple[str, ...]) -> None:
    result = run_here("validate", *arguments)
    assert (result.returncode, result.stdout) == (3, "")
    assert "no stored runs" in result.stderr
    assert "foretrain runs import FILE" in result.stderr
    assert "`make validate` in a source checkout" in result.stderr


def test_both_predictions_are_compared(run_here: Command) -> None:
    now = predicted(SETTING).p50_seconds
    runs = [
        t4_run(now, prediction=prediction(2 * now)),
        t4_run(2 * now, prediction=prediction(2 * now)),
        t4_run(now),
        t4_run(now, status=Status.FAILED),
        t4_run(now, setting={"model": "mnist-cnn", "on": "t5", "batch": 64}),
    ]
    with open_store() as store:
        store.add_new(runs)
    answer = json.loads(run_here("validate", "--json").stdout)
    before, today = answer["before"], answer["now"]
    assert before["overall"]["runs"] == 2
    assert before["overall"]["mean"] == pytest.approx(0.5)
    assert before["overall"]["bias"] == pytest.approx(0.5)
    assert before["overall"]["coverage"] == 0.5
    assert today["overall"]["runs"] == 3
    assert today["overall"]["mean"] == pytest.approx(0.5 / 3)
    assert today["worst"][0]["run"] == runs[1].id
    assert list(today["by_model"]) == ["mnist-cnn"]
    assert list(today["by_device"]) == ["t4"]
    reasons = {each["run"]: each["reason"] for each in answer["skipped"]}
    assert reasons.keys() == {runs[3].id, runs[4].id}
    assert reasons[runs[3].id] == "the run failed"
    assert "'t5'" in reasons[runs[4].id]


def test_the_text(run_here: Command) -> None:
    with open_store() as store:
        store.add_new([t4_run(0.001, id="aaaa"), t4_run(0.002, id="bbbb"), t4_run(1.0, id="c", summary=None)])
    text = run_here("validate").stdout
    assert "Predictions made before the runs: none can be compared." in text
    assert "Predictions made now\n" in text
    assert "model mnist-cnn     2" in text
    assert "Worst cases\n" in text
    assert "2 of 3 runs compared." in text
    assert "1 not compared: it has no step times (c)" in text
    assert "Every run\n" in run_here("validate", "--all").stdout


def test_runs_of_which_none_can_be_compared(run_here: Command) -> None:
    with open_store() as store:
        store.add(plain_run(id="x", setting={}))
    result = run_here("validate")
    assert result.returncode == 3
    assert "none of the 1 stored runs can be compared; the newest, x: it cannot be predicted" in result.stderr
    assert "its setting names no model" in result.stderr
