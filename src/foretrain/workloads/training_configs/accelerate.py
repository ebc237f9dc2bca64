"""What `accelerate config` writes: precision, FSDP, DeepSpeed or Megatron-LM, compile. It names no model.

https://huggingface.co/docs/accelerate/package_reference/cli.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, final

from foretrain.workloads.training_configs._base import ConfigFormat, ConfigReading, read_fsdp
from foretrain.workloads.training_configs.deepspeed import include_deepspeed, read_offloads

_DEEPSPEED, _FSDP, _MEGATRON = "deepspeed_config", "fsdp_config", "megatron_lm_config"
_DEGREES = {"tp_degree": "tensor", "pp_degree": "pipeline", "num_micro_batches": "accumulation"}
_SIZES = {
    "dp_replicate_size": "replicate",
    "dp_shard_size": "shard",
    "tp_size": "tensor",
    "cp_size": "context",
}


@final
class AccelerateConfig(ConfigFormat):
    """The file that `accelerate launch` takes."""

    name = "accelerate"
    framework = "pytorch"
    suffixes = (".yaml", ".yml", ".json")
    example = "distributed_type: MULTI_GPU\nmixed_precision: bf16\nnum_processes: 8\n"
    documentation = "https://huggingface.co/docs/accelerate/basic_tutorials/launch"

    def recognises(self, content: Mapping[str, Any]) -> bool:
        return "distributed_type" in content

    def read(self, reading: ConfigReading) -> None:
        kind = str(reading.get("distributed_type")).upper()
        mixed = str(reading.get("mixed_precision") or "no").lower()
        if mixed in ("bf16", "fp16", "fp8"):
            reading.set("precision", mixed, "mixed_precision")
        elif mixed in ("no", "false"):
            # DeepSpeed has a precision of its own
            reading.set("precision", "fp32" if kind != "DEEPSPEED" else None, "mixed_precision")
        else:
            raise reading.fail(f"`mixed_precision` is {mixed!r}; it must be no, fp16, bf16 or fp8")
        reading.set("devices", reading.whole("num_processes"), "num_processes")
        backend = str(reading.get("dynamo_config.dynamo_backend") or reading.get("dynamo_backend") or "no")
        if backend.lower() not in ("no", "eager"):
            reading.set("compile", True, "dynamo_config.dynamo_backend")
        if kind == "FSDP":
            read_fsdp(reading, _FSDP, "distributed_type")
        elif kind == "DEEPSPEED":
            _read_deepspeed(reading)
        elif kind == "MEGATRON_LM":
            _read_megatron(reading)
        elif kind in ("MULTI_GPU", "NO"):
            reading.set("sharding", "ddp", "distributed_type")
        else:
            raise reading.fail(
                f"`distributed_type` is {kind}, which is not modelled; known are NO, MULTI_GPU, FSDP, "
                "DEEPSPEED and MEGATRON_LM"
            )
        for name, setting in _SIZES.items():
            key = f"parallelism_config.parallelism_config_{name}"
            reading.set(setting, reading.whole(key), key)


def _read_deepspeed(reading: ConfigReading) -> None:
    reading.set("framework", "deepspeed", "distributed_type")
    include_deepspeed(reading, f"{_DEEPSPEED}.deepspeed_config_file")
    stage_key, accumulation = f"{_DEEPSPEED}.zero_stage", f"{_DEEPSPEED}.gradient_accumulation_steps"
    stage = reading.get(stage_key)
    if stage is not None:
        reading.set("sharding", f"zero{stage}" if stage else "ddp", stage_key)
    reading.set("accumulation", reading.whole(accumulation), accumulation)
    read_offloads(
        reading,
        {
            f"{_DEEPSPEED}.offload_optimizer_device": "optimizer",
            f"{_DEEPSPEED}.offload_param_device": "parameters",
        },
    )


def _read_megatron(reading: ConfigReading) -> None:
    reading.set("framework", "megatron", "distributed_type")
    prefix = f"{_MEGATRON}.megatron_lm_"
    for name, setting in _DEGREES.items():
        reading.set(setting, reading.whole(prefix + name), prefix + name)
    if reading.switch(f"{prefix}use_distributed_optimizer"):
        reading.set("sharding", "zero1", f"{prefix}use_distributed_optimizer")
    sequence = reading.switch(f"{prefix}sequence_parallelism")
    if sequence is not None:
        reading.set("sequence_parallel", sequence, f"{prefix}sequence_parallelism")
    reading.ignore(f"{prefix}recompute_activations", "selective recomputation of Megatron-LM is not modelled")
