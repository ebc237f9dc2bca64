"""DeepSpeed's JSON: batch, ZeRO stage, offloading, precision, optimizer. It names no model.

https://www.deepspeed.ai/docs/config-json/. "auto" leaves an entry to the program that starts DeepSpeed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, final

from foretrain.errors import InvalidData
from foretrain.workloads.training_configs._base import OPTIMIZERS, ConfigFormat, ConfigReading, read_half

_OWN = {"train_micro_batch_size_per_gpu", "train_batch_size", "zero_optimization"}
_BATCH = {
    "train_micro_batch_size_per_gpu": "micro_batch",
    "gradient_accumulation_steps": "accumulation",
    "train_batch_size": "global_batch",
}
_OFFLOADS = {"offload_optimizer": "optimizer", "offload_param": "parameters"}
_ADAM = {
    **OPTIMIZERS,
    "adam": "adamw",  # `adam_w_mode` is its default
    "onebitadam": "adamw",
}


@final
class DeepSpeedConfig(ConfigFormat):
    """The file that `deepspeed.initialize` and `TrainingArguments(deepspeed=...)` take."""

    name = "DeepSpeed"
    framework = "deepspeed"
    suffixes = (".json",)
    example = '{"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 2}}'
    documentation = "https://www.deepspeed.ai/docs/config-json/"

    def recognises(self, content: Mapping[str, Any]) -> bool:
        return bool(_OWN & content.keys())

    def read(self, reading: ConfigReading) -> None:
        reading.set("framework", self.framework)
        read_deepspeed(reading)


def read_deepspeed(reading: ConfigReading, section: str = "") -> None:
    """The entries of DeepSpeed, which another configuration may hold as a section."""
    for key, setting in _BATCH.items():
        reading.set(setting, reading.whole(section + key), section + key)
    read_half(reading, f"{section}bf16.enabled", f"{section}fp16.enabled")
    stage_key = f"{section}zero_optimization.stage"
    stage = reading.get(stage_key)
    if stage is not None:
        if stage not in (0, 1, 2, 3):
            raise reading.fail(f"`{stage_key}` is {stage!r}; it must be 0, 1, 2 or 3")
        reading.set("sharding", f"zero{stage}" if stage else "ddp", stage_key)
    read_offloads(
        reading,
        {f"{section}zero_optimization.{name}.device": state for name, state in _OFFLOADS.items()},
    )
    reading.word(f"{section}optimizer.type", _ADAM, "optimizer")
    reading.set(
        "tensor", reading.whole(f"{section}tensor_parallel.autotp_size"), "tensor_parallel.autotp_size"
    )
    reading.ignore(
        f"{section}activation_checkpointing.partition_activations",
        "checkpointing is switched on by the model",
    )
    reading.ignore(f"{section}sequence_parallel_size", "Ulysses sequence parallelism is not modelled")


def read_offloads(reading: ConfigReading, states: Mapping[str, str]) -> None:
    """What is moved to the host: the device that each entry names."""
    moved = {key: state for key, state in states.items() if reading.text(key) not in (None, "none")}
    if not moved:
        return
    reading.set("offload", tuple(dict.fromkeys(moved.values())), *moved)
    for key in moved:
        if reading.values[key] == "nvme":
            reading.ignore(key, "NVMe is predicted as host memory, which is faster")


def include_deepspeed(reading: ConfigReading, key: str) -> None:
    """The DeepSpeed configuration that an entry names, or holds itself."""
    named = reading.get(key)
    if isinstance(named, str):
        read = ConfigReading(path := reading.beside(named, "DeepSpeed configuration"), _parse(path))
        read_deepspeed(read)
        reading.include(read, key)
        reading.set("framework", "deepspeed", key)
    elif any(entry.startswith(f"{key}.") for entry in reading.values):
        read_deepspeed(reading, f"{key}.")
        reading.set("framework", "deepspeed", key)


def _parse(path: Path) -> Mapping[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise InvalidData(str(path), f"is not JSON: {error}") from error
    if not isinstance(content, dict):
        raise InvalidData(str(path), "is not a DeepSpeed configuration: it must be a JSON object")
    return content
