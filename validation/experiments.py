"""The tables and figures of `docs/experiments.md`: `python -m validation.experiments`.

Reads the runs that two campaigns stored (`data/seeds` and `data/resources`) and writes figures to
`docs/images/experiments` and each table between its markers in the page.
"""

from __future__ import annotations

import statistics
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.figure import Figure

from foretrain.learning.resources.samples import steady_window
from foretrain.prediction.resources.bursts import bursts_of, within
from foretrain.store.exchange.parquet_files import read_parquet
from foretrain.store.runs import Resource, Run
from foretrain.units import format_duration

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "experiments.md"
IMAGES = ROOT / "docs" / "images" / "experiments"
SEEDS, RESOURCES = (ROOT / "validation" / "data" / name / "runs.parquet" for name in ("seeds", "resources"))
_STYLE: Any = {"svg.hashsalt": "foretrain", "svg.fonttype": "path", "axes.grid": True, "grid.alpha": 0.3}
_MARKERS = {"single": "o", "ddp": "s", "fsdp": "^", "ps-sync": "v", "ps-async": "D"}
_NAMES = {"voice-linear": "voice, linear", "voice-conv": "voice, convolutional",
          "mnist-cnn": "MNIST CNN", "mnist-resnet18": "MNIST ResNet-18"}  # fmt: skip


