"""Hugging Face `TrainingArguments`, as JSON, YAML or the arguments of a command; those of TRL's scripts too.

https://huggingface.co/docs/transformers/main_classes/trainer. A script adds entries of its own to them: the
model (`model_name_or_path`), sequence length and LoRA are read as TRL's `ModelConfig` and `SFTConfig` and
transformers' examples name them (https://huggingface.co/docs/trl/clis).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, final

from foretrain.workloads.training_configs._base import (
    ATTENTIONS,
    OPTIMIZERS,
    ConfigFormat,
    ConfigReading,
    lora_text,
    read_fsdp,
    read_half,
)
from foretrain.workloads.training_configs._models import set_hub_model
from foretrain.workloads.training_configs.deepspeed import include_deepspeed

_OWN = {
    "per_device_train_batch_size",
    "gradient_accumulation_steps",
    "num_train_epochs",
    "max_steps",
    "optim",
}
_OF_A_RUN = {"output_dir", "learning_rate", "model_name_or_path", "per_device_train_batch_size"}
_LENGTHS = ("max_length", "max_seq_length", "model_max_length", "block_size")
_DEFAULT_BATCH = 8
_DEFAULT_RANK = 16
"""Of `per_device_train_batch_size`, and of `lora_r` in TRL."""
_DTYPES = {"bfloat16": "bf16", "float16": "fp16"}


@final
class TrainerConfig(ConfigFormat):
    """What `HfArgumentParser` reads, or `TrainingArguments.to_json_string` writes."""

    name = "TrainingArguments"
    framework = "hf-trainer"
    suffixes = (".yaml", ".yml", ".json", ".sh")
    example = "output_dir: out\nper_device_train_batch_size: 4\nbf16: true\n"
    documentation = "https://huggingface.co/docs/transformers/main_classes/trainer"

    def recognises(self, content: Mapping[str, Any]) -> bool:
        return (
            bool(_OWN & content.keys()) and bool(_OF_A_RUN & content.keys()) and "base_model" not in content
        )

    def read(self, reading: ConfigReading) -> None:
        set_hub_model(reading, "model_name_or_path")
        key = "per_device_train_batch_size"
        reading.set("micro_batch", reading.whole(key) or _DEFAULT_BATCH, key)
        reading.set(
            "accumulation", reading.whole("gradient_accumulation_steps"), "gradient_accumulation_steps"
        )
        for key in _LENGTHS:
            reading.set("seq_len", reading.whole(key), key)
        _read_parallelism(reading)
        _read_precision(reading)
        reading.word("optim", OPTIMIZERS, "optimizer")
        reading.word("attn_implementation", ATTENTIONS, "attention")
        for key in ("gradient_checkpointing", "activation_checkpointing"):
            if reading.switch(key):
                reading.set("checkpoint_activations", True, key)
        if reading.switch("torch_compile"):
            reading.set("compile", True, "torch_compile")
        _read_lora(reading)
        reading.set("steps", reading.whole("max_steps"), "max_steps")
        reading.set("epochs", reading.get("num_train_epochs"), "num_train_epochs")
        reading.ignore("use_liger_kernel", "kernels of Liger are not modelled")
        if "framework" not in reading.settings:
            reading.set("framework", self.framework)


def _read_parallelism(reading: ConfigReading) -> None:
    include_deepspeed(reading, "deepspeed")
    fsdp = reading.get("fsdp")
    if fsdp not in (None, "", [], False):
        words = ["full_shard"] if fsdp is True else reading.words("fsdp")
        kinds = {"full_shard": "fsdp", "shard_grad_op": "zero2", "hybrid_shard": "hsdp", "no_shard": "ddp"}
        for word in words:
            reading.set("sharding", kinds.get(word), "fsdp")
        read_fsdp(reading, "fsdp_config", "fsdp")
        if "offload" in words:
            reading.set("offload", ("parameters",), "fsdp")


def _read_precision(reading: ConfigReading) -> None:
    half = read_half(reading, "bf16", "fp16")
    for key in ("dtype", "torch_dtype"):
        weights = _DTYPES.get((reading.text(key) or "").removeprefix("torch."))
        if weights is not None:
            reading.set("weights", weights, key)
            reading.set("precision", weights, key)
            half = weights
    tf32 = reading.switch("tf32")
    if half is None and "precision" not in reading.settings:
        reading.set("precision", "tf32" if tf32 else "fp32", "tf32" if tf32 else "bf16")


def _read_lora(reading: ConfigReading) -> None:
    if not reading.switch("use_peft"):
        return
    targets = reading.words("lora_target_modules")
    four_bits, double = reading.switch("load_in_4bit"), reading.switch("use_bnb_nested_quant")
    flags = {"quantised": four_bits, "double": four_bits and double, "dora": reading.switch("use_dora")}
    rank = reading.whole("lora_r") or _DEFAULT_RANK
    keys = ("use_peft", "lora_r", "lora_target_modules", "load_in_4bit", "use_bnb_nested_quant", "use_dora")
    given = [key for key in keys if reading.values.get(key) is not None]
    reading.set("lora", lora_text(rank, targets, flags=flags), *given)
    reading.ignore("load_in_8bit", "weights in eight bits are not modelled: predicted in half precision")
