"""The buyer's guide: for every model a verdict, tables of machines by batch, and which to take.

A `Face` is the number of a cell that a table shows, and how it is written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from foretrain.errors import UnknownName
from foretrain.planning.guide.cells import Blank, CellFigures, GuideCell, Machine
from foretrain.planning.guide.guide import Guide, ModelGuide
from foretrain.serving.views import blocks
from foretrain.serving.views.blocks import Block, Break, Column, Heading, Page, Sentence, Table, Tone
from foretrain.serving.views.plan_report import cell_of_source
from foretrain.serving.views.wording import amount, between, notes, sentence
from foretrain.units import format_bytes, format_duration, format_money

_MOST_REASONS = 8
_HEADS = {
    "time": "step", "cost": "cost", "speedup": "speed-up", "value": "delta", "memory": "memory",
    "verdict": "choke", "throughput": "samples/s", "transfer": "moved",
}  # fmt: skip
"""Faces as columns; those of one batch, if none were named, are the first six."""
_IN_REPORTS = ("time", "cost", "speedup", "value", "memory", "verdict")
_CAPTIONS = {
    "time": "The fastest machine of each batch is outlined. * in micro-batches; > at least.",
    "cost": "The cheapest machine of each batch is outlined.",
    "value": "At 1 more GPUs buy as many folds of speed as they cost; above, they are worth their price.",
    "verdict": "Network: do not add GPUs. GPU: add GPUs. Launch: give each GPU more samples first.",
}
NO_PRICE = "no current offer for this machine"
_TINY_USD = 1e-4
"""Below this, the cost of a thousand times the work is shown."""
_SHORT = {Blank.UNEVEN: "-", Blank.MEMORY: "no fit", Blank.UNKNOWN: "?"}


def guide_page(guide: Guide, show: Sequence[str] = ()) -> Page:
    """The guide; `show` names faces of its cells, none for the default ones."""
    title = f"Buyer's guide: {', '.join(model.name for model in guide.models)}"
    return Page.of(title, _blocks(guide, show))


def guide_report(guide: Guide) -> Page:
    """The guide with more faces, every reason for a blank cell, and the sources of prices."""
    title = f"Buyer's guide: {', '.join(model.name for model in guide.models)}"
    return Page.of(title, _report(guide))


def _report(guide: Guide) -> Iterator[Block]:
    if len(guide.models) == 1:
        yield Heading(sentence(guide.models[0].summary.verdict))
    else:
        yield blocks.Figures(
            [blocks.Figure(model.name, sentence(model.summary.verdict)) for model in guide.models]
        )
    work = "" if guide.samples is None else f" of an epoch of {guide.samples:,} samples"
    yield Sentence(
        f"Every machine trains the same global batch, shared out over its devices by {guide.strategy}, so "
        f"times and costs{work} compare across a column."
    )
    for model in guide.models:
        yield Heading(model.name, level=2)
        kinds = [kind.sentence for kind in model.summary.kinds if kind.sentence != model.summary.verdict]
        yield notes(map(sentence, kinds))
        yield _picks(guide, model)
        for face in faces(guide, _IN_REPORTS):
            if face.name != "cost" or _has_prices(guide):
                yield _face_table(guide, model, face)
    yield Heading("Machines and prices", level=2)
    yield _machines(guide.machines)
    used = dict.fromkeys(machine.offer.source for machine in guide.machines if machine.offer)
    if used:
        yield Table([Column("source of the prices")], [(cell_of_source(source),) for source in used])
    if guide.notes:
        yield Heading("Notes", level=2)
        yield notes(map(sentence, guide.notes))


def _blocks(guide: Guide, names: Sequence[str]) -> Iterator[Block]:
    for model in guide.models:
        yield Heading(f"{model.name}: {model.summary.verdict}")
        for kind in model.summary.kinds:
            if kind.sentence != model.summary.verdict:
                yield Sentence(kind.sentence, indent=1)
        yield Break()
        if len(guide.batches) == 1:
            yield _one_batch(guide, model, names)
        else:
            for face in faces(guide, names):
                yield _face_table(guide, model, face)
                yield Break()
            yield _picks(guide, model)
        for mark, reason in _reasons(guide, model)[:_MOST_REASONS]:
            yield Sentence(f"{mark} {reason}", Tone.MINOR)
        yield Break()
    yield _machines(guide.machines)
    yield notes(guide.notes)


def _face_table(guide: Guide, model: ModelGuide, face: Face) -> Table:
    """A number of all cells, shaded by its size; the best machine of each batch is marked."""
    best = best_cells(face, model)
    return Table(
        [
            Column("batch"),
            *(
                Column(f"{batch:,}", right=True, expendable=1 + index % 2)
                for index, batch in enumerate(guide.batches)
            ),
        ],
        [
            (
                machine.name,
                *(
                    blocks.Cell(
                        written(face, cell),
                        value(face, cell),
                        tip=_tip(face, cell),
                        is_marked=(cell.machine, cell.batch) in best,
                    )
                    for cell in row
                ),
            )
            for machine, row in zip(guide.machines, model.cells, strict=True)
        ],
        face.title,
        shade=face.unit,
        caption=_CAPTIONS.get(face.name, ""),
    )


def _tip(face: Face, cell: GuideCell) -> str:
    """The whole cell in a sentence, or why it is blank."""
    if cell.figures is None or value(face, cell) is None:
        return cell.reason or face.missing
    run = cell.figures.run
    step = run.step_seconds
    step_text = f"step {format_duration(step.p50)}"
    if cell.figures.is_bound:
        step_text += " at least"
    else:
        step_text += f" ({between(format_duration(step.p10), format_duration(step.p90))})"
    parts = f", in {run.micro_batches} micro-batches" if run.micro_batches > 1 else ""
    return f"{step_text}{parts}, {run.samples_per_second:,.0f} samples/s, {run.knowledge}; {run.verdict}"


def _one_batch(guide: Guide, model: ModelGuide, names: Sequence[str]) -> Table:
    """All figures of the machines side by side; what a cost is of stands above."""
    shown = faces(guide, names or tuple(_HEADS)[:6])
    heads = _HEADS | ({"time": "epoch"} if guide.samples else {})
    of_cost = "".join(f"; {face.title[0].lower()}{face.title[1:]}" for face in shown if face.name == "cost")
    return Table(
        [
            Column("machine"),
            Column("$/h", right=True),
            *(Column(heads[face.name], right=True) for face in shown),
        ],
        [
            (machine.name, _per_hour(machine), *(written(face, row[0]) for face in shown))
            for machine, row in zip(guide.machines, model.cells, strict=True)
        ],
        title=f"Global batch {guide.batches[0]:,}{of_cost if _has_prices(guide) else ''}",
    )


def _machines(machines: Sequence[Machine]) -> Table:
    return Table(
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


# ---------------------------------------------------------------- faces of a cell


@dataclass(frozen=True)
class Face:
    """One number of every cell. `pick` names which pick of a batch is the best cell of its column."""

    name: str
    title: str
    unit: str
    value: Callable[[CellFigures], float | None]
    text: Callable[[CellFigures], str]
    pick: str = ""
    missing: str = ""


def _time(guide: Guide) -> Face:
    def seconds(figures: CellFigures) -> float:
        return figures.run.step_seconds.p50 if figures.epoch is None else figures.epoch.seconds.p50

    def text(figures: CellFigures) -> str:
        marks = (">" if figures.is_bound else "", "*" if figures.run.micro_batches > 1 else "")
        return marks[0] + format_duration(seconds(figures)) + marks[1]

    samples = guide.samples
    title = "Time of a step" if samples is None else f"Time of an epoch of {samples:,} samples"
    return Face("time", title, "time", seconds, text, "fastest")


def _throughput(_: Guide) -> Face:
    return Face(
        "throughput", "Samples per second", "samples/s",
        lambda figures: figures.run.samples_per_second,
        lambda figures: f"{'<' if figures.is_bound else ''}{figures.run.samples_per_second:,.0f}",
        "fastest",
    )  # fmt: skip


def _cost(guide: Guide) -> Face:
    def usd(figures: CellFigures) -> float | None:
        epoch = figures.usd_per_epoch
        one = figures.usd_per_million_samples if epoch is None else epoch.p50
        return None if one is None else times * one

    def text(figures: CellFigures) -> str:
        cost = usd(figures)
        return "no price" if cost is None else f"${amount(cost)}"

    times = 1
    shown = [cell.figures for model in guide.models for row in model.cells for cell in row if cell.figures]
    costs = [cost for figures in shown if (cost := usd(figures)) is not None]
    times = 1000 if costs and min(costs) < _TINY_USD else 1
    if guide.samples is None:
        work = "a million samples" if times == 1 else "a billion samples"
    else:
        work = f"{'an epoch' if times == 1 else '1,000 epochs'} of {guide.samples:,} samples"
    return Face("cost", f"Cost of {work}", "USD", usd, text, "cheapest", NO_PRICE)


def _speedup(_: Guide) -> Face:
    return Face(
        "speedup", "Speed-up against one device of the kind", "times as fast",
        lambda figures: figures.speedup,
        lambda figures: _number(figures.speedup),
        missing="no prediction for a single device",
    )  # fmt: skip


def _value(_: Guide) -> Face:
    return Face(
        "value", "Speed-up per fold of cost against one device (more pay from 1 on)", "delta",
        lambda figures: figures.speedup_per_fold_of_cost,
        lambda figures: _number(figures.speedup_per_fold_of_cost),
        missing="no prediction for a single device",
    )  # fmt: skip


def _memory(_: Guide) -> Face:
    return Face(
        "memory", "Memory of the fullest device", "memory",
        lambda figures: figures.run.memory_bytes,
        lambda figures: format_bytes(figures.run.memory_bytes) + "*" * (figures.run.micro_batches > 1),
    )  # fmt: skip


def _transfer(guide: Guide) -> Face:
    def moved(figures: CellFigures) -> float:
        return figures.run.moved_bytes if figures.epoch is None else figures.epoch.moved_bytes

    work = "a step" if guide.samples is None else f"an epoch of {guide.samples:,} samples"
    title = f"Bytes moved between devices in {work}"
    return Face("transfer", title, "bytes", moved, lambda figures: format_bytes(moved(figures)))


def _verdict(_: Guide) -> Face:
    return Face(
        "verdict", "What sets the pace: the choke", "time of exchanges over computing",
        lambda figures: figures.run.coordination_ratio,
        lambda figures: figures.choke.removesuffix(" choke"),
    )  # fmt: skip


_MAKERS: dict[str, Callable[[Guide], Face]] = {
    "time": _time, "cost": _cost, "speedup": _speedup, "memory": _memory, "verdict": _verdict,
    "throughput": _throughput, "value": _value, "transfer": _transfer,
}  # fmt: skip
NAMES = tuple(_MAKERS)
USUAL = NAMES[:5]


def faces(guide: Guide, names: Sequence[str] = ()) -> tuple[Face, ...]:
    """The faces of these names, or the default ones: cost only where there is a price."""
    check_names(names)
    usual = [name for name in USUAL if name != "cost" or _has_prices(guide)]
    return tuple(_MAKERS[name](guide) for name in dict.fromkeys(names or usual))


def check_names(names: Sequence[str]) -> None:
    """Refuse what is no face."""
    for name in names:
        if name not in _MAKERS:
            raise UnknownName("view", name, NAMES, f"Views: {', '.join(NAMES)}")


def written(face: Face, cell: GuideCell) -> str:
    """A cell as it is written."""
    if cell.figures is not None:
        return face.text(cell.figures)
    return "" if cell.blank is None else _SHORT[cell.blank]


def value(face: Face, cell: GuideCell) -> float | None:
    """The number a cell shows."""
    return None if cell.figures is None else face.value(cell.figures)


def best_cells(face: Face, model: ModelGuide) -> frozenset[tuple[int, int]]:
    """The best machine of each batch by a view, as (machine, batch)."""
    if not face.pick:
        return frozenset()
    best = ((getattr(pick, face.pick), pick.batch) for pick in model.summary.picks)
    return frozenset((machine, batch) for machine, batch in best if machine is not None)


def _picks(guide: Guide, model: ModelGuide) -> Table:
    """Which machine to take at each batch; without prices only the fastest."""
    criteria = ("fastest", "cheapest", "best_value") if _has_prices(guide) else ("fastest",)

    def name(place: int | None) -> str:
        return "-" if place is None else guide.machines[place].name

    return Table(
        [Column("batch", right=True), *(Column(each.replace("_", " ")) for each in criteria)],
        [
            (f"{pick.batch:,}", *(name(getattr(pick, each)) for each in criteria))
            for pick in model.summary.picks
        ],
        title="Which to take",
    )


def _has_prices(guide: Guide) -> bool:
    """Whether any of the machines has a price."""
    return any(machine.offer is not None for machine in guide.machines)


def _reasons(guide: Guide, model: ModelGuide) -> tuple[tuple[str, str], ...]:
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
