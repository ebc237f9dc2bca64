"""Charts as files. Each draws an info object that the core computed; nothing is calculated here."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from foretrain.errors import InvalidRequest, MissingData

if TYPE_CHECKING:
    from foretrain.convergence.forecast import Convergence
    from foretrain.learning.regression.learn import LearnAnswer
    from foretrain.learning.scaling.answer import ScalingAnswer
    from foretrain.measuring.watching.report import Report
    from foretrain.planning.rent_or_buy import RentOrBuy
    from foretrain.prediction.advice.scaling_curve import ScalingCurve
    from foretrain.prediction.resources.consumption import Consumption, ConsumptionAnswer
    from foretrain.prediction.resources.pairing import PairAnswer
    from foretrain.store.runs import Resource

FORMATS = (".png", ".svg", ".pdf")


def draw_rent_or_buy(answer: RentOrBuy, path: Path) -> None:
    """Cumulative cost of owning and of renting against hours of use, with the break-even marked."""
    check_format(path)
    figure, axes = new_figure()
    curves = answer.curves
    axes.plot(curves.hours, curves.own_usd, label="own", linewidth=2)
    axes.plot(curves.hours, curves.rent_usd, label="rent", linewidth=2)
    if answer.break_even_hours is not None:
        axes.axvline(answer.break_even_hours, color="0.5", linestyle=":", linewidth=1)
        axes.annotate(
            f"{answer.break_even_hours:,.0f} h",
            (answer.break_even_hours, 0),
            xytext=(6, 8),
            textcoords="offset points",
        )
    axes.set(xlabel="hours of use", ylabel="cumulative cost, USD", title="Rent or buy")
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.yaxis.set_major_formatter("${x:,.0f}")
    axes.set_xlim(left=0)
    axes.set_ylim(bottom=0)
    axes.legend(frameon=False)
    save(figure, path)


def draw_step_scaling(answer: ScalingAnswer, path: Path) -> None:
    """Step time over devices, one line with its 80 % interval for each batch size; timings as points."""
    check_format(path)
    figure, axes = new_figure()
    for batch in sorted({row.batch for row in answer.predictions}):
        rows = sorted(
            (row for row in answer.predictions if row.batch == batch),
            key=lambda row: (row.devices, row.placement),
        )
        devices = [row.devices for row in rows]
        (line,) = axes.plot(
            devices, [row.step_seconds.p50 for row in rows], marker=".", label=f"batch {batch}"
        )
        low, high = [row.step_seconds.p10 for row in rows], [row.step_seconds.p90 for row in rows]
        axes.fill_between(devices, low, high, color=line.get_color(), alpha=0.15, linewidth=0)
        timed = [(row.devices, row.timed_seconds) for row in rows if row.timed_seconds is not None]
        axes.scatter([x for x, _ in timed], [y for _, y in timed], color=line.get_color(), marker="x")
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.set(xlabel="GPUs", ylabel="seconds a step", title=f"Scaling ({answer.model.form}); x = timed")
    axes.set_ylim(bottom=0)
    axes.legend(frameon=False)
    save(figure, path)


def draw_residuals(answer: LearnAnswer, path: Path) -> None:
    """Rows that were left out: predicted over measured, and the residuals with the 80 % interval."""
    check_format(path)
    figure, _ = new_figure()
    figure.clear()
    figure.set_size_inches(9.6, 4.2)
    left, right = figure.subplots(1, 2)
    measured = [row.measured for row in answer.held_out]
    predicted = [row.predicted for row in answer.held_out]
    ends = [min(measured), max(measured)]
    left.plot(ends, ends, color="0.5", linewidth=1)
    left.plot(measured, predicted, ".", alpha=0.7)
    left.set(xscale="log", yscale="log", xlabel=f"measured {answer.target}", ylabel="predicted",
             title=f"{answer.best.technique}, rows left out ({answer.splits[0]})")  # fmt: skip
    ratios = [value / row for value, row in zip(predicted, measured, strict=True)]
    right.axhspan(1 / answer.model.p90, 1 / answer.model.p10, color="0.8", linewidth=0, label="80 % interval")
    right.axhline(1.0, color="0.5", linewidth=1)
    right.plot(measured, ratios, ".", alpha=0.7)
    right.set(xscale="log", xlabel=f"measured {answer.target}", ylabel="predicted / measured",
              title="Residuals")  # fmt: skip
    right.legend(frameon=False)
    for axes in (left, right):
        axes.grid(visible=True, alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
    save(figure, path)


def draw_scaling_curve(curve: ScalingCurve, model: str, path: Path) -> None:
    """Samples per second over devices, with perfect scaling, the knee and the best number."""
    check_format(path)
    figure, axes = new_figure()
    counts = [point.devices for point in curve.points]
    speeds = [point.samples_per_second for point in curve.points]
    perfect = [speeds[0] / counts[0] * count for count in counts]
    axes.plot(counts, perfect, color="0.6", linestyle=":", linewidth=1.5, label="perfect scaling")
    axes.plot(counts, speeds, marker="o", linewidth=2, label="predicted")
    for name, number in (("knee", curve.knee), ("best", curve.best)):
        if number is None:
            continue
        at = counts.index(number)
        offset = (0, -16) if name == "knee" else (0, 8)
        axes.annotate(
            name, (number, speeds[at]), xytext=offset, textcoords="offset points", ha="center", fontsize=9
        )
    axes.set_xscale("log", base=2)
    axes.set_yscale("log", base=2)
    axes.set_xticks(counts, [str(count) for count in counts])
    axes.yaxis.set_major_formatter("{x:,.0f}")
    fixed = "same batch in all" if curve.is_batch_fixed else "same batch for each"
    axes.set(xlabel="devices", ylabel="samples per second", title=f"Scaling of {model} ({fixed})")
    axes.legend(frameon=False)
    save(figure, path)


def draw_convergence(answer: Convergence, path: Path) -> None:
    """The log, the fan of what is to come, the target, and the steps at which it is met."""
    check_format(path)
    figure, axes = new_figure()
    fan, steps = answer.fan, answer.steps
    axes.plot(
        answer.log.steps, answer.log.values, color="0.3", marker=".", markersize=3, linewidth=1, label="log"
    )
    (line,) = axes.plot(fan.steps, fan.p50, linewidth=2, label="p50")
    axes.fill_between(
        fan.steps, fan.p10, fan.p90, color=line.get_color(), alpha=0.2, linewidth=0, label="p10 to p90"
    )
    axes.axhline(answer.target.value, color="0.5", linestyle=":", linewidth=1, label=str(answer.target))
    if steps.p50 <= answer.final_step:
        right = min(steps.p90, answer.final_step)
        axes.plot(
            [steps.p10, right], [answer.target.value] * 2, color=line.get_color(), linewidth=3, alpha=0.6
        )
        axes.plot([steps.p50], [answer.target.value], color=line.get_color(), marker="o")
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.set(xlabel=answer.unit, ylabel=answer.target.metric, title="Convergence")
    axes.legend(frameon=False)
    save(figure, path)


def draw_run(report: Report, path: Path) -> None:
    """Steps and resources of a run while it took steps; bursts are shaded, the prediction is a band."""
    from foretrain.measuring.bursts import series_of
    from foretrain.prediction.resources.bursts import within

    check_format(path)
    drawn = [(bursts, series_of(bursts, report.run.series)) for bursts in report.bursts]
    figure, _ = new_figure()
    figure.clear()
    figure.set_size_inches(8.4, 1.9 * (1 + len(drawn)))
    all_axes = figure.subplots(1 + len(drawn), 1, sharex=True, squeeze=False)[:, 0]
    _draw_steps(all_axes[0], report)
    for axes, (bursts, series) in zip(all_axes[1:], drawn, strict=True):
        scale, unit = _axis_unit(bursts.resource)
        axes.plot(series.seconds, series.values / scale, linewidth=0.8, color="C0")
        for span in bursts.spans:
            axes.axvspan(span.start, span.end, color="C1", alpha=0.25, linewidth=0)
        where = f" of node {bursts.node}" if any(each.node for each in report.bursts) else ""
        name = f"{bursts.resource.value.replace('_', ' ')} {bursts.label}".strip()
        highest = float(within(series, report.window).values.max()) / scale
        axes.set(ylabel=unit, ylim=(0, 1.1 * highest or 1.0))
        axes.set_title(f"{name}{where}: pattern {bursts.pattern.value}", fontsize=9, loc="left")
    for axes in all_axes:
        axes.grid(visible=True, alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
    if report.window is not None:
        start, end = report.window
        all_axes[-1].set_xlim(start - 0.1 * (end - start), end + 0.05 * (end - start))
    all_axes[-1].set_xlabel("seconds since the start (bursts shaded)")
    save(figure, path)


def _draw_steps(axes: Any, report: Report) -> None:
    run = report.run
    for each in run.steps:
        axes.plot(each.ends, each.seconds, ".", markersize=3, label=f"worker {each.worker}")
    if run.prediction is not None:
        made = run.prediction
        axes.axhspan(
            made.p10_seconds, made.p90_seconds, color="0.7", alpha=0.4, linewidth=0, label="predicted"
        )
    axes.set(ylabel="step, s", ylim=(0, None))
    axes.set_title("step times", fontsize=9, loc="left")
    if run.steps or run.prediction is not None:
        axes.legend(frameon=False, fontsize=8, loc="upper right", ncols=4)


def _axis_unit(resource: Resource) -> tuple[float, str]:
    """What values are divided by for the axis, and the unit there."""
    from foretrain.store.runs import UNITS

    unit = UNITS[resource]
    return {"bytes": (1e9, "GB"), "bytes/s": (1e6, "MB/s"), "share": (0.01, "%")}.get(unit, (1.0, unit))


def draw_consumption(answer: ConsumptionAnswer, path: Path) -> None:
    """Four resources of a worker over two cycles, one line for the step as asked and one for each change."""
    from foretrain.answers import Infeasible

    changed = [(each.change, each.answer) for each in answer.what_if]
    drawn = [("as asked", answer.consumption)]
    drawn += [(name, each) for name, each in changed if not isinstance(each, Infeasible)]
    _draw_cycles(drawn, answer.consumption.workload.source.name, path)


def draw_pair(answer: PairAnswer, path: Path) -> None:
    """Four resources of two jobs, each as if it were alone."""
    names = [f"{job.workload.source.name}, batch {job.batch}" for job in answer.jobs]
    _draw_cycles([*zip(names, answer.jobs, strict=True)], answer.jobs[0].cluster.name, path)


_CYCLES_DRAWN = 2


def _draw_cycles(drawn: list[tuple[str, Consumption]], title: str, path: Path) -> None:
    check_format(path)
    first = drawn[0][1]
    figure, _ = new_figure()
    figure.clear()
    figure.set_size_inches(8.4, 1.9 * len(first.resources))
    span = _CYCLES_DRAWN * max(each.cycle_seconds for _, each in drawn)
    all_axes = figure.subplots(len(first.resources), 1, sharex=True, squeeze=False)[:, 0]
    for place, (axes, resource) in enumerate(zip(all_axes, first.resources, strict=True)):
        scale, unit = _axis_unit(resource.resource)
        for name, each in drawn:
            mine = each.resources[place].resource
            series = each.cycle.signals[mine].sampled(mine, each.cycle_seconds / 200)
            kept = series.seconds <= span
            axes.plot(series.seconds[kept], series.values[kept] / scale, linewidth=1.2, label=name)
        axes.set(ylabel=unit, ylim=(0, None))
        axes.set_title(resource.name.replace("_", " "), fontsize=9, loc="left")
        axes.grid(visible=True, alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
    all_axes[-1].set_xlabel(f"seconds ({title})")
    all_axes[-1].set_xlim(0, span)
    if len(drawn) > 1:
        all_axes[0].legend(frameon=False, fontsize=8, loc="upper right", ncols=3)
    save(figure, path)


def check_format(path: Path) -> None:
    """Refuse a file whose name does not end in a known format, or whose folder does not exist."""
    if path.suffix.lower() not in FORMATS:
        raise InvalidRequest(f"cannot draw into {path.name!r}: end the name in {', '.join(FORMATS)}")
    if not path.parent.is_dir():
        raise InvalidRequest(f"cannot draw into {path}: there is no folder {path.parent}; make it first")


def new_figure() -> tuple[Any, Any]:
    """An empty figure of one chart."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingData("drawing plots needs matplotlib: pip install 'foretrain[report]'") from error
    figure = Figure(figsize=(7.2, 4.2), layout="constrained")
    axes = figure.add_subplot()
    axes.grid(visible=True, alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    return figure, axes


def save(figure: Any, path: Path) -> None:
    """Write the figure; the same figure always gives the same SVG, so that charts can be kept in git."""
    from matplotlib import rc_context

    with rc_context({"svg.hashsalt": "foretrain"}):
        figure.savefig(path, dpi=150, metadata={"Date": None} if path.suffix.lower() == ".svg" else None)
