"""Published training throughputs against predictions made with the published settings.

The figures are in `validation/data/published_throughput.csv` with their sources. They were chosen by the rule
below before any of them was predicted; none was dropped afterwards, and nothing was fitted to them. The suite
also writes `docs/comparison-with-published.md`.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import foretrain as ft
from foretrain.errors import ForetrainError
from foretrain.estimates import Quantiles
from foretrain.facts.user_data import write_atomically
from validation.report import Case, Metrics, SuiteReport, Table, metrics

ROOT = Path(__file__).parents[1]
FIGURES = Path(__file__).parent / "data" / "published_throughput.csv"
MODELS = Path(__file__).parent / "data" / "models"
PAGE = ROOT / "docs" / "comparison-with-published.md"
OURS = "foretrain"
_FLAGS = {"true": True, "false": False}
RULE = (
    "From each source, all throughputs of training steps that name a GPU foretrain knows, give batch and "
    "sequence length (in the table or in the configuration beside it), have sequences of one length, and use "
    "options that foretrain has (so no selective checkpointing, offload or 8-bit optimizer). Of long tables: "
    "one and eight GPUs, one memory size of each GPU; of llm-foundry's, 2,048 tokens and the fewest and most "
    "GPUs of each size that the shared data sets do not hold (on A100-80, also one node)."
)
_INTRODUCTION = """# Comparison with published figures

{count} throughputs of training steps that others published, and what foretrain predicts with the settings
they state. {summary}

- **How they were chosen.** {rule}
- **Not fitted.** No figure was used in a fit, and none was left out for its error. Where measurements of a
  related source were used, the last column says so.
- **One change after looking.** MPT was first asked as GPT-2 with Hugging Face's loss; after eight of its
  figures had been predicted, its model was replaced by one with llm-foundry's fused loss, the default there.
  Their errors changed by -0.6 to +12 points.
- **Settings** are as published; what the source leaves open is listed as assumed.
- An error is predicted over published throughput, less one; *in* says whether the published figure lies in
  the predicted 80 % interval.

