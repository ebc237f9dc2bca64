"""The buyer's guide as text: a verdict, heat maps, picks and prices."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from foretrain.planning.guide.guide import Guide, ModelGuide
from foretrain.planning.guide.machines import Machine
from foretrain.serving.cli.heat_table import Shaded, print_heat_table
from foretrain.serving.cli.terminal import Column, print_line, print_table
from foretrain.serving.guide_views import View, best_cells, has_prices, picks, reasons, value, views, written
from foretrain.units import format_money

_MOST_REASONS = 8


def show(guide: Guide, names: Sequence[str]) -> None:
    """Print the guide; `names` are views, none for the usual ones."""
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
    for note in guide.notes:
        print_line(f"Note: {note}")


def _show_view(guide: Guide, model: ModelGuide, view: View) -> None:
    best = best_cells(view, model)
    rows = [
        (
            machine.name,
            [
                Shaded(written(view, cell), value(view, cell), (cell.machine, cell.batch) in best)
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
    print_heat_table(columns, rows, view.title)


def _show_picks(guide: Guide, model: ModelGuide) -> None:
    rows = picks(guide, model)
    print_table([Column("batch", right=True), *map(Column, rows[0][1:])], rows[1:], title="Which to take")


_HEADS = {
    "time": "step", "cost": "cost", "speedup": "speed-up", "value": "delta", "memory": "memory",
    "verdict": "choke", "throughput": "samples/s", "transfer": "moved",
}  # fmt: skip
"""Views as columns; those of one batch, if none were named, are the first six."""


def _show_one_batch(guide: Guide, model: ModelGuide, names: Sequence[str]) -> None:
    """All figures of the machines side by side; what a cost is of stands above."""
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
