"""Finds the recording of a workload among those that ship with the package.

One file holds all variants of an architecture, compressed together: a line with its header, then one line for
each template. The header says what made the recordings (`made_by`): in a tree whose recorder or zoo has
changed since, they are ignored and models are traced, unless torch is not installed.

A `StepVariant` is how a step is run, as far as its calls depend on it. Everything else about a step changes
no call (TF32, FP8, `compile`, offloading), or only those of its optimizer.
"""

from __future__ import annotations

import hashlib
import json
import lzma
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from importlib import metadata, resources
from importlib.util import find_spec
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

from foretrain.errors import InvalidRequest
from foretrain.facts.frameworks import frameworks
from foretrain.workloads.family import Family, RecordedAxis
from foretrain.workloads.graph import Graph, Spec
from foretrain.workloads.lora import LoraOptions
from foretrain.workloads.options import ResolvedOptions
from foretrain.workloads.recorded.template import LAYERS, NotCovered, NotWhole, Template
from foretrain.workloads.recorded.updates import NoUpdate, with_update
from foretrain.workloads.zoo.catalogue import ModelShape

FORMAT = 1
SUFFIX = ".graphs"
FOLDER = "graphs"
_MADE_BY = ("lora.py", "lora_layers.py", "tracing/*.py", "zoo/*.py")
TRANSFORMERS = "hf-"
"""Begins the names of architectures that transformers builds."""
_BUILT_BY_TRANSFORMERS = ("readers/huggingface_batches.py", "readers/huggingface_tasks.py")
_NOT_BUILT = ("__init__.py", "catalogue.py")
"""The files of `workloads` that recordings depend on, and those of the zoo that only list it."""
FULL, AUTOCAST, HALF, HALF_OUTPUTS = "fp32", "autocast", "bf16", "bf16-half-outputs"
FP32_GRADIENTS, HALF_AUTOCAST = "bf16-fp32-gradients", "bf16-autocast"
"""How weights are stored and computed with; FP16 is recorded as BF16 (`workload`)."""
STORAGES = (FULL, AUTOCAST, HALF, HALF_OUTPUTS, FP32_GRADIENTS)
CHECKPOINTS = ("", "blocks", "selective", "blocks-whole", "selective-whole")
"""What is recomputed: nothing, blocks, or what is between products; `whole` blocks to their end."""
USUAL_STORAGES = (FULL, AUTOCAST)
LORA = (
    *("", ",quantised", ",quantised,double", ",dora", ",half"),
    *(",all-linear", ",all-linear,quantised", ",all-linear,quantised,double"),
)
"""Layers that LoRA is put beside, if not the default ones, and how."""
RECORDER_OPTIMIZER = "sgd"
"""Lasting FP32 gradients are made by an optimizer, whose own calls are then left out."""


def find_recording(
    shape: ModelShape, options: ResolvedOptions, lora: LoraOptions | None
) -> RecordedModel | None:
    """The recording of a model at its sizes; None where it has to be traced."""
    variant = variant_of(options, lora, shape.sizes["batch"] == 1)
    file = _read(shape.architecture)
    if variant is None or file is None or is_stale(shape.architecture, file.header):
        return None
    place = file.header["variants"].get(variant.key)
    if isinstance(place, str):
        raise InvalidRequest(place)
    if place is None:
        return None
    template = file.template(place)
    sizes = dict(shape.sizes) if lora is None else {**shape.sizes, "rank": lora.rank}
    if not _covers(template.tables["covers"], sizes):
        return None
    recorded = RecordedModel(template, sizes, options)
    try:
        template.blocks_at(sizes)
        template.specs_at(sizes)
        # On an empty graph: it only asks whether this optimizer's calls can be written.
        with_update(Graph((), (), (), (), 1, 1, 1, trained=("",)), options)
    except (NotCovered, NotWhole, NoUpdate):
        return None
    return recorded


def _covers(covered: Mapping[str, Any], sizes: Mapping[str, int]) -> bool:
    """Whether sizes are such as were recorded: those that are fixed, or at least 2."""
    for name, size in sizes.items():
        least, step = covered.get(name, (2, 1))
        if step == 0 and size != least:
            return False
        if step and (size < least or (size - least) % step) and name != LAYERS:
            return False
    return True


class StepVariant(NamedTuple):
    """What calls depend on. `single` is a batch of one, where tensors of size one take shortcuts."""

    storage: str
    eager: bool = False
    checkpoint: str = ""
    channels_last: bool = False
    forward_only: bool = False
    single: bool = False
    lora: str = ""

    @property
    def key(self) -> str:
        """The variant as a text."""
        switches = ("eager", "channels_last", "forward_only", "single")
        words = [
            self.storage,
            self.checkpoint,
            *(name for name in switches if getattr(self, name)),
            self.lora,
        ]
        return " ".join(word for word in words if word)


