"""The input pipeline against arithmetic a reader can follow."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.support.small_models import graph

from foretrain.errors import InvalidRequest, UnknownName
from foretrain.facts.datasets import datasets, storages
from foretrain.facts.devices import device, devices
from foretrain.prediction.options import InputOptions
from foretrain.prediction.step.input_pipeline import (
    COPYING,
    DECODING,
    READING,
    estimate_input,
    host_link,
    input_bytes,
)
from foretrain.workloads.graph import with_options

T4 = device("t4")
STEP = replace(graph("conv", batch=4), samples=100)
TEXT = replace(STEP, tokens=51_200)


def test_without_a_data_set_only_the_copy_remains() -> None:
    pipeline = estimate_input(STEP, T4)
    assert input_bytes(STEP) == 4 * 3 * 8 * 8 * 4  # four images of 3 x 8 x 8 floats
    assert pipeline.copying_seconds == pytest.approx(input_bytes(STEP) / host_link(T4)[1])
    assert pipeline.reading_seconds == pipeline.decoding_seconds == 0
    assert [part.name for part in pipeline.estimate.visible] == [COPYING]


def test_files_on_a_hard_disk_take_a_seek_each() -> None:
    pipeline = estimate_input(STEP, T4, InputOptions(dataset="imagenet-jpeg", storage="hdd"))
    assert pipeline.reading_seconds == pytest.approx(100 / 170 + 100 * 115_440 / 270e6)
    assert pipeline.seconds == pipeline.reading_seconds


def test_packed_samples_need_no_seek() -> None:
    pipeline = estimate_input(STEP, T4, InputOptions(dataset="cifar10", storage="hdd"))
    assert pipeline.reading_seconds == pytest.approx(100 * 3073 / 270e6)


def test_workers_share_the_decoding() -> None:
    cost = datasets()["imagenet-jpeg"].sheet.number("decode_seconds_per_sample")
    for workers, sharing in ((0, 1), (1, 1), (8, 8)):
        pipeline = estimate_input(STEP, T4, InputOptions(dataset="imagenet-jpeg", loader_workers=workers))
        assert pipeline.decoding_seconds == pytest.approx(100 * cost / sharing)


def test_tokens_count_by_the_token() -> None:
    pipeline = estimate_input(TEXT, T4, InputOptions(dataset="tokens", storage="sata-ssd"))
    assert pipeline.reading_seconds == pytest.approx(100 / 98_000 + 51_200 * 2 / 560e6)


def test_tokens_for_a_model_of_images_make_no_sense() -> None:
    with pytest.raises(InvalidRequest, match="but the inputs of this model are not tokens"):
        estimate_input(STEP, T4, InputOptions(dataset="tokens"))


def test_prefetching_leaves_the_slowest_stage_and_nothing_else() -> None:
    options = InputOptions(dataset="imagenet-jpeg", storage="hdd", loader_workers=1)
    ahead, in_turn = (estimate_input(STEP, T4, replace(options, prefetch=p)) for p in (True, False))
    stages = (ahead.reading_seconds, ahead.decoding_seconds, ahead.copying_seconds)
    assert ahead.seconds == max(stages)
    assert in_turn.seconds == pytest.approx(sum(stages))
    assert {part.name for part in ahead.estimate.parts} >= {READING, DECODING, COPYING}


def test_a_training_process_that_loads_itself_overlaps_nothing() -> None:
    assert not InputOptions(dataset="cifar10", loader_workers=0).overlaps
    assert InputOptions(loader_workers=0).overlaps  # no data set: the copy alone runs beside the device


def test_synthetic_samples_and_a_cpu_cost_nothing() -> None:
    assert estimate_input(STEP, T4, InputOptions(dataset="synthetic")).seconds == 0
    cpu = next(item for item in devices().values() if item.is_cpu)
    assert estimate_input(STEP, cpu).seconds == 0


def test_every_storage_in_its_order_and_every_data_set_is_predicted() -> None:
    order = ("nvme", "sata-ssd", "network-disk", "hdd")
    times = [
        estimate_input(STEP, T4, InputOptions(dataset="imagenet", storage=name)).reading_seconds
        for name in order
    ]
    assert times == sorted(times)
    assert set(order) == set(storages())
    for name in datasets():
        assert estimate_input(TEXT, T4, InputOptions(dataset=name)).seconds >= 0


def test_half_the_lanes_take_twice_as_long() -> None:
    eight = [item for item in devices().values() if item.sheet.has("pcie_lanes")]
    rates = {host_link(item) for item in eight}
    assert all(rate > 0 for _, rate in rates)
    by_name = dict(rates)
    assert by_name["pcie4-x16"] == 2 * by_name["pcie4-x8"]


def test_what_is_only_on_a_data_sheet_may_take_longer_but_not_shorter() -> None:
    reading = estimate_input(STEP, T4, InputOptions(dataset="imagenet", storage="hdd")).estimate.visible[0]
    assert reading.below == 0
    assert reading.above > 0


def test_bad_options() -> None:
    with pytest.raises(InvalidRequest, match="loader workers must be at least 0, got -1"):
        InputOptions(loader_workers=-1)
    with pytest.raises(UnknownName, match="no data set"):
        InputOptions(dataset="imagenett")
    with pytest.raises(UnknownName, match="no storage 'floppy'"):
        InputOptions(storage="floppy")


def test_keras_copies_the_batch_within_the_step_but_loads_a_data_set_ahead() -> None:
    in_keras = with_options(STEP, framework="keras")
    assert estimate_input(STEP, T4).overlaps and not estimate_input(in_keras, T4).overlaps
    assert estimate_input(in_keras, T4, InputOptions(dataset="imagenet-jpeg")).overlaps
