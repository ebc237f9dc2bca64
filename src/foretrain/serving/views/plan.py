"""What to rent: the plan to take, the front it is on, its job, what lost and what was excluded."""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING

from foretrain.serving.views.blocks import (
    Block,
    Break,
    Chart,
    Column,
    Heading,
    Page,
    Sentence,
    Table,
    Tone,
)
from foretrain.serving.views.charts import cost_chart, front_chart
from foretrain.serving.views.predict import job_blocks, job_parts
from foretrain.serving.views.wording import amount, as_flags, notes, probability, together
from foretrain.units import format_bytes, format_duration, format_money

if TYPE_CHECKING:
    from foretrain.estimates import Quantiles
    from foretrain.jobs.configurations import RunConfiguration
    from foretrain.planning.frontier import Frontier, Plan
    from foretrain.planning.rent_or_buy import RentOrBuy
    from foretrain.planning.selection import Reason

_MARK = "✓"
_MOST_EXCLUSIONS = 6
_ALL = "all"
_MACHINE = 22
_LEAST_RISK = 0.005
_OLD_DAYS = 30


def plan_page(frontier: Frontier, why: str | None = None, today: date | None = None) -> Page:
    """The answer, the front, the chosen job, two phases, exclusions; `why` names plans that lost.

    `today` is the day by which prices are old; by default the present one, or SOURCE_DATE_EPOCH.
    """
    return Page.of(f"What to rent to train {frontier.model}", _blocks(frontier, why, today))


def _today() -> date:
    """The present day, or that of SOURCE_DATE_EPOCH, with which pages are rendered the same on any day."""
    epoch = os.environ.get("SOURCE_DATE_EPOCH", "")
    return datetime.fromtimestamp(int(epoch), UTC).date() if epoch.isdecimal() else date.today()


def _blocks(frontier: Frontier, why: str | None, today: date | None) -> Iterator[Block]:
    yield from _answer(frontier)
    yield Sentence(why_this(frontier), indent=1)
    for warning in old_prices(frontier, today):
        yield Sentence(warning, Tone.WARNING, indent=1)
    yield Break()
    yield from _front(frontier)
    yield plan_chart(frontier)
    yield from _two_phases(frontier)
    yield Break()
    yield from job_blocks(frontier.job, frontier.usd_per_million_tokens(frontier.plans[frontier.reported]))
    yield from job_parts(frontier.job)
    if frontier.job_stream is not None:
        yield Break()
        yield Sentence(f"Rent or buy: {frontier.job_stream.verdict}", Tone.KEY)
        yield notes(frontier.job_stream.notes, indent=1)
    if why is not None:
        yield from _losers(frontier, why)
    yield from _rest(frontier)


def plan_chart(frontier: Frontier) -> Chart:
    """Time against money of every plan, those of the front numbered and named."""
    return front_chart(frontier, machines_of)


def _answer(frontier: Frontier) -> Iterator[Block]:
    plan = frontier.plans[frontier.reported]
    where = f" in {plan.offer.place}" if plan.offer.place else ""
    text = (
        f"{machines_of(plan)}{where} ({gpus(plan)}): {format_duration(plan.seconds.p50)} for "
        f"{format_money(plan.usd.p50)}"
    )
    if frontier.meets_limits:
        yield Heading(f"{_MARK} {frontier.model}: rent {text}", Tone.GOOD)
    else:
        yield Heading(f"{frontier.model}: no plan keeps the limits; nearest is {text}", Tone.BAD)
    limits = kept_limits(frontier, plan)
    if limits:
        yield Sentence(limits, indent=1)
    yield Sentence(configuration_of(plan), indent=1)


def why_this(frontier: Frontier) -> str:
    """The rule of the choice, and what the next ones by it would take."""
    chosen = frontier.plans[frontier.reported]
    after = [frontier.plans[index] for index in frontier.next_best]
    listed = " or ".join(
        f"{machines_of(plan)}, {format_duration(plan.seconds.p50)} for {format_money(plan.usd.p50)}"
        for plan in after
    )
    text = f"It is {frontier.rule}" + (
        f"; next {'is' if len(after) == 1 else 'are'} {listed}." if listed else "."
    )
    if frontier.meets_limits and not chosen.configuration.is_safe:
        text += " Every such plan has a risk of more than 10 % of running out of memory."
    return text


