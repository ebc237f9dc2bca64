"""The choice of a plan: time against money as a chart, the front, the cheapest that lost, and exclusions."""

from __future__ import annotations

from collections.abc import Sequence

from foretrain.planning.frontier import Exclusion, Frontier, Plan
from foretrain.planning.selection import Verdict
from foretrain.serving.html.page import Markup, paragraph, section
from foretrain.serving.html.tables import Cell, Column, table
from foretrain.serving.views import plan as words
from foretrain.serving.views.wording import SPACE, amount, as_flags, probability
from foretrain.units import format_duration, format_money

_LOSERS = 10
_OVER = (Verdict.OVER_DEADLINE, Verdict.OVER_BUDGET)


def front_section(frontier: Frontier, chart: Markup) -> Markup:
    """The plans nothing beats, fastest first, as a chart and as a table; the chosen one is ticked."""
    indices = list(frontier.front)
    if frontier.reported not in indices:
        indices.append(frontier.reported)
    limited = frontier.deadline_seconds is not None or frontier.budget_usd is not None
    columns = [
        Column("#", right=True, class_="rank"), Column("machines", class_="name title"),
        Column("GPUs, strategy", class_="keep"),
        Column("where", class_="where"), Column("batch", right=True),
        Column("time", right=True, class_="key"), Column("cost", right=True, class_="key"),
        Column("kWh", right=True), Column("kg CO2", right=True),
        *([Column("chance", right=True)] if limited else []),
    ]  # fmt: skip
    rows = [_front_row(frontier, index, rank, limited) for rank, index in enumerate(indices, start=1)]
    over = {place for place, index in enumerate(indices) if frontier.reasons[index].verdict in _OVER}
    return section(
        "The choice",
        paragraph(
            f"Of {len(frontier.plans):,} plans, {len(frontier.front)} are beaten by no other in both time "
            "and money. Small print: the range of 80 % probability."
        ),
        chart,
        table(
            columns,
            rows,
            marked=frozenset({indices.index(frontier.reported)}),
            faded=frozenset(over),
            sortable=True,
            label="Plans on the front",
            class_="dense cards",
        ),
    )


def losers_section(frontier: Frontier) -> Markup:
    """The cheapest plans that lost, and to what."""
    lost = [index for index in range(len(frontier.plans)) if index not in frontier.front]
    shown = [index for index in lost if index != frontier.reported][:_LOSERS]
    if not shown:
        return Markup("")
    columns = [
        Column("machines", class_="name title"), Column("GPUs", class_="keep"),
        Column("where", class_="where"), Column("time", right=True, class_="key"),
        Column("cost", right=True, class_="key"), Column("why it lost", class_="reason"),
    ]  # fmt: skip
    rows = [_loser_row(frontier, index) for index in shown]
    title = "The cheapest that lost" if len(lost) > len(shown) else "What lost"
    return section(title, table(columns, rows, sortable=True, label=title, class_="cards"))


def exclusions_section(exclusions: Sequence[Exclusion]) -> Markup:
    """Offers that were not planned, and why."""
    if not exclusions:
        return Markup("")
    columns = [Column("why"), Column("machine types", right=True), Column("among them")]
    rows = [
        (as_flags(one.reason), Cell(f"{one.count:,}", sort_by=one.count), ", ".join(one.examples))
        for one in exclusions
    ]
    return section("Excluded", table(columns, rows))


def _front_row(frontier: Frontier, index: int, rank: int, limited: bool) -> tuple[Cell | str, ...]:
    plan = frontier.plans[index]
    number = str(rank) if index in frontier.front else ""
    known = {"knee": frontier.knee, "cheapest": frontier.cheapest, "fastest": frontier.fastest}
    tags = [name for name, marked in known.items() if marked == index]
    chance = (Cell(probability(plan.both), plan.both),) if limited else ()
    return (
        Cell(f"✓{SPACE}{number}".strip() if index == frontier.chosen else number, sort_by=rank),
        Cell(words.machines_of(plan), minor=" · ".join((words.renting(plan), *tags))),
        Cell(words.gpus(plan), minor=_way(plan)),
        words.where(plan) or "–",
        Cell(words.batch(plan), plan.configuration.global_batch, minor=words.batch_parts(plan)),
        *_time_and_money(plan, with_intervals=True),
        _amount(plan.kwh),
        _amount(plan.co2_kg),
        *chance,
    )


def _loser_row(frontier: Frontier, index: int) -> tuple[Cell | str, ...]:
    plan = frontier.plans[index]
    return (
        Cell(words.machines_of(plan), minor=words.renting(plan)),
        words.gpus(plan),
        words.where(plan) or "–",
        *_time_and_money(plan, with_intervals=False),
        words.why_lost(frontier, frontier.reasons[index]),
    )


def _time_and_money(plan: Plan, with_intervals: bool) -> tuple[Cell, Cell]:
    seconds, usd = plan.seconds, plan.usd
    times = words.between_times(seconds) if with_intervals else ""
    money = words.between_money(usd) if with_intervals else ""
    return (
        Cell(format_duration(seconds.p50), seconds.p50, minor=times),
        Cell(format_money(usd.p50), usd.p50, minor=money),
    )


def _amount(value: float | None) -> Cell:
    return Cell("–") if value is None else Cell(amount(value), value)


def _way(plan: Plan) -> str:
    """Strategy and precision of a plan."""
    how = plan.configuration
    return f"{how.strategy}, {how.precision}" if plan.devices > 1 else how.precision
