"""The buyer's guide as a page: for every model a verdict, what to take at each batch, and heat maps."""

from __future__ import annotations

from collections.abc import Iterator

from foretrain.facts.sheets import sources
from foretrain.planning.guide.cells import GuideCell
from foretrain.planning.guide.guide import Guide, ModelGuide
from foretrain.planning.guide.machines import Machine
from foretrain.serving.html.page import Markup, code, definitions, link, notes, page, paragraph, section
from foretrain.serving.html.tables import Column, HeatCell, HeatMap, heat_map, table
from foretrain.serving.views.guide import Face, _has_prices, _picks, best_cells, faces, value, written
from foretrain.serving.views.wording import between, sentence
from foretrain.units import format_duration, format_money

_SHOWN = ("time", "cost", "speedup", "value", "memory", "verdict")
_CAPTIONS = {
    "time": "The fastest machine of each batch is outlined. * in micro-batches; > at least.",
    "cost": "The cheapest machine of each batch is outlined.",
    "value": "At 1 more GPUs buy as many folds of speed as they cost; above, they are worth their price.",
    "verdict": "Network: do not add GPUs. GPU: add GPUs. Launch: give each GPU more samples first.",
}


def guide_report(guide: Guide, command: str = "", made_on: str = "") -> str:
    """The guide as one self-contained HTML page; `command` and `made_on` state its origin and date."""
    return page(
        title=f"Buyer's guide: {', '.join(model.name for model in guide.models)}",
        kicker=" · ".join(part for part in ("foretrain guide", made_on) if part),
        opening=_opening(guide),
        sections=(
            *(_model_section(guide, model) for model in guide.models),
            _machines_section(guide),
            section("Notes", notes([sentence(note) for note in guide.notes])),
        ),
        footer=_footer(command, made_on),
    )


def _opening(guide: Guide) -> tuple[str, ...]:
    """The verdict of each model, and what the tables below compare."""
    work = "" if guide.samples is None else f" of an epoch of {guide.samples:,} samples"
    about = paragraph(
        f"Every machine trains the same global batch, shared out over its devices by {guide.strategy}, so "
        f"times and costs{work} compare across a column."
    )
    if len(guide.models) == 1:
        return paragraph(sentence(guide.models[0].summary.verdict), class_="lead"), about
    verdicts = definitions([(model.name, sentence(model.summary.verdict)) for model in guide.models])
    return verdicts, about


def _model_section(guide: Guide, model: ModelGuide) -> Markup:
    shown = [view for view in faces(guide, _SHOWN) if view.name != "cost" or _has_prices(guide)]
    kinds = [kind.sentence for kind in model.summary.kinds if kind.sentence != model.summary.verdict]
    return section(
        model.name,
        notes([sentence(kind) for kind in kinds]),
        _picks_table(guide, model),
        *(_heat_map(guide, model, view) for view in shown),
    )


def _picks_table(guide: Guide, model: ModelGuide) -> Markup:
    picked = _picks(guide, model)
    columns = [Column("global batch", right=True), *(Column(each.title) for each in picked.columns[1:])]
    return table(
        columns,
        [tuple(map(str, row)) for row in picked.rows],
        label=f"What to take for {model.name}",
        class_="slim",
    )


def _heat_map(guide: Guide, model: ModelGuide, view: Face) -> Markup:
    best = best_cells(view, model)
    return heat_map(
        HeatMap(
            title=f"{model.name}: {view.title[0].lower()}{view.title[1:]}",
            corner="machine",
            across="global batch",
            unit=view.unit,
            columns=tuple(f"{batch:,}" for batch in guide.batches),
            rows=tuple(
                (machine.name, tuple(_heat_cell(view, cell, best) for cell in row))
                for machine, row in zip(guide.machines, model.cells, strict=True)
            ),
            caption=_CAPTIONS.get(view.name, ""),
        )
    )


def _heat_cell(view: Face, cell: GuideCell, best: frozenset[tuple[int, int]]) -> HeatCell:
    number = value(view, cell)
    if number is None:
        return HeatCell(None, reason=cell.reason or view.missing)
    return HeatCell(number, written(view, cell), tip=_tip(cell), is_marked=(cell.machine, cell.batch) in best)


def _tip(cell: GuideCell) -> str:
    """The whole cell in a sentence."""
    if cell.figures is None:
        return ""
    run = cell.figures.run
    step = run.step_seconds
    step_text = f"step {format_duration(step.p50)}"
    if cell.figures.is_bound:
        step_text += " at least"
    else:
        step_text += f" ({between(format_duration(step.p10), format_duration(step.p90))})"
    parts = f", in {run.micro_batches} micro-batches" if run.micro_batches > 1 else ""
    return f"{step_text}{parts}, {run.samples_per_second:,.0f} samples/s, {run.knowledge}; {run.verdict}"


def _machines_section(guide: Guide) -> Markup:
    columns = [
        Column("machine", class_="title keep"), Column("devices", right=True),
        Column("USD an hour", right=True), Column("offer"), Column("region"), Column("as of", class_="keep"),
    ]  # fmt: skip
    rows = [tuple(_facts(machine)) for machine in guide.machines]
    used = dict.fromkeys(machine.offer.source for machine in guide.machines if machine.offer)
    return section(
        "Machines and prices",
        table(columns, rows, label="Machines and prices", class_="cards"),
        notes([_cited(source) for source in used]),
    )


def _facts(machine: Machine) -> Iterator[str]:
    offer = machine.offer
    yield machine.name
    yield str(machine.devices)
    yield "no price" if machine.usd_per_hour is None else format_money(machine.usd_per_hour)
    yield "–" if offer is None else f"{offer.provider}:{offer.instance}"
    yield (offer.place if offer else "") or "–"
    yield "–" if offer is None else offer.as_of


def _cited(source: str) -> str:
    known = sources().find(source)
    return source if known is None else link(known.title, known.locator)


def _footer(command: str, made_on: str) -> tuple[str, ...]:
    made = f"Made on {made_on} by " if made_on else "Made by "
    return (paragraph(made, code(command) if command else "foretrain"),)
