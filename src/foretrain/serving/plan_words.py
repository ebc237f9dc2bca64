"""Plans in a few words: the machines, the chance of keeping a limit, why one lost."""

from __future__ import annotations

from typing import TYPE_CHECKING

from foretrain.serving.wording import probability, together
from foretrain.units import format_duration, format_money

if TYPE_CHECKING:
    from foretrain.estimates import Quantiles
    from foretrain.planning.frontier import Frontier, Plan
    from foretrain.planning.selection import Reason


def machines(plan: Plan) -> str:
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


def limits(frontier: Frontier, plan: Plan) -> str:
    """How likely a plan keeps what was asked: `It keeps the deadline of 24h 00m with 97 % probability.`"""
    deadline, budget = frontier.deadline_seconds, frontier.budget_usd
    in_time = "" if deadline is None else f"the deadline of {together(format_duration(deadline))}"
    in_budget = "" if budget is None else f"the budget of {format_money(budget)}"
    if not in_time and not in_budget:
        return ""
    both = probability(plan.both)
    if not (in_time and in_budget):
        return f"It keeps {in_time or in_budget} with {both} probability."
    if probability(plan.in_time) == probability(plan.in_budget):
        return f"It keeps {in_time} and {in_budget} with {both} probability."
    each = f"{in_time} with {probability(plan.in_time)} and {in_budget} with {probability(plan.in_budget)}"
    return f"It keeps {each} probability."


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
    return f"{machines(frontier.plans[reason.better])} is {' and '.join(ahead)}"
