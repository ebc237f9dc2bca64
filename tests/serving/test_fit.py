"""`foretrain fit`: whether a step fits, with what chance, and options that make it fit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

import foretrain as ft
from foretrain.answers import Infeasible
from foretrain.prediction.advice.remedies import options_of
from foretrain.prediction.answer import FitAnswer
from foretrain.serving.cli.app import app

TOO_LARGE = ("fit", "resnet18", "--on", "t4", "--batch", "1300", "--precision", "fp16")


def invoke(*words: str) -> Result:
    return CliRunner().invoke(app, words, catch_exceptions=False)


def fit(model: str, **options: Any) -> FitAnswer:
    answer = ft.fit(model, **options)
    assert not isinstance(answer, Infeasible)
    return answer


def test_the_first_line_is_the_answer() -> None:
    first, training, interval = invoke("fit", "mnist-cnn", "--on", "t4", "--batch", "64").stdout.splitlines()[
        :3
    ]
    assert first.startswith("mnist-cnn on t4 fits at batch 64 (over 99 % chance to fit): ")
    assert "of 15.8 GiB, largest batch " in first
    assert training.strip().startswith("Training in fp16")
    assert interval.strip().startswith("80 % between ")


def test_memory_is_that_of_predict() -> None:
    options: dict[str, Any] = {"on": "t4", "batch": 64, "precision": "fp16"}
    predicted = ft.predict("mnist-cnn", **options)
    assert not isinstance(predicted, Infeasible)
    assert fit("mnist-cnn", **options).memory == predicted.memory


@pytest.mark.parametrize(("batch", "moment"), [(1, "at the optimizer step"), (16, "in the backward pass")])
def test_the_moment_of_the_breakdown_and_the_peaks_of_other_phases(batch: int, moment: str) -> None:
    """With few activations memory is fullest where all gradients exist; with many, where they do."""
    answer = fit("gpt2", on="a100-sxm-80gb", batch=batch, seq_len=128, precision="fp32")
    memory = answer.memory
    assert list(memory.phase_bytes) == ["forward", "backward", "optimizer"]
    assert memory.fullest_phase in moment
    assert f"Memory is fullest {moment}; it reaches" in str(answer)
    # The parts are of the same moment; the allocator adds rounding and cache to the tensors.
    cache = next(part.bytes for part in memory.parts if part.name.startswith("allocator rounding"))
    assert max(memory.phase_bytes.values()) == pytest.approx(memory.bytes.p50 - cache, rel=0.01)


def test_options_to_copy_make_it_fit() -> None:
    answer = fit("resnet18", on="t4", batch=1300, precision="fp16")
    assert not answer.memory.fits
    assert answer.probability < 0.5
    assert [list(options) for _, options in answer.solutions] == [["batch"], ["checkpoint_activations"]]
    for remedy, options in answer.solutions:
        request = {"on": "t4", "batch": 1300, "precision": "fp16", **options}
        request = {name: value if value != "" else True for name, value in request.items()}
        assert fit("resnet18", **request).memory.bytes.p50 == pytest.approx(remedy.bytes)
        assert fit("resnet18", **request).memory.fits


def test_combined_changes_as_options_make_it_fit() -> None:
    asked = {"on": "gtx1060-6gb", "batch": 8, "seq_len": 512}
    answer = fit("gpt2-medium", **asked)
    combined = [(each, options) for each, options in answer.solutions if "on" not in options]
    assert combined and all(len(options) == 2 for _, options in combined)
    for remedy, options in combined:
        request = {name: value if value != "" else True for name, value in {**asked, **options}.items()}
        again = fit("gpt2-medium", **request).memory
        assert again.fits
        assert again.bytes.p50 == pytest.approx(remedy.bytes, rel=0.02)


def test_they_are_printed_as_typed_on_the_command_line() -> None:
    printed = invoke(*TOO_LARGE).stdout
    assert "resnet18 on t4 does not fit at batch 1300" in printed
    assert "--checkpoint-activations " in printed


def test_json_says_the_same() -> None:
    plain = json.loads(invoke(*TOO_LARGE, "--json").stdout)
    assert plain["fits"] is False
    assert plain["solutions"][1]["options"] == {"checkpoint_activations": ""}
    assert plain["memory"]["largest_batch"] == plain["largest_batch"] > 0


@pytest.mark.parametrize(
    ("more", "status"), [((), 0), (("--check",), 1), (("--check", "--batch", "8"), 0)], ids=str
)
def test_check_sets_the_exit_status(more: tuple[str, ...], status: int) -> None:
    command = [word for word in TOO_LARGE if "--batch" not in more or word not in ("--batch", "1300")]
    with app.make_context("foretrain", [*command, *more]) as context:
        assert app.invoke(context) == status


def test_that_no_layout_fits_is_an_answer_too() -> None:
    assert isinstance(ft.fit("gpt2-xl", on="k80:2", strategy="auto", global_batch=2), Infeasible)


def test_unequal_nodes_are_as_full_as_the_fullest(tmp_path: Path) -> None:
    cluster = tmp_path / "cluster.yaml"
    cluster.write_text("nodes:\n  - device: t4\n  - device: v100-sxm2-16gb\nnetwork: ethernet-10g\n")
    options: dict[str, Any] = {"on": str(cluster), "global_batch": 64, "precision": "fp16"}
    predicted = ft.predict("mnist-cnn", **options)
    assert not isinstance(predicted, Infeasible)
    answer = fit("mnist-cnn", **options)
    assert (answer.memory, answer.device, answer.batch) == (predicted.memory, predicted.fullest_device, 64)
    assert answer.tokens == predicted.tokens


@pytest.mark.parametrize(
    ("change", "options"),
    [
        ("batch 4", {"batch": "4"}),
        ("checkpoint activations", {"checkpoint_activations": ""}),
        ("optimizer adamw-8bit", {"optimizer": "adamw-8bit"}),
        ("offload optimizer", {"offload": "optimizer"}),
        ("ZeRO-3 over 8 devices", {"on": "t4:8", "strategy": "zero3"}),
        (
            "checkpoint activations, ZeRO-1 over 2 devices",
            {"checkpoint_activations": "", "on": "t4:2", "strategy": "zero1"},
        ),
        ("strategy tp=2,dp=4, micro_batches 2", {"strategy": "tp=2,dp=4", "micro_batches": "2"}),
    ],
)
def test_a_change_as_options(change: str, options: dict[str, str]) -> None:
    assert options_of(change, "t4") == options
