"""Hugging Face configurations as architectures and named sizes: what recordings are found by, without torch.

A configuration has a shape if every entry of it is a size, a choice that has a recording of its own, of no
influence on a step, or what transformers takes by default. Any other is traced.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from foretrain.errors import InvalidRequest
from foretrain.workloads.readers._base import (
    DEFAULT_IMAGE_BATCH,
    DEFAULT_SEQ_LEN,
    DEFAULT_TEXT_BATCH,
    choose_batch,
)
from foretrain.workloads.zoo.catalogue import LAYERS, BuildOptions, ModelShape

PREFIX = "hf-"
"""Begins the name of every architecture of transformers."""
_WITHOUT_INFLUENCE = frozenset(
    (
        "_name_or_path", "architectures", "bos_token_id", "dtype", "eos_token_id", "initializer_range",
        "layer_norm_eps", "layer_norm_epsilon", "model_type", "n_ctx", "pad_token_id", "rms_norm_eps",
        "rope_theta", "sep_token_id", "cls_token_id", "mask_token_id", "tokenizer_class",
        "torch_dtype", "max_window_layers", "router_aux_loss_coef", "transformers_version", "use_cache",
    )
)  # fmt: skip
"""Entries that change values, or nothing at all."""
_ROPE_KINDS = (None, "default", "linear", "llama3")
"""Kinds of rotary embeddings whose frequencies are computed once, before the first step."""
_ROPE_ENTRIES = frozenset(
    (
        "factor", "high_freq_factor", "low_freq_factor", "original_max_position_embeddings", "rope_theta",
        "rope_type", "type",
    )
)  # fmt: skip
_BY_DEFAULT: Mapping[str, Any] = {
    "add_cross_attention": False,
    "attention_dropout": 0.0,
    "chunk_size_feed_forward": 0,
    "gradient_checkpointing": False,
    "is_decoder": False,
    "is_encoder_decoder": False,
    "output_attentions": False,
    "output_hidden_states": False,
    "pretraining_tp": 1,
    "problem_type": None,
    "return_dict": True,
}
_TEXT_SIZES: Mapping[str, str] = {
    "hidden_size": "width",
    "intermediate_size": "hidden",
    "num_attention_heads": "heads",
    "num_hidden_layers": LAYERS,
    "vocab_size": "vocabulary",
}
_DECODER: Mapping[str, Any] = {"hidden_act": "silu", "tie_word_embeddings": False}
_CHOICES = {"tie_word_embeddings": "tied", "attention_bias": "bias"}
"""Entries that a recording of its own is made for, and the word for it where they are true."""


class RecordedType(NamedTuple):
    """A model_type of transformers whose configurations may have recordings.

    `sizes` names its entries that are sizes; `defaults` has what transformers takes where an entry is absent.
    Heads `have_a_width` of their own where the model may be narrower or wider than they are together, and
    are `grouped` where fewer may be of keys than of queries. A model that `slices_positions` does not where
    sequences are as long as they can be, which is recorded apart.
    """

    task: str
    sizes: Mapping[str, str]
    defaults: Mapping[str, Any]
    have_a_width: bool = False
    grouped: bool = False
    slices_positions: bool = False

    def has(self, key: str, value: Any) -> bool:
        """Whether an entry of a configuration leaves the step one that can be recorded."""
        if key in _WITHOUT_INFLUENCE or key in self.sizes:
            return True
        if key in ("head_dim", "num_key_value_heads"):
            return self.grouped
        if key in ("max_position_embeddings", "sliding_window", "image_size"):
            return True
        if key in ("rope_scaling", "rope_parameters"):
            return value is None or _has_rope(value)
        if key in _CHOICES and key in self.defaults:
            return isinstance(value, bool)
        if key == "layer_types":
            return set(value) == {"full_attention"}
        if key in ("id2label", "label2id"):
            return isinstance(value, dict)
        known = {**_BY_DEFAULT, **self.defaults}
        return key in known and bool(value == known[key])


def _has_rope(entries: Any) -> bool:
    if not isinstance(entries, dict) or not entries.keys() <= _ROPE_ENTRIES:
        return False
    return entries.get("rope_type", entries.get("type")) in _ROPE_KINDS


def _decoder(task: str, defaults: Mapping[str, Any], have_a_width: bool = True) -> RecordedType:
    return RecordedType(task, _TEXT_SIZES, {**_DECODER, **defaults}, have_a_width, grouped=True)


_QWEN = {"use_sliding_window": False, "max_position_embeddings": 32768, "num_key_value_heads": 32}
TYPES: Mapping[str, RecordedType] = {
    "llama": _decoder(
        "LlamaForCausalLM",
        {"attention_bias": False, "mlp_bias": False, "max_position_embeddings": 2048},
        have_a_width=False,
    ),
    "mistral": _decoder(
        "MistralForCausalLM",
        {"max_position_embeddings": 131072, "num_key_value_heads": 8, "sliding_window": 4096},
    ),
    "qwen2": _decoder("Qwen2ForCausalLM", {**_QWEN}),
    "qwen3": _decoder(
        "Qwen3ForCausalLM", {**_QWEN, "attention_bias": False, "head_dim": 128}
    ),
    "gemma": _decoder(
        "GemmaForCausalLM",
        {
            "attention_bias": False, "head_dim": 256, "hidden_act": "gelu_pytorch_tanh",
            "hidden_activation": "gelu_pytorch_tanh", "max_position_embeddings": 8192,
            "num_key_value_heads": 16, "tie_word_embeddings": True,
        },
    ),
    "mixtral": _decoder(
        "MixtralForCausalLM",
        {
            "max_position_embeddings": 131072, "num_experts_per_tok": 2, "num_key_value_heads": 8,
            "num_local_experts": 8, "output_router_logits": False, "router_jitter_noise": 0.0,
        },
    ),
    "gpt2": RecordedType(
        "GPT2LMHeadModel",
        {
            "n_embd": "width", "n_head": "heads", "n_inner": "hidden", "n_layer": LAYERS,
            "n_positions": "positions", "vocab_size": "vocabulary",
        },
        {
            "activation_function": "gelu_new", "attn_pdrop": 0.1, "embd_pdrop": 0.1, "n_inner": None,
            "n_positions": 1024, "reorder_and_upcast_attn": False, "resid_pdrop": 0.1,
            "scale_attn_by_inverse_layer_idx": False, "scale_attn_weights": True, "vocab_size": 50257,
            "summary_activation": None, "summary_first_dropout": 0.1, "summary_proj_to_labels": True,
            "summary_type": "cls_index", "summary_use_proj": True,
            "task_specific_params": {"text-generation": {"do_sample": True, "max_length": 50}},
        },
    ),
    "bert": RecordedType(
        "BertForMaskedLM",
        {**_TEXT_SIZES, "max_position_embeddings": "positions"},
        {
            "attention_probs_dropout_prob": 0.1, "classifier_dropout": None, "hidden_act": "gelu",
            "hidden_dropout_prob": 0.1, "max_position_embeddings": 512,
            "position_embedding_type": "absolute", "type_vocab_size": 2,
        },
        slices_positions=True,
    ),
    "vit": RecordedType(
        "ViTForImageClassification",
        {
            "hidden_size": "width", "intermediate_size": "hidden", "num_attention_heads": "heads",
            "num_hidden_layers": LAYERS, "patch_size": "patch",
        },
        {
            "attention_probs_dropout_prob": 0.0, "encoder_stride": 16, "hidden_act": "gelu",
            "hidden_dropout_prob": 0.0, "image_size": 224, "num_channels": 3, "patch_size": 16,
            "pooler_act": "tanh", "qkv_bias": True,
        },
    ),
}  # fmt: skip
"""Defaults are those of transformers 5; sizes without one have to be in the configuration."""
_LABELS = 2
"""Classes of a classifier whose configuration lists none."""
RECORDED: tuple[str, ...] = (
    "llama", "llama-grouped", "llama-tied-grouped", "mistral-grouped", "qwen2-grouped", "qwen2-tied-grouped",
    "qwen3-grouped", "qwen3-tied-grouped", "gemma-tied", "mixtral-grouped", "gpt2", "bert", "bert-full",
    "vit",
)  # fmt: skip
"""Types of models, with the choices that recordings are made for."""


def is_covered(config: Mapping[str, Any]) -> bool:
    """Whether a configuration has a shape, whatever the batch."""
    return shape_of_config(config, BuildOptions()) is not None


def shape_of_config(config: Mapping[str, Any], options: BuildOptions) -> ModelShape | None:
    """The architecture and sizes of a configuration; None if it can only be traced."""
    kind = TYPES.get(config["model_type"])
    if kind is None or config.get("architectures") not in (None, [], [kind.task]):
        return None
    if not all(kind.has(key, value) for key, value in config.items()):
        return None
    sizes: dict[str, Any] = {size: kind.defaults.get(key) for key, size in kind.sizes.items()}
    sizes |= {kind.sizes[key]: config[key] for key in kind.sizes if config.get(key) is not None}
    if config["model_type"] == "gpt2" and sizes["hidden"] is None and sizes["width"] is not None:
        sizes["hidden"] = 4 * sizes["width"]
    if not all(isinstance(size, int) for size in sizes.values()):
        return None
    words = [word for key, word in _CHOICES.items() if config.get(key, kind.defaults.get(key))]
    split = _split_heads(config, kind, sizes)
    if split is None:
        return None
    sample = _size_image(config, kind, options) if "patch" in sizes else _size_text(config, kind, options)
    if sample is None:
        return None
    words += ["grouped"] if "group" in split else []
    if kind.slices_positions and sample["seq_len"] == sizes["positions"]:
        words.append("full")
        del sizes["positions"]
    return ModelShape(
        "-".join((f"{PREFIX}{config['model_type']}", *words)),
        {**sample, **{name: size for name, size in sizes.items() if name != "width"}, **split},
    )


def _split_heads(
    config: Mapping[str, Any], kind: RecordedType, sizes: Mapping[str, int]
) -> dict[str, int] | None:
    """Heads of keys, how many of queries share one, and their width."""
    heads, width = sizes["heads"], sizes["width"]
    key_heads = config.get("num_key_value_heads", kind.defaults.get("num_key_value_heads")) or heads
    head_width = config.get("head_dim", kind.defaults.get("head_dim")) or width // heads
    if heads % key_heads or head_width % 2 or not (kind.have_a_width or heads * head_width == width):
        return None
    group = {} if key_heads == heads else {"group": heads // key_heads}
    own = {"width": width} if kind.have_a_width else {}
    return {"heads": key_heads, **group, "head_width": head_width, **own}


def _size_text(config: Mapping[str, Any], kind: RecordedType, options: BuildOptions) -> dict[str, int] | None:
    if options.image_size is not None:
        return None
    key = "n_positions" if "n_positions" in kind.sizes else "max_position_embeddings"
    batch, seq_len = text_shape(config.get(key, kind.defaults[key]), options)
    window = config.get("sliding_window", kind.defaults.get("sliding_window"))
    if window is not None and seq_len >= window and "use_sliding_window" not in kind.defaults:
        return None  # a mask is made
    return {"batch": batch, "seq_len": seq_len}


def _size_image(
    config: Mapping[str, Any], kind: RecordedType, options: BuildOptions
) -> dict[str, int] | None:
    if options.seq_len is not None:
        return None
    pixels = options.image_size or config.get("image_size", kind.defaults["image_size"])
    patch = config.get("patch_size", kind.defaults["patch_size"])
    if not isinstance(pixels, int) or pixels % patch:
        return None
    labels = config.get("id2label")
    classes = _LABELS if labels is None else len(labels)
    return {"batch": choose_batch(options, DEFAULT_IMAGE_BATCH), "grid": pixels // patch, "classes": classes}


def text_shape(positions: int | None, options: BuildOptions, before: int = 0) -> tuple[int, int]:
    """Sequences and tokens in each; `before` come first by default, such as those of an image."""
    by_default = min(before + DEFAULT_SEQ_LEN, positions or before + DEFAULT_SEQ_LEN)
    length = by_default if options.seq_len is None else options.seq_len
    if length < 1 or (positions and length > positions):
        allowed = f"from 1 to {positions}" if positions else "at least 1"
        raise InvalidRequest(f"seq_len {length} does not fit: it must be {allowed} (max_position_embeddings)")
    if length <= before:
        raise InvalidRequest(
            f"seq_len {length} does not fit: an image takes {before} tokens of each sequence"
        )
    return choose_batch(options, DEFAULT_TEXT_BATCH), length


def config_at(model_type: str, choices: Mapping[str, bool], sizes: Mapping[str, int]) -> dict[str, Any]:
    """A configuration of other sizes, to record it."""
    kind = TYPES[model_type]
    heads = sizes["heads"] * sizes.get("group", 1)
    of_sizes = {**sizes, "heads": heads}
    of_sizes.setdefault("width", heads * sizes["head_width"])
    of_sizes.setdefault("positions", sizes.get("seq_len", 0))
    config: dict[str, Any] = {key: of_sizes[name] for key, name in kind.sizes.items()}
    if kind.grouped:
        config |= {"num_key_value_heads": sizes["heads"], "head_dim": sizes["head_width"]}
    if "classes" in sizes:
        config["id2label"] = {str(number): str(number) for number in range(sizes["classes"])}
        config["label2id"] = {str(number): number for number in range(sizes["classes"])}
        config["image_size"] = sizes["grid"] * sizes["patch"]
    return {"model_type": model_type, **config, **choices}


def parse_architecture(name: str) -> tuple[str, dict[str, bool], bool]:
    """The model_type, the choices and whether heads are grouped, of one of `RECORDED`."""
    model_type, *words = name.removeprefix(PREFIX).split("-")
    kind = TYPES[model_type]
    choices = {key: word in words for key, word in _CHOICES.items() if key in kind.defaults}
    return model_type, choices, "grouped" in words


def usual_sizes(name: str) -> dict[str, int]:
    """Sizes of a model of an architecture, at which its recording is checked."""
    model_type, _, is_grouped = parse_architecture(name)
    kind = TYPES[model_type]
    own = dict.fromkeys(kind.sizes.values(), 0) | {LAYERS: 12, "heads": 12, "hidden": 3072, "head_width": 64}
    del own["width"]
    if "full" in name.split("-"):
        del own["positions"]
    own |= {"heads": 4, "group": 3} if is_grouped else {}
    own |= {"width": 1024} if kind.have_a_width else {}
    own |= {name: size for name, size in (("vocabulary", 32000), ("positions", 512)) if name in own}
    if "patch" in own:
        return {"batch": 6, "grid": 14, "classes": 1000, **own, "patch": 16}
    return {"batch": 6, "seq_len": 256, **own}
