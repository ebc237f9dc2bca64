"""torchtitan's TOML: https://github.com/pytorch/torchtitan/blob/main/torchtitan/config/job_config.py."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, final

from foretrain.workloads.training_configs._base import OPTIMIZERS, ConfigFormat, ConfigReading
from foretrain.workloads.training_configs._models import set_flavor

_DEFAULT_BATCH, _DEFAULT_TOKENS = 8, 2048
"""Of `local_batch_size` and `seq_len`."""
_DEGREES = {
    "tensor_parallel_degree": "tensor",
    "context_parallel_degree": "context",
    "pipeline_parallel_degree": "pipeline",
    "expert_parallel_degree": "expert",
}
_SCHEDULES = {"1f1b": "1f1b", "gpipe": "gpipe", "interleaved1f1b": "interleaved"}
_CHUNKS = 2
"""Stages of a device under `Interleaved1F1B`, unless layers per stage are given."""
_SHARD, _REPLICATE = "parallelism.data_parallel_shard_degree", "parallelism.data_parallel_replicate_degree"


@final
class TorchtitanConfig(ConfigFormat):
    """The file that `job.config_file` names."""

    name = "torchtitan"
    framework = "torchtitan"
    suffixes = (".toml",)
    example = '[model]\nname = "llama3"\nflavor = "8B"\n\n[training]\nlocal_batch_size = 1\nseq_len = 8192\n'
    documentation = "https://github.com/pytorch/torchtitan"

    def recognises(self, content: Mapping[str, Any]) -> bool:
        training, model = content.get("training"), content.get("model")
        return isinstance(training, Mapping) and isinstance(model, Mapping) and "flavor" in model

    def read(self, reading: ConfigReading) -> None:
        reading.set("framework", self.framework)
        set_flavor(reading, "model.name", "model.flavor")
        _read_parallelism(reading)
        _read_batch(reading)
        length = reading.whole("training.seq_len") or _DEFAULT_TOKENS
        reading.set("seq_len", length, "training.seq_len")
        reading.set("steps", reading.whole("training.steps"), "training.steps")
        reading.word("optimizer.name", OPTIMIZERS, "optimizer")
        fused = reading.text("optimizer.implementation") == "fused"
        if fused and reading.settings.get("optimizer") == "adamw":
            del reading.settings["optimizer"]
            reading.set("optimizer", "adamw-fused", "optimizer.implementation")
        if reading.switch("optimizer.early_step_in_backward"):
            reading.set("gradient_release", True, "optimizer.early_step_in_backward")
        _read_precision(reading)
        _read_checkpointing(reading)
        for key in ("compile.enable", "training.compile"):
            if reading.switch(key):
                reading.set("compile", True, key)
        if reading.switch("training.enable_cpu_offload"):
            reading.set("offload", ("parameters",), "training.enable_cpu_offload")


def _read_parallelism(reading: ConfigReading) -> None:
    for name, setting in _DEGREES.items():
        reading.set(setting, reading.whole(f"parallelism.{name}"), f"parallelism.{name}")
    # -1, the default, shards over all devices that are left
    shard, replicate = reading.whole(_SHARD), reading.whole(_REPLICATE) or 1
    if shard == 1:
        reading.set("sharding", "ddp", _SHARD)
    else:
        reading.set("sharding", "fsdp", _SHARD)
        reading.set("shard", shard, _SHARD)
        reading.set("replicate", replicate if replicate > 1 else None, _REPLICATE)
    if reading.switch("parallelism.enable_async_tensor_parallel"):
        reading.set("tensor_overlap", True, "parallelism.enable_async_tensor_parallel")
    if reading.settings.get("pipeline", 1) > 1:
        key = "parallelism.pipeline_parallel_schedule"
        reading.word(key, _SCHEDULES, "schedule")
        if reading.settings.get("schedule") == "interleaved":
            reading.set("chunks", _CHUNKS, key)


def _read_batch(reading: ConfigReading) -> None:
    keys = ("training.local_batch_size", "training.batch_size")
    key = next((each for each in keys if reading.values.get(each) is not None), keys[0])
    batch = reading.whole(key) or _DEFAULT_BATCH
    reading.set("global_batch", reading.whole("training.global_batch_size"), "training.global_batch_size")
    size = "parallelism.pipeline_parallel_microbatch_size"
    micro = reading.whole(size) or 1
    if reading.settings.get("pipeline", 1) == 1:
        reading.set("micro_batch", batch, key)
        return
    if batch % micro:
        raise reading.fail(f"`{key}` {batch} does not split into micro-batches of `{size}` {micro}")
    reading.set("micro_batch", micro, size)
    if "global_batch" not in reading.settings:
        reading.set("accumulation", batch // micro, key)


def _read_precision(reading: ConfigReading) -> None:
    converters = reading.words("model.converters")
    if any("float8" in each for each in converters):
        reading.set("precision", "fp8", "model.converters")
        reading.set("fp8_scaling", "current", "model.converters")
    elif any(each.startswith("mx") or ".mx" in each for each in converters):
        reading.set("precision", "fp8", "model.converters")
        reading.set("fp8_scaling", "block", "model.converters")
    else:
        parameters = reading.text("training.mixed_precision_param") or "bfloat16"
        precision = {"bfloat16": "bf16", "float32": "fp32"}.get(parameters)
        if precision is None:
            raise reading.fail(
                f"`training.mixed_precision_param` is {parameters!r}; it must be bfloat16 or float32"
            )
        reading.set("precision", precision, "training.mixed_precision_param")


def _read_checkpointing(reading: ConfigReading) -> None:
    mode, option = "activation_checkpoint.mode", "activation_checkpoint.selective_ac_option"
    kind, selected = reading.text(mode), str(reading.get(option) or "op")
    if kind == "full":
        reading.set("checkpoint_activations", True, mode)
    elif kind == "selective" and selected == "op":
        reading.set("selective_checkpointing", True, mode, option)
    elif kind == "selective":
        reading.ignore(mode, f"recomputing every {selected}th layer is not modelled: predicted without")
    elif kind not in (None, "none"):
        raise reading.fail(f"`{mode}` is {kind!r}; it must be none, selective or full")
