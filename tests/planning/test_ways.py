"""The best way on given machines: what is compared, what fits, and what is taken first."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest
from tests.support.planned import workload
from tests.support.shared_home import own_home
from tests.support.smaller_devices import with_memory

from foretrain.facts.hardware import Hardware, hardware
from foretrain.jobs.batch_limits import BatchLimits
from foretrain.jobs.configurations import STRATEGIES, Candidate, Ways
from foretrain.jobs.device_memory import capacity_bytes
from foretrain.jobs.length import LengthRequest, length_of
from foretrain.planning.verification import Chosen
from foretrain.prediction.cost_models.step_models import OperatorCostModel
from foretrain.prediction.many_devices import Parallelism
from foretrain.prediction.predict import predict
from foretrain.prediction.step.input_pipeline import InputOptions
from foretrain.units import GIB

__all__ = ("own_home",)

EPOCHS = LengthRequest(epochs=10, samples=100_000)
TIGHT = 1.65 * GIB
"""Too little for the state of `voice-linear` on one device, enough for an eighth of it."""
SCANT = 2.5 * GIB
"""Enough for two samples of `resnet50`."""


@cache
def device_of(size: float, on: str = "t4:8") -> Hardware:
    return with_memory(on, size)


def ways_on(
    *machines: Hardware,
    model: str = "voice-linear",
    limits: BatchLimits | None = None,
    samples_from: InputOptions | None = None,
    length: LengthRequest = EPOCHS,
) -> Ways:
    found = length_of(length)
    assert found is not None
    ways = Ways(workload(model), OperatorCostModel(), found, limits or BatchLimits(most=1024))
    ways.prepare(machines, samples_from or InputOptions())
    return ways


def best(ways: Ways, on: Hardware, strategies: tuple[str, ...] = STRATEGIES) -> Candidate:
    return ways.candidates(on, strategies)[0]


def test_all_ways_fit_and_training_is_steps_times_step() -> None:
    on = hardware("t4:8")
    ways = ways_on(on)
    found = ways.candidates(on, STRATEGIES)
    assert len({(each.strategy, each.micro_batch, each.micro_batches) for each in found}) == len(found)
    for each in found:
        assert each.memory_bytes <= capacity_bytes(on.device)
        assert each.global_batch == each.micro_batch * each.micro_batches * 8 <= 1024
        steps = 10 * -(-100_000 // each.global_batch)
        assert each.training_seconds == pytest.approx(steps * each.seconds)


def test_the_quickest_comes_first_but_for_those_about_as_quick_with_a_smaller_batch() -> None:
    on = hardware("t4:8")
    found = ways_on(on).candidates(on, STRATEGIES)
    quickest = min(each.training_seconds for each in found)
    assert found[0].training_seconds <= 1.02 * quickest
    about = [each for each in found if each.training_seconds <= 1.02 * quickest]
    assert found[0].global_batch == min(each.global_batch for each in about)
    rest = [each.training_seconds for each in found[len(about) :]]
    assert rest == sorted(rest)


def test_plenty_of_memory_needs_no_sharding() -> None:
    on = hardware("t4:8")
    assert {each.strategy for each in ways_on(on).candidates(on, STRATEGIES)} == {"ddp"}


def test_state_is_sharded_where_it_does_not_fit_otherwise() -> None:
    on = device_of(TIGHT)
    ways = ways_on(on)
    assert ways.candidates(on, ("ddp",)) == []
    found = best(ways, on)
    assert found.strategy != "ddp"
    assert found.is_sharded
    assert found.memory_bytes <= capacity_bytes(on.device)
    assert found.micro_batch > 1, "batches are not given up where only the state is too large"
    assert ways.leanest_bytes(on) <= capacity_bytes(on.device)


def test_with_less_memory_no_sharded_way_is_quicker() -> None:
    times = []
    for size in (16 * GIB, 2 * GIB, 1.7 * GIB, TIGHT, 1.6 * GIB):
        on = device_of(size)
        times.append(min(each.training_seconds for each in ways_on(on).candidates(on, STRATEGIES[1:])))
    assert times == sorted(times)
    assert times[0] < times[-1]


def test_one_device_shards_nothing() -> None:
    on = with_memory("t4", TIGHT)
    ways = ways_on(on)
    assert ways.candidates(on, STRATEGIES) == []
    assert ways.shares_out(on), "so memory is why"
    assert ways.leanest_bytes(on) > capacity_bytes(on.device)


def test_a_sharded_way_is_settled_by_its_full_prediction() -> None:
    on = device_of(TIGHT)
    ways = ways_on(on)
    chosen = Chosen(ways, on, ways.candidates(on, STRATEGIES), None)
    assert chosen.settle()
    assert chosen.is_settled
    way = chosen.way
    assert way.strategy.startswith("zero")
    told = predict(
        workload("voice-linear").at(batch=way.batch),
        on,
        Parallelism(way.strategy, way.micro_batches if way.micro_batches > 1 else None),
        OperatorCostModel(),
        with_advice=False,
    )
    assert told.memory.fits
    assert way.step_seconds.p50 == pytest.approx(told.step.seconds.p50)
    assert way.memory_bytes == pytest.approx(told.memory.bytes.p50)
    assert chosen.steps.quantiles.p50 == way.steps


def test_on_request_all_layouts_are_searched_where_state_must_be_sharded() -> None:
    on = device_of(TIGHT)
    ways = ways_on(on)
    usual, searched = (
        Chosen(ways, on, ways.candidates(on, STRATEGIES), whole) for whole in (None, workload("voice-linear"))
    )
    assert usual.settle() and searched.settle()
    assert searched.way.global_batch == usual.way.global_batch
    assert searched.way.step_seconds.p50 <= usual.way.step_seconds.p50 * (1 + 1e-9)


def test_the_sketch_of_a_sharded_step_is_near_its_full_prediction() -> None:
    on = device_of(TIGHT)
    ways = ways_on(on)
    for each in ways.candidates(on, STRATEGIES)[:3]:
        told = predict(
            workload("voice-linear").at(batch=each.micro_batch * each.micro_batches),
            on,
            Parallelism(each.strategy, each.micro_batches if each.micro_batches > 1 else None),
            OperatorCostModel(),
            with_advice=False,
        )
        assert each.seconds == pytest.approx(told.step.seconds.p50, rel=0.25)


def test_batches_that_do_not_share_out_are_told_apart() -> None:
    eight, one = hardware("t4:8"), hardware("t4")
    ways = ways_on(eight, one, limits=BatchLimits(global_batch=100))
    assert not ways.shares_out(eight)
    assert ways.shares_out(one)
    assert ways.candidates(eight, STRATEGIES) == []
    assert best(ways, one).global_batch == 100


@pytest.mark.parametrize("devices", [1, 64, 512])
def test_every_count_of_devices_has_batches_to_compare(devices: int) -> None:
    """Also beside one device that would take a batch of thousands."""
    on = hardware("t4" if devices == 1 else f"t4:8x{devices // 8}")
    ways = ways_on(hardware("h100-sxm"), on, limits=BatchLimits(most=8192))
    assert ways.shares_out(on)


def test_the_law_of_epochs_moves_the_batch_down() -> None:
    on = hardware("t4:8")
    law = replace(EPOCHS, critical_batch=16, reference_batch=16)
    assert best(ways_on(on, length=law), on).global_batch < best(ways_on(on), on).global_batch


def test_slow_loading_sets_the_pace_of_every_way() -> None:
    on = hardware("t4:8")
    quick, slow = (
        ways_on(on, model="mnist-cnn", samples_from=samples)
        for samples in (InputOptions(), InputOptions("imagenet", workers=1))
    )
    for way in slow.candidates(on, STRATEGIES):
        loading = slow.loading(way.micro_batch, on).seconds * way.micro_batches
        assert way.seconds >= loading
    assert best(slow, on).training_seconds > 2 * best(quick, on).training_seconds


def test_a_large_device_beside_it_takes_no_way_from_a_small_one() -> None:
    """Micro-batches of a few samples are compared where a device fits no more, however many another fits."""
    small, large = with_memory("t4", SCANT), hardware("a100-sxm-80gb")
    alone, beside = (ways_on(*machines, model="resnet50") for machines in ((small,), (small, large)))
    assert best(beside, large).micro_batch >= 128 * best(beside, small).micro_batch
    assert best(beside, small).micro_batch == best(alone, small).micro_batch
