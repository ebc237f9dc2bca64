"""A plan as the object that JSON and REST hand out: one row a plan, without the facts behind devices."""

from __future__ import annotations

from typing import Any

from foretrain.planning.frontier import Frontier, Plan, TwoPhases
from foretrain.planning.selection import Reason


def frontier_object(frontier: Frontier) -> dict[str, Any]:
    """The whole answer; `front`, `cheapest`, `fastest`, `knee` and `chosen` are places in `plans`."""
    return {
        "model": frontier.model,
        "limits": {"deadline_seconds": frontier.deadline_seconds, "budget_usd": frontier.budget_usd},
        "meets_limits": frontier.meets_limits,
        "chosen": frontier.chosen,
        "shown": frontier.shown,
        "front": frontier.front,
        "cheapest": frontier.cheapest,
        "fastest": frontier.fastest,
        "knee": frontier.knee,
        "plans": [_row(plan, reason) for plan, reason in zip(frontier.plans, frontier.reasons, strict=True)],
        "job": frontier.job,
        "two_phases": None if frontier.two_phases is None else _phases(frontier.two_phases),
        "job_stream": frontier.job_stream,
        "left_out": frontier.left_out,
        "considered": frontier.considered,
        "notes": frontier.notes,
    }


def plan_object(plan: Plan) -> dict[str, Any]:
    """One plan: what is rented, how the job runs on it, and what it takes."""
    offer, way = plan.offer, plan.way
    return {
        "hardware": plan.hardware.name,
        "provider": offer.provider,
        "instance": offer.instance,
        "region": offer.region,
        "device": plan.hardware.device.id,
        "machines": plan.machines,
        "gpus": plan.devices,
        "spot": plan.spot,
        "usd_per_hour": plan.usd_per_hour,
        "price_as_of": offer.as_of,
        "strategy": way.strategy,
        "batch": way.batch,
        "micro_batches": way.micro_batches,
        "global_batch": way.global_batch,
        "checkpoint_activations": way.checkpoint_activations,
        "steps": way.steps,
        "step_seconds": way.step_seconds,
        "memory_bytes": way.memory_bytes,
        "knowledge": way.knowledge,
        "seconds": plan.seconds,
        "usd": plan.usd,
        "kwh": plan.kwh,
        "co2_kg": plan.co2_kg,
        "probability": {"deadline": plan.in_time, "budget": plan.in_budget, "both": plan.both},
    }


def _row(plan: Plan, reason: Reason) -> dict[str, Any]:
    why = {
        "verdict": reason.verdict,
        "beaten_by": reason.better,
        "excess_seconds": reason.excess_seconds,
        "excess_usd": reason.excess_usd,
    }
    return plan_object(plan) | why


def _phases(found: TwoPhases) -> dict[str, Any]:
    return {
        "switch_share": found.switch_share,
        "flattens_at_share": found.flattens_at_share,
        "seconds": found.plan.seconds,
        "usd": found.plan.usd,
        "hand_over_usd": found.plan.hand_over_usd,
        "saved_usd": found.saved_usd,
        "saved_seconds": found.saved_seconds,
        "note": found.note,
        "phases": [
            {"hardware": phase.runner.name, "seconds": phase.seconds, "usd": phase.usd}
            for phase in found.plan.phases
        ],
    }
