"""Time against money of all plans, with the front, the limits and the choice."""

from __future__ import annotations

from foretrain.planning.frontier import Frontier, Plan
from foretrain.serving import plan_words as words
from foretrain.serving.html.markup import Markup
from foretrain.serving.html.scales import Axis, Quantity
from foretrain.serving.html.scatter import Dot, Limit, Scatter, Standing, scatter
from foretrain.units import format_duration, format_money

_SHORT = 6
"""Points of a front that all have room for a name."""


def front_chart(frontier: Frontier) -> Markup:
    """The chart as a figure."""
    return scatter(front_info(frontier))


def front_info(frontier: Frontier) -> Scatter:
    """Plans as points; those of the front carry their number in the table, the chosen one its interval."""
    numbers = {index: number for number, index in enumerate(frontier.front, start=1)}
    dots = [_dot(frontier, index, plan, numbers.get(index)) for index, plan in enumerate(frontier.plans)]
    two = frontier.two_phases
    if two is not None:
        tip = f"two phases: {format_duration(two.plan.seconds)}, {format_money(two.plan.usd)}"
        dots.append(Dot(two.plan.seconds, two.plan.usd, Standing.EXTRA, tip, ("two phases",)))
    deadline, budget = frontier.deadline_seconds, frontier.budget_usd
    return Scatter(
        title="Time against money",
        description=f"{len(frontier.plans)} plans, of which {len(frontier.front)} are beaten by no other.",
        x=Axis("time of the whole job", Quantity.TIME),
        y=Axis("cost of the whole job", Quantity.MONEY),
        dots=tuple(dots),
        x_limit=None if deadline is None else Limit(deadline, f"deadline {format_duration(deadline)}"),
        y_limit=None if budget is None else Limit(budget, f"budget {format_money(budget)}"),
        legend=_legend(frontier),
    )


def _legend(frontier: Frontier) -> tuple[tuple[Standing, str], ...]:
    entries = [(Standing.CHOSEN, "chosen" if frontier.meets_limits else "nearest to the limits")]
    entries.append((Standing.FRONT, "front: nothing is both faster and cheaper"))
    if frontier.two_phases is not None:
        entries.append((Standing.EXTRA, "in two phases"))
    if len(frontier.plans) > len(frontier.front):
        entries.append((Standing.OTHER, "other plans"))
    return tuple(entries)


def _dot(frontier: Frontier, index: int, plan: Plan, number: int | None) -> Dot:
    seconds, usd = plan.seconds, plan.usd
    name = words.machines(plan)
    tip = f"{name}: {format_duration(seconds.p50)}, {format_money(usd.p50)}"
    if index == frontier.reported:
        labels = (name,) if number is None else (f"{number} · {name}", str(number))
        ends = (seconds.p10, seconds.p90), (usd.p10, usd.p90)
        return Dot(seconds.p50, usd.p50, Standing.CHOSEN, tip, labels, *ends)
    if number is None:
        return Dot(seconds.p50, usd.p50, Standing.OTHER, tip)
    in_full = (f"{number} · {name}",) if _is_notable(frontier, index) else ()
    return Dot(seconds.p50, usd.p50, Standing.FRONT, tip, (*in_full, str(number)))


def _is_notable(frontier: Frontier, index: int) -> bool:
    """On a short front all are, on a long one its ends and its knee; the others have their number only."""
    front = frontier.front
    return len(front) <= _SHORT or index in (front[0], front[-1], frontier.knee)
