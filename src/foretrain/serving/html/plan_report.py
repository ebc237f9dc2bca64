"""The report of a plan: what to rent, what it is chosen from, what it consists of, and its sources."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator

from foretrain.facts.offers import Offer
from foretrain.facts.sheets import Source, sources
from foretrain.planning.frontier import Frontier, TwoPhases
from foretrain.planning.job_stream import JobStream
from foretrain.prediction.answer import Prediction
from foretrain.serving.html.job_sections import job_section, memory_section, scaling_section, step_section
from foretrain.serving.html.page import (
    KeyFigure,
    Markup,
    code,
    definitions,
    element,
    join,
    key_figures,
    link,
    notes,
    page,
    paragraph,
    ranged,
    section,
)
from foretrain.serving.html.plan_front import exclusions_section, front_section, losers_section
from foretrain.serving.html.tables import Cell, Column, table
from foretrain.serving.rendering.html import chart_figure
from foretrain.serving.views import plan as words
from foretrain.serving.views.charts import front_chart
from foretrain.serving.views.wording import SPACE, amount, between, percent, probability, sentence, together
from foretrain.units import format_bytes, format_duration, format_money


def plan_report(frontier: Frontier, command: str = "", made_on: str = "") -> str:
    """The plan as one self-contained HTML page; `command` and `made_on` state its origin and date."""
    return page(
        title=f"What to rent to train {frontier.model}",
        kicker=" · ".join(part for part in ("foretrain plan", made_on) if part),
        opening=(_answer(frontier), _figures(frontier)),
        sections=(
            front_section(frontier, Markup(chart_figure(front_chart(frontier, words.machines_of)))),
            two_phases_section(frontier.two_phases),
            job_section(frontier.job),
            *_step(frontier.prediction),
            job_stream_section(frontier.job_stream),
            losers_section(frontier),
            exclusions_section(frontier.excluded),
            _notes(frontier),
            sources_section(frontier),
        ),
        footer=_footer(frontier, command, made_on),
    )


def _step(prediction: Prediction | None) -> tuple[Markup, ...]:
    """What the chosen plan's step consists of, where that was predicted in full."""
    if prediction is None:
        return ()
    curve = prediction.parallelism.scaling
    return step_section(prediction), memory_section(prediction), scaling_section(curve)


def _answer(frontier: Frontier) -> Markup:
    """The answer in a sentence or two."""
    plan = frontier.plans[frontier.reported]
    region = words.where(plan)
    where = (" in ", element("span", region, class_="keep")) if region else ()
    kind = "spot" if plan.spot else "on demand"
    what = (element("strong", words.machines_of(plan)), f" ({words.gpus(plan)}) {kind}", *where)
    seconds, usd = plan.seconds, plan.usd
    outcome = (
        f": {frontier.model} trains in {together(format_duration(seconds.p50))} "
        f"({between(format_duration(seconds.p10), format_duration(seconds.p90))}) for "
        f"{format_money(usd.p50)} ({format_money(usd.p10)} to {format_money(usd.p90)}). "
        f"{words._limits(frontier, plan)}"
    )
    if frontier.meets_limits:
        return paragraph("Rent ", *what, outcome, class_="lead")
    return paragraph(
        "Nothing is expected to keep these limits. The nearest is ", *what, outcome, class_="lead missed"
    )


def _figures(frontier: Frontier) -> Markup:
    plan = frontier.plans[frontier.reported]
    figures = [
        KeyFigure("time", format_duration(plan.seconds.p50), ranged(words.between_times(plan.seconds))),
        KeyFigure("money", format_money(plan.usd.p50), ranged(words.between_money(plan.usd))),
    ]
    if frontier.deadline_seconds is not None or frontier.budget_usd is not None:
        figures.append(KeyFigure("chance", probability(plan.both), _kept(frontier)))
    if plan.kwh is not None:
        emitted = "" if plan.co2_kg is None else f"{amount(plan.co2_kg)} kg of CO2"
        figures.append(KeyFigure("energy", f"{amount(plan.kwh)} kWh", emitted))
    if frontier.prediction is not None:
        memory = frontier.prediction.memory
        room = f"of {format_bytes(memory.capacity_bytes)} on each GPU"
        figures.append(KeyFigure("memory", format_bytes(memory.bytes.p50), room))
    return key_figures(figures)


def _kept(frontier: Frontier) -> str:
    deadline, budget = frontier.deadline_seconds, frontier.budget_usd
    kept = [format_duration(deadline)] if deadline is not None else []
    kept += [format_money(budget)] if budget is not None else []
    return f"to keep {' and '.join(kept)}"


def _notes(frontier: Frontier) -> Markup:
    of_step = () if frontier.prediction is None else frontier.prediction.notes
    remarks = (*frontier.notes, *of_step, *frontier.job.notes)
    return section("Notes", notes([sentence(note) for note in remarks]))


def _footer(frontier: Frontier, command: str, made_on: str) -> tuple[str, ...]:
    made = f"Made on {made_on}" if made_on else "Made"
    by = (f"{made} by ", code(command)) if command else (f"{made} by foretrain",)
    compared = f", which compared {frontier.considered:,} combinations of machines, strategy and batch size."
    return (paragraph(*by, compared),)


