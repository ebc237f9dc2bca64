"""The report of a plan: what to rent, what it is chosen from, what it consists of, and its sources."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from foretrain.serving.views.blocks import (
    Block,
    Cell,
    Column,
    Figure,
    Figures,
    Heading,
    Page,
    Row,
    Sentence,
    Table,
    Tone,
)
from foretrain.serving.views.charts import parts_chart, scaling_chart
from foretrain.serving.views.plan import (
    batch,
    batch_parts,
    between_money,
    between_times,
    gpus,
    kept_limits,
    machines_of,
    old_prices,
    plan_chart,
    renting,
    where,
    why_lost,
    why_this,
)
from foretrain.serving.views.wording import (
    SPACE,
    amount,
    as_flags,
    between,
    notes,
    percent,
    probability,
    sentence,
    together,
)
from foretrain.units import format_bytes, format_duration, format_money

if TYPE_CHECKING:
    from datetime import date

    from foretrain.estimates import Quantiles
    from foretrain.facts.offers import Offer
    from foretrain.jobs.job import Job, JobPart, Saving
    from foretrain.planning.frontier import Exclusion, Frontier, Plan, TwoPhases
    from foretrain.planning.rent_or_buy import JobStream
    from foretrain.prediction.advice.scaling_curve import ScalingCurve, ScalingPoint
    from foretrain.prediction.answer import Prediction, StepPart

_LOSERS = 10
_HARDLY = 0.05
"""Interruptions below this are none to speak of."""


def plan_report(frontier: Frontier, today: date | None = None) -> Page:
    """A plan with its rule, its step, its memory, what lost, and every source; `today` as of `plan_page`."""
    return Page.of(f"What to rent to train {frontier.model}", _blocks(frontier, today))


def _blocks(frontier: Frontier, today: date | None) -> Iterator[Block]:
    yield _answer(frontier)
    yield Sentence(why_this(frontier))
    for warning in old_prices(frontier, today):
        yield Sentence(warning, Tone.WARNING)
    yield _figures(frontier)
    yield from _choice(frontier)
    if frontier.two_phases is not None:
        yield from _two_phases(frontier.two_phases)
    yield from _job(frontier.job)
    if frontier.prediction is not None:
        yield from _step(frontier.prediction)
        yield from _memory(frontier.prediction)
        if frontier.prediction.parallelism.scaling is not None:
            yield from _scaling(frontier.prediction.parallelism.scaling)
    if frontier.job_stream is not None:
        yield from _job_stream(frontier.job_stream)
    yield from _losers(frontier)
    if frontier.excluded:
        yield from _exclusions(frontier.excluded)
    of_step = () if frontier.prediction is None else frontier.prediction.notes
    remarks = dict.fromkeys((*frontier.notes, *of_step, *frontier.job.notes))
    if remarks:
        yield Heading("Notes", level=2)
        yield notes(sentence(note) for note in remarks)
    yield from _sources(frontier)


def _answer(frontier: Frontier) -> Heading:
    """The answer in a sentence or two."""
    plan = frontier.plans[frontier.reported]
    kind = "spot" if plan.spot else "on demand"
    region = f" in {together(where(plan))}" if where(plan) else ""
    seconds, usd = plan.seconds, plan.usd
    text = (
        f"{machines_of(plan)} ({gpus(plan)}) {kind}{region}: {frontier.model} trains in "
        f"{together(format_duration(seconds.p50))} "
        f"({between(format_duration(seconds.p10), format_duration(seconds.p90))}) for "
        f"{format_money(usd.p50)} ({format_money(usd.p10)} to {format_money(usd.p90)}). "
        f"{kept_limits(frontier, plan)}"
    ).strip()
    if frontier.meets_limits:
        return Heading(f"Rent {text}")
    return Heading(f"Nothing is expected to keep these limits. The nearest is {text}", Tone.BAD)


def _figures(frontier: Frontier) -> Figures:
    plan = frontier.plans[frontier.reported]
    figures = [
        Figure("time", format_duration(plan.seconds.p50), _range_text(between_times(plan.seconds))),
        Figure("money", format_money(plan.usd.p50), _range_text(between_money(plan.usd))),
    ]
    deadline, budget = frontier.deadline_seconds, frontier.budget_usd
    if deadline is not None or budget is not None:
        kept = [format_duration(deadline)] if deadline is not None else []
        kept += [format_money(budget)] if budget is not None else []
        figures.append(Figure("chance", probability(plan.both), f"to keep {' and '.join(kept)}"))
    if plan.kwh is not None:
        emitted = "" if plan.co2_kg is None else f"{amount(plan.co2_kg)} kg of CO2"
        figures.append(Figure("energy", f"{amount(plan.kwh)} kWh", emitted))
    if frontier.prediction is not None:
        memory = frontier.prediction.memory
        room = f"of {format_bytes(memory.capacity_bytes)} on each GPU"
        figures.append(Figure("memory", format_bytes(memory.bytes.p50), room))
    return Figures(figures, is_key=True)


def _range_text(text: str) -> str:
    """A range such as `4h 50m – 6h 30m`, which may be broken after its dash only, not inside a quantity."""
    return text.replace(" ", SPACE).replace(f"–{SPACE}", "– ")


# ---------------------------------------------------------------- the choice


def _choice(frontier: Frontier) -> Iterator[Block]:
    """The plans nothing beats, fastest first, as a chart and as a table; the chosen one is ticked."""
    from foretrain.planning.selection import Verdict

    yield Heading("The choice", level=2)
    yield Sentence(
        f"Of {len(frontier.plans):,} plans, {len(frontier.front)} are beaten by no other in both time and "
        f"money, out of {frontier.considered:,} combinations of machines, strategy and batch size. Small "
        "print: the range of 80 % probability."
    )
    yield plan_chart(frontier)
    indices = [*frontier.front]
    if frontier.reported not in indices:
        indices.append(frontier.reported)
    limited = frontier.deadline_seconds is not None or frontier.budget_usd is not None
    columns = [
        Column("#", right=True, role="rank"), Column("machines", role="name title"),
        Column("GPUs, strategy", role="keep"), Column("where", role="where"), Column("batch", right=True),
        Column("time", right=True, role="key"), Column("cost", right=True, role="key"),
        Column("kWh", right=True), Column("kg CO2", right=True),
        *([Column("chance", right=True)] if limited else []),
    ]  # fmt: skip
    over = (Verdict.OVER_DEADLINE, Verdict.OVER_BUDGET)
    yield Table(
        columns,
        [_front_row(frontier, index, rank, limited) for rank, index in enumerate(indices, start=1)],
        "Plans on the front",
        marked=frozenset({indices.index(frontier.reported)}),
        faded=frozenset(
            place for place, index in enumerate(indices) if frontier.reasons[index].verdict in over
        ),
        is_sortable=True,
    )


def _front_row(frontier: Frontier, index: int, rank: int, limited: bool) -> Row:
    plan = frontier.plans[index]
    how = plan.configuration
    number = str(rank) if index in frontier.front else ""
    known = {"knee": frontier.knee, "cheapest": frontier.cheapest, "fastest": frontier.fastest}
    tags = [name for name, marked in known.items() if marked == index]
    strategy = f"{how.strategy}, {how.precision}" if plan.devices > 1 else how.precision
    return (
        Cell(f"✓{SPACE}{number}".strip() if index == frontier.chosen else number, float(rank)),
        Cell(machines_of(plan), minor=" · ".join((renting(plan), *tags))),
        Cell(gpus(plan), minor=strategy),
        where(plan) or "–",
        Cell(batch(plan), how.global_batch, minor=_range_text(batch_parts(plan))),
        *_time_and_money(plan, with_intervals=True),
        _amount(plan.kwh),
        _amount(plan.co2_kg),
        *((Cell(probability(plan.both), plan.both),) if limited else ()),
    )


def _time_and_money(plan: Plan, with_intervals: bool) -> tuple[Cell, Cell]:
    seconds, usd = plan.seconds, plan.usd
    times = _range_text(between_times(seconds)) if with_intervals else ""
    money = _range_text(between_money(usd)) if with_intervals else ""
    return (
        Cell(format_duration(seconds.p50), seconds.p50, minor=times),
        Cell(format_money(usd.p50), usd.p50, minor=money),
    )


def _amount(value: float | None) -> Cell:
    return Cell("–") if value is None else Cell(amount(value), value)


def _losers(frontier: Frontier) -> Iterator[Block]:
    """The cheapest plans that lost, and to what."""
    lost = [index for index in range(len(frontier.plans)) if index not in frontier.front]
    shown = [index for index in lost if index != frontier.reported][:_LOSERS]
    if not shown:
        return
    yield Heading("The cheapest that lost" if len(lost) > len(shown) else "What lost", level=2)
    columns = [
        Column("machines", role="name title"), Column("GPUs", role="keep"), Column("where", role="where"),
        Column("time", right=True, role="key"), Column("cost", right=True, role="key"),
        Column("why it lost", role="reason"),
    ]  # fmt: skip
    rows = []
    for index in shown:
        plan = frontier.plans[index]
        rows.append(
            (
                Cell(machines_of(plan), minor=renting(plan)),
                gpus(plan),
                where(plan) or "–",
                *_time_and_money(plan, with_intervals=False),
                why_lost(frontier, frontier.reasons[index]),
            )
        )
    yield Table(columns, rows, is_sortable=True)


def _exclusions(exclusions: Sequence[Exclusion]) -> Iterator[Block]:
    """Offers that were not planned, or on one node only, and why."""
    yield Heading("Excluded and limited", level=2)
    yield Table(
        [Column(""), Column("what", right=True), Column("why"), Column("among them")],
        [
            (
                "limited" if one.is_partly else "excluded",
                Cell(one.machine_types, one.count),
                as_flags(one.reason),
                ", ".join(one.examples),
            )
            for one in exclusions
        ],
    )


# ---------------------------------------------------------------- two phases, rent or buy


def _two_phases(two: TwoPhases) -> Iterator[Block]:
    """The plan of two phases, where it wins, and by how much."""
    yield Heading("In two phases", level=2)
    flat = two.flattens_at_share
    bend = "" if flat is None else f" The loss curve flattens after {percent(flat)} of it."
    yield Sentence(
        f"Moving from {machines_of(two.first)} to {machines_of(two.second)} after "
        f"{percent(two.switch_share)} of the training {_gain(two)} against the best single plan."
        f"{bend}{f' {sentence(two.note)}' if two.note else ''}"
    )
    columns = [
        Column("phase"), Column("machines", role="name title"), Column("GPUs", role="keep"),
        Column("of the training", right=True), Column("time", right=True), Column("billed", right=True),
        Column("cost", right=True),
    ]  # fmt: skip
    whole = two.plan.phases[-1].last_step
    rows: list[Row] = [
        (
            name,
            Cell(machines_of(plan), minor=renting(plan)),
            gpus(plan),
            f"{percent(phase.first_step / whole)} – {percent(phase.last_step / whole)}",
            format_duration(phase.seconds),
            format_duration(phase.billed_seconds),
            format_money(phase.usd),
        )
        for name, plan, phase in zip(("first", "then"), (two.first, two.second), two.plan.phases, strict=True)
    ]
    if two.plan.hand_over_usd:
        rows.append(("hand-over", "", "", "", "", "", format_money(two.plan.hand_over_usd)))
    total = ("total", "", "", "", format_duration(two.plan.seconds), "", format_money(two.plan.usd))
    yield Table(columns, rows, footer=total)


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


def _job_stream(stream: JobStream) -> Iterator[Block]:
    """Rent or buy, where the number of jobs a year is known."""
    yield Heading("Rent or buy", level=2)
    yield Sentence(sentence(stream.verdict))
    share = percent(stream.utilisation, 1)
    years = stream.break_even_years
    yield Figures(
        [
            Figure("busy", f"{stream.hours_per_year.p50:,.0f} h a year ({share} of the machines)"),
            Figure(
                "machines",
                f"{stream.machines:,} in {stream.sets:,} {'set' if stream.sets == 1 else 'sets'}",
            ),
            Figure("rent", f"{format_money(stream.rent_usd_per_year.p50)} a year"),
            Figure("price of a set", f"{format_money(stream.price_usd)}: {stream.price_source}"),
            Figure("breaks even after", _years(years.p50, years.p10, years.p90)),
        ]
    )
    yield notes(stream.notes)


def _years(middle: float, low: float, high: float) -> str:
    if math.isinf(middle):
        return "never"
    until = "never" if math.isinf(high) else f"{high:,.1f}"
    return f"{middle:,.1f} years ({between(f'{low:,.1f}', until)})"


# ---------------------------------------------------------------- the job, its step, its memory


def _job(job: Job) -> Iterator[Block]:
    """What the time of the job goes to, and what is least certain about it."""
    yield Heading("Where the job's time goes", level=2)
    title = f"{format_duration(job.seconds.p50)} for {job.steps:,} steps"
    yield from _times(title, "Parts of the job's time, one after the other.", job.parts, job.seconds)
    count = job.interruptions
    interruptions = "no interruption is expected"
    if count >= _HARDLY:
        interruptions = f"{amount(count)} interruptions are expected"
    yield Sentence(f"{_saved(job.saving)}; {interruptions}.")
    if job.uncertainty:
        yield Table(
            [
                Column("what is uncertain"),
                Column("alone moves the time by", right=True),
                Column("", right=True),
            ],
            [
                (
                    one.source,
                    f"−{format_duration(one.below_seconds)}",
                    f"+{format_duration(one.above_seconds)}",
                )
                for one in job.uncertainty
            ],
        )


def _times(
    title: str, description: str, parts: Sequence[JobPart | StepPart], seconds: Quantiles
) -> Iterator[Block]:
    """Parts of a time as a bar, and as a table with what each rests on."""
    sizes = [(part.name, part.seconds) for part in parts]
    interval = _interval(seconds, format_duration)
    yield parts_chart(f"{title}, {interval}", description, sizes, format_duration, seconds)
    columns = [
        Column("part", role="keep"), Column("time", right=True), Column("share", right=True),
        Column("rests on", role="source"),
    ]  # fmt: skip
    total = sum(part.seconds for part in parts) or 1.0
    rows = [
        (part.name, format_duration(part.seconds), percent(part.seconds / total, 1), part.source)
        for part in parts
        if part.seconds > 0
    ]
    yield Table(columns, rows, footer=("total", format_duration(seconds.p50), "", ""))


def _interval(quantiles: Quantiles, write: Callable[[float], str]) -> str:
    return f"{between(write(quantiles.p10), write(quantiles.p90))} (thin line)"


def _saved(saving: Saving) -> str:
    if round(saving.times) <= 1:
        return f"Saved once, {format_bytes(saving.bytes)}"
    return (
        f"Saved {saving.times:,.0f} times, {format_bytes(saving.bytes)} each, every "
        f"{format_duration(saving.every_seconds)} of work ({saving.every_steps:,} steps)"
    )


def _step(prediction: Prediction) -> Iterator[Block]:
    """What a step consists of, and what sets its pace."""
    step, throughput = prediction.step, prediction.throughput
    yield Heading("Where a step's time goes", level=2)
    title = f"{format_duration(step.seconds.p50)} a step"
    yield from _times(title, "Parts of one training step that take time.", step.parts, step.seconds)
    tokens = throughput.tokens_per_second
    speed = f"{throughput.samples_per_second:,.0f} samples/s"
    speed += "" if tokens is None else f", {tokens:,.0f} tokens/s"
    yield Sentence(
        f"{speed}, {percent(throughput.mfu, 1)} of the devices' arithmetic; "
        f"{prediction.knowledge_class.sentence}. {sentence(prediction.bottleneck.verdict)}"
    )
    unknown = prediction.coverage.unmodelled
    if unknown:
        left = percent(1 - prediction.coverage.modelled_share, 1)
        yield Sentence(f"Not modelled, at least {left} of the device's time: {', '.join(unknown)}.")


def _memory(prediction: Prediction) -> Iterator[Block]:
    """What the memory of the fullest device goes to, against what it has."""
    memory, device = prediction.memory, prediction.cluster.groups[0].device
    yield Heading("Memory", level=2)
    verdict = "fits into" if memory.fits else "does not fit into"
    yield parts_chart(
        f"{format_bytes(memory.bytes.p50)} {verdict} the {format_bytes(memory.capacity_bytes)} of "
        f"{device.id}, {_interval(memory.bytes, format_bytes)}",
        "Memory of the fullest device by use, against all it has.",
        [(part.name, part.bytes) for part in memory.parts],
        format_bytes,
        memory.bytes,
        memory.capacity_bytes,
    )
    largest = f"{memory.largest_batch:,}" if memory.largest_batch else "none"
    yield Sentence(f"Largest batch for each device that fits: {largest}.")


def _scaling(curve: ScalingCurve) -> Iterator[Block]:
    """What more or fewer devices would do."""
    yield Heading("More or fewer GPUs", level=2)
    fixed = "the same batch in all" if curve.is_batch_fixed else "the same batch for each"
    if curve.best is None:
        yield Sentence(f"With {fixed}, the step fits on none of these numbers of GPUs.")
    else:
        yield Sentence(
            f"With {fixed}, {curve.best} GPUs train most samples a second; "
            f"doubling is worth it up to {curve.knee}."
        )
    if len(curve.points) > 1:
        yield scaling_chart(curve)
    titles = ("GPUs", "batch in all", "step", "samples/s", "efficiency")
    yield Table(
        [*(Column(title, right=True) for title in titles), Column("fits")],
        [_scaling_row(point) for point in curve.points],
        marked=frozenset(number for number, point in enumerate(curve.points) if point.devices == curve.best),
    )


def _scaling_row(point: ScalingPoint) -> Row:
    return (
        f"{point.devices:,}",
        f"{point.global_batch:,}",
        format_duration(point.step_seconds),
        f"{point.samples_per_second:,.0f}",
        percent(point.efficiency) if point.fits else "",
        "yes" if point.fits else "no",
    )


# ---------------------------------------------------------------- sources


def _sources(frontier: Frontier) -> Iterator[Block]:
    """Prices by provider, then everything else by what it says."""
    yield Heading("Sources", level=2)
    columns = [
        Column("prices of (plans)", role="title"), Column("as of", role="keep"), Column("source"),
        Column("read on", role="keep"),
    ]  # fmt: skip
    yield Table(columns, list(_prices([plan.offer for plan in frontier.plans])))
    yield Table(
        [Column("what", role="keep"), Column("source")],
        [(what, cell_of_source(name)) for what, name in _others(frontier)],
    )


def _prices(offers: Sequence[Offer]) -> Iterator[Row]:
    from foretrain.facts.sheets import sources

    counts: dict[tuple[str, str], Counter[str]] = {}
    for offer in offers:
        counts.setdefault((offer.source, offer.as_of), Counter())[offer.provider] += 1
    for (source, as_of), count in sorted(counts.items()):
        known = sources().find(source)
        by = ", ".join(f"{provider}{SPACE}({plans:,})" for provider, plans in sorted(count.items()))
        yield by, as_of, cell_of_source(source), "" if known is None else known.retrieved


def _others(frontier: Frontier) -> Iterator[tuple[str, str]]:
    """What rests on which source; several in rows of their own."""
    prediction, job = frontier.prediction, frontier.job
    if prediction is not None:
        of_memory = prediction.memory.source
        yield from _named("time of a step", [each for each in prediction.sources if each != of_memory])
        yield "memory", of_memory
    yield "number of steps", job.steps_source
    if job.price is not None:
        terms = job.price.terms
        yield "price", job.price.source
        yield from _named("billing", [text for text in (terms.source, terms.note) if text])
    if job.energy is not None:
        yield from _named("energy and CO2", job.energy.sources)


def _named(what: str, names: Sequence[str]) -> Iterator[tuple[str, str]]:
    return ((what if place == 0 else "", name) for place, name in enumerate(names))


def cell_of_source(name: str) -> Cell:
    """A source by its title with a link where it is known by its id, else as it is named."""
    from foretrain.facts.sheets import sources

    known = sources().find(name)
    if known is None:
        return Cell(name)
    if known.locator.startswith(("https://", "http://")):
        return Cell(known.title, link=known.locator)
    return Cell(f"{known.title} ({known.locator})" if known.locator else known.title)
