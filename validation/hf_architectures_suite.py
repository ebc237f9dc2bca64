"""Do the most used Hugging Face architectures trace? `make validate SUITE=hf_architectures`

`hf_architectures.toml` names 60 architectures with one published model of each. The suite writes the
configuration of each, reads it as `hf:FOLDER`, and traces one training step in full and one in mixed
precision at the sizes of the published model. Where the number of weights on the model's page is known, the
traced number must be the same.
"""

from __future__ import annotations

import json
import tempfile
import time
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import track

from foretrain.errors import ForetrainError
from validation.report import SuiteReport, Table, Verdicts

TABLE = Path(__file__).with_name("hf_architectures.toml")
TARGET = 55
BATCH = 2
PRECISIONS = ("fp32", "bf16")
_LAYERS = (
    "num_hidden_layers num_layers n_layer n_layers encoder_layers decoder_layers num_decoder_layers depth"
).split()


@dataclass(frozen=True)
class Architecture:
    """One published model: its type, its class, and what its configuration says besides the defaults."""

    model_type: str
    architecture: str
    model: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    parameters: int | None = None

    def configuration(self, layers: int | None = None) -> dict[str, Any]:
        """The entries of its config.json; `layers` cuts every stack of layers short."""
        entries = {"model_type": self.model_type, "architectures": [self.architecture], **self.settings}
        return entries if layers is None else _cut(self.model_type, entries, layers)


@dataclass(frozen=True)
class Outcome:
    """What became of an architecture. `reason` says why it was not traced; `unknown` lists operators without
    a rule; `seconds` is what reading and tracing took in both precisions."""

    architecture: Architecture
    parameters: int = 0
    operators: int = 0
    unknown: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    seconds: float = 0.0
    reason: str = ""


def architectures() -> tuple[Architecture, ...]:
    """The table."""
    return tuple(Architecture(**entry) for entry in tomllib.loads(TABLE.read_text())["architectures"])


def _cut(model_type: str, entries: Mapping[str, Any], layers: int) -> dict[str, Any]:
    """A configuration with at most `layers` in every stack."""
    from foretrain.workloads.readers.huggingface import prepare_transformers

    prepare_transformers()
    from transformers import AutoConfig

    defaults = AutoConfig.for_model(model_type).to_dict()
    cut = dict(entries)
    for key, value in {**defaults, **entries}.items():
        if key in _LAYERS and isinstance(value, int):
            cut[key] = min(value, layers)
        elif key.endswith("_config") and isinstance(value, dict):
            part = {**defaults.get(key, {}), **value}
            stacks = {
                inner: min(part[inner], layers) for inner in _LAYERS if isinstance(part.get(inner), int)
            }
            if stacks:
                kind = {"model_type": part["model_type"]} if "model_type" in part else {}
                cut[key] = {**kind, **entries.get(key, {}), **stacks}
    if model_type == "gpt_neo":  # counts its layers in the pattern of their attention, too
        cut["attention_types"] = [[["global", "local"], layers // 2]]
    return cut


def trace_one(
    chosen: Architecture, layers: int | None = None, precisions: tuple[str, ...] = PRECISIONS
) -> Outcome:
    """Read the configuration, trace a step in each precision and derive its operators."""
    from foretrain.workloads.options import ResolvedOptions
    from foretrain.workloads.readers import read_model
    from foretrain.workloads.rules import operators, unknown_names
    from foretrain.workloads.tracing.step import trace
    from foretrain.workloads.zoo.catalogue import BuildOptions

    began = time.perf_counter()
    unknown: set[str] = set()
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "config.json").write_text(json.dumps(chosen.configuration(layers)))
        source = read_model(f"hf:{folder}")
        for precision in precisions:
            example = source.example(BuildOptions(batch=BATCH))
            graph = trace(example, ResolvedOptions(precision=precision))
            ops = operators(graph)
            unknown |= set(unknown_names(ops))
    return Outcome(
        chosen,
        graph.parameters,
        len(ops),
        tuple(sorted(unknown)),
        example.notes,
        time.perf_counter() - began,
    )


def judged(chosen: Architecture) -> Outcome:
    """The outcome, whatever it is."""
    try:
        return trace_one(chosen)
    except ForetrainError as error:
        return Outcome(chosen, reason=str(error))
    except Exception as error:  # noqa: BLE001 - any failure is a result of this suite
        return Outcome(chosen, reason=f"{type(error).__name__}: {error}")


def run(data: Path) -> SuiteReport:
    """Trace all; the report lists each, those that failed with the reason."""
    del data
    listed = architectures()
    shown = track(listed, "Tracing", console=Console(stderr=True))
    outcomes = [judged(chosen) for chosen in shown]
    traced = [outcome for outcome in outcomes if not outcome.reason]
    known = [outcome for outcome in traced if outcome.architecture.parameters is not None]
    same = [outcome for outcome in known if outcome.parameters == outcome.architecture.parameters]
    notes = [f"target: {TARGET} of {len(listed)} traced, each at full size, in {' and '.join(PRECISIONS)}"]
    notes += [f"not traced: {each.architecture.model}: {each.reason}" for each in outcomes if each.reason]
    notes += [
        f"no rule: {' '.join(each.unknown)} in {each.architecture.model}" for each in traced if each.unknown
    ]
    notes += [
        f"{each.architecture.model} has {each.architecture.parameters:,} parameters on its page, "
        f"{each.parameters:,} here"
        for each in known
        if each not in same
    ]
    verdicts = {
        "architectures traced": {"foretrain": Verdicts(len(traced), len(listed))},
        "parameters as published": {"foretrain": Verdicts(len(same), len(known))},
    }
    return SuiteReport("Hugging Face architectures", (), {}, verdicts, tuple(notes), (_table(outcomes),))


def _table(outcomes: list[Outcome]) -> Table:
    rows = tuple(
        (
            outcome.architecture.model_type,
            outcome.architecture.architecture,
            outcome.architecture.model,
            f"{outcome.parameters:,}" if not outcome.reason else "",
            f"{outcome.operators:,}" if not outcome.reason else "",
            "; ".join(outcome.notes) if not outcome.reason else f"not traced: {outcome.reason}",
        )
        for outcome in outcomes
    )
    headings = ("model_type", "architecture", "published model", "parameters", "operators", "note")
    return Table(f"{len(rows)} architectures at the sizes of a published model", headings, rows)
