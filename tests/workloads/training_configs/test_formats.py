"""Every format of training configuration: what a file of it becomes, taken and ignored.

The files under docs/examples/configs have the facts of public examples of each project: TRL and transformers
scripts, axolotl's `examples/llama-3/qlora.yml`, torchtitan's `llama3_70b.toml`, Megatron-LM's
`train_llama3_8b_h100_fp8.sh`, DeepSpeed's ZeRO-3 with offloading, and accelerate's template for FSDP.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from foretrain.errors import InvalidData, MissingData
from foretrain.workloads.training_configs import config_formats, options_on, read_training_config

EXAMPLES = Path(__file__).parents[3] / "docs" / "examples" / "configs"


def options(file: Path, devices: int | None = 8) -> dict[str, Any]:
    return {name: each.value for name, each in options_on(read_training_config(file), devices)[0].items()}


def written(folder: Path, name: str, text: str) -> Path:
    file = folder / name
    file.write_text(text, encoding="utf-8")
    return file


EXPECTED: dict[str, dict[str, Any]] = {
    "trainer.yaml": {
        "model": "llama3.2-1b", "batch": 32, "micro_batches": 8, "seq_len": 2048, "precision": "bf16",
        "optimizer": "adamw-fused", "attention": "flash2", "checkpoint_activations": True, "epochs": 3,
        "framework": "hf-trainer",
    },
    "axolotl.yml": {
        "model": "llama3-8b", "batch": 8, "micro_batches": 4, "seq_len": 4096, "precision": "bf16",
        "lora": "r=32,targets=all-linear,quantised,double", "optimizer": "paged-adamw", "attention": "flash2",
        "checkpoint_activations": True, "epochs": 4, "framework": "hf-trainer",
    },
    "torchtitan.toml": {
        "model": "llama3-70b", "strategy": "tp=8,zero=3", "batch": 8, "micro_batches": 1, "seq_len": 8192,
        "steps": 1000, "optimizer": "adamw", "precision": "bf16", "checkpoint_activations": True,
        "framework": "torchtitan",
    },
    "megatron.sh": {
        "model": "llama3-8b", "strategy": "tp=2,zero=1", "global_batch": 128, "micro_batches": 32,
        "seq_len": 8192, "steps": 1000, "precision": "fp8", "framework": "megatron",
    },
    "deepspeed.json": {
        "strategy": "zero3", "batch": 8, "micro_batches": 2, "precision": "bf16", "offload": ("optimizer",),
        "optimizer": "adamw", "framework": "deepspeed",
    },
    "accelerate.yaml": {"strategy": "fsdp", "precision": "bf16", "checkpoint_activations": True},
}  # fmt: skip


@pytest.mark.parametrize("name", EXPECTED)
def test_examples_become_options(name: str) -> None:
    assert options(EXAMPLES / name) == EXPECTED[name]


def test_every_format_has_an_example() -> None:
    formats = {read_training_config(EXAMPLES / name).format for name in EXPECTED}
    assert formats == set(config_formats())


@pytest.mark.parametrize("name", config_formats())
class TestConformance:
    """What a new format must do."""

    def test_its_example_is_recognised_by_it_alone(self, name: str, tmp_path: Path) -> None:
        kind = config_formats()[name]
        file = written(tmp_path, f"example{kind.suffixes[0]}", kind.example)
        assert read_training_config(file).format == name

    def test_what_it_takes_follows_from_entries_of_the_file_and_the_rest_is_ignored(self, name: str) -> None:
        configs = map(read_training_config, map(EXAMPLES.joinpath, EXPECTED))
        config = next(each for each in configs if each.format == name)
        taken = {key for keys in config.entries.values() for key in keys}
        assert not taken & config.ignored.keys()
        assert all(config.entries[setting] for setting in config.settings if setting != "framework")

    def test_it_says_where_its_entries_are_documented(self, name: str) -> None:
        assert config_formats()[name].documentation.startswith("https://")


def test_ignored_entries_are_listed() -> None:
    config = read_training_config(EXAMPLES / "axolotl.yml")
    assert set(config.ignored) == {"lora_alpha", "datasets", "learning_rate"}


@pytest.mark.parametrize(
    ("hub", "model"),
    [
        ("meta-llama/Llama-3.1-8B-Instruct", "llama3-8b"),
        ("unsloth/Meta-Llama-3.1-70B-bnb-4bit", "llama3-70b"),
        ("mistralai/Mistral-7B-Instruct-v0.3", "mistral-7b-v0.3"),
        ("Qwen/Qwen2.5-7B-Instruct", "qwen2.5-7b"),
        ("google/gemma-2-9b-it", "gemma2-9b"),
        ("my-org/unknown-3b", "hf:my-org/unknown-3b"),
    ],
)
def test_models_of_the_hub(tmp_path: Path, hub: str, model: str) -> None:
    assert options(written(tmp_path, "a.yml", f"base_model: {hub}\n"))["model"] == model


# ---------------------------------------------------------------- batches


def test_micro_batches_follow_from_the_devices() -> None:
    # 128 samples: 16 devices in pairs are 8 replicas of 16 micro-batches of 1
    assert options(EXAMPLES / "megatron.sh", 16)["micro_batches"] == 16
    assert "micro_batches" not in options(EXAMPLES / "megatron.sh", None)


def test_batches_that_do_not_agree_are_refused(tmp_path: Path) -> None:
    text = '{"train_batch_size": 100, "train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 2}'
    file = written(tmp_path, "ds.json", text)
    with pytest.raises(InvalidData, match="100 is not 4 samples in 2 rounds on 8 replicas"):
        options(file)
    assert options(written(tmp_path, "ds.json", text.replace("100", "64")))["global_batch"] == 64


def test_pipelines_of_torchtitan_divide_the_local_batch(tmp_path: Path) -> None:
    text = (EXAMPLES / "torchtitan.toml").read_text(encoding="utf-8")
    text = text.replace("pipeline_parallel_degree = 1", "pipeline_parallel_degree = 4")
    found = options(written(tmp_path, "t.toml", text), 32)
    assert (found["strategy"], found["batch"], found["micro_batches"]) == ("tp=8,pp=4,zero=3", 8, 8)


# ---------------------------------------------------------------- parallelism


@pytest.mark.parametrize(
    ("entries", "strategy"),
    [
        ("data_parallel_shard_degree = -1", "fsdp"),
        ("data_parallel_shard_degree = 1", "ddp"),
        ("data_parallel_replicate_degree = 4", "zero=3,shard=16"),
        ("data_parallel_replicate_degree = 4\ntensor_parallel_degree = 2", "tp=2,zero=3,shard=8"),
    ],
)
def test_sharding_of_torchtitan(tmp_path: Path, entries: str, strategy: str) -> None:
    text = f'[model]\nname = "llama3"\nflavor = "8B"\n[training]\nseq_len = 8192\n[parallelism]\n{entries}\n'
    assert options(written(tmp_path, "t.toml", text), 64)["strategy"] == strategy


def test_virtual_stages_of_megatron(tmp_path: Path) -> None:
    text = (
        "--num-layers 96 --hidden-size 12288 --num-attention-heads 96 --micro-batch-size 1 "
        "--global-batch-size 1536 --tensor-model-parallel-size 8 --pipeline-model-parallel-size 8 "
        "--num-layers-per-virtual-pipeline-stage 6 --fp16"
    )
    found = options(written(tmp_path, "a.args", text), 128)
    assert found["strategy"] == "tp=8,pp=8,schedule=interleaved,chunks=2,sp=no"
    assert found["micro_batches"] == 768
    assert found["precision"] == "fp16"


def test_arguments_as_yaml_or_a_list(tmp_path: Path) -> None:
    yaml = "MODEL_ARGS:\n  --num-layers: 32\n  --hidden-size: 4096\n  --bf16: true\n  --micro-batch-size: 4\n"
    listed = '["--num-layers", "32", "--hidden-size=4096", "--bf16", "--micro-batch-size", "4"]'
    expected = {"batch": 4, "micro_batches": 1, "precision": "bf16", "framework": "megatron"}
    assert options(written(tmp_path, "m.yaml", yaml)) == expected
    assert options(written(tmp_path, "m.json", listed)) == expected


def test_sizes_without_a_model_of_the_zoo(tmp_path: Path) -> None:
    text = "--num-layers 33 --hidden-size 4096 --num-attention-heads 32 --bf16"
    config = read_training_config(written(tmp_path, "a.args", text))
    assert "model" not in config.settings
    assert "no model of the zoo has num_layers 33" in config.ignored["num_layers"]


def test_a_deepspeed_file_named_by_another_is_read(tmp_path: Path) -> None:
    written(tmp_path, "ds.json", '{"zero_optimization": {"stage": 2}, "bf16": {"enabled": "auto"}}')
    text = "output_dir: out\nmodel_name_or_path: gpt2\noptim: sgd\nbf16: true\ndeepspeed: ds.json\n"
    found = options(written(tmp_path, "args.yaml", text))
    assert (found["strategy"], found["framework"], found["batch"]) == ("zero2", "deepspeed", 8)
    (tmp_path / "ds.json").unlink()
    with pytest.raises(MissingData, match=r"DeepSpeed configuration 'ds.json'"):
        options(tmp_path / "args.yaml")


# ---------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.yaml", "batch: 3\nfoo: 1\n", "is not a training configuration of a known format .*batch, foo"),
        ("a.json", "{", "is not JSON"),
        ("a.toml", "[x", "is not TOML"),
        ("a.json", "3", "is not an object"),
        ("a.sh", "--x 'unclosed", "is not a shell script"),
        ("a.yml", "base_model: gpt2\nmicro_batch_size: two\n", "`micro_batch_size` is 'two'"),
        ("a.yml", "base_model: gpt2\nadapter: ia3\n", "known are lora and qlora"),
        ("a.yml", "base_model: gpt2\nbf16: true\nfp16: true\n", "contradicts itself in precision"),
        (
            "a.json",
            '{"zero_optimization": {"stage": 3}, "bf16": {"enabled": true}, "fp16": {"enabled": true}}',
            "switches on both `bf16.enabled` and `fp16.enabled`",
        ),
        ("a.yaml", "distributed_type: XLA\n", "`distributed_type` is XLA"),
        (
            "a.yaml",
            "base_model: gpt2\nmicro_batch_size: 2\ndistributed_type: FSDP\n",
            "could be of accelerate or axolotl",
        ),
    ],
)
def test_errors(tmp_path: Path, name: str, text: str, message: str) -> None:
    with pytest.raises(InvalidData, match=message):
        read_training_config(written(tmp_path, name, text))


def test_missing_files(tmp_path: Path) -> None:
    with pytest.raises(MissingData, match="does not exist"):
        read_training_config(tmp_path / "none.yaml")


def test_optimizers_without_a_model_are_left_open_and_named(tmp_path: Path) -> None:
    config = read_training_config(written(tmp_path, "a.yml", "base_model: gpt2\noptimizer: apollo_adamw\n"))
    assert "optimizer" not in config.settings
    assert "apollo_adamw is not modelled" in config.ignored["optimizer"]
