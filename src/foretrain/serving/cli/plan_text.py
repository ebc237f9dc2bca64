"""A plan as text: what to rent, the front it was chosen from, and why the others lost."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from foretrain.jobs.device_memory import capacity_bytes
from foretrain.planning.frontier import Frontier, Plan
from foretrain.planning.selection import Verdict
from foretrain.serving import plan_words as words
from foretrain.serving.cli.job_text import show_job, show_job_parts
from foretrain.serving.cli.terminal import Column, Points, print_line, print_points, print_table
from foretrain.serving.wording import probability
from foretrain.units import DAY, HOUR, MINUTE, format_bytes, format_duration, format_money

_MARK = "✓"
_LEFT_OUT = 6
_ALL = "all"
_MACHINE = 22
_TIMES = ((DAY, "days"), (HOUR, "hours"), (MINUTE, "minutes"), (1.0, "seconds"))


def show(frontier: Frontier, why: str | None) -> None:
    """The answer, the front, the chosen job, two phases, what was left out."""
    _answer(frontier)
    print_line()
    _front(frontier)
    _draw(frontier)
    _two_phases(frontier)
    print_line()
    show_job(frontier.job)
    show_job_parts(frontier.job)
    if frontier.job_stream is not None:
        print_line()
        print_line(f"Rent or buy: {frontier.job_stream.verdict}", "cyan")
        for note in frontier.job_stream.notes:
            print_line(f"  Note: {note}", "yellow")
    if why is not None:
        _losers(frontier, why)
    _rest(frontier)


def _answer(frontier: Frontier) -> None:
    plan = frontier.plans[frontier.reported]
    where = f" in {plan.offer.place}" if plan.offer.place else ""
    said = (
        f"{words.machines(plan)}{where} ({words.gpus(plan)}): {format_duration(plan.seconds.p50)} for "
        f"{format_money(plan.usd.p50)}"
    )
    if frontier.meets_limits:
        print_line(f"{_MARK} {frontier.model}: rent {said}", "bold green")
    else:
        print_line(f"{frontier.model}: no plan keeps the limits; nearest is {said}", "bold red")
    told = words.limits(frontier, plan)
    if told:
        print_line(f"  {told}")
    print_line(f"  {_manner(plan)}")


def _manner(plan: Plan) -> str:
    how = plan.configuration
    spread = f"{how.strategy}, " if plan.devices > 1 else ""
    said = f"  {spread}batch {how.batch:,} a GPU".lstrip()
    if how.micro_batches > 1:
        said += f" in {how.micro_batches} micro-batches"
    if how.checkpoint_activations:
        said += ", activations recomputed"
    memory = f"{format_bytes(how.memory_bytes)} of {format_bytes(capacity_bytes(plan.hardware.device))}"
    step = format_duration(how.step_seconds.p50)
    return f"{said}, global batch {how.global_batch:,}; {step} a step; {memory} a GPU; {how.knowledge}"


def _front(frontier: Frontier) -> None:
    limited = frontier.deadline_seconds is not None or frontier.budget_usd is not None
    columns = [
        Column(""),
        Column("machines", least=_MACHINE),
        Column("GPUs", right=True),
        Column("GPU"),
        Column("strategy", expendable=5),
        Column("batch", right=True, expendable=4),
        Column("time", right=True, style="cyan"),
        Column("80 % between", right=True, expendable=3),
        Column("cost", right=True, style="green"),
        Column("kWh", right=True, expendable=6),
        Column("kg CO2", right=True, expendable=7),
        Column("chance", right=True, expendable=1),
    ]
    rows = [_row(frontier, index) for index in frontier.front]
    if not limited:
        columns, rows = columns[:-1], [row[:-1] for row in rows]
    title = f"Nothing is both faster and cheaper than these ({len(frontier.plans):,} machines compared):"
    print_table(columns, rows, title)
    within = _within(frontier)
    named = {f"cheapest{within}": frontier.cheapest, f"fastest{within}": frontier.fastest}
    for name, index in (named | {"best of both (knee)": frontier.knee}).items():
        if index is not None:
            plan = frontier.plans[index]
            cost, time = format_money(plan.usd.p50), format_duration(plan.seconds.p50)
            print_line(f"  {name}: {words.machines(plan)}, {time}, {cost}", "dim")


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
        words.machines(plan),
        f"{plan.devices:,}",
        plan.hardware.device.id,
        configuration.strategy if plan.devices > 1 else "",
        f"{configuration.global_batch:,}",
        format_duration(plan.seconds.p50),
        words.between_times(plan.seconds),
        format_money(plan.usd.p50),
        "" if plan.kwh is None else f"{plan.kwh:,.3g}",
        "" if plan.co2_kg is None else f"{plan.co2_kg:,.3g}",
        probability(plan.both),
    )


def _draw(frontier: Frontier) -> None:
    """Time against money: the front among all."""
    longest = max(frontier.plans[index].seconds.p50 for index in frontier.front)
    scale, unit = next((each for each in _TIMES if longest >= 2 * each[0]), _TIMES[-1])
    on_front = set(frontier.front)
    dearest = 4 * max(frontier.plans[index].usd.p50 for index in frontier.front)
    others = [
        plan
        for index, plan in enumerate(frontier.plans)
        if index not in on_front and plan.seconds.p50 <= 4 * longest and plan.usd.p50 <= dearest
    ]
    chosen = [] if frontier.chosen is None else [frontier.plans[frontier.chosen]]
    print_points(
        "Time against money",
        f"time, {unit}",
        "cost, USD",
        [
            Points("others", *_places(others, scale), "dot"),
            Points("front", *_places(list(frontier.on_front()), scale), "hd", is_line=True),
            Points("chosen", *_places(chosen, scale), _MARK),
        ],
    )


def _places(plans: Sequence[Plan], scale: float) -> tuple[list[float], list[float]]:
    return [plan.seconds.p50 / scale for plan in plans], [plan.usd.p50 for plan in plans]


def _two_phases(frontier: Frontier) -> None:
    found = frontier.two_phases
    if found is None:
        return
    saved = f"saves {format_money(found.saved_usd)}"
    if frontier.deadline_seconds is None:  # then it was the fastest within the budget that was looked for
        saved = f"is {format_duration(found.saved_seconds)} faster"
    flat = found.flattens_at_share
    curve = "" if flat is None else f" (the curve flattens at {flat:.0%})"
    print_line()
    print_line(
        f"In two phases: the first {found.switch_share:.0%}{curve} on {words.machines(found.first)}, the "
        f"rest on {words.machines(found.second)}: {format_duration(found.plan.seconds)} for "
        f"{format_money(found.plan.usd)}. That {saved} against one machine, if all goes as expected: it "
        "fills the limit to the brim.",
        "cyan",
    )
    if found.note:
        print_line(f"  Note: {found.note}", "yellow")


def _losers(frontier: Frontier, why: str) -> None:
    found = list(_matching(frontier, why))
    print_line()
    if not found:
        print_line(f"No plan that lost matches {why!r}; --why all lists them.", "yellow")
        return
    print_table(
        [
            Column("machines", least=_MACHINE), Column("time", right=True), Column("cost", right=True),
            Column("why it lost", least=30),
        ],
        [
            (
                words.machines(frontier.plans[index]),
                format_duration(frontier.plans[index].seconds.p50),
                format_money(frontier.plans[index].usd.p50),
                words.why_lost(frontier, frontier.reasons[index]),
            )
            for index in found
        ],
        "Why the others lost:",
    )  # fmt: skip


def _matching(frontier: Frontier, why: str) -> Iterator[int]:
    wanted = why.casefold()
    for index, (plan, reason) in enumerate(zip(frontier.plans, frontier.reasons, strict=True)):
        names = f"{words.machines(plan)} {plan.hardware.device.id}".casefold()
        if reason.verdict is not Verdict.ON_FRONT and (wanted == _ALL or wanted in names):
            yield index


def _rest(frontier: Frontier) -> None:
    print_line()
    print_line(
        f"{frontier.considered:,} combinations of machines, strategy and batch size were compared.", "dim"
    )
    for each in frontier.excluded[:_LEFT_OUT]:
        more = ", ..." if each.count > len(each.examples) else ""
        print_line(f"Left out: {each.machine_types} ({', '.join(each.examples)}{more}): {each.reason}", "dim")
    told = set(frontier.job.notes)
    for note in frontier.notes:
        if note not in told:
            print_line(f"Note: {note}", "yellow")
