"""`foretrain guide`: which hardware to buy or rent for which network and batch size."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from foretrain.decoding import FILE, option, texts
from foretrain.serving.cli.frame import Command, Output, check_file, command_line, write_file
from foretrain.serving.cli.terminal import (
    Column,
    fitting,
    on_terminal,
    print_json,
    print_line,
    print_notes,
    print_table,
    spinner,
)
from foretrain.serving.requests import OUTPUT, GuideRequest
from foretrain.units import format_money

if TYPE_CHECKING:
    from foretrain.planning.guide.guide import Guide, ModelGuide
    from foretrain.planning.guide.machines import Machine
    from foretrain.serving.guide_views import View

_MOST_REASONS = 8
_HEADS = {
    "time": "step", "cost": "cost", "speedup": "speed-up", "value": "delta", "memory": "memory",
    "verdict": "choke", "throughput": "samples/s", "transfer": "moved",
}  # fmt: skip
"""Views as columns; those of one batch, if none were named, are the first six."""
_BLACK, _WHITE = 16, 231
_RAMP = (
    (231, _BLACK), (195, _BLACK), (153, _BLACK), (117, _BLACK), (75, _BLACK), (32, _BLACK),
    (25, _WHITE), (24, _WHITE), (17, _WHITE),
)  # fmt: skip
"""From pale to deep blue among the 256 colours terminals share, each with the colour of text it carries."""


@dataclass(frozen=True, kw_only=True)
class GuideOutput(Output):
    """What `guide` prints and writes."""

    show: tuple[str, ...] = option(
        texts(), "time, cost, speedup, memory, verdict; also throughput, value, transfer.", default=(),
        panel=OUTPUT, metavar="VIEWS",
    )  # fmt: skip
    html: Path | None = option(FILE, "Write the guide as one self-contained page.", panel=OUTPUT)


def run(request: GuideRequest, output: GuideOutput) -> None:
    """Fill the guide, write its page if asked for, and print it."""
    from foretrain.serving import verbs
    from foretrain.serving.guide_views import check_names

    check_names(output.show)
    check_file("--html", output.html)
    with spinner("Guide") as progress:
        answer = verbs.guide(request, progress)
    if output.html is not None:
        from datetime import date

        from foretrain.serving.html.guide_report import guide_report

        write_file("--html", output.html, guide_report(answer, command_line(), date.today().isoformat()))
    if output.json:
        print_json(answer.to_dict())
        return
    show(answer, output.show)
    if output.html is not None:
        print_line(f"Page: {output.html}")


COMMAND = Command(
    GuideRequest,
    GuideOutput,
    run,
    "Every machine trains the same global batch, divided over its devices: time, cost, speed-up, memory and "
    "bottleneck; which machine to take, and from which batch on more GPUs pay. Without --on: a CPU, and 1, "
    "2, 4 and 8 GPUs of three classes, at the cheapest current prices.",
    (
        "foretrain guide resnet50 --precision fp16 --samples 1281167",
        "foretrain guide voice-linear voice-conv --on gtx1080ti --counts 1,2,4 --strategy dp --samples 2000",
        "foretrain guide mnist-cnn resnet18 --on epyc-7742 --on rtx2080ti --counts 1,2,4,8 --html guide.html",
        "foretrain guide bert-large --on aws:g5.xlarge,aws:g5.12xlarge --batch 32..512 --show time,cost",
    ),
)


def show(guide: Guide, names: Sequence[str] = ()) -> None:
    """Print the guide; `names` are views, none for the usual ones."""
    from foretrain.serving.guide_views import reasons, views

    shown = views(guide, names)
    for model in guide.models:
        print_line(f"{model.name}: {model.summary.verdict}", "bold")
        for kind in model.summary.kinds:
            if kind.sentence != model.summary.verdict:
                print_line(f"  {kind.sentence}")
        print_line()
        if len(guide.batches) == 1:
            _show_one_batch(guide, model, names)
        else:
            for view in shown:
                _show_view(guide, model, view)
                print_line()
            _show_picks(guide, model)
        for mark, reason in reasons(guide, model)[:_MOST_REASONS]:
            print_line(f"{mark} {reason}", "dim")
        print_line()
    _show_machines(guide.machines)
    print_notes(guide.notes)


def _show_view(guide: Guide, model: ModelGuide, view: View) -> None:
    from foretrain.serving.guide_views import best_cells, value, written

    best = best_cells(view, model)
    rows = [
        (
            machine.name,
            [
                _Shaded(written(view, cell), value(view, cell), (cell.machine, cell.batch) in best)
                for cell in row
            ],
        )
        for machine, row in zip(guide.machines, model.cells, strict=True)
    ]
    columns = [
        Column("batch"),
        *(
            Column(f"{batch:,}", right=True, expendable=1 + index % 2)
            for index, batch in enumerate(guide.batches)
        ),
    ]
    _print_heat_table(columns, rows, view.title)


def _show_picks(guide: Guide, model: ModelGuide) -> None:
    from foretrain.serving.guide_views import picks

    rows = picks(guide, model)
    print_table([Column("batch", right=True), *map(Column, rows[0][1:])], rows[1:], title="Which to take")


def _show_one_batch(guide: Guide, model: ModelGuide, names: Sequence[str]) -> None:
    """All figures of the machines side by side; what a cost is of stands above."""
    from foretrain.serving.guide_views import has_prices, views, written

    shown = views(guide, names or tuple(_HEADS)[:6])
    heads = _HEADS | ({"time": "epoch"} if guide.samples else {})
    of_cost = "".join(f"; {view.title[0].lower()}{view.title[1:]}" for view in shown if view.name == "cost")
    print_table(
        [
            Column("machine"),
            Column("$/h", right=True),
            *(Column(heads[view.name], right=True) for view in shown),
        ],
        [
            (machine.name, _per_hour(machine), *(written(view, row[0]) for view in shown))
            for machine, row in zip(guide.machines, model.cells, strict=True)
        ],
        title=f"Global batch {guide.batches[0]:,}{of_cost if has_prices(guide) else ''}",
    )


def _show_machines(machines: Sequence[Machine]) -> None:
    print_table(
        [
            Column("machine"),
            Column("devices", right=True),
            Column("$/h", right=True),
            Column("offer", least=12, expendable=2),
            Column("region", least=8, expendable=3),
            Column("as of", expendable=1),
        ],
        [tuple(_facts(machine)) for machine in machines],
        title="Machines and their prices on demand",
    )


def _facts(machine: Machine) -> Iterator[str]:
    offer = machine.offer
    yield machine.name
    yield str(machine.devices)
    yield _per_hour(machine)
    yield "-" if offer is None else f"{offer.provider}:{offer.instance}"
    yield "-" if offer is None else offer.place or "-"
    yield "-" if offer is None else offer.as_of


def _per_hour(machine: Machine) -> str:
    return "no price" if machine.usd_per_hour is None else format_money(machine.usd_per_hour)


@dataclass(frozen=True, slots=True)
class _Shaded:
    """A number as it is written, its value for the colour (None: no colour), and whether it stands out."""

    text: str
    value: float | None
    is_marked: bool = False


def _print_heat_table(
    columns: Sequence[Column], rows: Sequence[tuple[str, Sequence[_Shaded]]], title: str
) -> None:
    """A row for each name; the colours run over all rows from the least value to the most."""
    texts = [(name, *(cell.text for cell in cells)) for name, cells in rows]
    if not on_terminal():
        print_table(columns, texts, title)
        return
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from foretrain.serving.html.tables import shade

    console = Console(highlight=False)
    kept = fitting(columns, texts, console.width)
    values = [cell.value for _, cells in rows for cell in cells if cell.value is not None]
    widths = [max(map(len, column)) for column in zip(*texts, strict=True)]
    table = Table(box=box.SIMPLE_HEAD, header_style="bold", padding=(0, 1, 0, 0), pad_edge=False)
    for index in kept:
        table.add_column(
            columns[index].title, justify="right" if columns[index].right else "left", no_wrap=True
        )
    for name, cells in rows:
        shown = [Text(name)]
        for index, cell in ((index, cells[index - 1]) for index in kept if index):
            style = "dim" if cell.value is None else _style(shade(cell.value, values), cell.is_marked)
            shown.append(Text(cell.text.rjust(widths[index]), style=style))
        table.add_row(*shown)
    print_line(title, "bold")
    console.print(table)
    hidden = [columns[index].title for index in range(len(columns)) if index not in kept]
    if hidden:
        print_line(f"Not shown for want of width: {', '.join(hidden)} (all of it: --json)", "dim")


def _style(level: int, is_marked: bool) -> str:
    background, foreground = _RAMP[level]
    return f"{'bold underline ' if is_marked else ''}color({foreground}) on color({background})"
