"""`foretrain size` as people use it: text, JSON, a plot, a configuration to plan with."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest

import foretrain as ft

Run = Callable[..., CompletedProcess[str]]
FEW = ("size", "--budget", "20usd", "--deadline", "12h", "--gpu", "a10g", "--cloud", "aws", "--max-gpus", "4")
KEYS = {
    "law", "limits", "chosen", "for_serving", "size_is_given", "loss", "runs", "optima", "config", "notes",
}  # fmt: skip
RUN_KEYS = {
    "model", "parameters", "parameters_with_one_embedding", "layers", "width", "heads", "shape_source",
    "tokens", "tokens_per_parameter", "loss_by_law", "plan",
}  # fmt: skip


def test_json_has_stable_keys(predicted: Callable[..., dict[str, Any]]) -> None:
    found = predicted(*FEW)
    assert set(found) == KEYS
    assert found["limits"] == {"deadline_seconds": 12 * 3600, "budget_usd": 20}
    assert {frozenset(each) for each in found["runs"]} == {frozenset(RUN_KEYS)}
    assert set(found["loss"]) == {"law", "unit", "p10", "p50", "p90", "parts", "uncertainty"}
    assert sum(found["loss"]["parts"].values()) == pytest.approx(found["loss"]["p50"])
    chosen = found["runs"][found["chosen"]]
    assert chosen["loss_by_law"]["besiroglu-2024"] == pytest.approx(found["loss"]["p50"])
    assert found["config"]["num_hidden_layers"] == chosen["layers"]
    assert found["optima"][0]["law"] == "besiroglu-2024"


def test_the_page_answers_first(run_here: Run) -> None:
    text = run_here(*FEW).stdout
    first = text.splitlines()[0]
    assert first.startswith("✓ $20.00 and 12h 00m: train ") and "expected loss" in first
    for expected in (
        "tokens per parameter", "nats per token (80 % between", "What moves it:", "Sizes compared",
        "less to serve", "Preferred by each law:", "MassiveText", "Note: every token is seen once",
    ):  # fmt: skip
        assert expected in text


def test_files_are_written_and_the_configuration_can_be_planned(
    run_here: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = run_here(*FEW, "--params", "134M", "--plot", "loss.svg", "--config", "model.json")
    assert done.returncode == 0, done.stderr
    svg = Path("loss.svg").read_text()
    assert "parameters, billions" in svg and "hoffmann-2022" in svg
    assert json.loads(Path("model.json").read_text())["hidden_size"] == 768
    assert "plan it with: foretrain plan hf:model.json --tokens" in done.stdout


def test_the_verb_of_python_is_the_command(predicted: Callable[..., dict[str, Any]]) -> None:
    answer = ft.size(budget="20usd", deadline="12h", gpu="a10g", cloud="aws", max_gpus=4)
    assert isinstance(answer, ft.SizeAnswer)
    assert json.loads(answer.to_json()) == predicted(*FEW)
    assert "<svg" in answer._repr_html_()
    assert repr(answer).startswith("<SizeAnswer: model llama-")


def test_phases_are_reported() -> None:
    from foretrain.serving.requests.planning import SizeRequest
    from foretrain.serving.verbs.planning import size

    seen: list[str] = []

    def note(doing: str, _: float | None = None, /) -> None:
        seen.append(doing)

    size(SizeRequest(budget=5, params=134e6, gpu=("a10g",), cloud=("aws",), max_gpus=1), note)
    assert seen == ["reading the offers", "comparing machines for llama-134M (size 1)"]
