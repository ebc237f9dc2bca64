"""The faces of a cell of the buyer's guide: which number it shows, and how that is written on all fronts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from foretrain.errors import UnknownName
from foretrain.planning.guide.cells import Blank, Cell, Figures
from foretrain.planning.guide.guide import Guide, ModelGuide
from foretrain.units import format_bytes, format_duration, format_money

NO_PRICE = "no current offer for this machine"
_TINY_USD = 1e-4
"""Below this, the cost of a thousand times the work is shown."""
_SHORT = {Blank.UNEVEN: "-", Blank.MEMORY: "no fit", Blank.UNKNOWN: "?"}


@dataclass(frozen=True)
class View:
    """One number of every cell. `pick` names which pick of a batch is the best cell of its column."""

    name: str
    title: str
    unit: str
    value: Callable[[Figures], float | None]
    text: Callable[[Figures], str]
    pick: str = ""
    missing: str = ""


def _time(guide: Guide) -> View:
    def seconds(figures: Figures) -> float:
        return figures.run.step_seconds.p50 if figures.epoch is None else figures.epoch.seconds.p50

    def text(figures: Figures) -> str:
        marks = (">" if figures.is_bound else "", "*" if figures.run.micro_batches > 1 else "")
        return marks[0] + format_duration(seconds(figures)) + marks[1]

    samples = guide.samples
    title = "Time of a step" if samples is None else f"Time of an epoch of {samples:,} samples"
    return View("time", title, "time", seconds, text, "fastest")


def _throughput(_: Guide) -> View:
    return View(
        "throughput", "Samples per second", "samples/s",
        lambda figures: figures.run.samples_per_second,
        lambda figures: f"{'<' if figures.is_bound else ''}{figures.run.samples_per_second:,.0f}",
        "fastest",
    )  # fmt: skip


def _cost(guide: Guide) -> View:
    def usd(figures: Figures) -> float | None:
        epoch = figures.usd_per_epoch
        one = figures.usd_per_million_samples if epoch is None else epoch.p50
        return None if one is None else times * one

    def text(figures: Figures) -> str:
        cost = usd(figures)
        return "no price" if cost is None else format_money(cost)

    times = 1
    shown = [cell.figures for model in guide.models for row in model.cells for cell in row if cell.figures]
    costs = [cost for figures in shown if (cost := usd(figures)) is not None]
    times = 1000 if costs and min(costs) < _TINY_USD else 1
    if guide.samples is None:
        work = "a million samples" if times == 1 else "a billion samples"
    else:
        work = f"{'an epoch' if times == 1 else '1,000 epochs'} of {guide.samples:,} samples"
    return View("cost", f"Cost of {work}", "USD", usd, text, "cheapest", NO_PRICE)


def _speedup(_: Guide) -> View:
    return View(
        "speedup", "Speed-up against one device of the kind", "times as fast",
        lambda figures: figures.speedup,
        lambda figures: _number(figures.speedup),
        missing="no prediction for a single device",
    )  # fmt: skip


def _value(_: Guide) -> View:
    return View(
        "value", "Speed-up per fold of cost against one device (more pay from 1 on)", "delta",
        lambda figures: figures.speedup_per_fold_of_cost,
        lambda figures: _number(figures.speedup_per_fold_of_cost),
        missing="no prediction for a single device",
    )  # fmt: skip


def _memory(_: Guide) -> View:
    return View(
        "memory", "Memory of the fullest device", "memory",
        lambda figures: figures.run.memory_bytes,
        lambda figures: format_bytes(figures.run.memory_bytes) + "*" * (figures.run.micro_batches > 1),
    )  # fmt: skip


def _transfer(guide: Guide) -> View:
    def moved(figures: Figures) -> float:
        return figures.run.moved_bytes if figures.epoch is None else figures.epoch.moved_bytes

    work = "a step" if guide.samples is None else f"an epoch of {guide.samples:,} samples"
    title = f"Bytes moved between devices in {work}"
    return View("transfer", title, "bytes", moved, lambda figures: format_bytes(moved(figures)))


def _verdict(_: Guide) -> View:
    return View(
        "verdict", "What sets the pace: the choke", "time of exchanges over computing",
        lambda figures: figures.run.coordination_ratio,
        lambda figures: figures.choke.removesuffix(" choke"),
    )  # fmt: skip


_MAKERS: dict[str, Callable[[Guide], View]] = {
    "time": _time, "cost": _cost, "speedup": _speedup, "memory": _memory, "verdict": _verdict,
    "throughput": _throughput, "value": _value, "transfer": _transfer,
}  # fmt: skip
NAMES = tuple(_MAKERS)
USUAL = NAMES[:5]


def views(guide: Guide, names: Sequence[str] = ()) -> tuple[View, ...]:
    """The views of these names, or the usual ones: cost only where there is a price."""
    check_names(names)
    usual = [name for name in USUAL if name != "cost" or has_prices(guide)]
    return tuple(_MAKERS[name](guide) for name in dict.fromkeys(names or usual))


def check_names(names: Sequence[str]) -> None:
    """Refuse what is no view."""
    for name in names:
        if name not in _MAKERS:
            raise UnknownName("view", name, NAMES, f"Views: {', '.join(NAMES)}")


def written(view: View, cell: Cell) -> str:
    """A cell as it is written."""
    if cell.figures is not None:
        return view.text(cell.figures)
    return "" if cell.blank is None else _SHORT[cell.blank]


def value(view: View, cell: Cell) -> float | None:
    """The number a cell shows."""
    return None if cell.figures is None else view.value(cell.figures)


def best_cells(view: View, model: ModelGuide) -> frozenset[tuple[int, int]]:
    """The best machine of each batch by a view, as (machine, batch)."""
    if not view.pick:
        return frozenset()
    best = ((getattr(pick, view.pick), pick.batch) for pick in model.summary.picks)
    return frozenset((machine, batch) for machine, batch in best if machine is not None)


def picks(guide: Guide, model: ModelGuide) -> tuple[tuple[str, ...], ...]:
    """Which machine to take at each batch, under a row of heads; without prices only the fastest."""
    criteria = ("fastest", "cheapest", "best_value") if has_prices(guide) else ("fastest",)

    def name(place: int | None) -> str:
        return "-" if place is None else guide.machines[place].name

    heads = ("batch", *(each.replace("_", " ") for each in criteria))
    rows = (
        (f"{pick.batch:,}", *(name(getattr(pick, each)) for each in criteria)) for pick in model.summary.picks
    )
    return heads, *rows


def has_prices(guide: Guide) -> bool:
    """Whether any of the machines has a price."""
    return any(machine.offer is not None for machine in guide.machines)


def reasons(guide: Guide, model: ModelGuide) -> tuple[tuple[str, str], ...]:
    """Why cells are blank: the mark in the cell, and the reason with the machines it applies to."""
    machines: dict[tuple[str, str], list[str]] = {}
    for machine, row in zip(guide.machines, model.cells, strict=True):
        for cell in row:
            if cell.blank is not None:
                names = machines.setdefault((_SHORT[cell.blank], cell.reason), [])
                if machine.name not in names:
                    names.append(machine.name)
    return tuple((mark, f"{reason} ({', '.join(names)})") for (mark, reason), names in machines.items())


def _number(value: float | None) -> str:
    return "?" if value is None else f"{value:.2f}"