def variant_of(options: ResolvedOptions, lora: LoraOptions | None, single: bool) -> StepVariant | None:
    """The variant of a step, or None where none is recorded."""
    storage = _storage(options)
    if storage is None or options.gradient_release or options.attention not in ("sdpa", "eager"):
        return None
    checkpoint = ""
    if options.checkpoint_activations:
        checkpoint = "selective" if options.selective_checkpointing else "blocks"
        if frameworks()[options.framework].recomputes_whole_blocks:
            checkpoint += "-whole"
    return StepVariant(
        storage,
        options.attention == "eager",
        checkpoint,
        options.channels_last,
        options.forward_only,
        single,
        "" if lora is None else _describe(lora),
    )


def _storage(options: ResolvedOptions) -> str | None:
    half = options.precision in ("bf16", "fp8")
    if options.weights == "fp32":
        if half and options.casts:
            return AUTOCAST
        return FULL if half or options.precision in ("fp32", "tf32") else None
    if options.weights != "bf16":
        return None
    adds_up = options.adds_up_in_fp32 and options.optimizer is not None and not options.forward_only
    if options.casts:
        return None if adds_up or options.half_outputs else HALF_AUTOCAST
    if adds_up:
        return None if options.half_outputs else FP32_GRADIENTS
    return HALF_OUTPUTS if options.half_outputs else HALF


def _describe(lora: LoraOptions) -> str:
    flags = [name for name in ("quantised", "double", "dora", "half") if getattr(lora, name)]
    return ",".join(("lora", *lora.targets, *flags))


@dataclass(frozen=True)
class RecordedModel:
    """A template at all sizes but batch and sequence length, with the options of a workload."""

    template: Template
    sizes: Mapping[str, int]
    options: ResolvedOptions

    def graph(self) -> Graph:
        """The graph at its own sizes, each spec once, as tracing numbers them."""
        graph = with_update(self.template.graph_at(self.sizes, self.options), self.options)
        return _with_distinct_specs(graph)

    def has(self, axes: tuple[RecordedAxis, ...]) -> bool:
        """Whether these sizes are free in the recording."""
        return not any(axis.name in self.template.tables["covers"] for axis in axes)

    def family(self, axes: tuple[RecordedAxis, ...]) -> Family:
        """The family over the given axes."""
        corners, counts = [], []
        for values in product(*((axis.low, axis.high) for axis in axes)):
            at = {**self.sizes, **dict(zip((axis.name for axis in axes), values, strict=True))}
            corners.append(tuple(self.template.specs_at(at)))
            counts.append(self.template.counts_at(at))
        low = {**self.sizes, **{axis.name: axis.low for axis in axes}}
        graph = with_update(self.template.graph_at(low, self.options), self.options)
        added = graph.specs[len(corners[0]) :]
        return Family(axes, graph, tuple((*corner, *added) for corner in corners), tuple(counts))


def _with_distinct_specs(graph: Graph) -> Graph:
    numbers: dict[Spec, int] = {}
    new = [numbers.setdefault(spec, len(numbers)) for spec in graph.specs]
    if len(numbers) == len(new):
        return graph
    new.append(-1)  # of a tensor that is absent
    return replace(
        graph,
        specs=tuple(numbers),
        calls=tuple(
            [
                call._replace(
                    inputs=tuple([new[each] for each in call.inputs]),
                    outputs=tuple([new[each] for each in call.outputs]),
                )
                for call in graph.calls
            ]
        ),
        buffers=tuple([buffer._replace(spec=new[buffer.spec]) for buffer in graph.buffers]),
        layers=tuple(
            [layer._replace(outputs=tuple([new[each] for each in layer.outputs])) for layer in graph.layers]
        ),
    )


def is_stale(architecture: str, header: Mapping[str, Any]) -> bool:
    """Whether a model has to be traced, and can be, because other code made its recordings."""
    return header["made_by"] != made_by(architecture) and can_trace(architecture)


def made_by(architecture: str) -> str:
    """A digest of the code that the recordings of an architecture depend on."""
    return _digest(architecture.startswith(TRANSFORMERS))


@cache
def _digest(of_transformers: bool) -> str:
    text = b"".join(file.read_bytes() for file in list_sources(of_transformers))
    return hashlib.blake2b(text + library_version(of_transformers).encode(), digest_size=8).hexdigest()


def list_sources(of_transformers: bool) -> list[Path]:
    """The files of this package that the recordings of zoo or transformers depend on."""
    here = Path(str(resources.files("foretrain.workloads")))
    patterns = (*_MADE_BY[:-1], *_BUILT_BY_TRANSFORMERS) if of_transformers else _MADE_BY
    return sorted(file for pattern in patterns for file in here.glob(pattern) if file.name not in _NOT_BUILT)


def library_version(of_transformers: bool) -> str:
    """The version of transformers, for what it builds."""
    return metadata.version("transformers") if of_transformers and has_package("transformers") else ""


