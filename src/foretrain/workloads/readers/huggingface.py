"""`hf:DIR_OR_CONFIG.json`: a Hugging Face model from its configuration alone; no weights, no network.

`hf:ORG/NAME`, a model of the hub, is read from the local cache of Hugging Face; nothing is downloaded. The
task follows from the `architectures` of the configuration. Code that a configuration points to (`auto_map`)
is never run: the class of transformers is taken where it has one.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from foretrain.errors import InvalidData, InvalidRequest, MissingData, UnknownName
from foretrain.workloads.readers._base import ModelSource, digest, existing_file, need, versions
from foretrain.workloads.readers._torchvision import repair_torchvision
from foretrain.workloads.readers.huggingface_shapes import is_covered, shape_of_config
from foretrain.workloads.zoo.catalogue import BuildOptions, EqualBlocks

if TYPE_CHECKING:
    from foretrain.workloads.example import Example
    from foretrain.workloads.zoo.catalogue import ModelShape

PREFIX = "hf:"
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?")
"""`ORG/NAME`, or the name alone of a few old models."""
_SIZES = frozenset(
    (
        "hidden_size", "intermediate_size", "vocab_size", "num_hidden_layers", "num_attention_heads",
        "num_key_value_heads", "head_dim", "max_position_embeddings", "n_embd", "n_layer", "n_head",
        "n_positions", "d_model", "d_ff", "d_kv", "num_layers", "num_heads", "encoder_layers",
        "decoder_layers", "encoder_attention_heads", "decoder_attention_heads", "encoder_ffn_dim",
        "decoder_ffn_dim", "num_channels",
    )
)  # fmt: skip
"""Entries of a configuration that count something, which has to be there."""


_LAYERS = {
    "gpt2": "n_layer",
    **dict.fromkeys(
        (
            "bert", "gemma", "gpt_neox", "llama", "mistral", "mixtral", "opt", "phi", "phi3", "qwen2",
            "qwen3", "roberta", "vit",
        ),
        "num_hidden_layers",
    ),
}  # fmt: skip
"""Types of models whose blocks are equal, and the entry that counts them."""


@dataclass(frozen=True)
class HuggingFaceConfig(ModelSource):
    """A configuration of the transformers package; `text` is its JSON, as it stands in the file."""

    name: str
    text: str
    kind: str = field(default="huggingface", init=False)
    runs_user_code: bool = field(default=False, init=False)

    def fingerprint(self) -> str:
        return digest({"config": self.text, **versions("torch", "transformers")})

    @property
    def blocks(self) -> EqualBlocks | None:
        """The layers, unless entries of the configuration make some of them different."""
        config = json.loads(self.text)
        number = config.get(_LAYERS.get(config["model_type"]))
        if not isinstance(number, int) or config.get("use_sliding_window"):
            return None
        by_layer = [each for each in config.values() if isinstance(each, list) and len(each) == number]
        return EqualBlocks(number) if all(each == each[:1] * number for each in by_layer) else None

    def with_blocks(self, count: int) -> HuggingFaceConfig:
        config = json.loads(self.text)
        key = _LAYERS[config["model_type"]]
        fewer = {
            name: value[:count] if isinstance(value, list) and len(value) == config[key] else value
            for name, value in config.items()
        }
        return replace(self, text=json.dumps({**fewer, key: count}))

    def shape(self, options: BuildOptions) -> ModelShape | None:
        return shape_of_config(json.loads(self.text), options)

    def example(self, options: BuildOptions) -> Example:
        need("transformers", self.name)
        prepare_transformers()
        from foretrain.workloads.readers.huggingface_tasks import build, task_of

        config = json.loads(self.text)
        return build(self.name, config, task_of(self.name, config), options)


def read_huggingface(name: str) -> HuggingFaceConfig:
    """The source behind `hf:PATH` or `hf:ORG/NAME`; what cannot be built is refused now."""
    asked = name.removeprefix(PREFIX)
    path = Path(asked).expanduser()
    if not path.exists() and _HUB_ID.fullmatch(asked) and path.suffix != ".json":
        file = cached_config(asked)
    else:
        file = existing_file(path / "config.json" if path.is_dir() else path, "Hugging Face configuration")
    try:
        text = file.read_text(encoding="utf-8")
        config = json.loads(text)
    except ValueError as error:
        raise InvalidData(str(file), f"is not JSON: {error}; give the config.json of a model") from error
    _check_entries(config, str(file))
    if not is_covered(config):
        need("torch", name)
        need("transformers", name)
        _check_architecture(config, str(file))
    return HuggingFaceConfig(name, text)


def hub_cache() -> Path:
    """Where Hugging Face keeps what it has downloaded: `HF_HUB_CACHE`, else `hub` in `HF_HOME`."""
    if "HF_HUB_CACHE" in os.environ:
        return Path(os.environ["HF_HUB_CACHE"]).expanduser()
    caches = Path(os.environ.get("XDG_CACHE_HOME", "~/.cache")).expanduser()
    return Path(os.environ.get("HF_HOME", caches / "huggingface")).expanduser() / "hub"


def cached_config(hub_id: str) -> Path:
    """The config.json of a model in the local cache: of its main branch, else of any revision."""
    folder = hub_cache() / f"models--{hub_id.replace('/', '--')}"
    main = folder / "refs" / "main"
    revisions = [main.read_text(encoding="utf-8").strip()] if main.is_file() else []
    revisions += sorted(each.name for each in folder.glob("snapshots/*"))
    for revision in revisions:
        file = folder / "snapshots" / revision / "config.json"
        if file.is_file():
            return file
    raise MissingData(
        f"the config.json of {hub_id} is not in the Hugging Face cache ({hub_cache()}), and there is no "
        f"folder {hub_id!r}; get it with: hf download {hub_id} config.json (or huggingface-cli download; a "
        "gated model needs hf auth login first), or give a folder that holds it: hf:FOLDER"
    )


def _check_entries(config: Any, file: str) -> None:
    if not isinstance(config, Mapping) or "model_type" not in config:
        raise InvalidData(file, "has no model_type: give the config.json of a Hugging Face model")
    if "quantization_config" in config:
        raise InvalidRequest(
            f"{file} describes quantised weights (quantization_config), which cannot be trained; remove the "
            "entry, and ask for LoRA on a quantised base if that is what you want"
        )
    for key in _SIZES & config.keys():
        value = config[key]
        each = value if isinstance(value, list) and value else [value]  # some count by stage: heads of Swin
        if value is not None and not all(
            isinstance(count, int) and not isinstance(count, bool) and count >= 1 for count in each
        ):
            raise InvalidData(file, f"{key} must be a whole number of at least 1, got {value!r}")


def _check_architecture(config: Mapping[str, Any], file: str) -> None:
    """Raise unless transformers has the model of a configuration, and a task for it."""
    prepare_transformers()
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    from foretrain.workloads.readers.huggingface_tasks import is_of_transformers, task_of

    model_type = config["model_type"]
    if "auto_map" in config and not is_of_transformers(config):
        raise InvalidRequest(
            f"{file} points to code of its own (auto_map), which is never run; write a Python file whose "
            "callable returns the model and its inputs, and give FILE.py:callable"
        )
    if model_type not in CONFIG_MAPPING:
        raise UnknownName(
            "Hugging Face model_type",
            str(model_type),
            CONFIG_MAPPING,
            "A newer transformers may know it.",
        )
    task_of(file, config)


def prepare_transformers() -> None:
    """Make transformers importable and quiet; nothing is ever downloaded."""
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    repair_torchvision()
