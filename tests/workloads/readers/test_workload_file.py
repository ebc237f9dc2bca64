"""Workload files: what they may say, and what they may not."""

from __future__ import annotations

from pathlib import Path

import pytest
from foretrain.workloads.readers.workload_file import parse_workload
from hypothesis import given
from hypothesis import strategies as st

from foretrain.errors import ForetrainError, InvalidData, InvalidRequest, UnknownName
from foretrain.workloads.lora import LoraOptions
from foretrain.workloads.readers import WorkloadFile, WorkloadFileSource, read_model, read_workload
from foretrain.workloads.zoo import BuildOptions

FULL = """\
model: llama2-7b
batch: 4
samples: 1000
epochs: 3
precision: bf16
optimizer: adamw
strategy: fsdp
seq_len: 128
attention: flash
checkpoint_activations: true
lora: r=8,targets=q_proj+v_proj
"""


def test_everything_it_says_is_read(tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text(FULL)
    assert read_workload(tmp_path / "job.yaml") == WorkloadFile(
        model="llama2-7b",
        batch=4,
        samples=1000,
        epochs=3,
        precision="bf16",
        optimizer="adamw",
        strategy="fsdp",
        seq_len=128,
        attention="flash",
        checkpoint_activations=True,
        lora=LoraOptions(8, ("q_proj", "v_proj")),
    )


def test_its_sizes_hold_where_the_request_has_none(tmp_path: Path) -> None:
    (tmp_path / "job.yml").write_text("model: mnist-cnn\nbatch: 6\n")
    source = read_model(str(tmp_path / "job.yml"))
    assert isinstance(source, WorkloadFileSource)
    assert source.source.kind == "zoo"
    assert source.example(BuildOptions()).samples == 6
    assert source.example(BuildOptions(batch=2)).samples == 2


def test_a_model_file_is_looked_for_beside_it(tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text("def build():\n    return 1\n")
    (tmp_path / "job.yaml").write_text("model: net.py:build\n")
    source = read_model(str(tmp_path / "job.yaml"))
    assert source.runs_user_code
    assert read_workload(tmp_path / "job.yaml").model == f"{tmp_path / 'net.py'}:build"


def test_the_fingerprint_follows_the_sizes_it_sets_and_not_the_rest(tmp_path: Path) -> None:
    prints = []
    for text in ("batch: 6", "batch: 7", "batch: 7\nepochs: 3"):
        (tmp_path / "job.yaml").write_text(f"model: mnist-cnn\n{text}\n")
        prints.append(read_model(str(tmp_path / "job.yaml")).fingerprint())
    assert prints[0] != prints[1] == prints[2]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("batch: 4", "names no model"),
        ("model: 5", "names no model"),
        ("- resnet50", "key: value"),
        ("", "key: value"),
        ("model: [", "is not YAML"),
        ("model: resnet50\nbatch: 0", "at least 1"),
        ("model: resnet50\nbatch: 2.5", "whole number"),
        ("model: resnet50\nbatch: yes", "whole number"),
        ("model: resnet50\nbatch: 4\nglobal_batch: 8", "keep one"),
        ("model: resnet50\nprecision: fp12", "one of fp32, tf32"),
        ("model: resnet50\ncompile: maybe", "true or false"),
        ("model: resnet50\noptimizer: 3", "must be text"),
    ],
)
def test_what_it_may_not_say(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "job.yaml").write_text(text)
    with pytest.raises(InvalidData, match=said):
        read_workload(tmp_path / "job.yaml")


def test_an_unknown_key_is_told_with_near_ones(tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text("model: resnet50\nepoch: 3\n")
    with pytest.raises(UnknownName, match="did you mean epochs"):
        read_workload(tmp_path / "job.yaml")


def test_a_workload_file_does_not_name_another(tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text("model: job.yaml\n")
    with pytest.raises(InvalidRequest, match="not another workload file"):
        read_model(str(tmp_path / "job.yaml"))


@given(st.text(max_size=60))
def test_any_text_is_read_or_refused_with_a_sentence(text: str) -> None:
    try:
        assert parse_workload(text, Path("job.yaml")).model
    except ForetrainError as error:
        assert str(error)