def old_prices(frontier: Frontier, today: date | None = None) -> Iterator[str]:
    """A warning where the price of the plan is old; a date may be a year alone."""
    from foretrain.facts.offers import is_older

    as_of = frontier.plans[frontier.reported].offer.as_of
    recent = (today or _today()) - timedelta(days=_OLD_DAYS - 1)
    if is_older(as_of, recent.isoformat()):
        newer = "`foretrain offers --refresh` reads new ones"
        yield f"Prices are as of {as_of}, {_OLD_DAYS} days ago or more: {newer}."


def configuration_of(plan: Plan) -> str:
    """How the plan runs: strategy, precision, batch, step, memory."""
    from foretrain.jobs.batch_limits import capacity_bytes

    how = plan.configuration
    strategy = f"{how.strategy}, " if plan.devices > 1 else ""
    stored = "" if how.weights == how.precision else f" (weights {how.weights})"
    text = f"{strategy}{how.precision}{stored}, batch {how.batch:,} per GPU"
    if how.micro_batches > 1:
        text += f" in {how.micro_batches} micro-batches"
    if how.checkpoint_activations:
        text += ", activations recomputed"
    memory = f"{format_bytes(how.memory_bytes)} of {format_bytes(capacity_bytes(plan.hardware.device))}"
    memory += f" per GPU{_risk(how)}"
    step = format_duration(how.step_seconds.p50)
    known = how.knowledge_class.sentence
    return f"{text}, global batch {how.global_batch:,}; {step} per step; {memory}; {known}"


def _risk(how: RunConfiguration) -> str:
    """The chance of running out of memory, where there is one to speak of."""
    chance = how.out_of_memory_probability
    return f" ({probability(chance)} chance of running out)" if chance >= _LEAST_RISK else ""


def _front(frontier: Frontier) -> Iterator[Block]:
    limited = frontier.deadline_seconds is not None or frontier.budget_usd is not None
    columns = [
        Column(""),
        Column("machines", least=_MACHINE),
        Column("GPUs", right=True),
        Column("GPU"),
        Column("strategy", expendable=5),
        Column("batch", right=True, expendable=4),
        Column("time", right=True, tone=Tone.KEY),
        Column("80 % between", right=True, expendable=3),
        Column("cost", right=True, tone=Tone.GOOD),
        Column("kWh", right=True, expendable=6),
        Column("kg CO2", right=True, expendable=7),
        Column("chance", right=True, expendable=1),
    ]
    rows = [_row(frontier, index) for index in frontier.front]
    if not limited:
        columns, rows = columns[:-1], [row[:-1] for row in rows]
    title = f"Nothing is both faster and cheaper than these ({len(frontier.plans):,} machines compared):"
    yield Table(columns, rows, title)
    within = _within(frontier)
    named = {f"cheapest{within}": frontier.cheapest, f"fastest{within}": frontier.fastest}
    for name, index in (named | {"best of both (knee)": frontier.knee}).items():
        if index is not None:
            plan = frontier.plans[index]
            cost, time = format_money(plan.usd.p50), format_duration(plan.seconds.p50)
            yield Sentence(f"{name}: {machines_of(plan)}, {time}, {cost}", Tone.MINOR, indent=1)


def _within(frontier: Frontier) -> str:
    """The limits that the cheapest and the fastest keep, both of them."""
    limits = {"deadline": frontier.deadline_seconds, "budget": frontier.budget_usd}
    kept = [name for name, limit in limits.items() if limit is not None]
    return f" within {' and '.join(kept)}" if kept else ""


def _row(frontier: Frontier, index: int) -> tuple[str, ...]:
    plan = frontier.plans[index]
    configuration = plan.configuration
    return (
        _MARK if index == frontier.chosen else "",
        machines_of(plan),
        f"{plan.devices:,}",
        plan.hardware.device.id,
        configuration.strategy if plan.devices > 1 else "",
        f"{configuration.global_batch:,}",
        format_duration(plan.seconds.p50),
        between_times(plan.seconds),
        format_money(plan.usd.p50),
        "" if plan.kwh is None else amount(plan.kwh),
        "" if plan.co2_kg is None else amount(plan.co2_kg),
        probability(plan.both),
    )


