"""`foretrain learn`: tables, JSON, saved models, plots, stored runs, and errors that say what would work."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest
from tests.support.timing_tables import jobs

import foretrain as ft

Run = Callable[..., CompletedProcess[str]]


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Timings of mnist-cnn on a T4: 10 ms and 0.1 ms a sample."""
    rows = [f"mnist-cnn,t4,{batch},{0.01 + 0.0001 * batch}" for batch in (8, 16, 32, 48, 64, 96, 128)]
    file = tmp_path / "timings.csv"
    file.write_text("\n".join(["model,device,batch,seconds", *rows]) + "\n", encoding="utf-8")
    return file


def test_a_table_is_learned_saved_drawn_and_used(
    run_here: Run, predicted: Callable[..., dict[str, Any]], table: Path, tmp_path: Path
) -> None:
    model, plot = tmp_path / "mine.json", tmp_path / "residuals.svg"
    run = run_here(
        "learn", str(table), "--target", "seconds", "--split", "batch-size,random",
        "--technique", "linear,nnls,gray-box", "--save", str(model), "--plot", str(plot),
    )  # fmt: skip
    assert (run.returncode, run.stderr) == (0, "")
    assert "Left out, batch-size: batch above 64" in run.stdout
    assert "seconds = 0.01 + 0.0001 · (batch)" in run.stdout
    assert "gray-box" in run.stdout
    assert plot.read_text(encoding="utf-8").startswith("<svg")
    found = predicted(
        "predict", "mnist-cnn", "--on", "t4", "--batch", "256", "--cost-model", str(model), "--no-advice"
    )
    assert found["step"]["seconds"]["p50"] == pytest.approx(0.0356, rel=0.01)
    assert found["knowledge"] == "extrapolated"
    within = predicted(
        "predict", "mnist-cnn", "--on", "t4", "--batch", "64", "--cost-model", str(model), "--no-advice"
    )
    assert within["knowledge"] == "measured"


def test_json_is_what_python_answers(run_here: Run, table: Path) -> None:
    printed = json.loads(
        run_here(
            "learn", str(table), "--target", "seconds", "--technique", "linear", "--no-gray-box", "--json"
        ).stdout
    )
    answer = ft.learn(str(table), target="seconds", technique="linear", gray_box=False)
    assert printed == json.loads(answer.to_json())
    assert printed["model"]["technique"] == "linear"
    assert printed["ranking"][0]["errors"]["random"]["mean"] < 1e-6


def test_rows_in_python_and_prices_for_a_scheduler(tmp_path: Path) -> None:
    answer = ft.learn(jobs(), target="seconds", technique="gray-box", split="gpu-count")
    file = tmp_path / "model.json"
    from foretrain.learning.regression.model import save

    save(answer.model, file)
    job = {"model": "large", "device": "t4", "batch": 32, "gpus": 8, "predicted_seconds": 0.2}
    (price,) = ft.price_jobs(ft.load_model(file), [job])
    assert price.p50 == pytest.approx(0.25, rel=0.03)


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ((), 2, "learn takes either a TABLE of timings or --runs of the store"),
        (("TABLE",), 2, "give --target, the column to predict: one of model, device, batch, seconds"),
        (("TABLE", "--target", "second"), 2, "did you mean seconds"),
        (
            ("TABLE", "--target", "seconds", "--split", "gpu-count"),
            2,
            "split gpu-count needs a column 'gpus'",
        ),
        (("TABLE", "--target", "seconds", "--technique", "magic"), 2, "no technique 'magic'"),
        (("TABLE", "--target", "seconds", "--save", "model.pkl"), 2, "end the name in .json"),
        (("TABLE", "--target", "seconds", "--features", "colour"), 2, "colour"),
        (("--runs", "colour=red"), 2, "no condition on runs 'colour'"),
        (("--runs", "all"), 3, "none of the 0 runs is completed"),
        (("none.csv", "--target", "seconds"), 3, "no table none.csv"),
    ],
)
def test_bad_input(run_here: Run, table: Path, arguments: tuple[str, ...], code: int, message: str) -> None:
    given = [str(table) if each == "TABLE" else each for each in arguments]
    run = run_here("learn", *given, "--no-gray-box")
    assert run.returncode == code, run.stderr
    assert message in run.stderr
    assert "Traceback" not in run.stderr


def test_a_model_that_is_no_model(run_here: Run, tmp_path: Path) -> None:
    file = tmp_path / "other.json"
    file.write_text("{}", encoding="utf-8")
    run = run_here("predict", "mnist-cnn", "--on", "t4", "--batch", "8", "--cost-model", str(file))
    assert run.returncode == 2
    assert "is not a learned model" in run.stderr


def test_lines_of_layers(run_here: Run, tmp_path: Path) -> None:
    def profile(name: str, *operations: float) -> str:
        works = [
            {"layer": str(place), "phase": "forward", "kind": "convolution", "works": 1, "operations": count,
             "measured_seconds": 1e-3 + 2e-9 * count, "predicted_seconds": None}
            for place, count in enumerate(operations)
        ]  # fmt: skip
        total = sum(each["measured_seconds"] for each in works)  # type: ignore[misc]
        content = {"model": name, "device": "here", "batch": 1, "traced_step_seconds": total, "works": works}
        file = tmp_path / f"{name}.json"
        file.write_text(json.dumps(content), encoding="utf-8")
        return str(file)

    one, other = profile("one", 1e6, 2e6, 5e6), profile("other", 1e7)
    run = run_here("learn", "layers", one, "--predict", other)
    assert (run.returncode, run.stderr) == (0, "")
    assert "convolution forward" in run.stdout
    answer = json.loads(run_here("learn", "layers", one, "--predict", other, "--json").stdout)
    assert answer["predictions"][1]["error"] == pytest.approx(0.0, abs=1e-6)
