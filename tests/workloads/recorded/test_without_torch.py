"""Commands in a process in which torch and the libraries of models cannot be imported."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from foretrain.errors import MissingData

_RUN = """
import sys

class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("torch", "torchvision", "timm", "transformers", "onnx"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Hidden())
from foretrain.serving.cli import main

sys.exit(main(sys.argv[1:]))
"""

EXAMPLES = Path(__file__).parents[3] / "docs" / "examples"
JOBS = f"{EXAMPLES / 'training_jobs.csv'} --cluster {EXAMPLES / 'cluster.yaml'}"
"""Jobs of models whose times are predicted."""


def _run(words: str, home: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "FORETRAIN_HOME": str(home)}
    command = [sys.executable, "-c", _RUN, *words.split()]
    return subprocess.run(command, capture_output=True, text=True, env=environment, check=False)


@pytest.mark.parametrize(
    "words",
    [
        "predict resnet50 --on rtx3090 --batch 192 --precision fp16",
        "fit llama3-8b --on rtx4090 --lora r=16",
        "predict llama3-8b --on h100-sxm:8 --strategy fsdp --seq-len 4096",
        "plan resnet50 --samples 1281167 --epochs 90 --precision fp16 --deadline 24h",
        "trace gpt2 --batch 4",
        "predict flux1-dev --on h200-sxm --batch 1 --image-size 512 --precision bf16 --no-advice",
        "guide resnet18 --on a100-sxm-40gb",
        "models",
        pytest.param(f"schedule {JOBS} --policy greedy --draws 2", id="schedule"),
    ],
)
def test_a_command_answers_without_torch_as_with_it(words: str, tmp_path: Path) -> None:
    asked = f"{words} --json"
    without = _run(asked, tmp_path)
    assert without.returncode == 0, without.stderr
    command = [sys.executable, "-m", "foretrain", *asked.split()]
    usual = subprocess.run(command, capture_output=True, text=True, check=True)
    assert json.loads(without.stdout) == json.loads(usual.stdout)


def test_jobs_are_simulated_without_torch_as_with_it(tmp_path: Path) -> None:
    asked = f"simulate {JOBS} --policy greedy,edf --json"
    without = _run(asked, tmp_path)
    assert without.returncode == 0, without.stderr
    command = [sys.executable, "-m", "foretrain", *asked.split()]
    usual = subprocess.run(command, capture_output=True, text=True, check=True)
    one, other = (json.loads(each.stdout, object_hook=_without_clocks) for each in (without, usual))
    assert one == other


def _without_clocks(plain: dict[str, object]) -> dict[str, object]:
    """The answer but for the time that decisions take."""
    return {name: value for name, value in plain.items() if name != "decision_seconds"}


TEXT = {"num_attention_heads": 8, "num_hidden_layers": 12}
CONFIGS = {
    "llama": {**TEXT, "vocab_size": 32000, "num_key_value_heads": 4, "max_position_embeddings": 4096},
    "qwen2": {**TEXT, "vocab_size": 32000, "num_key_value_heads": 2, "tie_word_embeddings": True},
    "bert": {**TEXT, "vocab_size": 30522},
    "vit": {**TEXT, "image_size": 224, "patch_size": 16},
}


@pytest.mark.parametrize("width", [512, 1024])
@pytest.mark.parametrize("model_type", CONFIGS)
def test_a_configuration_is_predicted_without_torch_as_with_it(
    model_type: str, width: int, tmp_path: Path
) -> None:
    sizes = {"hidden_size": width, "intermediate_size": 4 * width}
    file = tmp_path / "config.json"
    file.write_text(json.dumps({"model_type": model_type, **CONFIGS[model_type], **sizes}))
    asked = f"predict hf:{file} --on a100-sxm-40gb --batch 8 --precision bf16 --no-advice --json"
    without = _run(asked, tmp_path / "without")
    assert without.returncode == 0, without.stderr
    command = [sys.executable, "-m", "foretrain", *asked.split()]
    usual = subprocess.run(command, capture_output=True, text=True, check=True)
    assert json.loads(without.stdout) == json.loads(usual.stdout)


def test_a_configuration_without_a_recording_needs_transformers(tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    file.write_text(json.dumps({"model_type": "gpt_neox", "hidden_size": 64}))
    result = _run(f"predict hf:{file} --on a100-sxm-40gb", tmp_path)
    assert result.returncode == MissingData.exit_code
    assert "foretrain[models]" in result.stderr
    assert "Traceback" not in result.stderr


def test_what_needs_torch_says_so_in_one_sentence(tmp_path: Path) -> None:
    result = _run("predict gpt2 --on a100-sxm-40gb --batch 4 --optimizer adafactor", tmp_path)
    assert result.returncode == MissingData.exit_code
    assert "pip install 'foretrain[models]'" in result.stderr
    assert "Traceback" not in result.stderr
