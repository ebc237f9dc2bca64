"""Arguments of Megatron-LM: a shell script, a list of arguments, or YAML.

https://github.com/NVIDIA/Megatron-LM/blob/main/megatron/training/arguments.py. In YAML,
arguments may stand at any depth, with their dashes or as Python names.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, final

from foretrain.workloads.training_configs._base import ConfigFormat, ConfigReading, read_half
from foretrain.workloads.training_configs._models import set_model_of_sizes

_OWN = {"tensor_model_parallel_size", "num_layers", "hidden_size", "num_attention_heads", "use_mcore_models"}
_COUNTS = {
    "micro_batch_size": "micro_batch",
    "global_batch_size": "global_batch",
    "seq_length": "seq_len",
    "tensor_model_parallel_size": "tensor",
    "pipeline_model_parallel_size": "pipeline",
    "context_parallel_size": "context",
    "expert_model_parallel_size": "expert",
    "num_virtual_stages_per_pipeline_rank": "chunks",
    "train_iters": "steps",
}
_SIZES = {
    "layers": "num_layers",
    "width": "hidden_size",
    "heads": "num_attention_heads",
    "hidden": "ffn_hidden_size",
    "kv_heads": "num_query_groups",
    "experts": "num_experts",
}
_ATTENTIONS = {"flash": "flash2", "fused": "cudnn", "unfused": "eager", "local": "eager"}
_RECIPES = {"delayed": "delayed", "tensorwise": "current", "blockwise": "block", "mxfp8": "block"}
_LIBRARY_CHOICE = "auto"


@final
class MegatronConfig(ConfigFormat):
    """The command line of `pretrain_gpt.py`, or the script that runs it."""

    name = "Megatron-LM"
    framework = "megatron"
    suffixes = (".yaml", ".yml", ".sh", ".txt", ".args", ".json")
    example = "num_layers: 32\nhidden_size: 4096\ntensor_model_parallel_size: 2\nbf16: true\n"
    documentation = "https://github.com/NVIDIA/Megatron-LM"

    def recognises(self, content: Mapping[str, Any]) -> bool:
        return len(_OWN & self.entries(content).keys()) >= 2

    def entries(self, content: Mapping[str, Any]) -> Mapping[str, Any]:
        """Arguments at any depth, by their Python names."""
        named: dict[str, Any] = {}
        for key, value in content.items():
            if isinstance(value, Mapping):
                named |= self.entries(value)
            else:
                named[str(key).removeprefix("--").replace("-", "_")] = value
        return named

    def read(self, reading: ConfigReading) -> None:
        reading.set("framework", self.framework)
        for key, setting in _COUNTS.items():
            reading.set(setting, reading.whole(key), key)
        _read_model(reading)
        _read_precision(reading)
        _read_parallelism(reading)
        _read_step(reading)
        _read_length(reading)


def _read_model(reading: ConfigReading) -> None:
    """Of the zoo, by its sizes; those that are not given are the defaults of Megatron-LM."""
    is_gated = bool(reading.switch("swiglu"))
    sizes = {name: size for name, key in _SIZES.items() if (size := reading.whole(key)) is not None}
    if not {"layers", "width", "heads"} <= sizes.keys():
        return
    width = sizes["width"]
    usual = {
        "hidden": int(4 * width * 2 / 3 / 64) * 64 if is_gated else 4 * width,
        "kv_heads": sizes["heads"],
        "experts": 0,
    }
    set_model_of_sizes(reading, "llama" if is_gated else "gpt", _SIZES, usual | sizes)


def _read_precision(reading: ConfigReading) -> None:
    half = read_half(reading, "bf16", "fp16")
    for key in ("fp8_format", "fp8"):
        if reading.get(key) not in (None, False):
            reading.settings.pop("precision", None)
            reading.set("precision", "fp8", key)
            reading.word("fp8_recipe", _RECIPES, "fp8_scaling")
            return
    if half is None:
        reading.set("precision", "fp32", "bf16")


def _read_parallelism(reading: ConfigReading) -> None:
    if reading.switch("use_distributed_optimizer"):
        reading.set("sharding", "zero1", "use_distributed_optimizer")
    if reading.settings.get("tensor", 1) > 1:
        reading.set("sequence_parallel", bool(reading.switch("sequence_parallel")), "sequence_parallel")
        if reading.switch("tp_comm_overlap"):
            reading.set("tensor_overlap", True, "tp_comm_overlap")
    key = "num_layers_per_virtual_pipeline_stage"
    layers, stage = reading.whole("num_layers"), reading.whole(key)
    stages = reading.settings.get("pipeline", 1)
    if layers is not None and stage is not None and stages > 1:
        if layers % (stages * stage):
            raise reading.fail(
                f"{layers} layers do not split into {stages} stages of chunks of `{key}` {stage}"
            )
        reading.set("chunks", layers // (stages * stage), key)
    if stages > 1 and reading.settings.get("chunks", 1) > 1:
        reading.set("schedule", "interleaved", *reading.entries["chunks"])


def _read_step(reading: ConfigReading) -> None:
    kind = reading.text("recompute_granularity")
    if kind == "full":
        reading.set("checkpoint_activations", True, "recompute_granularity")
    selective = "recomputes attention alone, whose scores fused kernels never store"
    for key in ("recompute_activations", *(["recompute_granularity"] if kind == "selective" else [])):
        reading.ignore(key, selective)
    if reading.values.get("attention_backend") != _LIBRARY_CHOICE:
        reading.word("attention_backend", _ATTENTIONS, "attention")
    if reading.switch("use_flash_attn") and "attention" not in reading.settings:
        reading.set("attention", "flash2", "use_flash_attn")
    reading.word("optimizer", {"adam": "adamw", "sgd": "momentum", "muon": "muon"}, "optimizer")
    if reading.switch("cross_entropy_loss_fusion"):
        reading.set("loss", "fused", "cross_entropy_loss_fusion")
    for key in ("enable_cuda_graph", "external_cuda_graph"):
        if reading.switch(key):
            reading.set("cuda_graphs", True, key)
    if reading.switch("optimizer_cpu_offload"):
        reading.set("offload", ("optimizer",), "optimizer_cpu_offload")
    reading.ignore("rampup_batch_size", "predicted at the batch after the ramp")


def _read_length(reading: ConfigReading) -> None:
    samples, batch = reading.whole("train_samples"), reading.settings.get("global_batch")
    if samples is not None and batch is not None and "steps" not in reading.settings:
        reading.set("steps", max(1, samples // batch), "train_samples")
