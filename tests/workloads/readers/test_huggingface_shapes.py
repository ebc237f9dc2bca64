"""Configurations that have recordings give the graph that transformers' own model is traced to."""

from __future__ import annotations

import json
from typing import Any

import pytest

from foretrain.errors import InvalidRequest
from foretrain.workloads.options import ResolvedOptions
from foretrain.workloads.readers.huggingface import HuggingFaceConfig
from foretrain.workloads.readers.huggingface_shapes import PREFIX, RECORDED, is_covered, shape_of_config
from foretrain.workloads.recorded import library
from foretrain.workloads.recorded.recording import find_difference
from foretrain.workloads.workload import Workload, trace_workload
from foretrain.workloads.zoo import BuildOptions

ROPE = {"factor": 32.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0,
        "original_max_position_embeddings": 8192, "rope_type": "llama3"}  # fmt: skip
CONFIGS: dict[str, dict[str, Any]] = {
    "hf-llama": {
        "architectures": ["LlamaForCausalLM"], "bos_token_id": 1, "eos_token_id": 2, "hidden_act": "silu",
        "hidden_size": 4096, "initializer_range": 0.02, "intermediate_size": 11008,
        "max_position_embeddings": 4096, "model_type": "llama", "num_attention_heads": 32,
        "num_hidden_layers": 3, "num_key_value_heads": 32, "pretraining_tp": 1, "rms_norm_eps": 1e-05,
        "rope_scaling": None, "tie_word_embeddings": False, "torch_dtype": "float16",
        "transformers_version": "4.31.0", "use_cache": True, "vocab_size": 32000,
    },
    "hf-llama-grouped": {
        "hidden_size": 4096, "intermediate_size": 14336, "max_position_embeddings": 8192,
        "model_type": "llama", "num_attention_heads": 32, "num_hidden_layers": 3, "num_key_value_heads": 8,
        "rope_theta": 500000.0, "vocab_size": 128256, "attention_bias": False, "attention_dropout": 0.0,
    },
    "hf-llama-tied-grouped": {
        "architectures": ["LlamaForCausalLM"], "head_dim": 64, "hidden_size": 2048, "mlp_bias": False,
        "intermediate_size": 8192, "max_position_embeddings": 131072, "model_type": "llama",
        "num_attention_heads": 32, "num_hidden_layers": 4, "num_key_value_heads": 8, "rope_scaling": ROPE,
        "tie_word_embeddings": True, "vocab_size": 128256, "eos_token_id": [128001, 128008],
    },
    "hf-mistral-grouped": {
        "architectures": ["MistralForCausalLM"], "head_dim": 128, "hidden_size": 5120,
        "intermediate_size": 14336, "max_position_embeddings": 131072, "model_type": "mistral",
        "num_attention_heads": 32, "num_hidden_layers": 3, "num_key_value_heads": 8, "sliding_window": None,
        "vocab_size": 131072,
    },
    "hf-qwen2-grouped": {
        "architectures": ["Qwen2ForCausalLM"], "hidden_size": 3584, "intermediate_size": 18944,
        "max_position_embeddings": 131072, "max_window_layers": 28, "model_type": "qwen2",
        "num_attention_heads": 28, "num_hidden_layers": 3, "num_key_value_heads": 4, "sliding_window": 256,
        "use_sliding_window": False, "vocab_size": 152064,
    },
    "hf-qwen2-tied-grouped": {
        "hidden_size": 896, "intermediate_size": 4864, "model_type": "qwen2", "num_attention_heads": 14,
        "num_hidden_layers": 3, "num_key_value_heads": 2, "tie_word_embeddings": True, "vocab_size": 151936,
    },
    "hf-qwen3-grouped": {
        "hidden_size": 4096, "intermediate_size": 12288, "model_type": "qwen3", "num_attention_heads": 32,
        "num_hidden_layers": 3, "num_key_value_heads": 8, "vocab_size": 151936,
    },
    "hf-qwen3-tied-grouped": {
        "hidden_size": 1024, "intermediate_size": 3072, "model_type": "qwen3", "num_attention_heads": 16,
        "num_hidden_layers": 3, "num_key_value_heads": 8, "head_dim": 128, "tie_word_embeddings": True,
        "vocab_size": 151936, "rope_scaling": None,
    },
    "hf-gemma-tied": {
        "architectures": ["GemmaForCausalLM"], "head_dim": 256, "hidden_act": "gelu_pytorch_tanh",
        "hidden_size": 3072, "intermediate_size": 24576, "model_type": "gemma", "num_attention_heads": 16,
        "num_hidden_layers": 3, "num_key_value_heads": 16, "vocab_size": 256000,
    },
    "hf-mixtral-grouped": {
        "architectures": ["MixtralForCausalLM"], "hidden_size": 4096, "intermediate_size": 14336,
        "max_position_embeddings": 32768, "model_type": "mixtral", "num_attention_heads": 32,
        "num_experts_per_tok": 2, "num_hidden_layers": 3, "num_key_value_heads": 8, "num_local_experts": 8,
        "output_router_logits": False, "router_aux_loss_coef": 0.02, "sliding_window": None,
        "vocab_size": 32000,
    },
    "hf-gpt2": {
        "activation_function": "gelu_new", "architectures": ["GPT2LMHeadModel"], "attn_pdrop": 0.1,
        "embd_pdrop": 0.1, "model_type": "gpt2", "n_ctx": 1024, "n_embd": 768, "n_head": 12, "n_layer": 3,
        "n_positions": 1024, "resid_pdrop": 0.1, "vocab_size": 50257,
    },
    "hf-bert": {
        "architectures": ["BertForMaskedLM"], "attention_probs_dropout_prob": 0.1, "hidden_act": "gelu",
        "gradient_checkpointing": False, "hidden_dropout_prob": 0.1, "hidden_size": 768,
        "intermediate_size": 3072, "layer_norm_eps": 1e-12, "max_position_embeddings": 512,
        "model_type": "bert", "num_attention_heads": 12, "num_hidden_layers": 3, "pad_token_id": 0,
        "position_embedding_type": "absolute", "type_vocab_size": 2, "vocab_size": 30522,
    },
    "hf-vit": {
        "architectures": ["ViTForImageClassification"], "hidden_size": 768, "image_size": 384,
        "id2label": {str(number): f"LABEL_{number}" for number in range(21)},
        "label2id": {f"LABEL_{number}": number for number in range(21)}, "intermediate_size": 3072,
        "model_type": "vit", "num_attention_heads": 12, "num_hidden_layers": 3, "patch_size": 32,
        "qkv_bias": True,
    },
}  # fmt: skip
LLAMA = CONFIGS["hf-llama-grouped"]