Written by `make validate SUITE=published` from `validation/data/published_throughput.csv`. See
[accuracy](accuracy.md) for measurements by the hundred.
"""


@dataclass(frozen=True)
class Figure:
    """One published figure and the request that predicts it."""

    row: dict[str, str]
    settings: dict[str, Any]

    @property
    def published(self) -> float:
        """The figure, in its own unit."""
        return float(self.row["figure"])

    @property
    def gpus(self) -> int:
        """How many GPUs it ran on."""
        return int(self.row["devices"]) * int(self.row["nodes"])

    @property
    def name(self) -> str:
        """What ran where."""
        row = self.row
        length = f" x {row['sequence']}" if row["sequence"] else ""
        return f"{row['what']}, {row['precision']}, {row['batch']}{length} on {self.gpus} {row['device']}"

    @property
    def units_of_a_step(self) -> float:
        """Images, sequences or tokens of a step, of all GPUs or, if the unit says so, of each."""
        samples = int(self.row["batch"]) * self.gpus
        of_each = int(self.row["sequence"]) if self.row["unit"].startswith("tokens") else 1
        return samples * of_each / (self.gpus if self.row["unit"].endswith("/GPU") else 1)


def run(data: Path) -> SuiteReport:
    """Predict every figure, and write the page. `data` is not read: the figures are in the repository."""
    del data
    figures = list(read(FIGURES))
    predicted = [(figure, _predicted(figure)) for figure in figures]
    cases = [_case(figure, seconds) for figure, seconds in predicted if isinstance(seconds, Quantiles)]
    refused = [(figure.name, seconds) for figure, seconds in predicted if isinstance(seconds, str)]
    answered = [figure for figure, seconds in predicted if isinstance(seconds, Quantiles)]
    report = SuiteReport(
        "published",
        tuple(cases),
        _sets(answered, cases),
        notes=(RULE,),
        tables=(
            Table("not answered", ("figure", "why"), tuple(refused) or (("none", ""),)),
            _by_source(answered, cases),
        ),
    )
    write_atomically(PAGE, page(answered, cases))
    return report


def read(file: Path) -> Iterator[Figure]:
    """The figures of a file with their requests."""
    with file.open(newline="", encoding="utf-8") as lines:
        for row in csv.DictReader(lines):
            yield Figure(row, settings_of(row))


def settings_of(row: dict[str, str]) -> dict[str, Any]:
    """The keywords of `foretrain.predict` for a row."""
    devices, nodes = int(row["devices"]), int(row["nodes"])
    where = row["device"] + (f":{devices}" if devices > 1 else "") + (f"x{nodes}" if nodes > 1 else "")
    settings: dict[str, Any] = {
        "model": row["model"].replace("validation/data/models", str(MODELS)),
        "on": where,
        "batch": int(row["batch"]),
        "precision": row["precision"],
    }
    if row["micro_batches"] != "1":
        settings["micro_batches"] = int(row["micro_batches"])
    if row["sequence"]:
        settings["seq_len"] = int(row["sequence"])
    if row["strategy"]:
        settings["strategy"] = row["strategy"]
    for item in filter(None, row["options"].split(";")):
        key, _, value = item.partition("=")
        settings[key] = _FLAGS.get(value, value)
    return settings


def _predicted(figure: Figure) -> Quantiles | str:
    """The seconds of a step, or why there is no answer."""
    try:
        answer = ft.predict(**figure.settings, advice=False)
    except ForetrainError as error:
        return str(error)
    return str(answer) if isinstance(answer, ft.Infeasible) else answer.step.seconds


def _case(figure: Figure, seconds: Quantiles) -> Case:
    units = figure.units_of_a_step
    interval = Quantiles(units / seconds.p90, units / seconds.p50, units / seconds.p10)
    return Case(figure.name, figure.row["source"], figure.published, {OURS: interval.p50}, interval)


def _sets(figures: Sequence[Figure], cases: Sequence[Case]) -> dict[str, dict[str, Metrics]]:
    chosen = {"all": list(cases)}
    places = {"one GPU": (1, 1), "one node": (2, 8), "several nodes": (9, 1 << 20)}
    for name, (least, most) in places.items():
        chosen[name] = [c for f, c in zip(figures, cases, strict=True) if least <= f.gpus <= most]
    for area in dict.fromkeys(figure.row["area"] for figure in figures):
        chosen[area] = [c for f, c in zip(figures, cases, strict=True) if f.row["area"] == area]
    return {
        name: {OURS: metrics(members, OURS, with_interval=True)}
        for name, members in chosen.items()
        if members
    }


def _by_source(figures: Sequence[Figure], cases: Sequence[Case]) -> Table:
    rows = []
    for source in dict.fromkeys(figure.row["source"] for figure in figures):
        errors = metrics([case for case in cases if case.group == source], OURS)
        rows.append((source, str(errors.cases), f"{errors.median:.1%}", f"{errors.bias:+.1%}"))
    return Table("by source", ("source", "figures", "median error", "bias"), tuple(rows))


def _error(case: Case) -> float:
    return case.predicted[OURS] / case.measured - 1


def page(figures: Sequence[Figure], cases: Sequence[Case]) -> str:
    """The page of the documentation: a table for each source."""
    overall = metrics(cases, OURS, with_interval=True)
    summary = (
        f"The median error is {overall.median:.1%}, the mean {overall.mean:.1%}; the 80 % interval holds "
        f"{overall.coverage or 0:.0%} of them."
    )
    parts = [_INTRODUCTION.format(count=len(cases), summary=summary, rule=RULE)]
    for source in dict.fromkeys(figure.row["source"] for figure in figures):
        members = [(f, c) for f, c in zip(figures, cases, strict=True) if f.row["source"] == source]
        parts.append(_section(source, members))
    return "\n".join(parts)


def _section(source: str, members: Sequence[tuple[Figure, Case]]) -> str:
    first = members[0][0].row
    heading = (
        "| what | GPUs | batch of a GPU | tokens | precision | options | unit | published | predicted (80 %) "
        "| error | in |\n|---|---|---|---|---|---|---|---|---|---|---|"
    )
    lines = [
        f"## {source}\n",
        f"[{first['url']}]({first['url']}), {first['year']}. In a fit: {first['in_fit']}.\n",
        f"Assumed: {'; '.join(dict.fromkeys(figure.row['assumed'] for figure, _ in members))}.\n",
        heading,
        *(_line(figure, case) for figure, case in members),
    ]
    return "\n".join(lines) + "\n"


def _line(figure: Figure, case: Case) -> str:
    row, bound = figure.row, case.interval
    assert bound is not None
    parts = f" in {row['micro_batches']} parts" if row["micro_batches"] != "1" else ""
    options = ", ".join(filter(None, (row["strategy"], row["options"].replace(";", ", "))))
    inside = "yes" if bound.p10 <= case.measured <= bound.p90 else "no"
    cells = (
        row["what"], f"{figure.gpus} {row['device']}", f"{row['batch']}{parts}", row["sequence"],
        row["precision"], options, row["unit"], f"{case.measured:,.4g}",
        f"{bound.p50:,.4g} ({bound.p10:,.4g}-{bound.p90:,.4g})", f"{_error(case):+.1%}", inside,
    )  # fmt: skip
    return f"| {' | '.join(cells)} |"
