"""The best run configuration on given machines: what is compared, what fits, and what comes first."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from itertools import product

import pytest
from tests.support.planned import workload
from tests.support.scenarios import context_on, predicted
from tests.support.smaller_devices import with_memory

from foretrain.answers import Infeasible
from foretrain.facts.hardware import Hardware, hardware
from foretrain.jobs.batch_limits import capacity_bytes
from foretrain.jobs.configurations import (
    SAFE,
    ConfigurationCandidate,
    ConfigurationSpace,
    Configured,
    RunConfiguration,
    best_configuration,
    candidates,
    configuration_space,
    configure,
    verify,
)
from foretrain.jobs.job import job
from foretrain.jobs.length import length_of
from foretrain.jobs.options import BatchLimits, LengthOptions
from foretrain.prediction.cost_models import OperatorCostModel
from foretrain.prediction.options import InputOptions
from foretrain.prediction.scenario import StepConfiguration, evaluate
from foretrain.prediction.strategies.strategy import layout_of, plan_words
from foretrain.units import GIB

STRATEGIES = plan_words()
EPOCHS = LengthOptions(epochs=10, samples=100_000)
TIGHT = 1.65 * GIB
"""Too little for the state of `voice-linear` on one device, enough for an eighth of it."""
SCANT = 2.5 * GIB
"""Enough for two samples of `resnet50`."""


@cache
def device_of(size: float, on: str = "t4:8") -> Hardware:
    return with_memory(on, size)


def space_on(
    *machines: Hardware,
    model: str = "voice-linear",
    limits: BatchLimits | None = None,
    samples_from: InputOptions | None = None,
    length: LengthOptions = EPOCHS,
    strategies: tuple[str, ...] = STRATEGIES,
    search_layouts: bool = False,
) -> ConfigurationSpace:
    known = length_of(length)
    assert known is not None
    return configuration_space(
        workload(model),
        machines,
        known,
        limits or BatchLimits(max_global_batch=1024),
        strategies,
        OperatorCostModel(),
        samples_from or InputOptions(),
        search_layouts,
    )


def fitting(space: ConfigurationSpace, on: Hardware) -> tuple[ConfigurationCandidate, ...]:
    return candidates(space, on).fitting


def best(space: ConfigurationSpace, on: Hardware) -> ConfigurationCandidate:
    return fitting(space, on)[0]


def verified(space: ConfigurationSpace, on: Hardware) -> RunConfiguration:
    chosen = configure(space, on)
    assert isinstance(chosen, Configured)
    assert not chosen.is_verified
    answer = verify(chosen)
    assert answer.is_verified
    assert verify(answer) is answer
    assert answer.configuration.step_seconds == chosen.configuration.step_seconds or space.layouts_of
    return answer.configuration


def test_all_candidates_fit_and_training_is_steps_times_step() -> None:
    on = hardware("t4:8")
    found = fitting(space_on(on), on)
    assert len({(each.strategy, each.micro_batch, each.micro_batches) for each in found}) == len(found)
    for each in found:
        assert each.memory_bytes <= capacity_bytes(on.device)
        assert each.global_batch == each.micro_batch * each.micro_batches * 8 <= 1024
        steps = 10 * -(-100_000 // each.global_batch)
        assert each.training_seconds == pytest.approx(steps * each.seconds)


def test_the_fastest_comes_first_or_one_about_as_fast_with_a_smaller_batch() -> None:
    on = hardware("t4:8")
    found = fitting(space_on(on), on)
    quickest = min(each.training_seconds for each in found)
    assert found[0].training_seconds <= 1.02 * quickest
    about = [each for each in found if each.training_seconds <= 1.02 * quickest]
    assert found[0].global_batch == min(each.global_batch for each in about)
    rest = [each.training_seconds for each in found[len(about) :]]
    assert rest == sorted(rest)


def test_plenty_of_memory_needs_no_sharding() -> None:
    on = hardware("t4:8")
    assert {each.strategy for each in fitting(space_on(on), on)} == {"ddp"}


def test_state_is_sharded_where_it_does_not_fit_otherwise() -> None:
    on = device_of(TIGHT)
    assert fitting(space_on(on, strategies=("ddp",)), on) == ()
    space = space_on(on)
    found = best(space, on)
    assert found.strategy != "ddp"
    assert not found.is_plain
    assert found.memory_bytes <= capacity_bytes(on.device)
    assert found.micro_batch > 1, "batches are not given up where only the state is too large"
    assert space.least_bytes(on) <= capacity_bytes(on.device)


def test_less_memory_makes_no_sharded_configuration_faster() -> None:
    times = []
    for size in (16 * GIB, 2 * GIB, 1.7 * GIB, TIGHT, 1.64 * GIB):
        on = device_of(size)
        times.append(
            min(each.training_seconds for each in fitting(space_on(on, strategies=STRATEGIES[1:]), on))
        )
    assert times == sorted(times)
    assert times[0] < times[-1]


def test_one_device_shards_nothing() -> None:
    on = with_memory("t4", TIGHT)
    space = space_on(on)
    assert fitting(space, on) == ()
    assert space.shares_out(on), "so memory is why"
    assert space.least_bytes(on) > capacity_bytes(on.device)


def test_a_sharded_configuration_is_verified_by_its_full_prediction() -> None:
    on = device_of(TIGHT)
    chosen = verified(space_on(on), on)
    assert chosen.strategy.startswith("zero")
    expected = predicted(
        workload("voice-linear").at(batch=chosen.batch),
        on,
        OperatorCostModel(),
        strategy=chosen.strategy,
        micro_batches=chosen.micro_batches,
    )
    assert expected.memory.fits
    assert chosen.step_seconds.p50 == pytest.approx(expected.step.seconds.p50)
    assert chosen.memory_bytes == pytest.approx(expected.memory.bytes.p50)
    assert chosen.forward_seconds == pytest.approx(expected.step.forward_seconds)
    assert chosen.steps == 10 * math.ceil(100_000 / chosen.global_batch)


def test_on_request_all_layouts_are_searched_where_state_must_be_sharded() -> None:
    on = device_of(TIGHT)
    usual, searched = (verified(space_on(on, search_layouts=each), on) for each in (False, True))
    assert searched.global_batch == usual.global_batch
    assert searched.step_seconds.p50 <= usual.step_seconds.p50 * (1 + 1e-9)


def test_what_ranks_sharded_steps_is_their_prediction() -> None:
    on = device_of(TIGHT)
    for each in fitting(space_on(on), on)[:3]:
        expected = predicted(
            workload("voice-linear").at(batch=each.micro_batch * each.micro_batches),
            on,
            OperatorCostModel(),
            strategy=each.strategy,
            micro_batches=each.micro_batches,
        )
        assert each.seconds == pytest.approx(expected.step.seconds.p50)
        assert each.memory_bytes == pytest.approx(expected.memory.bytes.p50)


@pytest.mark.parametrize("size", [1.64 * GIB, TIGHT, 1.7 * GIB, 2 * GIB, 16 * GIB])
def test_simulating_only_what_may_be_chosen_chooses_what_simulating_all_would(size: float) -> None:
    on = device_of(size)
    space = space_on(on, strategies=STRATEGIES[1:])
    every = [_simulate_if_it_fits(space, on, *each) for each in _configurations(space, on)]
    fits = [each for each in every if each is not None]
    safe = [each for each in fits if each.is_safe] or fits
    near = [each for each in safe if each.seconds_of_job <= 1.02 * min(one.seconds_of_job for one in safe)]
    expected = min(near, key=lambda each: (each.global_batch, -each.micro_batch))
    chosen = best(space, on)
    assert (chosen.strategy, chosen.micro_batch, chosen.micro_batches) == expected.configuration


@dataclass(frozen=True)
class Simulated:
    """A configuration as a full prediction and a simulation of its memory have it."""

    configuration: tuple[str, int, int]
    seconds_of_job: float
    global_batch: int
    is_safe: bool

    @property
    def micro_batch(self) -> int:
        return self.configuration[1]


def _configurations(space: ConfigurationSpace, on: Hardware) -> Iterator[tuple[str, int, int]]:
    for batch, strategy in product(space.table.batches, space.strategies):
        for rounds in space.limits.rounds(batch, on.devices):
            yield strategy, batch, rounds


def _simulate_if_it_fits(
    space: ConfigurationSpace, on: Hardware, strategy: str, batch: int, rounds: int
) -> Simulated | None:
    layout = layout_of(strategy, on.devices, on.devices_per_node)
    step = evaluate(
        context_on(space.table.workload, on, OperatorCostModel()),
        StepConfiguration(layout, batch * rounds, rounds),
    )
    if not step.memory.fits:
        return None
    size = batch * rounds * on.devices
    return Simulated(
        (strategy, batch, rounds),
        space.steps_at(size).quantiles.p50 * step.seconds,
        size,
        step.out_of_memory_probability <= SAFE,
    )


def test_memory_is_simulated_only_of_what_may_be_chosen() -> None:
    """Most configurations are slower than one that fits, or their tensors alone do not fit."""
    on = device_of(2 * GIB)
    space = space_on(on, strategies=STRATEGIES[1:])
    assert len(fitting(space, on)) < len(list(_configurations(space, on))) / 4


def test_batches_that_do_not_divide_evenly_have_no_candidate() -> None:
    eight, one = hardware("t4:8"), hardware("t4")
    space = space_on(eight, one, limits=BatchLimits(global_batch=100))
    assert not space.shares_out(eight)
    assert space.shares_out(one)
    assert fitting(space, eight) == ()
    assert best(space, one).global_batch == 100


@pytest.mark.parametrize("devices", [1, 64, 512])
def test_every_count_of_devices_has_batches_to_compare(devices: int) -> None:
    """Also beside one device that would take a batch of thousands."""
    on = hardware("t4" if devices == 1 else f"t4:8x{devices // 8}")
    space = space_on(hardware("h100-sxm"), on, limits=BatchLimits(max_global_batch=8192))
    assert space.shares_out(on)


def test_the_law_of_epochs_moves_the_batch_down() -> None:
    on = hardware("t4:8")
    law = replace(EPOCHS, critical_batch=16, reference_batch=16)
    assert best(space_on(on, length=law), on).global_batch < best(space_on(on), on).global_batch


def test_slow_loading_limits_every_configuration() -> None:
    on = hardware("t4:8")
    quick, slow = (
        space_on(on, model="mnist-cnn", samples_from=samples)
        for samples in (InputOptions(), InputOptions(dataset="imagenet", loader_workers=1))
    )
    for each in fitting(slow, on):
        loading = slow.table.loading(each.micro_batch, on).seconds * each.micro_batches
        assert each.seconds >= loading
    assert best(slow, on).training_seconds > 2 * best(quick, on).training_seconds


def test_a_large_device_takes_no_configuration_from_a_small_one() -> None:
    """Micro-batches of a few samples are compared where a device fits no more, however many another fits."""
    small, large = with_memory("t4", SCANT), hardware("a100-sxm-80gb")
    alone, beside = (space_on(*machines, model="resnet50") for machines in ((small,), (small, large)))
    assert best(beside, large).micro_batch >= 128 * best(beside, small).micro_batch
    assert best(beside, small).micro_batch == best(alone, small).micro_batch


def test_best_configuration_is_the_verified_one() -> None:
    on, length = device_of(TIGHT), length_of(EPOCHS)
    assert length is not None
    best_one = best_configuration(
        workload("voice-linear"), on, length, BatchLimits(max_global_batch=1024), model=OperatorCostModel()
    )
    assert best_one == verified(space_on(on), on)


def test_a_job_from_start_to_end_as_the_package_documents_it() -> None:
    on, length = hardware("aws:g4dn.xlarge"), length_of(EPOCHS)
    assert length is not None
    configuration = best_configuration(workload("mnist-cnn"), on, length)
    assert isinstance(configuration, RunConfiguration)
    whole = job(configuration.step, configuration.job_steps, (on,))
    assert whole.steps == configuration.steps
    training = next(part for part in whole.parts if part.name == "training")
    assert training.seconds == pytest.approx(configuration.steps * configuration.step_seconds.p50)
    assert whole.usd is not None and whole.saving.bytes == configuration.state_bytes


def test_activations_are_recomputed_where_nothing_fits_otherwise() -> None:
    length = length_of(LengthOptions(steps=1000))
    assert length is not None
    plain, lean = (
        best_configuration(workload("gpt2"), with_memory("t4", size), length, BatchLimits(batch=4))
        for size in (16 * GIB, 8 * GIB)
    )
    assert isinstance(plain, RunConfiguration) and isinstance(lean, RunConfiguration)
    assert (plain.checkpoint_activations, lean.checkpoint_activations) == (False, True)
    assert lean.memory_bytes < 8 * GIB < plain.memory_bytes


def test_other_layouts_are_searched_where_a_global_batch_does_not_divide_evenly() -> None:
    length = length_of(LengthOptions(steps=1000))
    assert length is not None
    on = hardware("v100-sxm2-32gb:8")
    found = best_configuration(workload("mnist-cnn"), on, length, BatchLimits(global_batch=3))
    assert isinstance(found, RunConfiguration)
    assert found.global_batch == 3
    assert found.strategy not in STRATEGIES
    refused = best_configuration(workload("mnist-cnn"), on, length, BatchLimits(global_batch=3), ("ddp",))
    assert isinstance(refused, Infeasible)
    assert "does not divide evenly" in refused.available


def test_what_does_not_fit_is_infeasible_and_names_the_memory() -> None:
    length = length_of(EPOCHS)
    assert length is not None
    answer = best_configuration(workload("voice-linear"), with_memory("t4", TIGHT), length)
    assert isinstance(answer, Infeasible)
    assert answer.constraint == "voice-linear"
    assert "GiB on each device of t4" in answer.needed
    assert "GiB" in answer.available
    assert "smaller batch" in answer.alternative
