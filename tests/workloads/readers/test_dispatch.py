"""The forms in which a model is named, and errors for unknown ones."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from foretrain.errors import InvalidRequest, MissingData, UnknownName
from foretrain.workloads.readers import FORMS, read_model
from foretrain.workloads.readers._base import digest
from foretrain.workloads.readers.examples import following
from foretrain.workloads.zoo import BuildOptions


def test_a_zoo_name_or_alias_is_a_zoo_model_built_without_data() -> None:
    source = read_model("resnet-50")
    assert (source.name, source.kind, source.runs_user_code) == ("resnet-50", "zoo", False)
    example = source.example(BuildOptions(batch=2))
    assert example.samples == 2
    assert sum(parameter.numel() for parameter in example.module.parameters()) == 25_557_032
    assert all(parameter.is_meta for parameter in example.module.parameters())


def test_an_alias_has_the_fingerprint_of_its_model_and_another_model_has_another() -> None:
    assert read_model("resnet-50").fingerprint() == read_model("resnet50").fingerprint()
    assert read_model("resnet50").fingerprint() != read_model("resnet18").fingerprint()


def test_the_error_of_an_unknown_model_lists_near_names_and_all_forms() -> None:
    with pytest.raises(UnknownName) as caught:
        read_model("resnet5")
    assert "resnet50" in caught.value.near
    assert all(form in str(caught.value) for form in FORMS)


@pytest.mark.parametrize("model", ["model.py:build", "program.pt2", " Model.PT2 "])
def test_a_server_refuses_files_that_run_code_before_it_looks_at_them(model: str) -> None:
    with pytest.raises(InvalidRequest, match="a server never runs model files"):
        read_model(model, allow_user_code=False)


@pytest.mark.parametrize("suffix", [".onnx", ".pt2", ".py:build"])
def test_a_missing_file_is_an_error(tmp_path: Path, suffix: str) -> None:
    with pytest.raises(MissingData, match="does not exist"):
        read_model(str(tmp_path / f"absent{suffix}"))


def test_the_error_of_a_missing_file_lists_those_beside_it(tmp_path: Path) -> None:
    (tmp_path / "network.onnx").write_bytes(b"")
    with pytest.raises(MissingData, match=r"network\.onnx"):
        read_model(str(tmp_path / "netwrok.onnx"))


def test_reading_a_zoo_name_imports_no_torch() -> None:
    program = (
        "import sys; from foretrain.workloads.readers import read_model; "
        "read_model('resnet50').fingerprint(); print('torch' in sys.modules)"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "False"


def test_parts_of_a_digest_never_run_together() -> None:
    assert digest({"a": "bc", "d": "e"}) != digest({"a": "b", "d": "ce"})
    assert digest({"a": "1", "b": "2"}) == digest({"b": "2", "a": "1"})


def test_targets_made_on_the_host_follow_an_output_without_data() -> None:
    import torch

    targets = torch.tensor([1, 0])
    loss = following(lambda logits: torch.nn.functional.cross_entropy(logits, targets), 2, 2)
    assert loss(torch.zeros(2, 3, device="meta")).is_meta
    assert loss(torch.zeros(2, 3)).item() == pytest.approx(1.0986, abs=1e-4)  # ln 3
