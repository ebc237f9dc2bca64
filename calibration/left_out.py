"""What calibrations would be without a source: how it is judged when no row of it is in any fit.

`left_out/SOURCE.json` has the entries of calibrations that change, by file. They are made like the shipped
ones, and each builds on those before it. Where no other source measured something, what the model assumes
without it takes its place (`LEFT_OUT` says what). Calibrations that none of its judged steps shows stay as
they are (`NOT_SHOWN`).

Power in training and intervals are fitted to the judged steps themselves, and left out by the transfer suite.

    python -m calibration --data DIR --graphs DIR --without SOURCE
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from calibration import files
from calibration.collectives import links
from calibration.kernels import attention, convolution, products, streaming
from calibration.steps import framework_host, host, mixed_precision
from foretrain.facts.calibrations import calibration_content, calibrations_instead, forget_constants

Entries = Mapping[str, Any]
Make = Callable[[Path, Path], Entries]
FOLDER = Path(__file__).with_name("left_out")
_MEMORY = "memory.toml"
_OURS = ("calibration", "validation")
_SAME_HARNESS = {"sailor_layers": "sailor", "published": "llm_foundry"}
"""Judged sources that share the harness of another: the published throughputs have rows of llm-foundry."""


@dataclass(frozen=True)
class Substitute:
    """What a calibration has from a source, what takes its place, and the function that makes it."""

    constants: str
    instead: str
    make: Make


def _from_data(make: Callable[[Path], Entries]) -> Make:
    return lambda data, _: make(data)


def _assumed(make: Callable[[], Entries]) -> Make:
    """Nothing else measured it."""
    return lambda *_: make()


def _hosts(source: str) -> Substitute:
    make = partial(framework_host.without, source)
    return Substitute("pace of research frameworks", "hosts of the other two sources", make)


LEFT_OUT: Mapping[str, Mapping[str, Substitute]] = {
    "kernelbench": {
        streaming.FILE: Substitute(
            "rate of reading windows",
            "assumed: half the FLOP of depthwise kernels",
            _assumed(streaming.without_kernelbench),
        ),
        convolution.FILE: Substitute(
            "rate of depthwise kernels in FP32",
            "assumed: 15 % of the lanes, as in half precision",
            _assumed(convolution.without_kernelbench),
        ),
        products.FILE: Substitute(
            "how fast TF32 kernels are fed",
            "assumed: as those of half precision",
            _assumed(products.without_kernelbench),
        ),
        host.FILE: Substitute(
            "launches of plain PyTorch",
            "five older machines (ryujaehun); of compiled steps assumed",
            _from_data(host.without_kernelbench),
        ),
    },
    "llm_foundry": {
        attention.FILE: Substitute(
            "rates of FlashAttention 1",
            "half of version 2's, as its author states",
            _assumed(attention.without_llm_foundry),
        )
    },
    "neusight": {
        streaming.FILE: Substitute(
            "delivered bandwidth and cost of rows",
            "published bandwidths; rows cost nothing",
            _from_data(streaming.without_neusight),
        ),
        products.FILE: Substitute(
            "products in FP32 and their corrections",
            "DeepBench's products on GPUs of 2015-18; no corrections",
            _from_data(products.without_neusight),
        ),
    },
    "sailor": {framework_host.FILE: _hosts("sailor")},
    "timm": {
        mixed_precision.FILE: Substitute(
            "factors of kernels and steps in half precision",
            "none: kernels as they were measured alone",
            _assumed(mixed_precision.without_timm),
        )
    },
    "ultrascale": {framework_host.FILE: _hosts("ultrascale")},
    "vtrain": {
        links.FILE: Substitute(
            "exchanges over NVLink", "aiconfigurator's alone", _from_data(links.without_vtrain)
        ),
        framework_host.FILE: _hosts("vtrain"),
    },
}
"""By source, the calibrations that its rows are in and its judged steps show, in the order of fitting."""
NOT_SHOWN: Mapping[tuple[str, str], str] = {
    ("lambda", "jitter.json"): "judged on one GPU, which waits for no other",
    ("neusight", "convolution.json"): "all its models are transformers",
    ("neusight", "per_layer.json"): "another cost model",
    ("profet", "few_timings.json"): "for users' own timings",
}
"""Other calibrations with rows of a judged source, and why its judged steps do not depend on them."""


def substitutes(source: str) -> Mapping[str, Substitute]:
    """What is left out of which calibration where a source is judged."""
    return LEFT_OUT.get(_SAME_HARNESS.get(source, source), {})


def write(source: str, data: Path, graphs: Path) -> Path:
    """Fit without a source and keep what changes."""
    contents: dict[str, Entries] = {}
    for name, substitute in LEFT_OUT[source].items():
        with _instead(contents):
            made, shipped = files.rounded(substitute.make(data, graphs)), calibration_content(name)
            contents[name] = {key: value for key, value in made.items() if value != shipped[key]}
    file = FOLDER / f"{source}.json"
    file.parent.mkdir(exist_ok=True)
    file.write_text(json.dumps(contents, indent=1) + "\n", encoding="utf-8")
    return file


def left_out(source: str) -> dict[str, Entries]:
    """The entries of calibrations that change for a judged source, by file."""
    file = FOLDER / f"{_SAME_HARNESS.get(source, source)}.json"
    contents: dict[str, Entries] = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    spread = calibration_content(_MEMORY)["spread"]
    others = [each for each in spread["sources"] if each["name"] != _SAME_HARNESS.get(source, source)]
    if len(others) < len(spread["sources"]):
        contents[_MEMORY] = {"spread": {**spread, "sources": others}}
    return contents


@contextmanager
def without(source: str) -> Iterator[None]:
    """Predictions by calibrations that no row of a source is in."""
    with _instead(left_out(source)):
        yield


@contextmanager
def _instead(contents: Mapping[str, Entries]) -> Iterator[None]:
    """Other entries of calibrations; fits and suites forget what they kept of predictions, too."""
    if not contents:
        yield
        return
    try:
        with calibrations_instead(contents):
            forget_constants(_OURS)
            yield
    finally:
        forget_constants(_OURS)
