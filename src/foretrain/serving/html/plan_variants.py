"""Other answers to the same question: in two phases, or on machines of one's own."""

from __future__ import annotations

import math

from foretrain.planning.frontier import TwoPhases
from foretrain.planning.job_stream import JobStream
from foretrain.serving import plan_words as words
from foretrain.serving.html.markup import Markup
from foretrain.serving.html.page import definitions, notes, paragraph, section
from foretrain.serving.html.tables import Cell, Column, table
from foretrain.serving.wording import between, percent, sentence
from foretrain.units import format_duration, format_money


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
            Cell(words.machines(plan), minor=words.renting(plan)),
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
            f"Moving from {words.machines(two.first)} to {words.machines(two.second)} after "
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
    said = f"saves {' and '.join(saved)}"
    if two.saved_usd < 0:
        said += f" for {format_money(-two.saved_usd)} more"
    if two.saved_seconds < 0:
        said += f" and takes {format_duration(-two.saved_seconds)} longer"
    return said


def _bend(two: TwoPhases) -> str:
    share = two.flattens_at_share
    return "" if share is None else f" The loss curve flattens after {percent(share)} of it."


def _years(middle: float, low: float, high: float) -> str:
    if math.isinf(middle):
        return "never"
    until = "never" if math.isinf(high) else f"{high:,.1f}"
    return f"{middle:,.1f} years ({between(f'{low:,.1f}', until)})"
