"""What the zoo holds, and how an entry is built. Reading the catalogue needs no torch; building does.

The entries stand in `catalogue.toml`. Each names the function that builds it, that function's architecture
arguments, the sizes it may be given, and the published parameter count with where it was published.

A recording is found by an architecture and named sizes (`ModelShape`): models that differ only in sizes (all
Llamas with tied embeddings) have one recording. `shape_of` reads the sizes of an entry, `config_at` makes the
configuration of other sizes, to record it.
"""

from __future__ import annotations

import hashlib
import importlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

from foretrain.errors import InvalidData, InvalidRequest, MissingData, UnknownName
from foretrain.facts.sheets import read_toml
from foretrain.registry import Registry

if TYPE_CHECKING:
    from foretrain.workloads.example import Example


AttentionKind = Literal["eager", "sdpa", "flash", "flash1", "flash2", "flash3", "cudnn"]
"""How attention is computed: op by op, by the fused kernel that torch picks, or by a named one."""
LAYERS = "layers"
_MODULES = "foretrain.workloads.zoo"
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


@dataclass(frozen=True, slots=True)
class BuildOptions:
    """The sizes of the example to build; None is the entry's default.

    A `real` example has data on the host, so that its step can be run; others have shapes only.
    """

    batch: int | None = None
    seq_len: int | None = None
    image_size: int | None = None
    attention: AttentionKind = "sdpa"
    real: bool = False


@dataclass(frozen=True, slots=True)
class Sizes:
    """The sizes a builder is given: all checked, 0 where the model has no such size."""

    batch: int
    seq_len: int = 0
    image_size: int = 0
    attention: AttentionKind = "sdpa"


@dataclass(frozen=True, slots=True)
class Extent:
    """The values one size may take: at least, at most, in steps of, and the default.

    `least_alone` is the least for a batch of one, where it is more: batch norm in training mode needs more
    than one value per channel, so the last feature map must then be larger than a single pixel.
    """

    default: int
    least: int = 1
    most: int | None = None
    multiple_of: int = 1
    least_alone: int = 1

    def check(self, value: int, batch: int, what: str) -> int:
        """`value` itself, or `InvalidRequest` saying what would do."""
        least = max(self.least, self.least_alone) if batch == 1 else self.least
        if value >= least and (self.most is None or value <= self.most) and value % self.multiple_of == 0:
            return value
        allowed = f"exactly {least}" if self.most == least else f"at least {least}"
        if self.most not in (None, least):
            allowed += f" and at most {self.most}"
        if self.multiple_of > 1:
            allowed += f" and a multiple of {self.multiple_of}"
        alone = " with a batch of 1" if least > self.least else ""
        raise InvalidRequest(f"{what} {value} does not fit{alone}: it must be {allowed}")


class EqualBlocks(NamedTuple):
    """Blocks of a model that have the same shapes, or take turns with a `period`."""

    number: int
    period: int = 1


_PERIODS = {
    f"{_MODULES}.{builder}": period
    for builder, period in {
        "transformers:bert": 1,
        "transformers:gpt": 1,
        "transformers:llama": 1,
        "transformers:vit": 1,
        "encoder_decoders:transformer": 1,
        "encoder_decoders:t5": 1,
        "encoder_decoders:switch": 2,
        "speech:whisper": 1,
        "diffusion:mmdit": 1,
        "diffusion:flux": 1,
    }.items()
}
"""Builders of equal blocks, `layers` of them: a switch transformer has experts in every second one."""


