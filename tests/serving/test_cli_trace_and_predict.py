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
        (("trace", "resnet50", "--optimizer", "adamm"), "paged-lion-8bit; did you mean adam"),
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


V100 = "--on v100-sxm2-16gb:4"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (f"{V100} --optimizer adamm", "did you mean adam"),
        (f"{V100} --attention flsh", "did you mean flash"),
        (f"{V100} --framework megatronn", "did you mean megatron"),
        (f"{V100} --lora r=x", "gives no rank"),
        (f"{V100} --offload optimiser", "did you mean optimizer"),
        (f"{V100} --strategy zeroo3", "did you mean zero3"),
        (f"{V100} --strategy tp=3", "must divide 4"),
        (f"{V100} --links nvlnk", "did you mean nvlink"),
        (f"{V100}x2 --network infiniban", "did you mean infiniband"),
        (f"{V100} --network infiniband-edr", "has no effect"),
        (f"{V100} --precision bf16", "v100-sxm2-16gb has no BF16; use --precision fp16"),
        (f"{V100} --weights bf16", "v100-sxm2-16gb has no BF16; use --precision fp16"),
        (f"{V100} --precision fp8", "v100-sxm2-16gb has no FP8; use --precision fp16"),
        ("--on a100-sxm-80gb --precision fp8", "a100-sxm-80gb has no FP8; use --precision bf16"),
        ("--on gtx1080ti --precision bf16", "gtx1080ti has no BF16; use --precision fp32"),
    ],
)
@pytest.mark.parametrize("command", ["predict", "fit", "resources"])
def test_what_is_wrong_with_any_model_is_refused_before_the_model_is_read(
    run_here: Run, command: str, options: str, message: str
) -> None:
    """There is no such model, which would be the error if it was looked for first."""
    run = run_here(command, "nowhere.py:model", *options.split())
    assert run.returncode in (2, 3)
    assert message in run.stderr and "nowhere" not in run.stderr


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("--dataset imagnet", "imagenet-jpeg"), ("--storage nvm", "nvme"), ("--jitter 5", "below 1"),
        ("--min-batch 4", "heterogeneous"),
    ],
)  # fmt: skip
def test_input_and_batches_are_checked_before_the_model_is_read(
    run_here: Run, option: str, message: str
) -> None:
    run = run_here("predict", "nowhere.py:model", "--on", "t4", *option.split())
    assert run.returncode == 2
    assert message in run.stderr and "nowhere" not in run.stderr


def test_a_target_is_read_before_the_step_is_traced(run_here: Run, tmp_path: Path) -> None:
    model, log = tmp_path / "model.py", tmp_path / "loss.csv"
    model.write_text("def build(batch=2):\n    raise RuntimeError('traced')\n")
    log.write_text("step,loss\n" + "".join(f"{step},{1 / step}\n" for step in range(1, 9)))
    run = run_here("predict", f"{model}:build", "--on", "t4", "--target", "loss", "--log", str(log))
    assert run.returncode == 2
    assert "'loss' is not a target" in run.stderr


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
