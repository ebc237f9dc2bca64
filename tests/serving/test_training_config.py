"""`--from CONFIG`: requests from a training configuration, and what answers say about it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest

import foretrain as ft
from foretrain.errors import InvalidData, InvalidRequest
from foretrain.serving.requests import request_from
from foretrain.serving.requests.planning import PlanRequest
from foretrain.serving.requests.predicting import FitRequest, PredictRequest

Run = Callable[..., CompletedProcess[str]]
CONFIGS = Path(__file__).parents[2] / "docs" / "examples" / "configs"
AXOLOTL, DEEPSPEED = CONFIGS / "axolotl.yml", CONFIGS / "deepspeed.json"


def small(folder: Path, more: str = "") -> Path:
    file = folder / "args.yaml"
    file.write_text(
        "model_name_or_path: openai-community/gpt2\noutput_dir: out\nper_device_train_batch_size: 2\n"
        f"gradient_accumulation_steps: 4\nblock_size: 128\nbf16: true\nnum_train_epochs: 3\n{more}",
        encoding="utf-8",
    )
    return file


def test_a_prediction_takes_options_and_says_so(tmp_path: Path) -> None:
    answer = ft.predict(from_config=small(tmp_path), on="a100-sxm4-40gb", advice=False)
    by_hand = ft.predict(
        "gpt2", on="a100-sxm4-40gb", batch=8, micro_batches=4, seq_len=128, precision="bf16",
        framework="hf-trainer", advice=False,
    )  # fmt: skip
    assert not isinstance(answer, ft.Infeasible)
    assert not isinstance(by_hand, ft.Infeasible)
    assert answer.step == by_hand.step
    assert answer.memory == by_hand.memory
    report = answer.to_dict()["configuration"]
    assert report["format"] == "TrainingArguments"
    assert report["taken"]["batch"] == {
        "value": 8,
        "entries": ["per_device_train_batch_size", "gradient_accumulation_steps"],
    }
    assert report["ignored"] == {
        "output_dir": "",
        "num_train_epochs": "needs the samples of an epoch: give `samples`",
    }
    assert any(note.startswith("from args.yaml (TrainingArguments): ") for note in answer.notes)
    assert "ignored entries of args.yaml: output_dir" in answer.notes
    assert "configuration" not in by_hand.to_dict()


def test_given_options_win(tmp_path: Path) -> None:
    file = small(tmp_path)
    answer = ft.fit("bert-base", from_config=file, on="a100-sxm4-40gb", batch=3, precision="fp32")
    assert not isinstance(answer, ft.Infeasible)
    assert (answer.workload.source.name, answer.batch, answer.workload.options.precision) == (
        "bert-base",
        3,
        "fp32",
    )
    report = answer.to_dict()["configuration"]
    assert report["replaced"].keys() == {"model", "precision"}
    assert report["ignored"]["per_device_train_batch_size"] == "replaced by the batch that is given"


def test_a_length_on_the_command_line_replaces_that_of_the_file(tmp_path: Path) -> None:
    given = {"from_config": small(tmp_path, "max_steps: 70\n"), "on": "t4"}
    assert request_from(PredictRequest, given).steps == 70
    by_epochs = request_from(PredictRequest, {**given, "epochs": 2, "samples": 1000})
    assert (by_epochs.steps, by_epochs.epochs) == (None, 2)
    assert request_from(FitRequest, given).batch == 8


def test_epochs_count_once_samples_are_given(tmp_path: Path) -> None:
    request = request_from(PredictRequest, {"from_config": small(tmp_path), "on": "t4", "samples": 800})
    assert request.epochs == 3


def test_plans_take_what_does_not_depend_on_machines() -> None:
    request = request_from(PlanRequest, {"from_config": CONFIGS / "megatron.sh"})
    assert (request.model, request.global_batch, request.micro_batches) == ("llama3-8b", 128, None)
    assert request.strategy == ("auto",)
    sharded = request_from(PlanRequest, {"from_config": DEEPSPEED, "model": "gpt2", "steps": 10})
    assert sharded.strategy == ("zero3",)


def test_a_plan_says_what_it_took(tmp_path: Path) -> None:
    file = small(tmp_path, "max_steps: 70\n")
    answer = ft.plan(from_config=file, gpu="a10g", cloud="aws", max_gpus=1)
    assert not isinstance(answer, ft.Infeasible)
    assert answer.to_dict()["configuration"]["taken"]["steps"]["value"] == 70
    assert any("(TrainingArguments)" in note for note in answer.notes)


def test_a_configuration_without_a_model_needs_one() -> None:
    with pytest.raises(InvalidRequest, match=r"DeepSpeed configuration .*names no known model: give `model`"):
        ft.predict(from_config=DEEPSPEED, on="h100-sxm:8")


def test_a_batch_that_is_given_replaces_batches_that_do_not_agree(tmp_path: Path) -> None:
    file = tmp_path / "ds.json"
    file.write_text('{"train_batch_size": 100, "train_micro_batch_size_per_gpu": 3}', encoding="utf-8")
    with pytest.raises(InvalidData, match="100 is not a multiple of 3 samples on 1 replicas"):
        ft.fit("gpt2", from_config=file, on="t4")
    answer = ft.fit("gpt2", from_config=file, on="t4", global_batch=4)
    assert not isinstance(answer, ft.Infeasible)
    assert answer.batch == 4


def test_a_request_object_takes_its_configuration(tmp_path: Path) -> None:
    file = small(tmp_path, "gradient_checkpointing: true\nfsdp: full_shard\n")
    request = ft.FitRequest(model="gpt2", on="rtx3090:2", from_config=file)
    answer = ft.fit(request)
    assert not isinstance(answer, ft.Infeasible)
    assert answer.workload.options.checkpoint_activations
    assert answer.strategy == "fsdp"


def test_on_the_command_line(tmp_path: Path, run_here: Run) -> None:
    result = run_here("fit", "--from", str(small(tmp_path)), "--on", "t4", "--precision", "fp16", "--json")
    assert result.returncode == 0
    assert json.loads(result.stdout)["configuration"]["replaced"].keys() == {"precision"}
    missing = run_here("fit", "--on", "t4")
    assert missing.returncode == 2
    assert "Missing argument 'MODEL'" in missing.stderr
