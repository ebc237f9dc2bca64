"""Memory-bound operators: hand-derived times, and what must hold on any device."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from calibration.datasets.works import norm
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.plain_devices import doubled, plain_device

from foretrain.errors import MissingData
from foretrain.facts.devices import Device, device, devices
from foretrain.facts.sheets import data_root, read_toml
from foretrain.prediction.operators.pricing import Knowledge, roofline_seconds, table
from foretrain.prediction.operators.streaming import (
    BANDWIDTHS,
    GROUPS,
    PATTERNS,
    StreamConstants,
    StreamingModel,
    _threads_per_sm,
    calibration,
    nearest_share,
    published_shares,
    stream_seconds,
    streams,
)
from foretrain.workloads.ops import Direction, Kind, Work

ONE_EACH = (1.0,) * len(PATTERNS)
NONE_EACH = (0.0,) * len(PATTERNS)
IDEAL = StreamConstants(0.0, ONE_EACH, NONE_EACH, NONE_EACH, 1.0, 1.0, 2.0)
GPUS = tuple(item for item in devices().values() if item.is_gpu)
PRICED = sorted(StreamingModel.kinds - {Kind.VIEW})


def streamed(
    kind: Kind,
    rows: int = 4,
    length: int = 64,
    direction: Direction = Direction.FORWARD,
    over_batch: int = 0,
    dtype: str = "float32",
) -> Work:
    """One tensor in, one out (two in, backward)."""
    tensor = float((4 if dtype == "float32" else 2) * rows * length)
    read = 2 * tensor if direction is Direction.BACKWARD else tensor
    dims = {"elements": rows * length, "rows": rows, "length": length, "over_batch": over_batch}
    return Work(kind, direction, dims, dtype, float(rows * length), read, tensor)


def seconds(work: Work, device: Device, constants: StreamConstants = IDEAL, share: float = 1.0) -> float:
    """The time of one work."""
    return float(stream_seconds(streams(table([work]), device), device, share, constants)[0])


def test_elementwise_moves_its_bytes_at_the_delivered_share() -> None:
    work = streamed(Kind.ELEMENTWISE, rows=1, length=3)  # 12 bytes in, 12 out
    assert seconds(work, plain_device(bytes_per_second=2.0), share=0.5) == pytest.approx(24.0)


def test_every_launch_starts_anew() -> None:
    work = replace(streamed(Kind.OPTIMIZER, rows=1, length=1), kernels=3)  # 8 bytes
    constants = replace(IDEAL, start_cycles=10.0)
    assert seconds(work, plain_device(clock_hertz=5.0), constants) == pytest.approx(3 * 10 / 5 + 8)


def test_softmax_backward_passes_a_product_between_its_two_kernels() -> None:
    work = streamed(Kind.SOFTMAX, rows=1, length=32, direction=Direction.BACKWARD)
    assert seconds(work, plain_device()) == pytest.approx(2 * 3 * 32 * 4)  # two reads and a write, twice


def test_the_gradient_of_a_log_softmax_needs_no_product() -> None:
    work = streamed(Kind.SOFTMAX, rows=1, length=32, direction=Direction.BACKWARD)
    work = replace(work, dims={**work.dims, "of_log": 1})
    assert seconds(work, plain_device()) == pytest.approx(3 * 32 * 4)  # two reads and a write


def test_short_softmax_reads_once_and_long_softmax_again_what_leaves_the_cache() -> None:
    device = plain_device(l2_bytes=1e9)
    short, long = streamed(Kind.SOFTMAX, 1, 1024), streamed(Kind.SOFTMAX, 1, 2048)
    assert seconds(short, device) == pytest.approx(2 * 1024 * 4)
    assert seconds(long, device) == pytest.approx(2 * 2048 * 4, rel=1e-3)  # all rows in flight fit
    tiny_cache = plain_device(l2_bytes=1e-6)
    assert seconds(long, tiny_cache) == pytest.approx(4 * 2048 * 4, rel=1e-3)  # two more reads


def test_half_of_a_pass_misses_a_cache_the_rows_in_flight_just_fill() -> None:
    work = streamed(Kind.NORMALISATION, rows=1, length=32)  # one row of 128 bytes in flight
    assert seconds(work, plain_device(l2_bytes=128.0)) == pytest.approx(128 + 128 + 128 / 2)


def test_layer_norm_backward_reads_both_operands_again_for_scale_and_shift() -> None:
    backward = streamed(Kind.NORMALISATION, 1, 32, Direction.BACKWARD)
    device = plain_device(l2_bytes=1e12)
    assert seconds(backward, device) == pytest.approx((2 + 1 + 2) * 128)


def test_batch_norm_reads_its_input_twice_when_it_outgrows_the_cache() -> None:
    work = streamed(Kind.NORMALISATION, rows=4, length=1024, over_batch=1)
    assert seconds(work, plain_device(l2_bytes=1e-3)) == pytest.approx(3 * 4 * 1024 * 4, rel=1e-3)
    assert seconds(work, plain_device(l2_bytes=1e12)) == pytest.approx(2 * 4 * 1024 * 4, rel=1e-3)


def test_a_sort_moves_everything_once_per_byte_of_its_keys() -> None:
    assert seconds(streamed(Kind.SORT, 1, 8), plain_device()) == pytest.approx(4 * 2 * 32)


def test_rows_take_turns_on_the_multiprocessors() -> None:
    """64 rows of 128 threads, 16 at a time on each of 2 multiprocessors: 2 turns of 100 cycles."""
    work = streamed(Kind.NORMALISATION, rows=64, length=32)
    constants = replace(IDEAL, row_cycles=(100.0,) * len(PATTERNS), overlap=50.0)
    device = plain_device(bytes_per_second=1e12, sm_count=2, l2_bytes=1e12)
    assert seconds(work, device, constants) == pytest.approx(200.0)


def test_a_correction_scales_moving_and_turning_of_its_group_only() -> None:
    corrected = replace(IDEAL, row_cycles=(5.0,) * len(PATTERNS)).corrected({"norm": (2.0, 3.0)})
    for pattern, group in enumerate(GROUPS):
        is_norm = group == "norm"
        assert corrected.efficiency[pattern] == (0.5 if is_norm else 1.0)
        assert corrected.row_cycles[pattern] == (15.0 if is_norm else 5.0)


works = st.builds(
    streamed,
    kind=st.sampled_from(PRICED),
    rows=st.integers(1, 2**16),
    length=st.integers(1, 2**14),
    direction=st.sampled_from([Direction.FORWARD, Direction.BACKWARD]),
    over_batch=st.sampled_from([0, 1]),
    dtype=st.sampled_from(["float32", "float16"]),
)


@settings(max_examples=150)
@given(work=works, device=st.sampled_from(GPUS))
def test_never_below_the_roofline(work: Work, device: Device) -> None:
    seconds = StreamingModel().seconds(table([work]), device)
    assert seconds[0] >= roofline_seconds(table([work]), device)[0] > 0


@settings(max_examples=150)
@given(
    kind=st.sampled_from(PRICED),
    rows=st.integers(1, 2**15),
    length=st.integers(1, 2**13),
    grown=st.sampled_from(["rows", "length"]),
    device=st.sampled_from(GPUS),
)
def test_twice_as_much_is_never_faster(
    kind: Kind, rows: int, length: int, grown: str, device: Device
) -> None:
    larger = streamed(kind, 2 * rows, length) if grown == "rows" else streamed(kind, rows, 2 * length)
    small, large = StreamingModel().seconds(table([streamed(kind, rows, length), larger]), device)
    assert large >= small * (1 - 1e-9)


@settings(max_examples=100)
@given(work=works, device=st.sampled_from(GPUS))
def test_a_device_twice_as_good_in_everything_is_never_slower(work: Work, device: Device) -> None:
    model = StreamingModel()
    better = doubled(device)
    assert model.seconds(table([work]), better)[0] <= model.seconds(table([work]), device)[0] * (1 + 1e-9)


def test_confidence_states_whether_the_device_was_measured() -> None:
    known = {item.id: item for item in GPUS}
    seen = StreamingModel().confidence(Kind.SOFTMAX, known["v100-pcie-32gb"])
    unseen = StreamingModel().confidence(Kind.SOFTMAX, known["h100-sxm"])
    assert (seen.knowledge, unseen.knowledge) == (Knowledge.CALIBRATED, Knowledge.EXTRAPOLATED)
    assert unseen.p10 < 1 < unseen.p90
    assert unseen.p90 / unseen.p10 > seen.p90 / seen.p10


def test_kinds_never_measured_are_trusted_least() -> None:
    h100 = next(item for item in GPUS if item.id == "h100-sxm")
    pooling, copy = (StreamingModel().confidence(kind, h100) for kind in (Kind.POOLING, Kind.COPY))
    for kind in (Kind.ELEMENTWISE, Kind.SOFTMAX, Kind.NORMALISATION):
        measured = StreamingModel().confidence(kind, h100)
        assert pooling.p10 <= measured.p10
        assert pooling.p90 >= measured.p90
    assert copy == StreamingModel().confidence(Kind.ELEMENTWISE, h100)


def test_calibrated_shares_are_shares() -> None:
    known = calibration()
    assert set(known.delivered_share) == set(known.corrections)
    assert all(0.5 < share < 1 for share in known.delivered_share.values())


def test_a_device_left_out_is_predicted_from_published_figures_and_similar_devices() -> None:
    known, target = calibration(), device("v100-pcie-32gb")
    forgetful = known.without(target)
    assert target.id in known.corrections
    assert target.id not in forgetful.corrections
    assert target.id not in forgetful.delivered_share
    assert "t4" in forgetful.corrections
    assert StreamingModel(forgetful).confidence(Kind.SOFTMAX, target).knowledge is Knowledge.EXTRAPOLATED


def test_sums_over_columns_do_not_use_up_fast_memory() -> None:
    """A backward norm on memory without a limit still takes its bytes over those in flight per cycle."""
    rows, width = 4096, 4096
    work = norm(rows, width, Direction.BACKWARD, "bfloat16", has_mean=False)
    forward = norm(rows, width, Direction.FORWARD, "bfloat16", has_mean=False)
    target = devices()["gb200"]
    bare = replace(calibration().constants, start_cycles=0.0, column_bytes=math.inf)
    limited = replace(bare, column_bytes=1.0)
    columns = streams(table([forward, work]), target)
    free, slow = (stream_seconds(columns, target, 1.0, constants) for constants in (bare, limited))
    sms, clock = target.sheet.number("sm_count"), target.sheet.number("boost_clock_hertz")
    assert slow[0] == free[0]
    assert slow[1] > columns.compulsory_bytes[1] / (sms * clock)
    assert slow[1] == pytest.approx(columns.compulsory_bytes[1] / (sms * clock), rel=0.05)


def test_a_norm_of_few_long_rows_takes_the_passes_of_one_block_over_its_row() -> None:
    """A row of 5,120 in passes of 4 x 128 elements: ten passes, on however many multiprocessors."""
    constants = replace(IDEAL, chunk_cycles=(7.0,) * len(PATTERNS))
    work = streamed(Kind.NORMALISATION, rows=2, length=5120)
    for sms in (1, 16):
        fast = plain_device(bytes_per_second=1e12, clock_hertz=2.0, sm_count=sms)
        assert seconds(work, fast, constants) == pytest.approx(10 * 7 / 2)


def test_pooling_reads_each_element_of_each_window() -> None:
    """Six windows of nine elements at three elements a cycle of each of two multiprocessors."""
    work = Work(Kind.POOLING, Direction.FORWARD, {"kernel": 9, "windows": 6}, "float32", 54.0, 8.0, 8.0)
    fast = plain_device(bytes_per_second=1e12, clock_hertz=0.5, sm_count=2)
    assert seconds(work, fast, replace(IDEAL, window_elements=3.0)) == pytest.approx(54 / (2 * 0.5 * 3))


def test_resampling_loops_over_samples_and_channels_at_each_position() -> None:
    """Six turns of half of a norm's two passes; positions beyond the threads in flight take more rounds."""
    constants = replace(IDEAL, chunk_cycles=(10.0,) * len(PATTERNS))
    device = plain_device(bytes_per_second=1e12, clock_hertz=2.0)
    threads = int(_threads_per_sm(device))
    for positions, rounds in ((1, 1), (3 * threads, 3)):
        dims = {"elements": 6 * positions, "loops": 6, "positions": positions}
        work = Work(Kind.RESAMPLE, Direction.FORWARD, dims, "float32", 1.0, 8.0, 8.0)
        assert seconds(work, device, constants) == pytest.approx(rounds * 6 * 5 / 2)


