"""A two-phase plan that wins on a real training curve at real prices, against brute force.

ResNet-50 trained as an entry of DAWNBench did, on the offers of Lambda in the shipped catalogue, which bills
by the minute. The curve says how many steps there are; where it flattens does not move the switch.
"""

from __future__ import annotations

import csv
import itertools
import math
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from foretrain.convergence.curves import Curve, Floats, MetricDirection, curve_of
from foretrain.facts.hardware import hardware
from foretrain.facts.offers import search
from foretrain.facts.options import OfferQuery
from foretrain.facts.providers import providers
from foretrain.facts.running import CHECKPOINT_FIXED, CHECKPOINT_RATE, STARTUP, default
from foretrain.jobs.epochs import where_it_flattens
from foretrain.planning.two_phases.phases import (
    HandOver,
    PhasedJob,
    Runner,
    cheapest_in_phases,
    fastest_in_phases,
)
from foretrain.prediction.corrections.apply import resolve_cost_model
from foretrain.prediction.operators.pricing import DEFAULT
from foretrain.prediction.options import InputOptions, Parallelism
from foretrain.prediction.scenario import StepConfiguration, evaluate, step_context
from foretrain.prediction.strategies.strategy import layout_of
from foretrain.workloads.graph import state_bytes
from foretrain.workloads.options import WorkloadRequest
from foretrain.workloads.workload import workload_of

FILE = Path(__file__).parent / "data" / "dawnbench_imagenet_resnet50.csv"
TARGET, SAMPLES, BATCH = 93.0, 1_281_167, 1024
GPUS = ("a100-sxm-40gb", "gh200", "b200")


def read_curve() -> Curve:
    with FILE.open(newline="") as lines:
        epochs, values = np.array([[float(cell) for cell in row] for row in list(csv.reader(lines))[1:]]).T
    return curve_of(epochs, values, "accuracy", MetricDirection.UP, FILE.stem, FILE.stem)


@cache
def the_job() -> PhasedJob:
    epochs = read_curve().first_reaching(TARGET)
    steps = math.ceil(epochs * math.ceil(SAMPLES / BATCH))
    offers = [
        offer
        for gpu in GPUS
        for offer in search(OfferQuery(gpu=gpu, cloud=("lambda",)))
        if BATCH % offer.count == 0
    ]
    workload = workload_of(WorkloadRequest("resnet50", precision="fp16", channels_last=True))
    model = resolve_cost_model(DEFAULT, workload)
    start = default(STARTUP).quantiles.p50
    runners, state = [], 0.0
    for offer in offers:
        name = f"lambda:{offer.instance}"
        context = step_context(workload, hardware(name), Parallelism(), model, InputOptions())
        each = BATCH // offer.count
        layout = layout_of("ddp", offer.count, offer.count)
        step = evaluate(context, StepConfiguration(layout, each, max(1, each // 128)))
        assert step.memory.fits
        state = state_bytes(step.graph)
        terms = providers()["lambda"].billing_terms(offer.instance)
        runners.append(Runner(name, (step.seconds,), offer.usd_per_hour, terms, start))
    moved = default(CHECKPOINT_FIXED).quantiles.p50 + state / default(CHECKPOINT_RATE).quantiles.p50
    return PhasedJob((steps,), tuple(runners), HandOver(moved, moved))


def phase(runner: Runner, steps: Floats, besides: float) -> tuple[Floats, Floats]:
    """Time and money of `steps` steps: a bill by whole units, implemented independently."""
    seconds = runner.start_seconds + steps * runner.step_seconds[0] + besides
    unit = runner.terms.granularity_seconds
    assert unit > 0
    billed = np.ceil(np.round(np.maximum(seconds, runner.terms.minimum_seconds) / unit, 6)) * unit
    return seconds, billed / 3600 * runner.usd_per_hour


def brute_force(job: PhasedJob, deadline: float) -> float:
    """The least money of one offer, or of any two and any switch step between them."""
    first = np.arange(1.0, job.steps)
    moved = float(np.asarray(job.hand_over.write_seconds))
    alone = [phase(runner, np.array([float(job.steps)]), 0.0) for runner in job.runners]
    best = min((float(usd[0]) for seconds, usd in alone if seconds[0] <= deadline), default=math.inf)
    for one, other in itertools.permutations(job.runners, 2):
        (before, paid), (after, to_pay) = phase(one, first, moved), phase(other, job.steps - first, moved)
        usd = (paid + to_pay)[before + after <= deadline]
        best = min(best, float(usd.min())) if len(usd) else best
    return best


@pytest.fixture
def job() -> PhasedJob:
    return the_job()


def deadlines(job: PhasedJob) -> list[float]:
    """From the quickest offer's time to the cheapest's."""
    quickest, cheapest = fastest_in_phases(job).single, cheapest_in_phases(job).single
    assert quickest is not None
    assert cheapest is not None
    return [float(seconds) for seconds in np.geomspace(quickest.seconds, cheapest.seconds, 7)]


def test_the_best_plan_is_that_of_brute_force(job: PhasedJob) -> None:
    assert len(job.runners) >= 5
    for deadline in deadlines(job):
        best = cheapest_in_phases(job, deadline).best
        assert best is not None
        assert best.seconds <= deadline
        assert best.usd == pytest.approx(brute_force(job, deadline), rel=1e-12)


def test_two_phases_win_between_the_quickest_offer_and_the_cheapest(job: PhasedJob) -> None:
    answers = [cheapest_in_phases(job, deadline) for deadline in deadlines(job)]
    saved = [answer.saved_usd / answer.single.usd for answer in answers if answer.saved_usd and answer.single]
    assert len(saved) >= 2
    assert max(saved) > 0.05
    # The ends of the range are the quickest and the cheapest offer themselves: nothing to win there.
    assert answers[0].two_phase is None
    assert answers[-1].two_phase is None


def test_where_the_curve_flattens_is_reported_beside_the_switch(job: PhasedJob) -> None:
    curve = read_curve()
    assert curve.first_reaching(TARGET) == curve.last_step == 29
    assert where_it_flattens(curve.steps, np.maximum.accumulate(curve.values)) == 4
    switches = {
        round(answer.two_phase.phases[0].last_step / job.steps * curve.last_step)
        for answer in (cheapest_in_phases(job, deadline) for deadline in deadlines(job))
        if answer.two_phase
    }
    assert len(switches) > 1  # the deadline moves the switch, the curve does not
