"""A metric over steps: what a log says of one run, whether the run is healthy, when a target is met."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from foretrain.errors import InvalidRequest
from foretrain.ties import ROUNDING

Floats = NDArray[np.float64]

LEAST_POINTS = 4
"""Fewer points than this say nothing of a curve that has three parameters."""
_SMALLER_IS_BETTER = re.compile(r"loss|err|wer|cer|perplexity|ppl|nll|mae|mse|rmse|bpb|bpc|divergence", re.I)
_LARGER_IS_BETTER = re.compile(r"acc|top|bleu|f1|ssim|map|auc|iou|dice|score|reward|recall|precision", re.I)
_HELD_OUT = re.compile(r"val|eval|test|dev|held", re.I)
_RECENT = 0.75
"""A best value within this last part of the log is no sign of trouble."""
_WINDOWS = 8
"""The medians that are compared cover an eighth of the log each."""
_LEAST_WINDOW = 3
"""The median of fewer points would follow a single outlier."""
_NOISES = 4.0
"""A loss of ground counts from this multiple of the noise of a window's median on."""
_PROGRESS = 0.1
"""How much of the progress made has to be lost before a run is called worse."""


class MetricDirection(StrEnum):
    """Which way a metric gets better."""

    DOWN = "down"
    UP = "up"

    @property
    def sign(self) -> float:
        """+1 where smaller is better, -1 where larger is: `sign * value` always falls."""
        return 1.0 if self is MetricDirection.DOWN else -1.0


@dataclass(frozen=True)
class Curve:
    """A metric of one run. Steps rise; `planned_steps` is where the run was to end, if that is known.

    `group` names what the run has in common with others (a submission, a folder): runs of one group are never
    taken as independent. `diverged_at` is the step from which the log holds no finite value any more.
    """

    steps: Floats
    values: Floats
    metric: str = "loss"
    direction: MetricDirection = MetricDirection.DOWN
    name: str = ""
    group: str = ""
    planned_steps: float | None = None
    settings: Mapping[str, float] = field(default_factory=dict)
    diverged_at: float | None = None

    def __post_init__(self) -> None:
        if self.steps.shape != self.values.shape or self.steps.ndim != 1:
            raise ValueError(f"{self.steps.shape} steps and {self.values.shape} values")
        if len(self.steps) and not (self.steps[0] > 0 and (np.diff(self.steps) > 0).all()):
            raise ValueError(f"steps of {self.name!r} must be above 0 and rise")

    def __len__(self) -> int:
        return len(self.steps)

    @property
    def last_step(self) -> float:
        """The last step that was logged."""
        return float(self.steps[-1])

    def until(self, step: float) -> Curve:
        """What was known after `step`."""
        seen = self.steps <= step * (1 + ROUNDING)
        return replace(self, steps=self.steps[seen], values=self.values[seen])

    def first_reaching(self, target: float) -> float:
        """The first logged step at which the metric is at least as good as `target`; infinite if none is."""
        met = np.flatnonzero(self.direction.sign * (self.values - target) <= ROUNDING * abs(target))
        return float(self.steps[met[0]]) if len(met) else math.inf

    def first_sustained(self, target: float) -> float:
        """The first logged step at which the trend is at least as good as `target`; infinite if none is.

        A lone dip does not count, nor does noise: see `trend`.
        """
        met = np.flatnonzero(self.direction.sign * (trend(self) - target) <= ROUNDING * abs(target))
        return float(self.steps[met[0]]) if len(met) else math.inf

    @property
    def best(self) -> float:
        """The best value of the log."""
        return float(self.values.min() if self.direction is MetricDirection.DOWN else self.values.max())