KNOWN = (
    ("a100-sxm-80gb", 0.8),
    ("a100-sxm-40gb", 0.9),
    ("rtx3090", 0.7),
    ("mi300x", 0.5),
)


@pytest.mark.parametrize(
    ("name", "share"),
    [
        ("a100-sxm-80gb", 0.8),  # its own
        ("a100-pcie-80gb", 0.85),  # its family: the two A100s
        ("rtxa6000", 0.8),  # its generation: all of Ampere
        ("h100-sxm", 0.8),  # its vendor
        ("mi250x", 0.5),
    ],
)
def test_the_nearest_devices_count(name: str, share: float) -> None:
    assert nearest_share(device(name), KNOWN) == pytest.approx(share)


def test_a_device_measured_twice_counts_once() -> None:
    twice = (*KNOWN, ("rtx3090", 0.5))
    assert nearest_share(device("rtxa6000"), twice) == pytest.approx((0.8 + 0.9 + 0.6) / 3)


def test_nothing_measured_is_an_error() -> None:
    with pytest.raises(MissingData, match="h100-sxm"):
        nearest_share(device("h100-sxm"), ())


def test_published_bandwidths_have_sources_and_are_below_nominal() -> None:
    raw = read_toml(data_root() / "calibrations" / BANDWIDTHS)
    for name, share in published_shares():
        assert name in devices()
        assert 0.6 < share < 1, name
    for source in raw["sources"].values():
        assert {"title", "locator", "retrieved", "licence"} <= source.keys()
    assert {row["source"] for row in raw["measured"]} == set(raw["sources"])
