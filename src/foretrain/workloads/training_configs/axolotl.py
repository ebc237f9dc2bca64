"""Axolotl's YAML: https://docs.axolotl.ai/docs/config-reference.html."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, final

from foretrain.workloads.training_configs._base import (
    ATTENTIONS,
    AUTO,
    OPTIMIZERS,
    ConfigFormat,
    ConfigReading,
    lora_text,
    read_fsdp,
)
from foretrain.workloads.training_configs._models import set_hub_model
from foretrain.workloads.training_configs.deepspeed import include_deepspeed

_SIZES = {
    "micro_batch_size": "micro_batch",
    "gradient_accumulation_steps": "accumulation",
    "sequence_len": "seq_len",
    "max_steps": "steps",
    "tensor_parallel_size": "tensor",
    "context_parallel_size": "context",
    "sequence_parallel_degree": "context",
    "dp_replicate_size": "replicate",
    "dp_shard_size": "shard",
}
_ATTENTION_SWITCHES = {"flash_attention": "flash2", "sdp_attention": "sdpa", "eager_attention": "eager"}
_DEFAULT_RANK = 8
"""Of LoRA in PEFT."""


@final
class AxolotlConfig(ConfigFormat):
    """The file that `axolotl train` takes."""

    name = "axolotl"
    framework = "hf-trainer"
    suffixes = (".yaml", ".yml")
    example = "base_model: meta-llama/Meta-Llama-3-8B\nsequence_len: 4096\nmicro_batch_size: 2\n"
    documentation = "https://docs.axolotl.ai/docs/config-reference.html"

    def recognises(self, content: Mapping[str, Any]) -> bool:
        return "base_model" in content

    def read(self, reading: ConfigReading) -> None:
        set_hub_model(reading, "base_model")
        for key, setting in _SIZES.items():
            reading.set(setting, reading.whole(key), key)
        _read_precision(reading)
        _read_lora(reading)
        _read_attention(reading)
        reading.word("optimizer", OPTIMIZERS, "optimizer")
        checkpointing = reading.get("gradient_checkpointing")
        if checkpointing not in (None, False):
            reading.set("checkpoint_activations", True, "gradient_checkpointing")
        offloads = checkpointing == "offload" or reading.switch("activation_offloading")
        if offloads:
            key = "activation_offloading" if checkpointing is True else "gradient_checkpointing"
            reading.set("offload", ("activations",), key)
        if reading.values.get("torch_compile") == AUTO or reading.switch("torch_compile"):
            reading.set("compile", True, "torch_compile")
        include_deepspeed(reading, "deepspeed")
        is_sharded = any(key == "fsdp" or key.startswith("fsdp_config.") for key in _given(reading))
        if is_sharded:
            kinds = {"full_shard": "fsdp", "shard_grad_op": "zero2", "hybrid_shard": "hsdp"}
            for word in reading.words("fsdp"):
                reading.set("sharding", kinds.get(word), "fsdp")
            read_fsdp(reading, "fsdp_config", "fsdp" if reading.values.get("fsdp") else "fsdp_config")
        reading.set("epochs", reading.get("num_epochs"), "num_epochs")
        reading.ignore("unfrozen_parameters", "training some of the parameters is not modelled")
        if "framework" not in reading.settings:
            reading.set("framework", self.framework)


def _given(reading: ConfigReading) -> list[str]:
    return [key for key, value in reading.values.items() if value not in (None, [], False)]


def _read_precision(reading: ConfigReading) -> None:
    if reading.values.get("bf16") == AUTO:
        reading.ignore("bf16", "auto: as is usual on the device")
        return
    if reading.switch("fp8"):
        reading.set("precision", "fp8", "fp8")
        return
    for key, half in {"bf16": "bf16", "fp16": "fp16", "bfloat16": "bf16", "float16": "fp16"}.items():
        value = reading.get(key)
        if value not in (None, False):
            reading.set("precision", half, key)
            if value == "full" or key.endswith("float16"):
                reading.set("weights", half, key)
    if "precision" not in reading.settings:
        tf32 = reading.switch("tf32")
        reading.set("precision", "tf32" if tf32 else "fp32", "tf32" if tf32 else "bf16")


def _read_lora(reading: ConfigReading) -> None:
    adapter = reading.text("adapter")
    if adapter is None:
        return
    if adapter not in ("lora", "qlora"):
        raise reading.fail(f"`adapter` is {adapter!r}, which is not modelled; known are lora and qlora")
    targets = reading.words("lora_target_modules")
    if reading.switch("lora_target_linear"):
        targets = ("all-linear",)
    four_bits = adapter == "qlora" or reading.switch("load_in_4bit")
    # Axolotl quantises the scales too
    flags = {"quantised": four_bits, "double": four_bits, "dora": reading.switch("peft_use_dora")}
    keys = ("adapter", "lora_r", "lora_target_modules", "lora_target_linear", "load_in_4bit", "peft_use_dora")
    given = [key for key in keys if reading.values.get(key) is not None]
    rank = reading.whole("lora_r") or _DEFAULT_RANK
    reading.set("lora", lora_text(rank, targets, flags=flags), *given)
    if reading.switch("load_in_8bit") and not four_bits:
        reason = "weights in eight bits are not modelled: predicted in half precision"
        reading.ignore("load_in_8bit", reason)


def _read_attention(reading: ConfigReading) -> None:
    for key in ("attn_implementation", "attention"):
        reading.word(key, ATTENTIONS, "attention")
    for key, kernel in _ATTENTION_SWITCHES.items():
        if reading.switch(key) and "attention" not in reading.settings:
            reading.set("attention", kernel, key)