def _two_phases(frontier: Frontier) -> Iterator[Block]:
    two = frontier.two_phases
    if two is None:
        return
    saved = f"saves {format_money(two.saved_usd)}"
    if frontier.deadline_seconds is None:  # then it was the fastest within the budget that was looked for
        saved = f"is {format_duration(two.saved_seconds)} faster"
    flat = two.flattens_at_share
    curve = "" if flat is None else f" (the curve flattens at {flat:.0%})"
    yield Break()
    yield Sentence(
        f"In two phases: the first {two.switch_share:.0%}{curve} on {machines_of(two.first)}, the "
        f"rest on {machines_of(two.second)}: {format_duration(two.plan.seconds)} for "
        f"{format_money(two.plan.usd)}. That {saved} against one machine, at the expected times: it leaves "
        "no slack to the limit.",
        Tone.KEY,
    )
    yield notes([two.note] if two.note else [], indent=1)


def _losers(frontier: Frontier, why: str) -> Iterator[Block]:
    lost = list(_matching(frontier, why))
    yield Break()
    if not lost:
        yield Sentence(f"No plan that lost matches {why!r}; --why all lists them.", Tone.WARNING)
        return
    yield Table(
        [
            Column("machines", least=_MACHINE), Column("time", right=True), Column("cost", right=True),
            Column("why it lost", least=30),
        ],
        [
            (
                machines_of(frontier.plans[index]),
                format_duration(frontier.plans[index].seconds.p50),
                format_money(frontier.plans[index].usd.p50),
                why_lost(frontier, frontier.reasons[index]),
            )
            for index in lost
        ],
        "Why the others lost:",
    )  # fmt: skip


def _matching(frontier: Frontier, why: str) -> Iterator[int]:
    from foretrain.planning.selection import Verdict

    wanted = why.casefold()
    for index, (plan, reason) in enumerate(zip(frontier.plans, frontier.reasons, strict=True)):
        names = f"{machines_of(plan)} {plan.hardware.device.id}".casefold()
        if reason.verdict is not Verdict.ON_FRONT and (wanted == _ALL or wanted in names):
            yield index


def _rest(frontier: Frontier) -> Iterator[Block]:
    yield Break()
    yield Sentence(
        f"{frontier.considered:,} combinations of machines, strategy and batch size were compared.",
        Tone.MINOR,
    )
    for each in frontier.excluded[:_MOST_EXCLUSIONS]:
        more = ", ..." if each.count > len(each.examples) else ""
        label = "Limited" if each.is_partly else "Excluded"
        yield Sentence(
            f"{label}: {each.machine_types} ({', '.join(each.examples)}{more}): {as_flags(each.reason)}",
            Tone.MINOR,
        )
    yield notes(note for note in frontier.notes if note not in frontier.job.notes)


# ---------------------------------------------------------------- plans in a few words


def machines_of(plan: Plan) -> str:
    """`2 × aws:p4d.24xlarge`."""
    name = f"{plan.offer.provider}:{plan.offer.instance}"
    return f"{plan.machines} × {name}" if plan.machines > 1 else name


def gpus(plan: Plan) -> str:
    """`16 × a100-sxm-40gb`."""
    return f"{plan.devices} × {plan.hardware.device.id}"


def renting(plan: Plan) -> str:
    """`on demand, $1.01/h`."""
    return f"{'spot' if plan.spot else 'on demand'}, {format_money(plan.usd_per_hour)}/h"


def where(plan: Plan) -> str:
    """The region as its provider calls it; some leave the city out and keep the comma."""
    return plan.offer.place


def batch(plan: Plan) -> str:
    """The samples of a step on all devices: `2,048`."""
    return f"{plan.configuration.global_batch:,}"


