"""The best plan among real offers: the answer is checked by brute force over everything compared."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.planned import EPOCHS, FEW, planned, request, workload
from tests.support.scenarios import predicted

from foretrain.answers import Infeasible
from foretrain.errors import InvalidRequest, UnknownName
from foretrain.estimates import Quantiles
from foretrain.facts.offers import offers_named, search
from foretrain.facts.options import OfferQuery
from foretrain.facts.providers import billed_seconds, providers
from foretrain.jobs.job import evaluate_each_epoch, job_of
from foretrain.jobs.length import length_of
from foretrain.jobs.options import BatchLimits, JobOptions, LengthOptions
from foretrain.jobs.step_table import network_on
from foretrain.planning.frontier import Frontier, Plan
from foretrain.planning.machines import MachinesRequest
from foretrain.planning.options import Limits, OwningOptions
from foretrain.planning.plan import PlanProblem, plan
from foretrain.planning.selection import Verdict
from foretrain.prediction.memory.estimate import communicator_bytes, estimate_memory
from foretrain.prediction.options import InputOptions
from foretrain.prediction.strategies.program import MemoryOptions
from foretrain.prediction.strategies.strategy import layout_of
from foretrain.units import DAY, HOUR
from foretrain.workloads.workload import Workload, graph_at

IMAGENET = LengthOptions(epochs=90, samples=1_281_167)
T4 = MachinesRequest(gpu=("t4",), cloud=("aws",), max_gpus=16)


@pytest.fixture(scope="module")
def imagenet() -> Frontier:
    """ResNet-50 on every current offer, within a day."""
    return planned(PlanProblem(workload("resnet50", "fp16"), IMAGENET, limits=Limits(deadline=DAY)))


@pytest.fixture(scope="module")
def few() -> Frontier:
    """A small model on a few kinds of machines, without limits."""
    return planned(request())


def money_and_time(found: Frontier) -> tuple[np.ndarray, np.ndarray]:
    """Medians, in the order of the plans."""
    usd, seconds = ([getattr(each, name).p50 for each in found.plans] for name in ("usd", "seconds"))
    return np.array(usd), np.array(seconds)


def check_front(found: Frontier) -> None:
    """Nothing dominates what is on the front; what is not on it, something on it dominates."""
    usd, seconds = money_and_time(found)
    no_worse = (usd[:, None] <= usd) & (seconds[:, None] <= seconds)
    dominates = no_worse & ((usd[:, None] < usd) | (seconds[:, None] < seconds))
    on_front = np.isin(np.arange(len(usd)), found.front)
    assert on_front.any()
    assert not dominates[:, on_front].any()
    assert dominates[on_front][:, ~on_front].any(axis=0).all()
    for index, reason in enumerate(found.reasons):
        assert (reason.better is None) == bool(on_front[index])
        assert reason.better is None or dominates[reason.better, index]
    assert [found.plans[index] for index in found.front] == list(found.on_front())
    assert all(a.seconds.p50 <= b.seconds.p50 for a, b in pairwise(found.on_front()))
    assert usd.tolist() == sorted(usd.tolist())


def check_bills(found: Frontier) -> None:
    """Money is the time billed at the price of the machines, at each percentile."""
    for each in found.plans:
        terms = providers()[each.offer.provider].billing_terms(each.offer.instance)
        assert each.usd_per_hour == pytest.approx(each.offer.price(each.spot) * each.machines)
        for name in ("p10", "p50", "p90"):
            hours = billed_seconds(getattr(each.seconds, name), terms) / HOUR
            assert getattr(each.usd, name) == pytest.approx(hours * each.usd_per_hour, rel=1e-12)


def check_step(found: Plan, of: Workload, seconds_within: float = 1e-6) -> None:
    """The step of a plan is that of `predict` for the same machines, strategy and batch."""
    configuration = found.configuration
    prediction = predicted(
        of.at(batch=configuration.batch),
        found.hardware,
        strategy=configuration.strategy,
        micro_batches=configuration.micro_batches,
    )
    assert configuration.step_seconds.p50 == pytest.approx(prediction.step.seconds.p50, rel=seconds_within)
    assert configuration.step_seconds.p90 == pytest.approx(prediction.step.seconds.p90, rel=1e-3)
    assert configuration.memory_bytes == pytest.approx(prediction.memory.bytes.p50, rel=0.02)
    assert prediction.memory.fits
    assert configuration.knowledge is prediction.knowledge


def test_the_front_of_all_offers_is_dominated_by_nothing(imagenet: Frontier) -> None:
    assert len(imagenet.plans) > 400
    assert imagenet.considered > 5 * len(imagenet.plans)
    check_front(imagenet)
    check_bills(imagenet)


def test_every_offer_is_planned_or_excluded_with_a_reason(imagenet: Frontier) -> None:
    offers = search(OfferQuery())
    nameless = {(offer.provider, offer.instance) for offer in offers if offer.device is None}
    named = {(offer.provider, offer.instance) for offer in offers if offer.device is not None}
    planned_offers = {(each.offer.provider, each.offer.instance) for each in imagenet.plans}
    counts = {each.reason: each.count for each in imagenet.excluded}
    unnamed = sum(count for why, count in counts.items() if why.endswith("variant not specified"))
    assert unnamed == len(nameless)
    unfit = sum(count for why, count in counts.items() if why.startswith("the model does not fit"))
    assert len(planned_offers) == len(named) - unfit
    assert planned_offers <= named
    assert not any(each.offer.historical for each in imagenet.plans)


def test_the_front_of_all_offers_holds_in_full(imagenet: Frontier) -> None:
    of = workload("resnet50", "fp16")
    for each in imagenet.on_front():
        configuration = each.configuration
        graph, on = graph_at(of, configuration.batch // configuration.micro_batches), each.hardware
        layout = layout_of("ddp", on.devices, on.devices_per_node)
        options = MemoryOptions(
            data_parallel=each.devices,
            keep_gradients=configuration.micro_batches > 1,
            communicator_bytes=communicator_bytes(graph, layout, network_on(on)),
        )
        estimate = estimate_memory(graph, on.device, options)
        assert estimate.fits
        assert configuration.memory_bytes == pytest.approx(estimate.bytes, rel=0.02)
    check_step(imagenet.plans[imagenet.front[0]], of)


def test_the_chosen_plan_within_a_day_is_that_of_brute_force(imagenet: Frontier) -> None:
    usd, seconds = money_and_time(imagenet)
    assert imagenet.chosen is not None and imagenet.knee is not None
    assert usd[imagenet.chosen] == usd[seconds <= DAY].min()
    assert imagenet.chosen == imagenet.cheapest == imagenet.reported
    assert imagenet.fastest is not None
    assert seconds[imagenet.fastest] == seconds.min()
    assert (usd * seconds)[imagenet.knee] == (usd * seconds).min()
    over = [reason.verdict is Verdict.OVER_DEADLINE for reason in imagenet.reasons]
    assert over == (seconds > DAY).tolist()


@pytest.mark.parametrize("place", range(6))
def test_steps_are_those_of_predict(few: Frontier, place: int) -> None:
    plans = [each for each in few.plans if each.configuration.strategy == "ddp"]
    check_step(plans[place * (len(plans) - 1) // 5], workload())


@pytest.mark.parametrize("spot", [False, True])
def test_jobs_are_those_of_predict(spot: bool) -> None:
    """Time, bill, energy and emissions of a plan, evaluations included, are those of the job of its steps."""
    options = JobOptions(eval_samples=10_000, spot=spot)
    found = planned(request(options=options, machines=replace(FEW, max_gpus=4)))
    length = length_of(EPOCHS)
    assert length is not None
    for each in {found.plans[index].hardware.name: found.plans[index] for index in found.front}.values():
        configuration = each.configuration
        prediction = predicted(
            workload().at(batch=configuration.batch),
            each.hardware,
            strategy=configuration.strategy,
            micro_batches=configuration.micro_batches,
        )
        each_epoch = evaluate_each_epoch(options, 60_000, configuration.global_batch)
        job = job_of(
            prediction,
            length.steps_at(configuration.global_batch),
            replace(each_epoch, region=each.offer.region or None),
        )
        assert job.usd is not None
        assert each.seconds.p50 == pytest.approx(job.seconds.p50, rel=1e-6)
        assert each.usd.p50 == pytest.approx(job.usd.p50, rel=1e-6)
        assert each.kwh == pytest.approx(job.kwh, rel=1e-6)
        assert each.co2_kg == pytest.approx(job.co2_kg, rel=1e-6)


def test_the_reported_job_is_that_of_the_plan_shown(few: Frontier) -> None:
    shown, job = few.plans[few.reported], few.job
    assert job.seconds == shown.seconds
    assert (job.usd, job.kwh, job.co2_kg) == (shown.usd, shown.kwh, shown.co2_kg)
    assert sum(part.seconds for part in job.parts) == pytest.approx(shown.seconds.p50)
    assert (
        job.steps
        == shown.configuration.steps
        == 200_000 * math.ceil(60_000 / shown.configuration.global_batch)
    )
    training = sum(part.seconds for part in job.parts if part.name == "training")
    assert training == pytest.approx(job.steps * shown.configuration.step_seconds.p50)
    assert job.price is not None and job.price.offer == shown.offer
    assert few.prediction is None
    assert few.job_stream is None


def test_a_job_in_a_dearer_region_is_priced_there() -> None:
    everywhere = sorted(offers_named("aws:g4dn.xlarge"), key=lambda offer: offer.usd_per_hour)
    dear = next(offer for offer in everywhere if offer.usd_per_hour > everywhere[0].usd_per_hour)
    found = planned(request(machines=replace(T4, max_gpus=1, region=(dear.region,))))
    assert {each.offer.region for each in found.plans} == {dear.region}
    shown = found.plans[found.reported]
    assert shown.usd_per_hour == dear.usd_per_hour
    assert found.job.usd == shown.usd
    assert found.job.price is not None and found.job.price.offer == dear


CLOUDS, GPUS = ("aws", "gcp", "azure", "lambda"), ("t4", "v100", "a10g", "a100", "l4", "h100")


@settings(max_examples=12, derandomize=True)
@given(
    st.sets(st.sampled_from(GPUS), min_size=1, max_size=3),
    st.sets(st.sampled_from(CLOUDS), min_size=1, max_size=3),
    st.sampled_from([1, 4, 16, 64]),
    st.sampled_from([None, 0.5 * HOUR, 3 * HOUR]),
)
def test_fronts_of_all_kinds_of_requests(
    gpus: set[str], clouds: set[str], most: int, deadline: float | None
) -> None:
    machines = MachinesRequest(gpu=tuple(sorted(gpus)), cloud=tuple(sorted(clouds)), max_gpus=most)
    found = plan(request(machines=machines, limits=Limits(deadline=deadline)))
    if isinstance(found, Infeasible):
        offers = [search(OfferQuery(gpu=gpu, cloud=machines.cloud, all_regions=True)) for gpu in gpus]
        assert not any(offer.device and offer.count <= most for listed in offers for offer in listed)
        return
    check_front(found)
    check_bills(found)
    for each in found.plans:
        assert each.devices <= most
        assert each.offer.provider in clouds
        assert each.configuration.global_batch == each.configuration.batch * each.devices
        assert each.configuration.memory_bytes <= each.hardware.device.memory_bytes
        for name in (each.seconds, each.usd, each.configuration.step_seconds):
            assert 0 < name.p10 <= name.p50 <= name.p90
    assert (found.chosen is None) == all(each.in_time < 0.5 for each in found.plans)


def chosen(limits: Limits) -> Plan | None:
    """What to take of a few machines."""
    found = planned(request(limits=limits))
    return None if found.chosen is None else found.plans[found.chosen]


def test_tighter_deadlines_are_never_cheaper() -> None:
    costs = []
    for hours in (24, 10, 6, 4):
        found = planned(request(limits=Limits(deadline=hours * HOUR)))
        assert found.chosen is not None
        best = found.plans[found.chosen]
        assert best.in_time >= 0.5 and best.seconds.p50 <= hours * HOUR
        allowed = [each.usd.p50 for each in found.plans if each.in_time >= 0.5]
        assert best.usd.p50 == pytest.approx(min(allowed))
        costs.append(best.usd.p50)
    assert costs == sorted(costs) and costs[0] < costs[-1]


def test_larger_budgets_are_never_slower() -> None:
    times = []
    for budget in (18, 33, 70, 140):
        found = planned(request(limits=Limits(budget=budget)))
        assert found.chosen is not None
        best = found.plans[found.chosen]
        assert best.in_budget >= 0.5 and best.usd.p50 <= budget
        allowed = [each.seconds.p50 for each in found.plans if each.in_budget >= 0.5]
        assert best.seconds.p50 == pytest.approx(min(allowed))
        times.append(best.seconds.p50)
    assert times == sorted(times, reverse=True) and times[0] > times[-1]


def test_within_both_limits_the_cheapest_and_the_fastest_keep_both() -> None:
    found = planned(request(limits=Limits(deadline=6 * HOUR, budget=50.0)))
    assert found.chosen is not None and found.fastest is not None
    allowed = [each for each in found.plans if each.both >= 0.5]
    assert 1 < len(allowed) < len(found.plans)
    assert found.plans[found.chosen].usd.p50 == pytest.approx(min(each.usd.p50 for each in allowed))
    assert found.plans[found.fastest].seconds.p50 == pytest.approx(min(each.seconds.p50 for each in allowed))


def test_limits_that_nothing_keeps_show_the_nearest_miss() -> None:
    found = planned(request(limits=Limits(deadline=60.0)))
    assert (found.chosen, found.cheapest, found.fastest) == (None, None, None)
    assert not found.meets_limits
    _, seconds = money_and_time(found)
    assert seconds[found.reported] == seconds.min()
    assert all(reason.verdict is Verdict.OVER_DEADLINE for reason in found.reasons)
    assert found.job.seconds == found.plans[found.reported].seconds


def test_being_surer_takes_plans_that_keep_both_limits_that_surely() -> None:
    limits = Limits(deadline=8 * HOUR, budget=120.0)
    even, sure = (planned(request(limits=replace(limits, confidence=c))) for c in (0.5, 0.9))
    assert even.chosen is not None and sure.chosen is not None
    plan = sure.plans[sure.chosen]
    assert min(plan.in_time, plan.in_budget) == plan.both >= 0.9
    assert plan.seconds.p90 <= 8 * HOUR and plan.usd.p90 <= 120
    enough = [each.usd.p50 for each in sure.plans if each.both >= 0.9]
    assert plan.usd.p50 == pytest.approx(min(enough))
    assert plan.usd.p50 >= even.plans[even.chosen].usd.p50
    assert sure.two_phases is None


def test_more_kinds_of_gpus_never_make_the_front_worse() -> None:
    for gpus in (("t4",), ("t4", "v100")):
        less, more = (planned(request(machines=replace(FEW, gpu=names))) for names in (gpus, (*gpus, "l4")))
        usd, seconds = money_and_time(more)
        for each in less.on_front():
            assert ((usd <= each.usd.p50 * (1 + 1e-9)) & (seconds <= each.seconds.p50 * (1 + 1e-9))).any()


def test_more_gpus_together_never_make_the_front_worse() -> None:
    less, more = (planned(request(machines=replace(T4, max_gpus=most))) for most in (4, 16))
    usd, seconds = money_and_time(more)
    assert more.plans[more.front[0]].devices == 16
    for each in less.on_front():
        # ways about as quick count as equal, and which is preferred may differ
        assert ((usd <= each.usd.p50 * 1.021) & (seconds <= each.seconds.p50 * 1.021)).any()


def test_a_batch_for_each_gpu_is_obeyed() -> None:
    found = planned(request(batches=BatchLimits(batch=96)))
    assert {(each.configuration.batch, each.configuration.micro_batches) for each in found.plans} == {(96, 1)}
    assert all(each.configuration.global_batch == 96 * each.devices for each in found.plans)


@pytest.mark.parametrize("global_batch", [100, 1024])
def test_a_global_batch_is_obeyed_and_shared_out_in_the_fewest_parts(global_batch: int) -> None:
    found = planned(request(batches=BatchLimits(global_batch=global_batch)))
    assert {each.configuration.global_batch for each in found.plans} == {global_batch}
    assert {each.devices for each in found.plans} == {1, 2, 4, *((8, 16) if global_batch == 1024 else ())}
    assert {each.configuration.micro_batches for each in found.plans} == {1}, "all of it fits at once"
    uneven = [each for each in found.excluded if each.reason.startswith("the batch does not divide evenly")]
    assert bool(uneven) == (global_batch == 100)


def test_micro_batches_and_the_largest_global_batch_are_obeyed() -> None:
    four = planned(request(batches=BatchLimits(micro_batches=4)))
    assert {each.configuration.micro_batches for each in four.plans} == {4}
    small = planned(request(batches=BatchLimits(max_global_batch=200)))
    assert max(each.configuration.global_batch for each in small.plans) <= 200
    both = planned(request(batches=BatchLimits(micro_batches=5, global_batch=100)))
    assert {(each.configuration.global_batch, each.configuration.micro_batches) for each in both.plans} == {
        (100, 5)
    }


def test_without_a_law_epochs_are_the_same_at_every_batch_and_a_note_says_so(few: Frontier) -> None:
    for each in few.plans:
        assert each.configuration.steps == 200_000 * math.ceil(60_000 / each.configuration.global_batch)
    assert any(note.startswith("the same epochs are counted at every batch size") for note in few.notes)
    assert any("`max_global_batch`" in note for note in few.notes)
    fixed = planned(request(batches=BatchLimits(global_batch=512)))
    assert not any("at every batch size" in note or "`max_global_batch`" in note for note in fixed.notes)
    each_gpu = planned(request(batches=BatchLimits(batch=64)))
    assert any("at every batch size" in note for note in each_gpu.notes), "more GPUs are a larger batch"


def test_by_the_critical_batch_larger_ones_take_more_epochs(few: Frontier) -> None:
    """At the critical batch B twice the least epochs are needed: E(b) = E_least (1 + b / B)."""
    length = replace(EPOCHS, critical_batch=512, reference_batch=64)
    found = planned(request(length=length))
    for each in found.plans:
        growth = (1 + each.configuration.global_batch / 512) / (1 + 64 / 512)
        steps = 200_000 * growth * math.ceil(60_000 / each.configuration.global_batch)
        assert each.configuration.steps == pytest.approx(steps, rel=1e-3)
    largest = [max(each.configuration.global_batch for each in of.plans) for of in (found, few)]
    assert largest[0] < largest[1], "batches are chosen with their epochs"


def test_spot_machines_cost_spot_prices_and_are_interrupted() -> None:
    found = planned(request(options=JobOptions(spot=True), machines=T4))
    assert all(each.spot and each.offer.spot_usd_per_hour is not None for each in found.plans)
    check_bills(found)
    for each in found.plans:
        priced = [offer.spot_usd_per_hour for offer in offers_named(f"aws:{each.offer.instance}")]
        assert each.offer.spot_usd_per_hour == min(price for price in priced if price is not None)
    assert found.job.interruptions > 0
    assert found.job.price is not None and found.job.price.spot
    assert found.job.usd == found.plans[found.reported].usd


def test_exclusions_have_a_reason() -> None:
    found = planned(request(machines=MachinesRequest(gpu=("h100", "t4"), max_gpus=4)))
    by_reason = {each.reason: each for each in found.excluded}
    assert by_reason["H100 variant not specified"].count > 0
    larger = by_reason["more than 4 GPUs"]
    assert larger.count >= len(larger.examples) > 0
    (alone,) = planned(request(machines=T4)).excluded
    assert alone.reason == "considered as single nodes only: inter-node network unknown (give `network`)"
    assert "aws:g4dn.xlarge" in alone.examples
    together = planned(request(machines=replace(T4, network="ethernet-10g")))
    assert any(each.machines == 16 for each in together.plans)
    assert not together.excluded


def test_a_gpu_without_the_precision_is_excluded() -> None:
    asked = replace(request(machines=replace(FEW, gpu=("t4", "h100"))), workload=workload(precision="fp8"))
    found = planned(asked)
    assert {each.hardware.device.id for each in found.plans} == {"h100-sxm"}
    assert any("t4 has no FP8" in each.reason for each in found.excluded)


def test_what_fits_nowhere_is_infeasible_and_says_what_is_needed() -> None:
    answer = plan(request(machines=T4, batches=BatchLimits(batch=10**6)))
    assert isinstance(answer, Infeasible)
    assert str(answer).startswith("infeasible: mnist-cnn needs ")
    assert "GiB on each GPU of aws:g4dn" in answer.needed
    assert "the model does not fit into GPU memory" in answer.available
    assert "`global_batch`" in answer.alternative


def test_nothing_on_offer_is_infeasible_too() -> None:
    answer = plan(request(machines=MachinesRequest(gpu=("t4",), cloud=("lambda",))))
    assert isinstance(answer, Infeasible)
    assert answer.available == "no current offer of t4 by lambda"


def test_a_job_that_never_ends_is_infeasible_and_says_so() -> None:
    answer = plan(request(machines=T4, options=JobOptions(spot=True, interruptions_per_day=1e5)))
    assert isinstance(answer, Infeasible)
    assert "the job never ends" in answer.available


@pytest.mark.parametrize(
    ("machines", "sentence"),
    [
        (MachinesRequest(gpu=("t44",)), "no GPU 't44'"),
        (MachinesRequest(cloud=("awz",)), "no cloud 'awz'"),
        (replace(T4, region=("mars-1",)), "no region 'mars-1'"),
        (replace(T4, network="string"), "no link 'string'"),
    ],
)
def test_unknown_names(machines: MachinesRequest, sentence: str) -> None:
    with pytest.raises(UnknownName, match=sentence):
        plan(request(machines=machines))


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"length": LengthOptions()}, "the length of the job is missing"),
        ({"strategies": ("ddp", "tp")}, "not 'tp'"),
        ({"options": JobOptions(usd_per_hour=1.0)}, "plan uses the prices of the offers"),
        ({"options": JobOptions(region="us-east-1")}, "filter the machines by region"),
    ],
)
def test_requests_that_make_no_sense(changes: dict[str, object], sentence: str) -> None:
    with pytest.raises(InvalidRequest, match=sentence):
        request(**changes)  # type: ignore[arg-type]


def test_steps_are_of_some_batch(tmp_path: Path) -> None:
    """Given or read from a log, the same number at every batch would make the smallest look best."""
    log = tmp_path / "log.csv"
    log.write_text(
        "step,loss\n" + "".join(f"{k},{2 * k**-0.3 + 0.1}\n" for k in range(10, 1000, 10)), encoding="utf-8"
    )
    from_log = LengthOptions(log=log, target="loss=0.4")
    for length in (LengthOptions(steps=1000), from_log):
        with pytest.raises(InvalidRequest, match="`steps` requires `global_batch`"):
            plan(request(length=length))
    found = planned(request(length=from_log, batches=BatchLimits(global_batch=64), machines=T4))
    (steps,) = {each.configuration.steps for each in found.plans}
    assert steps == 560, "2 k^-0.3 + 0.1 meets 0.4 at 557.4, which the log says at 560"
    assert found.job.steps_source == "steps until loss=0.4"


def test_steps_are_counted_at_their_batch() -> None:
    """1,000 steps of 256 samples are 500 of 512, where nothing says that these take more epochs."""
    at_one = planned(request(length=LengthOptions(steps=1000), batches=BatchLimits(global_batch=256)))
    assert {each.configuration.steps for each in at_one.plans} == {1000}
    length = LengthOptions(steps=1000, reference_batch=256)
    chosen_too = planned(request(length=length))
    for each in chosen_too.plans:
        assert each.configuration.steps == math.ceil(1000 * 256 / each.configuration.global_batch)


def test_reading_samples_takes_time(few: Frontier) -> None:
    """One worker that decodes JPEGs keeps eight GPUs waiting; a plan with it is never faster."""
    slow = planned(request(input=InputOptions(dataset="imagenet", loader_workers=1)))
    usual = {each.hardware.name: each for each in few.plans}
    assert all(each.seconds.p50 >= usual[each.hardware.name].seconds.p50 for each in slow.plans)
    assert (
        slow.plans[0].configuration.step_seconds.p50
        > 2 * usual[slow.plans[0].hardware.name].configuration.step_seconds.p50
    )
    assert any("samples are assumed to be in memory" in note for note in few.notes)
    assert not any("samples are assumed to be in memory" in note for note in slow.notes)


def test_often_enough_owning_is_cheaper_than_the_chosen_machines() -> None:
    often, seldom = (
        planned(request(machines=T4, owning=owning)).job_stream
        for owning in (
            OwningOptions(jobs_per_year=jobs, buy_price=3000, usd_per_kwh=0.2) for jobs in (1000, 1)
        )
    )
    assert often is not None and seldom is not None
    assert often.verdict != seldom.verdict


def test_the_prediction_in_full_is_of_the_plan_shown() -> None:
    found = planned(request(machines=replace(T4, max_gpus=4), with_prediction=True))
    assert found.prediction is not None
    shown = found.plans[found.reported]
    assert found.prediction.cluster.groups == (shown.hardware,)
    step_seconds: Quantiles = found.prediction.step.seconds
    assert step_seconds.p50 == pytest.approx(shown.configuration.step_seconds.p50, rel=1e-6)