@dataclass(frozen=True)
class ZooEntry:
    """One model of the zoo.

    `parameters` is the published count (None where none was found) and `parameters_tolerance` how far, as a
    share, a count may lie from it because it was published rounded or the sizes were not published in full;
    `forward_flop_per_sample` and its tolerance are the same for the forward pass at the default sizes;
    `reference` says who published what.
    `attention` says whether the way attention is computed can be chosen.
    """

    name: str
    family: str
    task: str
    builder: str
    batch: Extent
    reference: str
    seq_len: Extent | None = None
    image_size: Extent | None = None
    attention: bool = False
    parameters: int | None = None
    parameters_tolerance: float = 0.0
    forward_flop_per_sample: float | None = None
    forward_flop_tolerance: float = 0.0
    aliases: tuple[str, ...] = ()
    config: Mapping[str, Any] = field(default_factory=dict)

    @property
    def defaults(self) -> BuildOptions:
        """The options that build the entry as it stands."""
        return BuildOptions(
            batch=self.batch.default,
            seq_len=self.seq_len.default if self.seq_len else None,
            image_size=self.image_size.default if self.image_size else None,
        )

    @property
    def blocks(self) -> EqualBlocks | None:
        """The equal blocks of a transformer."""
        period = _PERIODS.get(self.builder)
        if period is None:
            return None
        return EqualBlocks(self.config["layers"], self.config.get("global_every", period))

    def sizes(self, options: BuildOptions) -> Sizes:
        """The options with defaults filled in; one the model cannot take raises `InvalidRequest`."""
        kinds = get_args(AttentionKind)
        if options.attention not in kinds:
            raise InvalidRequest(f"attention {options.attention!r} is unknown; choose {', '.join(kinds)}")
        if options.attention != "sdpa" and not self.attention:
            raise InvalidRequest(
                f"{self.name} has no attention of a kind to choose; leave out attention {options.attention!r}"
            )
        batch = self._size("batch", options.batch, self.batch, 0)
        return Sizes(
            batch=batch,
            seq_len=self._size("seq_len", options.seq_len, self.seq_len, batch),
            image_size=self._size("image_size", options.image_size, self.image_size, batch),
            attention=options.attention,
        )

    def _size(self, what: str, asked: int | None, extent: Extent | None, batch: int) -> int:
        if extent is None:
            if asked is not None:
                raise InvalidRequest(f"{self.name} has no {what}; leave out {what} {asked}")
            return 0
        return extent.check(extent.default if asked is None else asked, batch, f"{self.name}: {what}")


@cache
def zoo() -> Registry[ZooEntry]:
    """All models of the zoo, by name and alias."""
    file = resources.files(_MODULES) / "catalogue.toml"
    try:
        entries = [_read_entry(name, dict(block)) for name, block in read_toml(file).items()]
    except TypeError as error:
        raise InvalidData(file.name, f"an entry lacks a field or has an unknown one: {error}") from error
    return Registry("model", entries, name=lambda entry: entry.name, aliases=lambda entry: entry.aliases)


def list_models(search: str | None = None) -> tuple[ZooEntry, ...]:
    """The models of the zoo in which name, alias, family or task contains `search`; all without one."""
    every = tuple(zoo().values())
    if search is None:
        return every
    wanted = search.strip().casefold()

    def matches(entry: ZooEntry) -> bool:
        texts = (entry.name, *entry.aliases, entry.family, entry.task, entry.task.replace("-", " "))
        return any(wanted in text.casefold() for text in texts)

    chosen = tuple(entry for entry in every if matches(entry))
    if not chosen:
        raise UnknownName("model", search, zoo(), "List all of them: foretrain models")
    return chosen


def build(name: str, options: BuildOptions | None = None, layers: int | None = None) -> Example:
    """The named model with an example batch, on torch's current default device (meta works too).

    `layers`, if given, is another number of equal blocks than that of the entry.
    """
    return build_entry(zoo()[name], options, layers)


def build_entry(entry: ZooEntry, options: BuildOptions | None = None, layers: int | None = None) -> Example:
    """The same of an entry that need not be in the catalogue."""
    sizes = entry.sizes(options or BuildOptions())
    config = entry.config if layers is None else {**entry.config, "layers": layers}
    example: Example = _builder(entry)(sizes, **config)
    return example


def _builder(entry: ZooEntry) -> Callable[..., Any]:
    module, _, function = entry.builder.partition(":")
    try:
        builder: Callable[..., Any] = getattr(importlib.import_module(module), function)
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise MissingData(
            f"{entry.name} is a torch module, and torch is not installed: pip install foretrain[torch]"
        ) from error
    return builder


def _read_entry(name: str, block: dict[str, Any]) -> ZooEntry:
    for size in ("batch", "seq_len", "image_size"):
        if size in block:
            block[size] = Extent(**block[size])
    block["aliases"] = tuple(block.get("aliases", ()))
    block["builder"] = f"{_MODULES}.{block.get('builder')}"
    return ZooEntry(name=name, **block)


class ModelShape(NamedTuple):
    """The name of an architecture, and its sizes by name; `layers` is the number of equal blocks."""

    architecture: str
    sizes: Mapping[str, int]

    def with_layers(self, count: int) -> ModelShape:
        """The same with another number of equal blocks."""
        return self._replace(sizes={**self.sizes, LAYERS: count})


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


def _is_stack(entry: ZooEntry) -> bool:
    """Whether a model is recorded at any depth: it has a whole number of periods of equal blocks."""
    blocks = entry.blocks
    is_known = entry.builder.rpartition(":")[2] in _STACKS
    return is_known and blocks is not None and blocks.number % blocks.period == 0


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
