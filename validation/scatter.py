"""Plots of a suite: predicted against measured, a point a case; probabilities against what came true."""

from __future__ import annotations

import math
import random
from pathlib import Path

from matplotlib.figure import Figure

from validation.report import Case, SuiteReport, judged_method

_POINTS = 4000
_WITHIN = 1.25
"""The band drawn around equality: a quarter off, either way."""


def draw(report: SuiteReport, path: Path) -> None:
    """Draw the judged method of a suite; a suite without positive cases is not drawn."""
    method = judged_method(report.cases)
    shown = [case for case in report.cases if _drawable(case, method)]
    if method is None or not shown:
        return
    if len(shown) > _POINTS:
        shown = random.Random(0).sample(shown, _POINTS)
    figure = Figure(figsize=(5.4, 5.0), layout="constrained", dpi=110)
    axes = figure.add_subplot()
    for group in sorted({case.group for case in shown})[:_COLOURS]:
        points = [case for case in shown if case.group == group]
        axes.scatter(
            [case.measured for case in points],
            [case.predicted[method] for case in points],
            s=7, alpha=0.5, linewidths=0, label=group,
        )  # fmt: skip
    others = sorted({case.group for case in shown})[_COLOURS:]
    rest = [case for case in shown if case.group in others]
    if rest:
        measured, predicted = [case.measured for case in rest], [case.predicted[method] for case in rest]
        axes.scatter(measured, predicted, s=7, alpha=0.4, linewidths=0, color="0.5", label="others")
    values = [value for case in shown for value in (case.measured, case.predicted[method])]
    ends = [min(values) / 1.2, max(values) * 1.2]
    axes.plot(ends, ends, color="0.2", linewidth=1)
    axes.fill_between(ends, [e / _WITHIN for e in ends], [e * _WITHIN for e in ends], color="0.85", zorder=0)
    axes.set(
        xscale="log", yscale="log", xlim=ends, ylim=ends, xlabel="measured", ylabel="predicted",
        title=f"{report.suite}: {method} (band: within 25 %)",
    )  # fmt: skip
    axes.title.set_fontsize(9)
    axes.legend(frameon=False, fontsize=6, markerscale=2, loc="upper left")
    figure.savefig(path, metadata={"Software": None})


def draw_reliability(report: SuiteReport, path: Path) -> None:
    """Draw probabilities as stated against how often they came true; the area of a point is their number."""
    if not report.reliability:
        return
    stated, met, counts = zip(*report.reliability, strict=True)
    figure = Figure(figsize=(4.2, 4.0), layout="constrained", dpi=110)
    axes = figure.add_subplot()
    axes.plot([0, 1], [0, 1], color="0.2", linewidth=1)
    axes.plot(stated, met, linewidth=1)
    axes.scatter(stated, met, s=[120 * count / max(counts) + 8 for count in counts])
    axes.set(xlabel="stated probability", ylabel="share that came true", title=f"{report.suite}: reliability")
    axes.title.set_fontsize(9)
    figure.savefig(path, metadata={"Software": None})


_COLOURS = 10


def _drawable(case: Case, method: str | None) -> bool:
    predicted = case.predicted.get(method or "", 0.0)
    return case.measured > 0 and predicted > 0 and math.isfinite(predicted)
