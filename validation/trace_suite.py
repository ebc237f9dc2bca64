"""Does every model timm was benchmarked with trace? `make validate SUITE=trace`

Takes the names in the training benchmarks of the timm project (`timm/benchmark-train-*.csv` of the data
folder), keeps those that the installed timm knows by their current or a former name, and traces one mixed-
precision training step of each at the benchmark's image size. Writes the failures with their reasons, and
the operators no rule knows, to `build/trace_suite.csv`.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from rich.console import Console
from rich.progress import track

from foretrain.errors import ForetrainError, MissingData, UnknownName
from foretrain.workloads.readers.image_libraries import TIMM, TimmModel, read_timm
from foretrain.workloads.zoo.catalogue import BuildOptions
from validation.report import SuiteReport, Verdicts

REPORT = Path(__file__).parents[1] / "build" / "trace_suite.csv"
TARGET_SHARE = 0.95
PROCESSES = 2
BATCH = 2
"""The smallest batch that works for all: batch norm over a single pixel needs two samples."""


@dataclass(frozen=True)
class Case:
    """One model of the benchmark, at the image size it was measured with."""

    model: str
    image_size: int


@dataclass(frozen=True)
class Outcome:
    """What became of a case: traced, or why not; `unknown` lists operators without a rule."""

    model: str
    traced: bool
    reason: str = ""
    unknown: str = ""


def cases(data: Path) -> tuple[Case, ...]:
    """The distinct models of all training benchmarks, by name."""
    files = sorted((data / "timm").glob("benchmark-train-*.csv"))
    if not files:
        raise MissingData(f"no timm/benchmark-train-*.csv in {data}; set FORETRAIN_DATA to the data folder")
    by_model: dict[str, Case] = {}
    for file in files:
        with file.open(newline="") as rows:
            for row in csv.DictReader(rows):
                by_model.setdefault(row["model"], Case(row["model"], int(row["train_img_size"])))
    return tuple(by_model[name] for name in sorted(by_model))


def known(all_cases: Iterable[Case]) -> Iterator[tuple[Case, TimmModel]]:
    """The cases the installed timm knows, with their sources."""
    for case in all_cases:
        try:
            yield case, read_timm(TIMM + case.model)
        except UnknownName:
            continue


def trace_case(case: Case, source: TimmModel) -> Outcome:
    """Trace one training step and derive its operators."""
    import torch

    from foretrain.workloads.options import ResolvedOptions
    from foretrain.workloads.rules import operators, unknown_names
    from foretrain.workloads.tracing.step import trace

    torch.set_num_threads(1)
    try:
        example = source.example(BuildOptions(batch=BATCH, image_size=case.image_size))
        graph = trace(example, ResolvedOptions(precision="bf16"))
        return Outcome(case.model, True, unknown=" ".join(unknown_names(operators(graph))))
    except ForetrainError as error:
        return Outcome(case.model, False, str(error))
    except Exception as error:  # noqa: BLE001 - any failure is a result of this suite
        return Outcome(case.model, False, f"{type(error).__name__}: {error}")


def trace_all(pairs: list[tuple[Case, TimmModel]]) -> list[Outcome]:
    """Trace all, two at a time."""
    with ProcessPoolExecutor(PROCESSES) as pool:
        waiting = [pool.submit(trace_case, case, source) for case, source in pairs]
        done = track(as_completed(waiting), "Tracing", total=len(waiting), console=Console(stderr=True))
        evaluations = [future.result() for future in done]
    return sorted(evaluations, key=lambda evaluation: evaluation.model)


def write(evaluations: Iterable[Outcome], report: Path) -> None:
    """Write the cases that failed or met an unknown operator."""
    report.parent.mkdir(parents=True, exist_ok=True)
    with report.open("w", newline="") as rows:
        writer = csv.DictWriter(rows, [field.name for field in fields(Outcome)])
        writer.writeheader()
        writer.writerows(
            asdict(evaluation) for evaluation in evaluations if not evaluation.traced or evaluation.unknown
        )


def run(data: Path) -> SuiteReport:
    """Trace every known model of the benchmark; the report lists those that failed, and why."""
    all_cases = cases(data)
    pairs = list(known(all_cases))
    evaluations = trace_all(pairs)
    write(evaluations, REPORT)
    traced = sum(evaluation.traced for evaluation in evaluations)
    names = f"timm names known to the installed timm ({len(evaluations)} of {len(all_cases)})"
    notes = [
        f"target: {TARGET_SHARE:.0%} traced; every step in mixed precision at the benchmark's image size"
    ]
    notes += [
        f"not traced: {evaluation.model}: {evaluation.reason}"
        for evaluation in evaluations
        if not evaluation.traced
    ]
    notes += [
        f"no rule: {evaluation.unknown} in {evaluation.model}"
        for evaluation in evaluations
        if evaluation.unknown
    ]
    verdicts = {names: {"foretrain": Verdicts(traced, len(evaluations))}}
    return SuiteReport("Tracing timm models", (), {}, verdicts, tuple(notes))
