"""`foretrain trace` and `foretrain predict`."""

import json
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest

Run = Callable[..., CompletedProcess[str]]


def test_trace_json_has_the_published_numbers(run_here: Run) -> None:
    found = json.loads(run_here("trace", "resnet50", "--batch", "32", "--json").stdout)
    assert found["parameters"] == 25_557_032
    assert found["flop"]["forward_backward"] == pytest.approx(777.6e9, rel=1e-3)
    assert found["coverage"]["unmodelled"] == []
    assert found["workload"]["batch"] == 32
    assert "layers" not in found


def test_trace_prints_the_layer_table(run_here: Run) -> None:
    text = run_here("trace", "voice-conv", "--batch", "2", "--layers").stdout
    assert "376,200 (1.44 MiB)" in text
    assert "12.07 MiB a sample" in text
    assert any(line.split()[:3] == ["0", "Conv1d", "2x50x12001"] for line in text.splitlines())


def test_predict_json_follows_the_contract(run_here: Run) -> None:
    found = json.loads(run_here("predict", "mnist-cnn", "--on", "t4", "--batch", "8", "--json").stdout)
    memory = found["memory"]
    assert set(memory["bytes"]) == {"p10", "p50", "p90"}
    assert sum(part["bytes"] for part in memory["parts"]) == pytest.approx(memory["bytes"]["p50"])
    assert memory["fits"] is True
    assert memory["bytes"]["p90"] < memory["capacity_bytes"]
    assert memory["largest_batch"] > 8
    assert found["hardware"]["device"] == "t4"


def test_what_does_not_fit_gets_advice_and_an_exit_code_on_request(run_here: Run) -> None:
    job = ("predict", "bert-mini", "--on", "gtx1060-6gb", "--batch", "1024", "--seq-len", "128")
    plain = run_here(*job)
    assert plain.returncode == 0
    assert "does not fit" in plain.stdout
    assert "checkpoint activations" in plain.stdout
    assert run_here(*job, "--check").returncode == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("trace", "resnet-fifty"), "no model 'resnet-fifty'"),
        (("trace", "resnet50", "--precision", "fp12"), "--precision is 'fp12'; it must be one of fp32"),
        (("trace", "resnet50", "--optimizer", "adamm"), "no optimizer 'adamm'; did you mean adam"),
        (("trace", "resnet50", "--seq-len", "12"), "has no --seq-len"),
        (("trace", "resnet50", "--batch", "0"), "--batch is '0'; it must be a whole number of at least 1"),
        (("predict", "resnet50", "--on", "h100"), "family of devices"),
        (("predict", "resnet50", "--on", "h100-sxm:8", "--strategy", "magic"), "strategy 'magic'"),
    ],
)
def test_bad_input(run_here: Run, arguments: tuple[str, ...], message: str) -> None:
    evaluation = run_here(*arguments)
    assert evaluation.returncode == 2
    assert message in evaluation.stderr
    assert "Traceback" not in evaluation.stderr
    assert evaluation.stdout == ""


def test_the_error_of_a_model_file_names_its_layer(run_here: Run, tmp_path: Path) -> None:
    file = tmp_path / "model.py"
    file.write_text(
        "import torch\n"
        "def make():\n"
        "    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Linear(9, 2))\n"
        "    return model, (torch.zeros(3, 4),), lambda out: out.sum()\n"
    )
    evaluation = run_here("trace", f"{file}:make")
    assert evaluation.returncode == 2
    assert "in layer '1': RuntimeError" in evaluation.stderr