def _workload(config: dict[str, Any], batch: int, seq_len: int | None, **options: Any) -> Workload:
    sizes = BuildOptions(batch=batch, seq_len=None if config["model_type"] == "vit" else seq_len)
    return Workload(
        HuggingFaceConfig("hf:config.json", json.dumps(config)), sizes, ResolvedOptions(**options)
    )


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize(
    ("batch", "seq_len", "options"),
    [
        (3, 96, {"precision": "bf16", "optimizer": "adamw"}),
        (1, 200, {"checkpoint_activations": True}),
    ],
)
def test_a_configuration_gives_what_transformers_model_is_traced_to(
    name: str, batch: int, seq_len: int | None, options: Any
) -> None:
    workload = _workload(CONFIGS[name], batch, seq_len, **options)
    shape = workload.source.shape(workload.sizes)
    assert shape is not None
    assert shape.architecture == name
    recorded = library.find_recording(shape, workload.options, None)
    assert recorded is not None
    assert find_difference(recorded.graph(), trace_workload(workload)) is None


@pytest.mark.parametrize("name", ["hf-bert", "hf-gpt2"])
def test_sequences_may_be_as_long_as_there_are_positions(name: str) -> None:
    config = CONFIGS[name]
    length = config.get("max_position_embeddings", config.get("n_positions"))
    workload = _workload(config, 2, length, precision="bf16")
    shape = workload.source.shape(workload.sizes)
    assert shape is not None
    recorded = library.find_recording(shape, workload.options, None)
    assert recorded is not None
    assert find_difference(recorded.graph(), trace_workload(workload)) is None


def test_every_recorded_architecture_is_compared_here() -> None:
    assert {*CONFIGS, "hf-bert-full"} == {f"{PREFIX}{name}" for name in RECORDED}


@pytest.mark.parametrize(
    "entries",
    [
        {"hidden_act": "gelu"},
        {"attention_dropout": 0.1},
        {"mlp_bias": True},
        {"architectures": ["LlamaForSequenceClassification"]},
        {"rope_scaling": {"type": "dynamic", "factor": 2.0}},
        {"rope_scaling": {"rope_type": "default", "partial_rotary_factor": 0.5}},
        {"num_key_value_heads": 5},
        {"head_dim": 96},
        {"auto_map": {"AutoModel": "modelling.Own"}},
        {"an_entry_of_tomorrow": 1},
        {"model_type": "gpt_neox"},
    ],
)
def test_an_entry_that_no_recording_has_is_left_to_tracing(entries: dict[str, Any]) -> None:
    assert is_covered(LLAMA)
    assert not is_covered({**LLAMA, **entries})


def test_sequences_longer_than_the_window_are_traced() -> None:
    windowed = {**CONFIGS["hf-mistral-grouped"], "sliding_window": 4096}
    assert shape_of_config(windowed, BuildOptions(seq_len=4095)) is not None
    assert shape_of_config(windowed, BuildOptions(seq_len=4096)) is None


def test_sequences_longer_than_the_positions_are_refused() -> None:
    with pytest.raises(InvalidRequest, match="from 1 to 8192"):
        shape_of_config(LLAMA, BuildOptions(seq_len=8193))
