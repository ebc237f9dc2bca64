"""How well is the memory of a training step predicted?

Three sets of published measurements, none of them made here:

* `gpumemnet/timm_training_memory`: whole-GPU peaks (`nvidia-smi` once a second) of 800 timm models trained
  with timm's `train.py` on an A100-40GB: FP32, SGD with momentum, each model's own image size, cuDNN's
  benchmark mode, prefetching loaders for training and validation. Many rows are runs that failed: their
  memory does not grow with the batch. A row counts as failed only if, besides, it is less than the tensors of
  the step plus the smallest process of the same data (1,443 MiB).
* `gpumemnet/mlp_memory_*`: 6,000 MLPs, Adam, same machine.
* `timm/benchmark-train-*`: the benchmark retries a smaller batch when memory runs out (512, 384, 256 ...), so
  the batch that ran fits into the 24 GB of an RTX 3090 and the next larger one does not.

Families (timm's source files) are split in two by a hash of their name: the constants - context, cuDNN, width
of the interval - are fitted on one half, everything is judged on the other. Only the constants are held out:
which mechanisms to model was learnt by looking at rows of both halves.
"""

from __future__ import annotations

import csv
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

from calibration.datasets.timm_models import (
    Wanted,
    architecture_family,
    failures,
    families,
    name_hash,
    sampled,
)

from foretrain.errors import MissingData
from foretrain.estimates import Quantiles
from foretrain.facts.devices import device
from foretrain.prediction.memory.estimate import (
    MemoryCalibration,
    MemoryEstimate,
    MemorySpread,
    estimate_memory,
    memory_calibration,
)
from foretrain.prediction.memory.lifetimes import uses_convolutions
from foretrain.prediction.strategies.program import MemoryOptions
from foretrain.workloads.family import Family, NotDerivable
from validation import memory_baselines, mlp_cases
from validation.report import Case, Metrics, SuiteReport, Verdicts, metrics, quantile

SUITE = "memory"
FOLDER = Path(__file__).parents[1] / "build" / "memory_suite"
MIB = 1 << 20
SATURATED_BYTES = 39_000 * MIB
SMALLEST_PROCESS_BYTES = 1_443 * MIB
MEASURED_BATCHES = (8, 16, 32, 64, 128)
LARGEST_BENCHMARK_BATCH = 512
MODELS_PER_FAMILY = 4
BRACKETS_PER_FAMILY = 1
TRACKED_PER_FAMILY = 1
MLP_EVERY = 60

OURS, TRACKED, CONSTANT = "foretrain", "MemTracker", "MemTracker + 1,500 MiB"
DEEPSPEED, ACCELERATE = "DeepSpeed's formula", "accelerate's formula"

A100_OPTIONS = MemoryOptions(tune_convolutions=True, prefetching_loaders=2)
RTX_3090_OPTIONS = MemoryOptions(tune_convolutions=True, keep_gradients=True)


@dataclass(frozen=True)
class Row:
    """A measured peak and the estimate that belongs to it."""

    model: str
    batch: int
    measured_bytes: float
    estimate: MemoryEstimate
    convolutional: bool
    parameters: int

    @property
    def family(self) -> str:
        """What the split is by."""
        return architecture_family(self.model)


@dataclass(frozen=True)
class Question:
    """Does this batch fit? What happened, and what was predicted."""

    name: str
    fitted: bool
    predicted: bool


def run(data: Path) -> SuiteReport:
    """The whole suite; the first run traces some 400 models, later ones take a minute."""
    peaks = _measured_peaks(data)
    rows = list(_timm_rows(peaks))
    finished = [row for row in rows if not _failed(row, peaks[row.model])]
    fitted_on = [row for row in finished if fits_constants(row.family)]
    judged = [row for row in finished if not fits_constants(row.family)]
    mlps = list(_mlp_rows(data))
    calibration = _fitted(fitted_on, [row for row in mlps if fits_constants(row.model)])
    cases = [_case(row, calibration) for row in judged]
    tracked = _tracked_cases(cases)
    mlp_cases_judged = [_case(row, calibration) for row in mlps if not fits_constants(row.model)]
    ours = {OURS: metrics(cases, OURS, with_interval=True)}
    refitted = [_case(row, calibration) for row in fitted_on]
    return SuiteReport(
        suite=SUITE,
        cases=tuple(cases),
        metrics={
            "timm on A100-40GB, held-out families": {**ours, **_formulas(cases)},
            "the same, one model a family, with MemTracker": _all_methods(tracked),
            "timm on A100-40GB, families fitted on": {OURS: metrics(refitted, OURS, with_interval=True)},
            "MLPs on A100-40GB": {OURS: metrics(mlp_cases_judged, OURS), **_formulas(mlp_cases_judged)},
        },
        verdicts={
            "fits into 24 GB (RTX 3090, AMP)": {OURS: _score(_brackets(data))},
            "fits into 40 GB (A100, held-out families)": {OURS: _score(_a100_questions(rows, peaks))},
        },
        notes=_notes(rows, finished, fitted_on, judged, calibration),
    )