def curve_of(
    steps: Floats,
    values: Floats,
    metric: str = "loss",
    direction: MetricDirection | None = None,
    name: str = "",
    group: str = "",
    planned_steps: float | None = None,
    settings: Mapping[str, float] | None = None,
    zero_is_first: bool = False,
) -> Curve:
    """A curve from raw columns: rows without a value go, steps are put in order, the last of equals stays.

    NaN is a row without a value, an infinity one that is not finite: alone it goes, too; at the end of the
    log it means that the run diverged. A row at step 0 is from before training and goes; with `zero_is_first`
    (epoch 0 ends after one epoch) all rows are moved up by the first spacing instead.
    """
    steps, values = np.asarray(steps, float), np.asarray(values, float)
    there = np.isfinite(steps) & ~np.isnan(values)
    steps, values = steps[there], values[there]
    order = np.argsort(steps, kind="stable")
    steps, values = steps[order], values[order]
    last = np.append(np.diff(steps) > 0, True) if len(steps) else np.array([], bool)
    steps, values = steps[last], values[last]
    if zero_is_first and len(steps) > 1 and steps[0] == 0:
        steps = steps + float(steps[1])
    steps, values = steps[steps > 0], values[steps > 0]
    finite = np.isfinite(values)
    after_last = int(np.flatnonzero(finite)[-1]) + 1 if finite.any() else 0
    diverged_at = float(steps[after_last]) if after_last < len(steps) else None
    steps, values = steps[finite], values[finite]
    way = direction or direction_of(metric, values)
    return Curve(steps, values, metric, way, name, group, planned_steps, settings or {}, diverged_at)


