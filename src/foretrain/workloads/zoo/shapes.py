"""Models of the zoo as an architecture and named sizes: what a recording is found by, without torch.

Models that differ only in sizes (all Llamas with tied embeddings) have one recording. `shape_of` reads the
sizes of an entry, `config_at` makes the configuration of other sizes, to record it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from foretrain.workloads.zoo.catalogue import Sizes, ZooEntry

LAYERS = "layers"


class ModelShape(NamedTuple):
    """The name of an architecture, and its sizes by name; `layers` is the number of equal blocks."""

    architecture: str
    sizes: Mapping[str, int]

    def with_layers(self, count: int) -> ModelShape:
        """The same with another number of equal blocks."""
        return self._replace(sizes={**self.sizes, LAYERS: count})


_STACKS: Mapping[str, tuple[str, ...]] = {
    "bert": ("hidden",),
    "flux": (),
    "gpt": ("vocabulary", "positions"),
    "llama": ("hidden", "vocabulary"),
    "mmdit": (),
    "t5": ("hidden",),
    "transformer": ("hidden",),
    "vit": ("hidden",),
    "whisper": ("hidden", "vocabulary", "mels"),
}
"""Builders of stacks of equal blocks, and the sizes they have besides layers, width and heads."""
_BY_GRID = frozenset(("diffusion_unet", "flux", "mmdit", "vit"))
"""Builders of models that take any number of patches: images are counted in the least step of their size."""
_GPT = {"vocabulary": 50257, "positions": 1024}
"""Defaults of `GptConfig`."""


def _is_stack(entry: ZooEntry) -> bool:
    """Whether a model is recorded at any depth: it has a whole number of periods of equal blocks."""
    blocks = entry.blocks
    is_known = entry.builder.rpartition(":")[2] in _STACKS
    return is_known and blocks is not None and blocks.number % blocks.period == 0


def shape_of(entry: ZooEntry, sizes: Sizes) -> ModelShape:
    """The architecture and sizes of an entry."""
    builder = entry.builder.rpartition(":")[2]
    of_sample = {"batch": sizes.batch, "seq_len": sizes.seq_len, "image_size": sizes.image_size}
    given = {name: size for name, size in of_sample.items() if size}
    if builder in _BY_GRID and entry.image_size is not None:
        given["grid"] = given.pop("image_size") // entry.image_size.multiple_of
    if not _is_stack(entry):
        return ModelShape(entry.name, given)
    config = dict(entry.config)
    layers, width, heads = (config.pop(name) for name in (LAYERS, "width", "heads"))
    own = {name: config.pop(name, _GPT.get(name)) for name in _STACKS[builder]}
    for name in ("rotary_base", "local_rotary_base"):  # change values, not shapes
        config.pop(name, None)
    key_heads = config.pop("kv_heads", heads)
    config["grouped"] = key_heads != heads
    groups = {"group": heads // key_heads} if config["grouped"] else {}
    head_width, rest = divmod(width, heads)
    if "head_width" in config and config["head_width"] * heads % width:
        head_width, rest, own["width"] = config.pop("head_width"), 0, width
    elif "head_width" in config:
        # As wide as the heads together would be at another width: not one of the sizes of its own
        config["wide_heads"] = config.pop("head_width") * heads / width
    flags = json.dumps(config, sort_keys=True)
    name = f"{builder}-{hashlib.blake2b(flags.encode(), digest_size=3).hexdigest()}"
    if rest:
        name = entry.name
    return ModelShape(
        name,
        {**given, LAYERS: layers, "heads": key_heads, **groups, "head_width": head_width, **own},
    )


def config_at(entry: ZooEntry, sizes: Mapping[str, int]) -> dict[str, Any]:
    """The configuration of an entry's architecture at other sizes, as its builder takes it."""
    builder = entry.builder.rpartition(":")[2]
    config = dict(entry.config)
    if not _is_stack(entry):
        return config
    heads = sizes["heads"] * sizes.get("group", 1)
    width = sizes.get("width", heads * sizes["head_width"])
    config |= {LAYERS: sizes[LAYERS], "width": width, "heads": heads}
    if "kv_heads" in config:
        config["kv_heads"] = sizes["heads"]
    if "width" in sizes:
        config["head_width"] = sizes["head_width"]
    elif "head_width" in config:
        share = entry.config["head_width"] * entry.config["heads"] // entry.config["width"]
        config["head_width"] = share * sizes["head_width"]
    return config | {name: sizes[name] for name in _STACKS[builder]}


def sample_at(entry: ZooEntry, sizes: Mapping[str, int]) -> dict[str, int]:
    """Batch, sequence length and image size at other sizes."""
    image_size = sizes.get("image_size", 0)
    if "grid" in sizes and entry.image_size is not None:
        image_size = sizes["grid"] * entry.image_size.multiple_of
    return {"batch": sizes["batch"], "seq_len": sizes.get("seq_len", 0), "image_size": image_size}
