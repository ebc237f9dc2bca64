"""A plan's answer from real predictions of a few offers, for those who only show it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache

from tests.support.scenarios import predicted

from foretrain.estimates import Quantiles, probability_within
from foretrain.facts.providers import BillingTerms, providers
from foretrain.jobs.configurations import RunConfiguration
from foretrain.jobs.job import Job, Steps, job_of
from foretrain.planning.frontier import Exclusion, Frontier, Plan, TwoPhases
from foretrain.planning.options import OwningOptions
from foretrain.planning.rent_or_buy import rent_or_buy_for_jobs
from foretrain.planning.selection import (
    cheapest_within,
    fastest_within,
    knee,
    pareto_front,
    probability_of_both,
    reasons,
)
from foretrain.planning.two_phases.phases import PhasedJob, Runner, plan_in_phases
from foretrain.prediction.answer import Prediction
from foretrain.workloads.options import WorkloadRequest
from foretrain.workloads.workload import Workload, workload_of

MACHINES = (
    "aws:g4dn.xlarge", "gcp:n1-standard-16+4xT4", "aws:g5.xlarge", "azure:Standard_NV36ads_A10_v5",
    "lambda:gpu_1x_a100_sxm4", "lambda:gpu_2x_a6000", "lambda:gpu_1x_h100_pcie", "lambda:gpu_8x_v100",
    "aws:g5.12xlarge", "gcp:a2-highgpu-1g", "gcp:a2-highgpu-8g", "aws:p4d.24xlarge:2",
    "lambda:gpu_8x_h100_sxm5",
)  # fmt: skip
_SAMPLES = 2e9


@cache
def example(deadline_seconds: float | None = None, budget_usd: float | None = None) -> Frontier:
    """The front of one small job over some machines, each with the same batch for each device."""
    limits = deadline_seconds or math.inf, budget_usd or math.inf
    answers = _answers()
    plans = tuple(_plan(prediction, job, *limits) for prediction, job in answers)
    seconds, usd = [plan.seconds.p50 for plan in plans], [plan.usd.p50 for plan in plans]
    cheapest, middle = cheapest_within(seconds, usd, *limits), knee(seconds, usd)
    chosen = middle if limits == (math.inf, math.inf) else cheapest
    reported = middle if chosen is None else chosen
    prediction, job = answers[reported]
    return Frontier(
        model=prediction.workload.source.name,
        workload=_workload(),
        deadline_seconds=deadline_seconds,
        budget_usd=budget_usd,
        plans=plans,
        reasons=reasons(seconds, usd, *limits),
        front=tuple(int(index) for index in pareto_front(seconds, usd)),
        cheapest=cheapest,
        fastest=fastest_within(seconds, usd, limits[1], limits[0]),
        knee=middle,
        chosen=chosen,
        reported=reported,
        job=job,
        prediction=_in_full(prediction.cluster.name),
        two_phases=_two_phases(plans) if budget_usd else None,
        job_stream=rent_or_buy_for_jobs(
            OwningOptions(jobs_per_year=120, buy_price=30_000),
            prediction.cluster.groups[0],
            job.seconds,
            plans[reported].usd_per_hour,
        ),
        excluded=(
            Exclusion("A100 variant not specified", 3, ("x:a100", "y:h100")),
            Exclusion("the model does not fit into GPU memory", 2, ("x:k80",)),
        ),
        considered=12_345,
        notes=("prices change daily",),
    )


@cache
def _workload() -> Workload:
    return workload_of(WorkloadRequest("mnist-cnn", batch=256))


@cache
def _in_full(machines: str) -> Prediction:
    return predicted(_workload(), machines, advice=True)


@cache
def _answers() -> tuple[tuple[Prediction, Job], ...]:
    """Predictions and jobs on all machines, the cheapest first."""
    answers = [_answer(predicted(_workload(), name)) for name in MACHINES]
    return tuple(sorted(answers, key=lambda answer: _usd(answer[1]).p50))


def _answer(prediction: Prediction) -> tuple[Prediction, Job]:
    steps = _SAMPLES / prediction.update_batch
    return prediction, job_of(prediction, Steps(Quantiles(0.9 * steps, steps, 1.2 * steps), "a guess"))


def _plan(prediction: Prediction, job: Job, deadline: float, budget: float) -> Plan:
    (machines,), usd = prediction.cluster.groups, _usd(job)
    assert machines.offer is not None
    in_time = probability_within(*_three(job.seconds), deadline)
    in_budget = probability_within(*_three(usd), budget)
    return Plan(
        hardware=machines,
        offer=machines.offer,
        spot=False,
        configuration=RunConfiguration(
            strategy=prediction.strategy,
            precision=prediction.workload.options.precision,
            weights=prediction.workload.options.weights,
            batch=prediction.batch,
            micro_batches=1,
            global_batch=prediction.update_batch,
            checkpoint_activations=False,
            job_steps=Steps(job.steps_interval, job.steps_source),
            step_seconds=prediction.step.seconds,
            forward_seconds=prediction.step.forward_seconds,
            memory_bytes=prediction.memory.bytes.p50,
            out_of_memory_probability=prediction.memory.out_of_memory_probability,
            state_bytes=job.saving.bytes,
            knowledge=prediction.knowledge,
            knowledge_class=prediction.knowledge_class,
        ),
        seconds=job.seconds,
        usd=usd,
        kwh=job.kwh,
        co2_kg=job.co2_kg,
        in_time=float(in_time),
        in_budget=float(in_budget),
        both=float(probability_of_both(in_time, in_budget)),
    )


def _usd(job: Job) -> Quantiles:
    assert job.usd is not None
    return job.usd


def _two_phases(plans: Sequence[Plan]) -> TwoPhases:
    """The first half on the fastest, the rest on the cheapest; whether that wins is not asked here."""
    fast, cheap = min(plans, key=lambda plan: plan.seconds.p50), plans[0]
    runners = tuple(
        Runner(plan.offer.instance, (plan.seconds.p50 / 1000,), plan.usd_per_hour, _terms(plan))
        for plan in (fast, cheap)
    )
    plan = plan_in_phases(PhasedJob((1000,), runners), 0, 1, 400)
    return TwoPhases(plan, fast, cheap, 0.4, 0.38, cheap.usd.p50 * 0.1, 1200.0)


def _terms(plan: Plan) -> BillingTerms:
    return providers()[plan.offer.provider].billing_terms(plan.offer.instance, plan.offer.historical)


def _three(quantiles: Quantiles) -> tuple[float, float, float]:
    return quantiles.p10, quantiles.p50, quantiles.p90