def direction_of(metric: str, values: Floats) -> MetricDirection:
    """Which way a metric gets better: by its name, else by the way its log goes."""
    if _SMALLER_IS_BETTER.search(metric):
        return MetricDirection.DOWN
    if _LARGER_IS_BETTER.search(metric):
        return MetricDirection.UP
    third = max(1, len(values) // 3)
    return (
        MetricDirection.UP if np.median(values[-third:]) > np.median(values[:third]) else MetricDirection.DOWN
    )


_LEAST_SPIKE = 1e-6
"""Smaller shares of a log's range are never spikes, however smooth the log is."""


def without_spikes(curve: Curve, window: int = 5, threshold: float = 6.0) -> Curve:
    """The curve with lone spikes put back to the median of their neighbours.

    A point is a spike if it lies farther from the running median than `threshold` times the median of such
    distances near it (Hampel's filter), wholly from twice that. The last point stays: a spike there may be a
    change.
    """
    count = len(curve)
    if count < window:
        return curve
    half = window // 2
    padded = np.pad(curve.values, half, mode="reflect")
    medians = np.median(sliding_window_view(padded, window), axis=1)
    off = np.abs(curve.values - medians)
    near = np.median(sliding_window_view(np.pad(off, half, mode="reflect"), window), axis=1)
    usual = np.maximum(near, float(np.median(off)))
    allowed = threshold * usual + _LEAST_SPIKE * float(np.ptp(curve.values)) + 1e-300
    spike = np.clip(off / allowed - 1, 0.0, 1.0)
    spike[-1] = 0.0
    spike[0] = 0.0  # the start of a curve is steep, not spiky
    return replace(curve, values=curve.values + spike * (medians - curve.values))


_WIDEST = 25
"""The running median looks at most this many points to each side, in long logs too."""
_LEAST_OF_A_LINE = 7
"""Points through which the slope at the end of a log is taken, at least."""


def trend(curve: Curve) -> Floats:
    """The curve without noise: a running median, which leaves a falling curve as it is.

    The window grows with the log, to a tenth of it. At the end it would be one-sided: there a value is kept
    only as far as the straight line through the last window (Theil and Sen: the median of all slopes) agrees.
    """
    count = len(curve)
    half = min(max(1, count // 20), _WIDEST)
    if count < 2 * half + 1:
        return curve.values
    middle = np.median(sliding_window_view(curve.values, 2 * half + 1), axis=1)
    begin = np.array([np.median(curve.values[: 2 * place + 1]) for place in range(half)])
    last = max(2 * half + 1, _LEAST_OF_A_LINE)
    line = _robust_line(curve.steps[-last:], curve.values[-last:])[-half:]
    sign, end = curve.direction.sign, curve.values[-half:]
    return np.concatenate([begin, middle, sign * np.maximum(sign * end, sign * line)])


def _robust_line(steps: Floats, values: Floats) -> Floats:
    """The line of Theil and Sen at these steps."""
    first, second = np.triu_indices(len(steps), 1)
    slope = float(np.median((values[second] - values[first]) / (steps[second] - steps[first])))
    return np.asarray(np.median(values - slope * steps) + slope * steps)


def smooth(values: Floats) -> Floats:
    """Running median of three; the ends stay."""
    if len(values) < 3:
        return values
    triples = sliding_window_view(values, 3)
    return np.concatenate([values[:1], np.median(triples, axis=1), values[-1:]])


@dataclass(frozen=True)
class Target:
    """A metric and the value it is to reach."""

    metric: str
    value: float

    def __str__(self) -> str:
        return f"{self.metric}={self.value:g}"


def parse_target(text: str) -> Target:
    """The target written as `loss=0.3`."""
    metric, equals, number = text.partition("=")
    try:
        value = float(number)
    except ValueError:
        value = math.nan
    if not (metric.strip() and equals and math.isfinite(value)):
        raise InvalidRequest(f"{text!r} is not a target: write METRIC=NUMBER, e.g. loss=0.3 or accuracy=94")
    return Target(metric.strip(), value)


class Condition(StrEnum):
    """How a run is doing."""

    IMPROVING = "improving"
    DIVERGED = "diverged"
    DIVERGING = "diverging"
    OVERFITTING = "overfitting"


@dataclass(frozen=True)
class Diagnosis:
    """A condition, the step since which it holds, and a sentence that says so."""

    condition: Condition
    since_step: float
    sentence: str


def diagnose(curve: Curve) -> Diagnosis:
    """The condition of a run from its log.

    A run is getting worse where the median of its last window has lost more than four times its noise, and a
    tenth of the progress made, since the best window, that is not recent, and the last point says the same. A
    window is an eighth of the log: a few bad epochs in a row, as under a high rate, are no divergence.
    On held-out data it is called overfitting.
    """
    if curve.diverged_at is not None:
        return Diagnosis(
            Condition.DIVERGED,
            curve.diverged_at,
            f"the run diverged: {curve.metric} is not finite from step {curve.diverged_at:,.6g} on (best "
            f"{curve.best:.4g} before)",
        )
    healthy = Diagnosis(Condition.IMPROVING, curve.last_step, "")
    width = max(_LEAST_WINDOW, len(curve) // _WINDOWS)
    if len(curve) < 2 * width:
        return healthy
    medians = np.median(sliding_window_view(curve.values, width), axis=1)
    falling = curve.direction.sign * medians
    # of values as good as the best the latest counts: a plateau is no loss
    best = int(np.flatnonzero(falling <= falling.min() + ROUNDING * np.abs(falling).max())[-1])
    place = best + width // 2
    if place >= _RECENT * (len(curve) - 1):
        return healthy
    last = min(float(falling[-1]), curve.direction.sign * float(curve.values[-1]))
    lost = last - float(falling[best])
    # from one point to the next: against a running median half of the points would have no noise at all
    jumps = np.diff(curve.values)
    noise = 1.4826 * float(np.median(np.abs(jumps - np.median(jumps)))) / math.sqrt(2)
    progress = float(curve.direction.sign * curve.values[0] - falling[best])
    if lost <= (1 + ROUNDING) * max(_NOISES * noise / math.sqrt(width), _PROGRESS * progress):
        return healthy
    is_held_out = bool(_HELD_OUT.search(curve.metric))
    condition = Condition.OVERFITTING if is_held_out else Condition.DIVERGING
    since = float(curve.steps[place])
    return Diagnosis(
        condition,
        since,
        f"the run is {condition.value}: {curve.metric} was {medians[best]:.4g} at step {since:,.6g} and has "
        f"become worse since, {medians[-1]:.4g} now",
    )
