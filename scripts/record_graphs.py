"""Bring the graphs that ship with the package up to date: `make graphs`, or record_graphs.py NAME...

Every architecture of the zoo and some of transformers, in every variant of a step (`recorded/library.py`),
is traced at a few sizes, made a template and proven at other sizes. A file that other code made (the recorder
or the model has changed since, in more than comments) is verified: one small trace of each variant is
compared with what its template gives, and only a variant that differs is recorded anew. A file that is
missing gets the variants that most people train; `--complete` adds the others, `--kind` those of one kind.
`--again` records all. `--list` names what is to do.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import cache, partial
from itertools import repeat
from typing import Any, NamedTuple

import torch

from foretrain.errors import ForetrainError, UnknownName
from foretrain.workloads.example import Example
from foretrain.workloads.graph import Graph
from foretrain.workloads.lora import apply_lora
from foretrain.workloads.readers import huggingface_shapes
from foretrain.workloads.readers.huggingface import HuggingFaceConfig
from foretrain.workloads.recorded import library
from foretrain.workloads.recorded.library import (
    USUAL_STORAGES,
    StepVariant,
    list_variants,
    lora_of,
    options_of,
)
from foretrain.workloads.recorded.recording import (
    DEPTHS,
    FLAT,
    NotRecordable,
    find_difference,
    record,
    without_update,
)
from foretrain.workloads.recorded.template import LAYERS, Template
from foretrain.workloads.tracing.step import trace
from foretrain.workloads.zoo import AttentionKind
from foretrain.workloads.zoo.catalogue import (
    BuildOptions,
    Sizes,
    ZooEntry,
    _builder,
    config_at,
    list_models,
    sample_at,
    shape_of,
)

PRIMES = (5, 43, 13, 97, 7, 61, 29, 17, 139, 23, 3, 71, 11, 107, 31, 53, 19, 151, 37, 83, 41, 127, 59, 101,
          47, 173, 67, 113, 79, 163, 73, 131, 89, 179, 103, 149, 109, 157, 137, 167)  # fmt: skip
"""Not in order: sizes that are equally far apart at all points would be taken for each other."""
POINTS = 3
CHECK_LAYERS = 6
"""Depth at which templates are proven: none that they are recorded at, and of either period."""
IMAGE_STEP = 32
"""Convolutional networks halve an image up to five times."""


class Recorded(NamedTuple):
    """An architecture, a model that has it, and how it is built at given sizes with a kind of attention."""

    name: str
    model: str
    sizes: Mapping[str, int]
    build: Callable[[Mapping[str, int], AttentionKind], Example]
    has_attention: bool
    takes_images: bool


def list_architectures() -> Iterator[Recorded]:
    """Every architecture of the zoo, and those of transformers, once."""
    seen = set()
    for entry in list_models():
        shape = shape_of(entry, entry.sizes(BuildOptions()))
        if shape.architecture not in seen:
            seen.add(shape.architecture)
            yield Recorded(
                shape.architecture,
                entry.name,
                shape.sizes,
                partial(build_zoo_model, entry),
                entry.attention,
                entry.image_size is not None,
            )
    for each in huggingface_shapes.RECORDED:
        name = f"{huggingface_shapes.PREFIX}{each}"
        sizes = huggingface_shapes.usual_sizes(name)
        yield Recorded(name, name, sizes, partial(build_configuration, name), True, False)


def build_zoo_model(entry: ZooEntry, sizes: Mapping[str, int], attention: AttentionKind) -> Example:
    """A model of the zoo at given sizes."""
    with torch.device("meta"):
        sample = Sizes(**sample_at(entry, sizes), attention=attention)
        example: Example = _builder(entry)(sample, **config_at(entry, sizes))
    return example


def build_configuration(name: str, sizes: Mapping[str, int], attention: AttentionKind) -> Example:
    """A model of transformers at given sizes."""
    model_type, choices, _ = huggingface_shapes.parse_architecture(name)
    config = huggingface_shapes.config_at(model_type, choices, sizes)
    options = BuildOptions(batch=sizes["batch"], seq_len=sizes.get("seq_len"), attention=attention)
    return HuggingFaceConfig(name, json.dumps(config)).example(options)


def trace_at(recorded: Recorded, variant: StepVariant, sizes: Mapping[str, int]) -> Graph:
    """The graph of an architecture at given sizes, without an optimizer."""
    example = recorded.build(sizes, "eager" if variant.eager else "sdpa")
    lora = lora_of(variant, sizes.get("rank", 1))
    if lora is not None:
        example = replace(example, module=apply_lora(example.module, lora))
    if variant.forward_only:
        example.module.eval()
    return without_update(trace(example, options_of(variant)))


def points_of(sizes: Mapping[str, int], fixed: Mapping[str, int], count: int) -> list[dict[str, int]]:
    """Sizes to trace at: another prime for every size at every point, even where a half is taken."""
    points = []
    for number in range(count):
        point = {}
        for place, name in enumerate(sizes):
            prime = PRIMES[(place * POINTS + number) % len(PRIMES)]
            if name in fixed:
                point[name] = fixed[name]
            elif name == "image_size":
                point[name] = sizes[name] % IMAGE_STEP + IMAGE_STEP * (sizes[name] // IMAGE_STEP + number)
            elif name == "positions":
                point[name] = prime + max(PRIMES)  # no fewer than there are tokens
            else:
                point[name] = 2 * prime if name == "head_width" else prime
        points.append(point)
    return points


def record_variant(recorded: Recorded, variant: StepVariant) -> Template:
    """The template of one variant: with as many free sizes as there can be."""
    nothing: dict[str, int] = {}
    sizes = {**recorded.sizes, **({"rank": 16} if variant.lora else nothing)}
    single: dict[str, int] = {"batch": 1} if variant.single else nothing
    at_default: dict[str, int] = {name: sizes[name] for name in ("seq_len", "image_size") if name in sizes}
    is_stack = LAYERS in sizes
    is_usual = variant.storage in USUAL_STORAGES and not variant.checkpoint
    problem = ""
    is_free = is_stack or is_usual or "image_size" not in sizes
    choices: list[dict[str, int]] = [nothing, at_default] if is_free else [at_default]
    for held in choices:
        fixed: dict[str, int] = dict(single) | held
        free = [name for name in sizes if name not in fixed]
        # Two points determine what is linear in the batch; other sizes have a third, and a check
        is_linear = free in ([], ["batch"])
        points = points_of(sizes, fixed, len(free) + 1 if is_linear else POINTS)
        check: dict[str, int] | None = {**sizes, "batch": 6, **fixed} if not is_linear else None
        if is_stack and check is not None:
            check[LAYERS] = CHECK_LAYERS
        try:
            template = record(
                lambda at: trace_at(recorded, variant, at),
                points,
                check,
                DEPTHS if is_stack else (FLAT,),
            )
        except NotRecordable as error:
            problem = str(error)
            continue
        except ForetrainError:  # an image that the model does not take, or a variant that it does not have
            if held is at_default:
                raise
            continue
        covers: dict[str, Any] = {name: (size, 0) for name, size in fixed.items()}
        if "image_size" in free:
            covers["image_size"] = (points[0]["image_size"], IMAGE_STEP)
        return Template({**template.tables, "covers": covers})
    raise NotRecordable(problem)


Stored = dict[str, Template | str]
"""The variants of a file: each with its template, or with why it cannot be trained so."""


def variants_of(recorded: Recorded) -> list[StepVariant]:
    """All variants of an architecture."""
    attention = recorded.has_attention
    return list(list_variants(attention, attention, recorded.takes_images))


def point_to_verify(recorded: Recorded, variant: StepVariant, template: Template) -> dict[str, int]:
    """Sizes that a template covers, no two of them equal, with one block of each kind."""
    sizes = {**recorded.sizes, **({"rank": 16} if variant.lora else {})}
    fixed = {name: size for name, (size, step) in template.tables["covers"].items() if not step}
    if variant.single:
        fixed["batch"] = 1
    point = points_of(sizes, fixed, 1)[0]
    if LAYERS in sizes:
        point[LAYERS] = (2 * template.tables["edge"] + 1) * template.tables["period"]
    return point


def is_still_right(recorded: Recorded, variant: StepVariant, stored: Template | str) -> bool:
    """Whether a fresh trace gives what is stored, in every field, or is refused in the same words."""
    if isinstance(stored, str):
        try:
            trace_at(recorded, variant, {**recorded.sizes, "batch": 1 if variant.single else 2})
        except ForetrainError as error:
            return str(error) == stored
        return False
    point = point_to_verify(recorded, variant, stored)
    try:
        graph = trace_at(recorded, variant, point)
    except ForetrainError:
        return False
    return find_difference(stored.graph_at(point, graph.options), graph) is None


@cache
def digest_code(of_transformers: bool) -> str:
    """A digest of the code that recordings depend on, without its comments and docstrings."""
    trees = [ast.parse(file.read_bytes()) for file in library.list_sources(of_transformers)]
    for tree in trees:
        for node in ast.walk(tree):
            for name, block in ast.iter_fields(node):
                if isinstance(block, list):
                    setattr(node, name, [each for each in block if not _is_text(each)])
    text = "".join(map(ast.dump, trees)) + library.library_version(of_transformers)
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def _is_text(statement: Any) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def update_architecture(name: str, asked: Asked) -> str:
    """Bring the file of one architecture up to date; returns a line on it."""
    started = time.monotonic()
    recorded = next(each for each in list_architectures() if each.name == name)
    known: Stored = {} if asked.again else library.read_all(name)
    file = library._read(name)
    code = digest_code(name.startswith(library.TRANSFORMERS))
    is_stale = file is None or file.header.get("code") != code
    wanted = [each for each in variants_of(recorded) if each.key in known or asked.includes(each)]
    kept: Stored = {}
    failed, anew = [], 0
    for variant in wanted:
        stored = known.get(variant.key)
        if stored is not None and not (is_stale and not is_still_right(recorded, variant, stored)):
            kept[variant.key] = stored
            continue
        anew += 1
        try:
            kept[variant.key] = record_variant(recorded, variant)
        except NotRecordable as error:
            failed.append(f"  {variant.key}: {str(error)[:200]}")
        except ForetrainError as error:
            kept[variant.key] = str(error)
    is_whole = asked.complete or (file is not None and not asked.again and bool(file.header["is_whole"]))
    header = {
        "made_by": library.made_by(name),
        "code": code,
        "torch": torch.__version__,
        "model": recorded.model,
        "is_whole": is_whole,
    }
    if not kept:
        return "\n".join([f"{name}: nothing can be recorded", *failed])
    written = library.write(name, header, kept.items())
    text = (
        f"{name}: {len(kept)} variants, {anew} of them recorded anew, {written.stat().st_size} bytes, "
        f"{time.monotonic() - started:.0f} s"
    )
    return "\n".join([text, *failed])


def name_architectures(names: Sequence[str]) -> list[str]:
    """The architectures of given names, which may be those of models; all of them without a name."""
    known = [each.name for each in list_architectures()]
    models = {
        entry.name: shape_of(entry, entry.sizes(BuildOptions())).architecture for entry in list_models()
    }
    for name in names:
        if name not in known and name not in models:
            hint = "It is the name of a model of the zoo or of a file in recorded/graphs."
            raise UnknownName("architecture", name, [*known, *models], hint)
    return list(dict.fromkeys(name if name in known else models[name] for name in names)) or known


def describe_state(name: str) -> str:
    """What there is to do for an architecture; empty if nothing."""
    file = library._read(name)
    if file is None:
        return "missing"
    if file.header["made_by"] != library.made_by(name):
        return "stale"
    return "" if file.header["is_whole"] else "partial"


def is_usual(variant: StepVariant) -> bool:
    """Whether a variant is one that most people train: mixed precision or FP32, fused attention."""
    if variant.eager or variant.forward_only or variant.lora:
        return False
    return variant.storage in USUAL_STORAGES and variant.checkpoint in ("", "blocks")


GROUPS: Mapping[str, Callable[[StepVariant], bool]] = {
    "FP32 and mixed precision": is_usual,
    "weights in half precision": lambda variant: variant.storage not in USUAL_STORAGES and not variant.lora,
    "eager attention": lambda variant: variant.eager,
    "forward only": lambda variant: variant.forward_only,
    "LoRA": lambda variant: bool(variant.lora),
}
"""Kinds of variants, as the documentation lists them."""


def list_shipped() -> Iterator[str]:
    """The table of `docs/workloads.md`: for which models which kinds of steps are recorded."""
    by_kinds: dict[tuple[str, ...], list[str]] = {}
    architectures = {each.name: each for each in list_architectures()}
    named = [
        (entry.name, shape_of(entry, entry.sizes(BuildOptions())).architecture) for entry in list_models()
    ]
    named += [(f"`hf:` {name.removeprefix(library.TRANSFORMERS)}", name)
              for name in architectures if name.startswith(library.TRANSFORMERS)]  # fmt: skip
    for model, name in named:
        file = library._read(name)
        known = frozenset(file.header["variants"]) if file is not None else frozenset()
        kinds = tuple(_describe_kind(architectures[name], known, of) for of in GROUPS.values())
        by_kinds.setdefault(kinds, []).append(model)
    yield f"| models | {' | '.join(GROUPS)} |"
    yield "|---" * (1 + len(GROUPS)) + "|"
    for kinds, models in by_kinds.items():
        yield f"| {', '.join(models)} | {' | '.join(kinds)} |"


def _describe_kind(recorded: Recorded, known: frozenset[str], of: Callable[[StepVariant], bool]) -> str:
    wanted = [each for each in variants_of(recorded) if of(each)]
    stored = [each for each in wanted if each.key in known]
    if not wanted:
        return "-"
    return "yes" if len(stored) == len(wanted) else "some" if stored else "no"


class Asked(NamedTuple):
    """What to record besides what is stale: all `again`, or variants that a partial file lacks: all of them,
    or those of some `kinds`."""

    again: bool = False
    complete: bool = False
    kinds: tuple[str, ...] = ()

    @property
    def extends(self) -> bool:
        """Whether a partial file is to get more variants."""
        return self.complete or bool(self.kinds)

    def includes(self, variant: StepVariant) -> bool:
        """Whether a variant is recorded that a file lacks."""
        return self.complete or is_usual(variant) or any(GROUPS[kind](variant) for kind in self.kinds)


def main(words: list[str]) -> None:
    """Record what is asked for, or what is stale."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--complete", action="store_true")
    parser.add_argument("--kind", action="append", choices=GROUPS, help="add variants of one kind")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--table", action="store_true", help="what ships, as docs/workloads.md lists it")
    given = parser.parse_args(words)
    asked = Asked(given.again, given.complete, tuple(given.kind or ()))
    try:
        states = {name: describe_state(name) for name in name_architectures(given.names)}
    except UnknownName as error:
        parser.error(str(error))
    if given.list:
        print(*(f"{name} {state}".strip() for name, state in states.items()), sep="\n")  # noqa: T201
        return
    if given.table:
        print(*list_shipped(), sep="\n")  # noqa: T201
        return
    to_do = ("missing", "stale", *(("partial",) if asked.extends else ()), *(("",) if asked.again else ()))
    chosen = [name for name, state in states.items() if state in to_do or (asked.again and state)]
    with ProcessPoolExecutor(2) as pool:
        for line in pool.map(update_architecture, chosen, repeat(asked)):
            print(line, flush=True)  # noqa: T201


if __name__ == "__main__":
    main(sys.argv[1:])