def can_trace(architecture: str) -> bool:
    """Whether the libraries that build a model are installed."""
    return has_torch() and (not architecture.startswith(TRANSFORMERS) or has_package("transformers"))


def has_torch() -> bool:
    """Whether models can be traced."""
    return has_package("torch")


@cache
def has_package(package: str) -> bool:
    """Whether a package can be imported; it is not."""
    try:
        return find_spec(package) is not None
    except ModuleNotFoundError:  # raised by import hooks that hide it
        return False


def folder() -> Path:
    """Where the recordings are."""
    return Path(str(resources.files("foretrain.workloads.recorded"))) / FOLDER


@dataclass(frozen=True)
class _GraphFile:
    header: Mapping[str, Any]
    lines: tuple[bytes, ...]

    def template(self, line: int) -> Template:
        return _parse(self.lines[line])


@lru_cache(maxsize=8)
def _read(architecture: str) -> _GraphFile | None:
    file = folder() / f"{architecture}{SUFFIX}"
    if not file.is_file():
        return None
    header, *lines = lzma.decompress(file.read_bytes()).split(b"\n")
    parsed = json.loads(header)
    return _GraphFile(parsed, tuple(lines)) if parsed["format"] == FORMAT else None


@lru_cache(maxsize=16)
def _parse(line: bytes) -> Template:
    return Template(json.loads(line))


def read_all(architecture: str) -> dict[str, Template | str]:
    """The variants of an architecture as `write` takes them; none if it has no file."""
    file = _read(architecture)
    if file is None:
        return {}
    stored = file.header["variants"].items()
    return {key: place if isinstance(place, str) else file.template(place) for key, place in stored}


def write(
    architecture: str, header: Mapping[str, Any], templates: Iterable[tuple[str, Template | str]]
) -> Path:
    """Store the variants of an architecture: each with its template, or with why it cannot be trained so."""
    lines: dict[str, int] = {}
    variants: dict[str, int | str] = {}
    for key, template in templates:
        if isinstance(template, str):
            variants[key] = template
        else:
            text = json.dumps(template.tables, separators=(",", ":"))
            variants[key] = lines.setdefault(text, len(lines))
    head = json.dumps({"format": FORMAT, **header, "variants": variants}, separators=(",", ":"))
    file = folder() / f"{architecture}{SUFFIX}"
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(lzma.compress("\n".join([head, *lines]).encode(), preset=9 | lzma.PRESET_EXTREME))
    return file


def list_variants(attention: bool, lora: bool, images: bool) -> Iterator[StepVariant]:
    """The variants that are recorded: of models with attention to choose, with LoRA, of images."""
    for single in (False, True):
        for eager, last in product((False, True)[: 1 + attention], (False, True)[: 1 + images]):
            for storage in STORAGES:
                yield StepVariant(storage, eager, channels_last=last, single=single)
            usual = STORAGES if attention and not last else USUAL_STORAGES
            recomputed = CHECKPOINTS[1:] if attention and not eager else CHECKPOINTS[1:2]
            for storage, checkpoint in product(usual, recomputed):
                yield StepVariant(storage, eager, checkpoint, last, single=single)
            for storage in USUAL_STORAGES:
                yield StepVariant(storage, eager, "", last, forward_only=True, single=single)
        for kind in LORA if lora else ():
            for storage, checkpoint in product((FULL, HALF_AUTOCAST)[bool(kind) :], CHECKPOINTS[:2]):
                yield StepVariant(storage, False, checkpoint, single=single, lora=f"lora{kind}")


def options_of(variant: StepVariant) -> ResolvedOptions:
    """Options that a variant is traced with."""
    plain = ResolvedOptions(
        precision="fp32" if variant.storage == FULL else "bf16",
        optimizer=None,
        attention="eager" if variant.eager else "sdpa",
        weights="fp32" if variant.storage in (FULL, AUTOCAST) else "bf16",
        autocast=True if variant.storage == HALF_AUTOCAST else None,
        half_outputs=variant.storage == HALF_OUTPUTS,
        channels_last=variant.channels_last,
        forward_only=variant.forward_only,
        checkpoint_activations=bool(variant.checkpoint),
        selective_checkpointing=variant.checkpoint.startswith("selective"),
        framework="megatron" if variant.checkpoint.endswith("whole") else "pytorch",
    )
    if variant.storage != FP32_GRADIENTS:
        return plain
    return replace(plain, optimizer=RECORDER_OPTIMIZER, master_weights=True, gradients="fp32")


def lora_of(variant: StepVariant, rank: int) -> LoraOptions | None:
    """The LoRA options that a variant is traced with."""
    if not variant.lora:
        return None
    words = variant.lora.split(",")[1:]
    flags = {name: True for name in words if name in ("quantised", "double", "dora", "half")}
    return LoraOptions(rank, tuple(word for word in words if word not in flags), **flags)
