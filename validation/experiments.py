"""The tables and figures of `docs/experiments.md`: `python -m validation.experiments`.

Reads the runs that two campaigns stored (`data/batch_sizes` and `data/resources`) and writes figures to
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

from foretrain.learning.resources.samples import steady_window
from foretrain.prediction.resources.bursts import bursts_of, within
from foretrain.serving.rendering.charts import save_spec
from foretrain.serving.views.vega import (
    MUTED,
    PALETTE,
    ChartAxis,
    ChartLine,
    ChartQuantity,
    Spec,
    axis_over,
    figure,
    layer,
    line_layers,
)
from foretrain.store.exchange.parquet_files import read_parquet
from foretrain.store.runs import Resource, Run
from foretrain.units import format_duration

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "experiments.md"
IMAGES = ROOT / "docs" / "images" / "experiments"
BATCH_SIZES, RESOURCES = (
    ROOT / "validation" / "data" / name / "runs.parquet" for name in ("batch_sizes", "resources")
)
_SHAPES = {"single": "circle", "ddp": "square", "fsdp": "triangle-up", "ps-sync": "triangle-down",
           "ps-async": "diamond"}  # fmt: skip
_SIDE = 330
_NAMES = {"voice-linear": "voice, linear", "voice-conv": "voice, convolutional",
          "mnist-cnn": "MNIST CNN", "mnist-resnet18": "MNIST ResNet-18"}  # fmt: skip


def batch_sizes_table(runs: Sequence[Run], model: str) -> list[str]:
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


def draw_batch_sizes(runs: Sequence[Run]) -> Spec:
    """Step time over batch size: measured points, predicted lines with their interval."""
    views = []
    for model, title in _NAMES.items():
        lines = []
        for workers in (1, 2):
            chosen = sorted(
                (run for run in runs if run.setting["model"] == model and run.environment.nodes == workers),
                key=lambda run: int(run.setting["batch"]),
            )
            batches = [run.setting["batch"] for run in chosen]
            made = [run.prediction for run in chosen if run.prediction is not None]
            name = f"{workers} worker{'s' if workers > 1 else ''}"
            colour = PALETTE[workers - 1]
            lines += [
                ChartLine(name, batches, [_predicted(run) for run in chosen], colour,
                          mark={"strokeWidth": 1.25}, low=[each.p10_seconds for each in made],
                          high=[each.p90_seconds for each in made]),
                ChartLine(name, batches, [_measured(run) for run in chosen], colour, is_line=False),
            ]  # fmt: skip
        sizes = [batch for line in lines for batch in line.x]
        x = axis_over(sizes, "batch per worker", ChartQuantity.POWERS_OF_TWO, _SIDE, is_log=True)
        y = axis_over([value for line in lines for value in line.values], f"{title}: time of a step",
                      ChartQuantity.TIME, 220, is_log=True, is_vertical=True)  # fmt: skip
        views.append({"width": _SIDE, "height": 220, "layer": line_layers(lines, x, y)})
    content = {"concat": views, "columns": 2}
    return figure("Step time over batch size: points measured, lines predicted", "Four models.", content)


def draw_errors(runs: Sequence[Run]) -> Spec:
    """Predicted over measured steps of the campaign of resources, by strategy."""
    points = []
    for place, (strategy, shape) in enumerate(_SHAPES.items()):
        chosen = [run for run in runs if run.prediction is not None and strategy_of(run) == strategy]
        measured, predicted = [_measured(run) for run in chosen], [_predicted(run) for run in chosen]
        mark = {"shape": shape, "size": 30, "opacity": 0.8}
        points.append(ChartLine(strategy, measured, predicted, PALETTE[place], is_line=False, mark=mark))
    values = [value for line in points for value in (*line.x, *line.y)]
    ends = min(values) / 1.2, max(values) * 1.2
    x = ChartAxis("measured step", ChartQuantity.TIME, *ends, 420, is_log=True)
    y = ChartAxis("predicted step", ChartQuantity.TIME, *ends, 420, is_log=True, is_vertical=True)
    equal = [{"x": end, "y": end} for end in ends]
    line = layer(
        equal, {"type": "line", "color": MUTED, "strokeWidth": 1}, {"x": x.channel("x"), "y": y.channel("y")}
    )
    content = {"width": 420, "height": 420, "layer": [line, *line_layers(points, x, y)]}
    return figure("Predicted over measured steps", "Steps of the campaign by strategy.", content)


def strategy_of(run: Run) -> str:
    """The strategy of a run, `single` for one worker."""
    return str(run.setting.get("strategy", "single"))


def draw_bursts(runs: Sequence[Run]) -> Spec:
    """CPU and transmit rate of the first worker of one model under two strategies, bursts shaded."""
    columns = []
    for strategy in ("ddp", "ps-sync"):
        run = next(
            run for run in runs
            if strategy_of(run) == strategy and run.setting["model"] == "cifar-resnet56"
            and run.setting["network"] == "100Mbit/s" and run.environment.nodes == 2
        )  # fmt: skip
        window = steady_window(run)
        views = []
        for resource, scale, title in ((Resource.CPU, 1.0, "cores"), (Resource.TRANSMIT, 1e6, "MB/s sent")):
            series = next(each for each in run.series if each.resource is resource and each.worker == 0)
            line = ChartLine(title, series.seconds.tolist(), (np.asarray(series.values) / scale).tolist(),
                             PALETTE[0], mark={"strokeWidth": 1})  # fmt: skip
            is_last = resource is Resource.TRANSMIT
            x = ChartAxis("time", ChartQuantity.TIME, 0.0, max(line.x), _SIDE, has_labels=is_last)
            what = f"{strategy}, batch {run.setting['batch']}: {title}"
            y = axis_over(line.y, what, ChartQuantity.NUMBER, 150, is_vertical=True)
            bursts = bursts_of(within(series, window))
            spans = [{"x": span.start, "end": span.end} for span in (bursts.spans if bursts else ())]
            shade = {"type": "rect", "color": PALETTE[1], "opacity": 0.25}
            shaded = layer(spans, shade, {"x": x.channel("x"), "x2": {"field": "end"}})
            layers = [shaded, *line_layers([line], x, y, has_legend=False)]
            views.append({"width": _SIDE, "height": 150, "layer": layers})
        columns.append({"vconcat": views})
    return figure("cifar-resnet56 at 100 Mbit/s", "CPU and network of a worker.", {"hconcat": columns})


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
    by_batch, resources = read_parquet(BATCH_SIZES), read_parquet(RESOURCES)
    IMAGES.mkdir(parents=True, exist_ok=True)
    save_spec(draw_batch_sizes(by_batch), IMAGES / "batch_sizes.svg")
    save_spec(draw_errors(resources), IMAGES / "errors.svg")
    save_spec(draw_bursts(resources), IMAGES / "bursts.svg")
    tables: dict[str, Any] = {model: batch_sizes_table(by_batch, model) for model in _NAMES}
    tables["errors by model"] = errors_table(by_batch, "model", lambda run: str(run.setting["model"]))
    tables["errors by strategy"] = errors_table(resources, "strategy", strategy_of)
    PAGE.write_text(filled(PAGE.read_text(encoding="utf-8"), tables), encoding="utf-8")


if __name__ == "__main__":
    main()