def fits_constants(name: str) -> bool:
    """Whether this half of the families (or rows) is the one constants are fitted on."""
    return int(name_hash(name)[:8], 16) % 2 == 0


# Measurements


def _measured_peaks(data: Path) -> dict[str, dict[int, float]]:
    file = data / "gpumemnet" / "timm_training_memory_a100_40gb.csv"
    if not file.exists():
        raise MissingData(f"no {file.name} in {file.parent}; name the data folder with FORETRAIN_DATA")
    peaks: dict[str, dict[int, float]] = {}
    with file.open(newline="") as lines:
        for line in csv.DictReader(lines):
            peaks.setdefault(line["model"], {})[int(line["batch"])] = float(line["peak_mib"]) * MIB
    return peaks


def _wanted(models: Iterable[str]) -> list[Wanted]:
    return [Wanted(model, "fp32") for model in sampled(models, MODELS_PER_FAMILY)]


def _timm_rows(peaks: Mapping[str, Mapping[int, float]]) -> Iterator[Row]:
    a100 = device("a100-sxm-40gb")
    for wanted, traced in families(_wanted(peaks), FOLDER):
        for batch, measured in peaks[wanted.model].items():
            graph = traced.at({"batch": batch})
            memory = estimate_memory(graph, a100, A100_OPTIONS)
            yield Row(wanted.model, batch, measured, memory, uses_convolutions(graph), graph.parameters)


def _mlp_rows(data: Path) -> Iterator[Row]:
    a100 = device("a100-sxm-40gb")
    for mlp in mlp_cases.mlps(data, MLP_EVERY):
        graph = mlp_cases.graph(mlp)
        memory = estimate_memory(graph, a100)
        yield Row(mlp.name, mlp.batch, mlp.measured_bytes, memory, False, graph.parameters)


def _failed(row: Row, peaks: Mapping[int, float]) -> bool:
    """A run that cannot have finished, or a saturated one, whose peak says nothing."""
    if row.measured_bytes > SATURATED_BYTES:
        return True
    too_small = row.measured_bytes < row.estimate.allocated_bytes + SMALLEST_PROCESS_BYTES
    return too_small and _irregular([peaks[batch] for batch in sorted(peaks)])


def _irregular(by_batch: Sequence[float]) -> bool:
    """Whether memory somewhere fails to grow with the batch, which doubles from one row to the next."""
    if max(by_batch) > SATURATED_BYTES:
        return True
    steps = [later - earlier for earlier, later in pairwise(by_batch)]
    slowing = any(later < earlier / 2 for earlier, later in pairwise(steps))
    return slowing or min(steps) <= 0.03 * by_batch[0]


# Fitting


def _fitted(timm_rows: Sequence[Row], mlp_rows: Sequence[Row]) -> MemoryCalibration:
    """Context and cuDNN constants as medians of what is missing, then the width of what is left."""
    shipped = memory_calibration()
    context = shipped.context("ampere")
    bare = replace(shipped, contexts={"any": replace(context, bytes=0.0, convolution_bytes=0.0)})
    context_bytes_ = statistics.median(_missing(row, shipped) for row in mlp_rows)
    convolutional = [row for row in timm_rows if row.convolutional]
    more = statistics.median(_missing(row, shipped) for row in convolutional) - context_bytes_
    fitted = replace(context, bytes=context_bytes_, convolution_bytes=more)
    calibration = replace(bare, contexts={"any": fitted})
    ratios = [row.measured_bytes / _predicted(row, calibration) for row in timm_rows]
    spread = MemorySpread(quantile(ratios, 0.1), quantile(ratios, 0.9), "gpumemnet", len(ratios))
    return replace(calibration, spread=spread)


def _missing(row: Row, calibration: MemoryCalibration) -> float:
    return row.measured_bytes - (row.estimate.bytes - _context(row, calibration))


def _predicted(row: Row, calibration: MemoryCalibration) -> float:
    return row.estimate.bytes - _context(row, memory_calibration()) + _context(row, calibration)


def _context(row: Row, calibration: MemoryCalibration) -> float:
    context = calibration.context("ampere")
    return context.bytes + (context.convolution_bytes if row.convolutional else 0.0)


# Judging


def _case(row: Row, calibration: MemoryCalibration) -> Case:
    predicted = _predicted(row, calibration)
    spread = calibration.spread
    return Case(
        name=f"{row.model}@{row.batch}",
        group=row.model,
        measured=row.measured_bytes,
        predicted={
            OURS: predicted,
            DEEPSPEED: memory_baselines.deepspeed_bytes(row.parameters),
            ACCELERATE: memory_baselines.accelerate_bytes(row.parameters),
        },
        interval=Quantiles(predicted * min(1.0, spread.p10), predicted, predicted * max(1.0, spread.p90)),
    )


