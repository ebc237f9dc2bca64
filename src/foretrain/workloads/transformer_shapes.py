"""A family of language models of growing size: blocks of Llama at published depths and widths.

The shapes are in `facts/data/transformer_shapes.toml`. Their graphs are those of the zoo's Llamas at other
sizes, so recordings that ship with the package cover them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import cache
from typing import TYPE_CHECKING, Any

from foretrain.errors import InvalidRequest
from foretrain.facts.sheets import data_root, read_toml
from foretrain.units import format_count
from foretrain.workloads.readers import zoo_fingerprint
from foretrain.workloads.readers._base import ModelSource, digest
from foretrain.workloads.zoo.catalogue import (
    BuildOptions,
    EqualBlocks,
    Extent,
    ModelShape,
    ZooEntry,
    build_entry,
    shape_of,
    zoo,
)

if TYPE_CHECKING:
    from foretrain.workloads.example import Example

_FILE = "transformer_shapes.toml"
_LIKE = "llama2-7b"
"""The model of the zoo that has the blocks of the family."""


@dataclass(frozen=True)
class TransformerShape:
    """Blocks of Llama: attention of `heads` heads and SwiGLU of `feed_forward` units, both `width` wide.

    Embedding and output are matrices of their own. `source` published depth and width.
    """

    family: str
    layers: int
    width: int
    heads: int
    feed_forward: int
    vocabulary: int
    seq_len: int
    source: str

    @property
    def name(self) -> str:
        """`llama-1.27B`."""
        return f"{self.family}-{format_count(self.parameters)}"

    @property
    def parameters_without_embedding(self) -> int:
        """The blocks, with their norms, and the last norm: L (4 d² + 3 d f + 2 d) + d."""
        block = 4 * self.width**2 + 3 * self.width * self.feed_forward + 2 * self.width
        return self.layers * block + self.width

    @property
    def parameters_with_embedding(self) -> int:
        """With one matrix of the vocabulary, as models whose output is tied to their embedding have."""
        return self.parameters_without_embedding + self.vocabulary * self.width

    @property
    def parameters(self) -> int:
        """All, with both matrices of the vocabulary."""
        return self.parameters_with_embedding + self.vocabulary * self.width

    @property
    def block_flop_per_token(self) -> float:
        """Training FLOP per token of the blocks, as DeepSeek LLM counts them: 72 L d² + 12 L d s."""
        return self.layers * self.width * (72.0 * self.width + 12.0 * self.seq_len)

    @property
    def config(self) -> dict[str, Any]:
        """The configuration that transformers builds it from."""
        return {
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            "hidden_size": self.width,
            "intermediate_size": self.feed_forward,
            "num_hidden_layers": self.layers,
            "num_attention_heads": self.heads,
            "num_key_value_heads": self.heads,
            "vocab_size": self.vocabulary,
            "max_position_embeddings": self.seq_len,
            "tie_word_embeddings": False,
        }

    @property
    def entry(self) -> ZooEntry:
        """It as an entry of the zoo would be."""
        return replace(
            zoo()[_LIKE],
            name=self.name,
            aliases=(),
            reference=self.source,
            parameters=self.parameters,
            seq_len=Extent(default=self.seq_len),
            config={
                "layers": self.layers,
                "width": self.width,
                "hidden": self.feed_forward,
                "heads": self.heads,
                "kv_heads": self.heads,
                "vocabulary": self.vocabulary,
            },
        )


@dataclass(frozen=True)
class ShapedModel(ModelSource):
    """The source of the graphs of a shape."""

    transformer: TransformerShape
    kind: str = field(default="family", init=False)
    runs_user_code: bool = field(default=False, init=False)

    @property
    def name(self) -> str:  # type: ignore[override]
        """That of the shape."""
        return self.transformer.name

    def fingerprint(self) -> str:
        return digest({"shape": repr(self.transformer), "zoo": zoo_fingerprint(_LIKE, None)})

    @property
    def blocks(self) -> EqualBlocks | None:
        """All layers are equal."""
        return self.transformer.entry.blocks

    def with_blocks(self, count: int) -> ShapedModel:
        return replace(self, transformer=replace(self.transformer, layers=count))

    def fill_sizes(self, options: BuildOptions) -> BuildOptions:
        return replace(options, seq_len=self.transformer.entry.sizes(options).seq_len)

    def shape(self, options: BuildOptions) -> ModelShape:
        entry = self.transformer.entry
        return shape_of(entry, entry.sizes(options))

    def example(self, options: BuildOptions) -> Example:
        import torch

        with torch.device("meta"):
            return build_entry(self.transformer.entry, options)


def transformer_shapes(
    seq_len: int | None = None, vocabulary: int | None = None
) -> tuple[TransformerShape, ...]:
    """All shapes of the family, by parameters; sequences and vocabulary are those of Llama unless given."""
    family, shapes = _read()
    multiple = family["feed_forward_multiple"]
    built = (
        TransformerShape(
            family["name"],
            layers,
            width,
            heads,
            multiple * math.ceil(family["feed_forward_ratio"] * width / multiple),
            vocabulary or family["vocabulary"],
            seq_len or family["seq_len"],
            source,
        )
        for layers, width, heads, source in shapes
    )
    return tuple(sorted(built, key=lambda shape: shape.parameters))


def nearest_shape(shapes: tuple[TransformerShape, ...], parameters: float) -> int:
    """The place of the shape whose parameters are nearest by ratio."""
    if not (math.isfinite(parameters) and parameters >= 1):
        raise InvalidRequest(f"`params` must be at least 1, got {parameters:g}")
    return min(range(len(shapes)), key=lambda place: abs(math.log(shapes[place].parameters / parameters)))


@cache
def _read() -> tuple[dict[str, Any], tuple[tuple[int, int, int, str], ...]]:
    content = read_toml(data_root() / _FILE)
    shapes = ((*row, block["source"]) for block in content["shapes"] for row in block["rows"])
    return content["family"], tuple(shapes)
