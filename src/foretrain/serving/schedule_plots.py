"""The charts of a schedule as a file: who ran where, GPUs, jobs that wait, cost."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from foretrain.serving.plots import check_format, new_figure, save
from foretrain.units import DAY, HOUR, MINUTE, format_money

if TYPE_CHECKING:
    from foretrain.scheduling.accounting import Outcome
    from foretrain.scheduling.charts import Gantt, OverTime

_UNITS = ((DAY, "days"), (HOUR, "hours"), (MINUTE, "minutes"), (1.0, "seconds"))
_ON_TIME, _LATE = ("#0072b2", "#56b4e9"), ("#d55e00", "#e69f00")
_MOST_LABELS = 150


def draw_schedule(outcome: Outcome, path: Path) -> None:
    """A Gantt chart over lines of the cluster over time."""
    from foretrain.scheduling.charts import gantt, over_time

    check_format(path)
    chart, data = gantt(outcome), over_time(outcome)
    figure, _ = new_figure()
    figure.clear()
    height = min(12.0, max(2.0, 0.32 * len(chart.lanes)))
    figure.set_size_inches(10.0, height + 4.2)
    all_axes = figure.subplots(4, 1, sharex=True, height_ratios=[height, 1.2, 1.0, 1.2])
    span = max(chart.end_seconds - chart.start_seconds, 1.0)
    scale, unit = next((each for each in _UNITS if span >= 2 * each[0]), _UNITS[-1])
    _draw_lanes(all_axes[0], chart, scale)
    _draw_lines(all_axes[1:], data, scale)
    bound = "" if outcome.bound_usd is None else f", lower bound {format_money(outcome.bound_usd)}"
    title = f"{outcome.policy}: {format_money(outcome.total_usd)}{bound}; late jobs orange"
    all_axes[0].set_title(title.replace("$", r"\$"), fontsize=10, loc="left")
    all_axes[-1].set_xlabel(unit)
    save(figure, path)


def _draw_lanes(axes: Any, chart: Gantt, scale: float) -> None:
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_ylim(len(chart.lanes), 0)
    axes.set_yticks([number + 0.5 for number in range(len(chart.lanes))], [lane.name for lane in chart.lanes])
    axes.tick_params(axis="y", labelsize=7 if len(chart.lanes) <= 40 else 4)
    if chart.shares:
        axes.imshow(
            chart.shares, aspect="auto", cmap="Blues", vmin=0, vmax=1, interpolation="nearest",
            extent=(chart.start_seconds / scale, chart.end_seconds / scale, len(chart.lanes), 0),
        )  # fmt: skip
        return
    for lane, spans in enumerate(chart.on):
        for begin, end, gpus in spans:
            height = 0.92 * gpus / chart.lanes[lane].gpus
            axes.broken_barh([(begin / scale, (end - begin) / scale)], (lane + 0.04, height), color="0.85")
    numbers: dict[str, int] = {}
    span = chart.end_seconds - chart.start_seconds
    for bar in sorted(chart.bars, key=lambda each: each.start_seconds):
        number = numbers.setdefault(bar.job, len(numbers))
        per_gpu = 0.92 / chart.lanes[bar.lane].gpus
        bottom, height = bar.lane + 0.04 + bar.first_gpu * per_gpu, bar.gpus * per_gpu
        width = bar.end_seconds - bar.start_seconds
        colour = (_LATE if bar.is_late else _ON_TIME)[number % 2]
        axes.broken_barh(
            [(bar.start_seconds / scale, width / scale)], (bottom, height), color=colour, edgecolor="white",
            linewidth=0.4,
        )  # fmt: skip
        has_room = width / span > 0.011 * len(bar.job) and height > 0.3 and len(chart.bars) <= _MOST_LABELS
        if has_room:
            middle = (bar.start_seconds + width / 2) / scale
            axes.text(
                middle, bottom + height / 2, bar.job, fontsize=6, ha="center", va="center", clip_on=True
            )


def _draw_lines(all_axes: Any, data: OverTime, scale: float) -> None:
    times = [moment / scale for moment in data.seconds]
    gpus, waiting, cost = all_axes
    gpus.step(times, data.paid_gpus, where="post", label="on", color="0.6")
    gpus.step(times, data.used_gpus, where="post", label="in use", color=_ON_TIME[0])
    gpus.set_ylabel("GPUs")
    waiting.step(times, data.waiting_jobs, where="post", color=_LATE[1])
    waiting.set_ylabel("jobs waiting")
    cost.plot(times, data.spent_usd, label="nodes", color=_ON_TIME[0])
    cost.step(times, data.late_usd, where="post", label="lateness", color=_LATE[0])
    cost.set_ylabel("USD so far")
    for axes in all_axes:
        axes.grid(visible=True, alpha=0.3)
        axes.set_ylim(bottom=0)
        axes.spines[["top", "right"]].set_visible(False)
    for axes in (gpus, cost):
        if data.seconds:
            axes.legend(frameon=False, fontsize=8, loc="upper left", ncols=2)
