"""Record the graphs that ship with the package: `make graphs`, or one architecture: record_graphs.py NAME...

Every architecture of the zoo and every variant of a step (`recorded/variants.py`) is traced at a few sizes,
made a template and proven at other sizes. An architecture whose file is up to date is left as it is;
`--again` records it all the same. `--list` names the architectures and what is stale.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from itertools import repeat
from typing import Any, NamedTuple

import torch

from foretrain.errors import ForetrainError
from foretrain.workloads.graph import Graph
from foretrain.workloads.lora import apply_lora
from foretrain.workloads.recorded import library
from foretrain.workloads.recorded.recording import DEPTHS, FLAT, NotRecordable, record, without_update
from foretrain.workloads.recorded.template import LAYERS, Template
from foretrain.workloads.recorded.variants import (
    USUAL_STORAGES,
    StepVariant,
    list_variants,
    lora_of,
    options_of,
)
from foretrain.workloads.tracing.step import trace
from foretrain.workloads.zoo.catalogue import BuildOptions, Sizes, ZooEntry, _builder, list_models
from foretrain.workloads.zoo.shapes import config_at, sample_at, shape_of

PRIMES = (5, 43, 13, 97, 7, 61, 29, 17, 139, 23, 3, 71, 11, 107, 31, 53, 19, 151, 37, 83, 41, 127, 59, 101,
          47, 173, 67, 113, 79, 163, 73, 131, 89, 179, 103, 149, 109, 157, 137, 167)  # fmt: skip
"""Not in order: sizes that are equally far apart at all points would be taken for each other."""
POINTS = 3
CHECK_LAYERS = 6
"""Depth at which templates are proven: none that they are recorded at, and of either period."""
IMAGE_STEP = 32
"""Convolutional networks halve an image up to five times."""


class Recorded(NamedTuple):
    """An architecture and a model that has it."""

    name: str
    entry: ZooEntry
    sizes: Mapping[str, int]


def list_architectures() -> Iterator[Recorded]:
    """Every architecture of the zoo, once."""
    seen = set()
    for entry in list_models():
        shape = shape_of(entry, entry.sizes(BuildOptions()))
        if shape.architecture not in seen:
            seen.add(shape.architecture)
            yield Recorded(shape.architecture, entry, shape.sizes)


def trace_at(entry: ZooEntry, variant: StepVariant, sizes: Mapping[str, int]) -> Graph:
    """The graph of an architecture at given sizes, without an optimizer."""
    options = options_of(variant)
    sample = Sizes(**sample_at(entry, sizes), attention="eager" if variant.eager else "sdpa")
    with torch.device("meta"):
        example = _builder(entry)(sample, **config_at(entry, sizes))
    lora = lora_of(variant, sizes.get("rank", 1))
    if lora is not None:
        example = replace(example, module=apply_lora(example.module, lora))
    if variant.forward_only:
        example.module.eval()
    return without_update(trace(example, options))


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
                lambda at: trace_at(recorded.entry, variant, at),
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


def record_architecture(name: str, only_usual: bool = False) -> str:
    """Record one architecture and write its file; returns a line on it."""
    started = time.monotonic()
    recorded = next(each for each in list_architectures() if each.name == name)
    entry = recorded.entry
    templates: list[tuple[str, Template | str]] = []
    failed = []
    for variant in list_variants(entry.attention, entry.attention, entry.image_size is not None):
        if only_usual and not is_usual(variant):
            continue
        try:
            templates.append((variant.key, record_variant(recorded, variant)))
        except NotRecordable as error:
            failed.append(f"  {variant.key}: {str(error)[:200]}")
        except ForetrainError as error:
            templates.append((variant.key, str(error)))
    header: dict[str, Any] = {"made_by": library.made_by(), "torch": torch.__version__, "model": entry.name}
    header["is_whole"] = not only_usual
    file = library.write(name, header, templates)
    lines = len({json.dumps(each.tables) for _, each in templates if isinstance(each, Template)})
    seconds = time.monotonic() - started
    text = (
        f"{name}: {len(templates)} variants, {lines} templates, {file.stat().st_size} bytes, {seconds:.0f} s"
    )
    return "\n".join([text, *failed])


def is_up_to_date(name: str) -> bool:
    """Whether the file of an architecture was made by the present code."""
    file = library._read(name)
    return file is not None and file.header["made_by"] == library.made_by() and file.header["is_whole"]


def is_usual(variant: StepVariant) -> bool:
    """Whether a variant is one that most people train: mixed precision or FP32, fused attention."""
    return variant.storage in USUAL_STORAGES and not (variant.eager or variant.forward_only or variant.lora)


def main(words: list[str]) -> None:
    """Record what is asked for, or what is stale."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--usual", action="store_true", help="only the variants that most people train")
    asked = parser.parse_args(words)
    names = asked.names or [each.name for each in list_architectures()]
    stale = [name for name in names if asked.again or asked.names or not is_up_to_date(name)]
    if asked.list:
        print(*(f"{name}{' (stale)' if name in stale else ''}" for name in names), sep="\n")  # noqa: T201
        return
    with ProcessPoolExecutor(2) as pool:
        for line in pool.map(record_architecture, stale, repeat(asked.usual)):
            print(line, flush=True)  # noqa: T201


if __name__ == "__main__":
    main(sys.argv[1:])