def batch_parts(plan: Plan) -> str:
    """How these are divided: `8 × 256` by replicas, `8 × 2 × 128` with micro-batches."""
    configuration = plan.configuration
    factors = (configuration.global_batch // configuration.batch, configuration.micro_batches)
    shown = [f"{factor:,}" for factor in factors if factor > 1]
    return " × ".join((*shown, f"{configuration.batch // configuration.micro_batches:,}")) if shown else ""


def between_times(seconds: Quantiles) -> str:
    """`4h 50m – 6h 30m`."""
    return together(f"{format_duration(seconds.p10)} – {format_duration(seconds.p90)}")


def between_money(usd: Quantiles) -> str:
    """`$20 – $27`."""
    return together(f"{format_money(usd.p10)} – {format_money(usd.p90)}")


def kept_limits(frontier: Frontier, plan: Plan) -> str:
    """How likely a plan keeps what was asked: `It keeps the deadline of 24h 00m with 97 % probability.`"""
    deadline, budget = frontier.deadline_seconds, frontier.budget_usd
    in_time = "" if deadline is None else f"the deadline of {together(format_duration(deadline))}"
    in_budget = "" if budget is None else f"the budget of {format_money(budget)}"
    if not in_time and not in_budget:
        return ""
    both, risks = probability(plan.both), _risks(frontier, plan)
    if not (in_time and in_budget):
        return f"It keeps {in_time or in_budget} with {both} probability{risks}."
    if probability(plan.in_time) == probability(plan.in_budget):
        return f"It keeps {in_time} and {in_budget} with {both} probability{risks}."
    each = f"{in_time} with {probability(plan.in_time)} and {in_budget} with {probability(plan.in_budget)}"
    return f"It keeps {each} probability{risks}."


def _risks(frontier: Frontier, plan: Plan) -> str:
    """What may go wrong, where that is more than the limits: ` (risks: late 3 %, out of memory 39 %)`."""
    given = {"deadline": frontier.deadline_seconds, "budget": frontier.budget_usd}
    names = {"deadline": "late", "budget": "over budget", "memory": "out of memory"}
    if plan.risks["memory"] < _LEAST_RISK:
        return ""
    shown = [
        f"{name} {probability(plan.risks[risk])}"
        for risk, name in names.items()
        if given.get(risk, 1.0) is not None
    ]
    return f" (risks: {', '.join(shown)})"


def why_lost(frontier: Frontier, reason: Reason) -> str:
    """What was better, and by how much."""
    from foretrain.planning.selection import Verdict

    late, dear = together(format_duration(reason.excess_seconds)), format_money(reason.excess_usd)
    if reason.verdict is Verdict.OVER_DEADLINE:
        also = f", and {dear} over the budget" if reason.excess_usd else ""
        return f"{late} over the deadline{also}"
    if reason.verdict is Verdict.OVER_BUDGET:
        return f"{dear} over the budget"
    if reason.better is None:
        return str(reason.verdict)
    ahead = [f"{late} faster"] if reason.excess_seconds > 0 else []
    ahead += [f"{dear} cheaper"] if reason.excess_usd > 0 else []
    return f"{machines_of(frontier.plans[reason.better])} is {' and '.join(ahead)}"


# ---------------------------------------------------------------- rent or buy


def rent_or_buy_page(answer: RentOrBuy) -> Page:
    """After how many hours of use owning costs less."""
    return Page.of("Rent or buy", _rent_or_buy(answer))


def _rent_or_buy(answer: RentOrBuy) -> Iterator[Block]:
    request = answer.request
    yield Heading(
        f"Break-even: {_hours(answer.break_even_hours)} of use, {_years(answer.break_even_years, ' years')}"
    )
    yield Sentence(f"Verdict:    {answer.verdict}")
    yield Break()
    facts = [
        ("machine", format_money(request.price_usd)),
        ("net of resale, discounted", format_money(answer.net_price_usd)),
        ("rent of an hour", format_money(request.rent_usd_per_hour)),
        ("rent of the work of an owned hour", format_money(answer.rent_usd_per_owned_hour)),
        ("electricity of an owned hour", format_money(answer.electricity_usd_per_hour)),
        ("hosting a year", format_money(request.hosting_usd_per_year)),
    ]
    held = f"over {request.resale_after_years:g} years"
    if answer.saved_usd is not None:
        facts.append((f"saved by owning {held}", format_money(answer.saved_usd)))
    yield Table([Column("what"), Column("USD", right=True)], facts)
    yield Break()
    saved = () if answer.saved_usd is None else (f"saved {held}",)
    yield Table(
        [Column(name, right=True) for name in ("utilisation", "h/year", "break-even", "years", *saved)],
        [
            (
                f"{row.utilisation:.0%}", f"{row.hours_per_year:,.0f}", _hours(row.hours), _years(row.years),
                *(() if row.saved_usd is None else (format_money(row.saved_usd),)),
            )
            for row in answer.by_utilisation
        ],
        title="By utilisation (share of all 8,760 hours of a year)",
    )  # fmt: skip
    yield cost_chart(answer)


def _hours(hours: float | None) -> str:
    return "never" if hours is None else f"{hours:,.0f} h"


def _years(years: float | None, unit: str = "") -> str:
    return "never" if years is None else f"{years:,.2f}{unit}"
