"""How well predictions match measured runs: errors, bias, interval coverage, worst cases."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from foretrain.errors import InvalidRequest
from foretrain.store.runs import PredictionMade, Run, Status

WORST = 5


@dataclass(frozen=True, kw_only=True)
class PredictionComparison:
    """A prediction beside the measured step time of a run.

    `error` is predicted / measured - 1: positive where the prediction is too long. `inside` is whether the
    measured time lies between p10 and p90, None without an interval.
    """

    run: str
    model: str
    device: str
    setting: Mapping[str, object]
    knowledge: str
    measured_seconds: float
    predicted_seconds: float
    p10_seconds: float
    p90_seconds: float
    error: float
    inside: bool | None


@dataclass(frozen=True, kw_only=True)
class Accuracy:
    """Errors of several runs, as shares of the measured time.

    `mean`, `median` and `p90` are of absolute errors; `bias` is the median signed error; `coverage` the share
    of runs inside their 80 % interval, None if no prediction had one.
    """

    runs: int
    mean: float
    median: float
    p90: float
    bias: float
    coverage: float | None


@dataclass(frozen=True, kw_only=True)
class Validation:
    """Predictions of some runs compared: all of them, by model, by device, and those that differ most."""

    overall: Accuracy
    by_model: Mapping[str, Accuracy]
    by_device: Mapping[str, Accuracy]
    worst: tuple[PredictionComparison, ...]
    runs: tuple[PredictionComparison, ...] = field(repr=False)


def why_not_comparable(run: Run) -> str:
    """Why the run has no step time to compare with; empty if it has one."""
    if run.status is not Status.COMPLETED:
        return (
            f"the run {run.status.value}"
            if run.status is not Status.OUT_OF_MEMORY
            else "it ran out of memory"
        )
    if run.summary is None:
        return "it has no step times"
    if not (math.isfinite(run.summary.seconds) and run.summary.seconds > 0):
        return f"its step time is {run.summary.seconds:g} s"
    return ""


def compare_run(run: Run, prediction: PredictionMade) -> PredictionComparison:
    """One prediction and one run with a step time."""
    reason = why_not_comparable(run)
    if reason or run.summary is None:
        raise InvalidRequest(f"run {run.id} cannot be compared: {reason}")
    measured = run.summary.seconds
    has_interval = math.isfinite(prediction.p10_seconds) and math.isfinite(prediction.p90_seconds)
    return PredictionComparison(
        run=run.id,
        model=str(run.setting.get("model", "")),
        device=run.environment.device,
        setting=run.setting,
        knowledge=prediction.knowledge,
        measured_seconds=measured,
        predicted_seconds=prediction.p50_seconds,
        p10_seconds=prediction.p10_seconds,
        p90_seconds=prediction.p90_seconds,
        error=prediction.p50_seconds / measured - 1,
        inside=prediction.p10_seconds <= measured <= prediction.p90_seconds if has_interval else None,
    )


def accuracy(comparisons: Sequence[PredictionComparison]) -> Accuracy:
    """The figures of at least one comparison."""
    errors = [each.error for each in comparisons]
    sizes = sorted(abs(error) for error in errors)
    inside = [each.inside for each in comparisons if each.inside is not None]
    return Accuracy(
        runs=len(errors),
        mean=statistics.fmean(sizes),
        median=statistics.median(sizes),
        p90=_quantile(sizes, 0.9),
        bias=statistics.median(errors),
        coverage=sum(inside) / len(inside) if inside else None,
    )


def validation_of(comparisons: Iterable[PredictionComparison], worst: int = WORST) -> Validation | None:
    """All figures of some comparisons; None without any."""
    listed = tuple(comparisons)
    if not listed:
        return None
    return Validation(
        overall=accuracy(listed),
        by_model=_by(listed, lambda each: each.model),
        by_device=_by(listed, lambda each: each.device),
        worst=tuple(sorted(listed, key=_misfit, reverse=True)[:worst]),
        runs=listed,
    )


def _by(
    listed: Sequence[PredictionComparison], key: Callable[[PredictionComparison], str]
) -> dict[str, Accuracy]:
    groups: dict[str, list[PredictionComparison]] = {}
    for each in listed:
        groups.setdefault(key(each), []).append(each)
    return {name: accuracy(groups[name]) for name in sorted(groups)}


def _misfit(each: PredictionComparison) -> float:
    """The factor between prediction and measurement, whichever is larger: half is as wrong as double."""
    ratio = each.predicted_seconds / each.measured_seconds
    return max(ratio, 1 / ratio) if ratio > 0 else math.inf


def _quantile(ordered: Sequence[float], share: float) -> float:
    """Interpolated linearly between neighbours."""
    place = share * (len(ordered) - 1)
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (place - low) * (ordered[high] - ordered[low])