def seeds_table(runs: Sequence[Run], model: str) -> list[str]:
    """Measured and predicted steps by batch, and the throughput of two workers over that of one."""
    by_batch: dict[int, dict[int, Run]] = defaultdict(dict)
    for run in runs:
        if run.setting["model"] == model:
            by_batch[run.setting["batch"]][run.environment.nodes] = run
    lines = [
        "| batch | 1 worker | predicted | error | 2 workers | predicted | error | throughput of 2 over 1 |",
        "|--:|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for batch in sorted(by_batch):
        one, two = by_batch[batch][1], by_batch[batch][2]
        gain = 2 * _measured(one) / _measured(two)
        lines.append(f"| {batch} | {_cells(one)} | {_cells(two)} | {gain:.2f} |")
    return lines


def _cells(run: Run) -> str:
    predicted = _predicted(run)
    return f"{format_duration(_measured(run))} | {format_duration(predicted)} | {_error(run):+.0%}"


def _measured(run: Run) -> float:
    assert run.summary is not None, "only completed runs are drawn"
    return run.summary.seconds


def _predicted(run: Run) -> float:
    assert run.prediction is not None, "only predicted runs are drawn"
    return run.prediction.p50_seconds


def _error(run: Run) -> float:
    return _predicted(run) / _measured(run) - 1


def errors_table(runs: Sequence[Run], title: str, group: Callable[[Run], str]) -> list[str]:
    """Mean absolute error, bias and interval coverage of each group of runs."""
    groups: dict[str, list[Run]] = defaultdict(list)
    for run in runs:
        if run.summary is not None and run.prediction is not None:
            groups["all"].append(run)
            groups[group(run)].append(run)
    lines = [
        f"| {title} | runs | mean absolute error | median error | within p10-p90 |",
        "|---|--:|--:|--:|--:|",
    ]
    for name, members in sorted(groups.items(), key=lambda item: (item[0] == "all", item[0])):
        errors = [_error(run) for run in members]
        inside = [
            p.p10_seconds <= _measured(run) <= p.p90_seconds for run in members if (p := run.prediction)
        ]
        lines.append(
            f"| {name} | {len(members)} | {statistics.fmean(map(abs, errors)):.0%} | "
            f"{statistics.median(errors):+.0%} | {statistics.fmean(inside):.0%} |"
        )
    return lines


def draw_seeds(runs: Sequence[Run]) -> Figure:
    """Step time over batch size: measured points, predicted lines with their interval."""
    figure = Figure(figsize=(9, 7), layout="constrained")
    for axes, (model, title) in zip(figure.subplots(2, 2).flat, _NAMES.items(), strict=True):
        for workers, colour in ((1, "C0"), (2, "C1")):
            chosen = sorted(
                (run for run in runs if run.setting["model"] == model and run.environment.nodes == workers),
                key=lambda run: int(run.setting["batch"]),
            )
            batches = [run.setting["batch"] for run in chosen]
            made = [run.prediction for run in chosen if run.prediction is not None]
            axes.plot(batches, [_predicted(run) for run in chosen], color=colour, linewidth=1)
            axes.fill_between(
                batches, [each.p10_seconds for each in made], [each.p90_seconds for each in made],
                color=colour, alpha=0.12, linewidth=0,
            )  # fmt: skip
            label = f"{workers} worker{'s' if workers > 1 else ''}, measured"
            axes.plot(batches, [_measured(run) for run in chosen], "o", color=colour, label=label)
        axes.set(xscale="log", yscale="log", title=title, xlabel="batch per worker", ylabel="step, s")
    figure.axes[0].legend(frameon=False)
    return figure


def draw_errors(runs: Sequence[Run]) -> Figure:
    """Predicted over measured steps of the campaign of resources, by strategy."""
    figure = Figure(figsize=(6, 5.5), layout="constrained")
    axes = figure.subplots()
    for strategy, marker in _MARKERS.items():
        chosen = [run for run in runs if run.prediction is not None and strategy_of(run) == strategy]
        points = [_measured(run) for run in chosen], [_predicted(run) for run in chosen]
        axes.plot(*points, marker, label=strategy, markersize=4, alpha=0.8)
    ends = [0.01, 10.0]
    axes.plot(ends, ends, color="0.4", linewidth=1)
    axes.set(xscale="log", yscale="log", xlabel="measured step, s", ylabel="predicted step, s")
    axes.legend(frameon=False)
    return figure


def strategy_of(run: Run) -> str:
    """The strategy of a run, `single` for one worker."""
    return str(run.setting.get("strategy", "single"))


def draw_bursts(runs: Sequence[Run]) -> Figure:
    """CPU and transmit rate of the first worker of one model under two strategies, bursts shaded."""
    figure = Figure(figsize=(9, 5), layout="constrained")
    plots = figure.subplots(2, 2, sharex="col")
    for column, strategy in enumerate(("ddp", "ps-sync")):
        run = next(
            run for run in runs
            if strategy_of(run) == strategy and run.setting["model"] == "cifar-resnet56"
            and run.setting["network"] == "100Mbit/s" and run.environment.nodes == 2
        )  # fmt: skip
        window = steady_window(run)
        for axes, resource, scale in (
            (plots[0, column], Resource.CPU, 1.0),
            (plots[1, column], Resource.TRANSMIT, 1e6),
        ):
            series = next(each for each in run.series if each.resource is resource and each.worker == 0)
            axes.plot(series.seconds, np.asarray(series.values) / scale, linewidth=1)
            bursts = bursts_of(within(series, window))
            for span in bursts.spans if bursts is not None else ():
                axes.axvspan(span.start, span.end, color="C1", alpha=0.2, linewidth=0)
            axes.set_ylabel("cores" if resource is Resource.CPU else "MB/s sent")
        plots[0, column].set_title(f"cifar-resnet56, {strategy}, batch {run.setting['batch']}, 100 Mbit/s")
        plots[1, column].set_xlabel("s")
    return figure


def _save(figure: Figure, name: str) -> None:
    IMAGES.mkdir(parents=True, exist_ok=True)
    figure.savefig(IMAGES / f"{name}.svg", metadata={"Date": None})


def filled(page: str, tables: Mapping[str, Iterable[str]]) -> str:
    """The page with the lines of each table between its markers."""
    for name, lines in tables.items():
        start, end = f"<!-- {name} -->\n", "<!-- end -->"
        if page.count(start) != 1:
            sys.exit(f"{PAGE.name} has {page.count(start)} places for the table {name}")
        before, after = page.split(start)
        page = "".join((before, start, "\n".join(lines), "\n", end, after.partition(end)[2]))
    return page


def main() -> None:
    """Draw the figures and fill in the tables."""
    seeds, resources = read_parquet(SEEDS), read_parquet(RESOURCES)
    drawn: dict[str, Callable[[], Figure]] = {
        "seeds": lambda: draw_seeds(seeds),
        "errors": lambda: draw_errors(resources),
        "bursts": lambda: draw_bursts(resources),
    }
    with rc_context(_STYLE):
        for name, draw in drawn.items():
            _save(draw(), name)
    tables: dict[str, Any] = {model: seeds_table(seeds, model) for model in _NAMES}
    tables["errors by model"] = errors_table(seeds, "model", lambda run: str(run.setting["model"]))
    tables["errors by strategy"] = errors_table(resources, "strategy", strategy_of)
    PAGE.write_text(filled(PAGE.read_text(encoding="utf-8"), tables), encoding="utf-8")


if __name__ == "__main__":
    main()