def _tracked_cases(cases: Sequence[Case]) -> list[Case]:
    """The cases of a few held-out models, with MemTracker's answer."""
    models = sampled({case.group for case in cases}, TRACKED_PER_FAMILY)
    peaks = memory_baselines.tracked_peaks(models, FOLDER)
    tracked = []
    for case in cases:
        if case.group in peaks:
            peak = memory_baselines.at_batch(peaks[case.group], int(case.name.rsplit("@", 1)[1]))
            answers = {TRACKED: peak, CONSTANT: peak + memory_baselines.CONSTANT_BYTES}
            tracked.append(replace(case, predicted={**case.predicted, **answers}))
    return tracked


def _formulas(cases: Sequence[Case]) -> dict[str, Metrics]:
    return {method: metrics(cases, method) for method in (DEEPSPEED, ACCELERATE)}


def _all_methods(cases: Sequence[Case]) -> dict[str, Metrics]:
    if not cases:
        return {}
    ours = metrics(cases, OURS, with_interval=True)
    others = (CONSTANT, TRACKED, DEEPSPEED, ACCELERATE)
    return {OURS: ours, **{method: metrics(cases, method) for method in others}}


def _brackets(data: Path) -> Iterator[Question]:
    """Two questions a row: the batch that ran, and the next larger one that did not.

    Another device, another precision, another year: nothing was fitted to any of these rows.
    """
    file = data / "timm" / "benchmark-train-amp-nchw-pt112-cu113-rtx3090.csv"
    with file.open(newline="") as lines:
        rows = {line["model"]: line for line in csv.DictReader(lines)}
    wanted = [
        Wanted(model, "fp16", int(rows[model]["train_img_size"]), fused_attention=False)
        for model in sampled(rows, BRACKETS_PER_FAMILY)
    ]
    rtx3090 = device("rtx3090")
    for item, traced in families(wanted, FOLDER):
        ran = int(rows[item.model]["train_batch_size"])
        for batch in (ran, next_larger_batch(ran)):
            if batch <= LARGEST_BENCHMARK_BATCH:
                memory = _memory_at(traced, batch, rtx3090.id)
                if memory is not None:
                    yield Question(f"{item.model}@{batch}", batch == ran, memory.fits)


def _memory_at(traced: Family, batch: int, device_id: str) -> MemoryEstimate | None:
    try:
        return estimate_memory(traced.at({"batch": batch}), device(device_id), RTX_3090_OPTIONS)
    except NotDerivable:
        return None


def next_larger_batch(batch: int) -> int:
    """The batch timm's benchmark tries before `batch`: 512, 384, 256, 192, 128 ... 8, 6, 4, 3, 2, 1."""
    if batch < 4:
        return batch + 1
    power = 1 << (batch.bit_length() - 1)
    return power * 3 // 2 if batch == power else power * 2


def _a100_questions(rows: Iterable[Row], peaks: Mapping[str, Mapping[int, float]]) -> Iterator[Question]:
    """Runs that finished did fit. Runs that did not, and should have needed 10 % too much by the growth of
    the two batches before, did not fit. The others say nothing."""
    for row in rows:
        if fits_constants(row.family):
            continue
        name = f"{row.model}@{row.batch}"
        if not _failed(row, peaks[row.model]):
            yield Question(name, True, row.estimate.fits)
        elif _extrapolated(peaks[row.model], row.batch) > 1.1 * row.estimate.capacity_bytes:
            yield Question(name, False, row.estimate.fits)


def _extrapolated(peaks: Mapping[int, float], batch: int) -> float:
    """m(b) ≈ m(b/2) + 2 (m(b/2) - m(b/4)); 0 if there are not two smaller batches that grow."""
    half, quarter = peaks.get(batch // 2, 0.0), peaks.get(batch // 4, 0.0)
    if not 0 < quarter < half < SATURATED_BYTES:
        return 0.0
    return half + 2 * (half - quarter)


def _score(contexts: Iterable[Question]) -> Verdicts:
    listed = list(contexts)
    return Verdicts(sum(item.fitted == item.predicted for item in listed), len(listed))


def _notes(
    rows: Sequence[Row],
    finished: Sequence[Row],
    fitted_on: Sequence[Row],
    judged: Sequence[Row],
    calibration: MemoryCalibration,
) -> tuple[str, ...]:
    context = calibration.context("any")
    worst = sorted(judged, key=lambda row: -abs(_predicted(row, calibration) / row.measured_bytes - 1))[:15]
    untraced = failures(_wanted({row.model for row in rows}), FOLDER)
    return (
        f"rows {len(rows)}, of which failed or saturated {len(rows) - len(finished)}; fitted on "
        f"{len(fitted_on)} rows of {len({row.family for row in fitted_on})} families, judged on "
        f"{len(judged)} rows of {len({row.family for row in judged})}",
        f"fitted: context {context.bytes / MIB:.0f} MiB, with convolutions "
        f"{context.convolution_bytes / MIB:.0f} MiB more, measured/predicted p10 "
        f"{calibration.spread.p10:.3f}, p90 {calibration.spread.p90:.3f}",
        *(
            f"worst: {row.model}@{row.batch} measured {row.measured_bytes / MIB:.0f} MiB, predicted "
            f"{_predicted(row, calibration) / MIB:.0f} MiB"
            for row in worst
        ),
        *(f"not traced: {reason}" for reason in untraced),
    )