def two_phases_section(two: TwoPhases | None) -> Markup:
    """The plan of two phases, where it wins, and by how much."""
    if two is None:
        return Markup("")
    columns = [
        Column("phase"), Column("machines", class_="name title"), Column("GPUs", class_="keep"),
        Column("of the training", right=True), Column("time", right=True), Column("billed", right=True),
        Column("cost", right=True),
    ]  # fmt: skip
    whole = two.plan.phases[-1].last_step
    rows = [
        (
            name,
            Cell(words.machines_of(plan), minor=words.renting(plan)),
            words.gpus(plan),
            f"{percent(phase.first_step / whole)} – {percent(phase.last_step / whole)}",
            format_duration(phase.seconds),
            format_duration(phase.billed_seconds),
            format_money(phase.usd),
        )
        for name, plan, phase in zip(("first", "then"), (two.first, two.second), two.plan.phases, strict=True)
    ]
    hand_over = format_money(two.plan.hand_over_usd)
    if two.plan.hand_over_usd:
        rows.append(("hand-over", Cell(""), "", "", "", "", hand_over))
    total = ("total", "", "", "", format_duration(two.plan.seconds), "", format_money(two.plan.usd))
    return section(
        "In two phases",
        paragraph(
            f"Moving from {words.machines_of(two.first)} to {words.machines_of(two.second)} after "
            f"{percent(two.switch_share)} of the training {_gain(two)} against the best single plan."
            f"{_bend(two)}{f' {sentence(two.note)}' if two.note else ''}"
        ),
        table(columns, rows, footer=total, class_="cards"),
    )


def job_stream_section(stream: JobStream | None) -> Markup:
    """Rent or buy, where the number of jobs a year is known."""
    if stream is None:
        return Markup("")
    years = stream.break_even_years
    entries = [
        (
            "busy",
            f"{stream.hours_per_year.p50:,.0f} h a year ({percent(stream.utilisation, 1)} of the machines)",
        ),
        ("machines", f"{stream.machines:,} in {stream.sets:,} {'set' if stream.sets == 1 else 'sets'}"),
        ("rent", f"{format_money(stream.rent_usd_per_year.p50)} a year"),
        ("price of a set", f"{format_money(stream.price_usd)}: {stream.price_source}"),
        ("breaks even after", _years(years.p50, years.p10, years.p90)),
    ]
    return section(
        "Rent or buy",
        paragraph(sentence(stream.verdict)),
        definitions(entries),
        notes(stream.notes),
    )


def _gain(two: TwoPhases) -> str:
    """`saves $4.20 and 1h 10m`, or one at the expense of the other."""
    saved = [format_money(two.saved_usd)] if two.saved_usd > 0 else []
    saved += [format_duration(two.saved_seconds)] if two.saved_seconds > 0 else []
    gain = f"saves {' and '.join(saved)}"
    if two.saved_usd < 0:
        gain += f" for {format_money(-two.saved_usd)} more"
    if two.saved_seconds < 0:
        gain += f" and takes {format_duration(-two.saved_seconds)} longer"
    return gain


def _bend(two: TwoPhases) -> str:
    share = two.flattens_at_share
    return "" if share is None else f" The loss curve flattens after {percent(share)} of it."


def _years(middle: float, low: float, high: float) -> str:
    if math.isinf(middle):
        return "never"
    until = "never" if math.isinf(high) else f"{high:,.1f}"
    return f"{middle:,.1f} years ({between(f'{low:,.1f}', until)})"


def sources_section(frontier: Frontier) -> Markup:
    """Prices by provider, then everything else by what it says."""
    offers = [plan.offer for plan in frontier.plans]
    columns = [
        Column("prices of (plans)", class_="title"), Column("as of", class_="keep"), Column("source"),
        Column("read on", class_="keep"),
    ]  # fmt: skip
    return section(
        "Sources", table(columns, list(_prices(offers)), class_="cards"), definitions(list(_others(frontier)))
    )


def _prices(offers: list[Offer]) -> Iterator[tuple[str, ...]]:
    counts: dict[tuple[str, str], Counter[str]] = {}
    for offer in offers:
        counts.setdefault((offer.source, offer.as_of), Counter())[offer.provider] += 1
    for (source, as_of), count in sorted(counts.items()):
        known = sources().find(source)
        read_on = "" if known is None else known.retrieved
        by = ", ".join(f"{provider}{SPACE}({plans:,})" for provider, plans in sorted(count.items()))
        yield by, as_of, _titled(source, known), read_on


def _others(frontier: Frontier) -> Iterator[tuple[str, str]]:
    prediction, job = frontier.prediction, frontier.job
    if prediction is not None:
        of_memory = prediction.memory.source
        yield "time of a step", _listed(tuple(each for each in prediction.sources if each != of_memory))
        yield "memory", _cited(of_memory)
    yield "number of steps", job.steps_source
    if job.price is not None:
        terms = job.price.terms
        yield "price", job.price.source
        if terms.source or terms.note:
            yield "billing", join((_cited(terms.source), f" ({terms.note})" if terms.note else ""))
    if job.energy is not None:
        yield "energy and CO2", _listed(job.energy.sources)


def _listed(names: tuple[str, ...]) -> Markup:
    """Sources after each other, those known by id with their title."""
    return join(part for number, name in enumerate(names) for part in ("; " if number else "", _cited(name)))


def _cited(name: str) -> Markup:
    return _titled(name, sources().find(name))


def _titled(name: str, known: Source | None) -> Markup:
    return join((name,)) if known is None else link(known.title, known.locator)
