"""Operators on a CPU: hand-derived times, what must hold on any, and the error for one never timed."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.support.calibrated_cpu import CALIBRATION, HERE

from foretrain.errors import InvalidData, MissingData
from foretrain.facts.devices import Device
from foretrain.prediction.operators.cpu import (
    MMAP_THRESHOLD_BYTES,
    CpuModel,
    FamilyFit,
    calibration_file,
    calibration_of,
    family,
    keep,
    least_seconds,
    nearest_family,
    terms,
)
from foretrain.prediction.operators.pricing import Knowledge, operator_models, table
from foretrain.workloads.ops import Direction, Kind, Work


def moved(elements: int, kind: Kind = Kind.ELEMENTWISE, **dims: int) -> Work:
    """One FP32 tensor in, one out."""
    size = 4.0 * elements
    return Work(
        kind, Direction.FORWARD, {"elements": elements, **dims}, "float32", float(elements), size, size
    )


def linear(m: int, n: int, k: int, dtype: str = "float32") -> Work:
    """A linear layer."""
    dims = {"batch": 1, "m": m, "n": n, "k": k}
    return Work(Kind.LINEAR, Direction.FORWARD, dims, dtype, 2.0 * m * n * k, 0.0, 0.0)


def convolution(
    batch: int, inputs: int, outputs: int, size: int, groups: int = 1, transposed: int = 0
) -> Work:
    """A 3x3 convolution that keeps the size of its images."""
    dims = {
        "batch": batch, "in_channels": inputs, "out_channels": outputs, "groups": groups,
        "transposed": transposed, "kernel_height": 3, "kernel_width": 3, "out_height": size,
        "out_width": size,
    }  # fmt: skip
    flop = 2.0 * batch * size * size * inputs * outputs / groups * 9
    return Work(Kind.CONVOLUTION, Direction.FORWARD, dims, "float32", flop, 0.0, 0.0)


@pytest.fixture
def calibrated() -> Device:
    """The device `here` with round constants."""
    keep(CALIBRATION)
    return HERE


def seconds(work: Work, device: Device) -> float:
    """The price of one work."""
    return float(CpuModel().seconds(table([work]), device)[0])


def test_a_stream_pays_its_call_the_cache_and_then_the_memory(calibrated: Device) -> None:
    assert seconds(moved(50), calibrated) == pytest.approx(2 + 400 * 0.01)
    assert seconds(moved(200), calibrated) == pytest.approx(2 + 1000 * 0.01 + 600 * 0.1)


def test_a_product_pays_for_its_borders(calibrated: Device) -> None:
    assert seconds(linear(2, 3, 4), calibrated) == pytest.approx(1 + 48 * 0.02 + 6 * 0.5)


def test_channels_are_padded_to_whole_vectors(calibrated: Device) -> None:
    flop = 2 * 10 * 10 * 16 * 9 * 9
    padded = 2 * 10 * 10 * 16 * 16 * 9
    assert seconds(convolution(1, 9, 16, 10), calibrated) == pytest.approx(padded * 0.02 + flop / 10 * 0.1)


def test_updates_pay_for_every_tensor(calibrated: Device) -> None:
    assert seconds(moved(10, Kind.OPTIMIZER, tensors=5), calibrated) == pytest.approx(1 + 5 * 3)


def test_large_tensors_are_mapped_anew_but_not_those_updated_in_place(calibrated: Device) -> None:
    elements = MMAP_THRESHOLD_BYTES // 4 + 1
    streaming = 2 + 1000 * 0.01 + (8 * elements - 1000) * 0.1
    assert seconds(moved(elements), calibrated) == pytest.approx(streaming + 4 * elements * 0.5)
    in_place = table([moved(elements, Kind.OPTIMIZER, tensors=1)])
    at_least = float(least_seconds(in_place, CALIBRATION)[0])
    assert seconds(moved(elements, Kind.OPTIMIZER, tensors=1), calibrated) == pytest.approx(at_least)


def test_the_best_rates_measured_are_never_beaten(calibrated: Device) -> None:
    work = replace(linear(1, 1, 1), flop=1e6, dims={"batch": 1, "m": 1, "n": 1, "k": 1})
    free = replace(CALIBRATION, families={"linear forward": FamilyFit({}, 4, 0.1, 0.9, 1.1)})
    keep(free)
    assert seconds(work, calibrated) == pytest.approx(1e6 / 100)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40)
@given(
    m=st.integers(1, 500), n=st.integers(1, 500), k=st.integers(1, 500), more=st.integers(0, 300),
    grown=st.sampled_from("mnk"),
)  # fmt: skip
def test_more_work_never_takes_less(
    calibrated: Device, m: int, n: int, k: int, more: int, grown: str
) -> None:
    small = linear(m, n, k)
    large = linear(m + more * (grown == "m"), n + more * (grown == "n"), k + more * (grown == "k"))
    assert 0 < seconds(small, calibrated) <= seconds(large, calibrated)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40)
@given(inputs=st.integers(1, 70), outputs=st.integers(1, 70), more=st.integers(0, 20))
def test_more_channels_never_take_less(calibrated: Device, inputs: int, outputs: int, more: int) -> None:
    small, wide = convolution(2, inputs, outputs, 7), convolution(2, inputs + more, outputs, 7)
    assert 0 < seconds(small, calibrated) <= seconds(wide, calibrated)


def test_families_separate_what_runs_differently() -> None:
    assert family(convolution(1, 8, 8, 4)) == "convolution forward"
    assert family(convolution(1, 8, 8, 4, groups=8)) == "depthwise convolution forward"
    assert family(convolution(1, 16, 16, 4, groups=2)) == "grouped convolution forward"
    assert family(convolution(1, 8, 8, 4, transposed=1)) == "convolution input gradient"
    assert family(convolution(1, 3, 8, 4)) == "first convolution forward"
    assert family(moved(1, Kind.NORMALISATION, over_batch=1)) == "batch normalisation forward"
    assert family(replace(moved(1), direction=Direction.BACKWARD)) == "elementwise backward"


def test_a_direction_never_timed_is_predicted_from_the_other() -> None:
    assert nearest_family("elementwise backward", CALIBRATION.families) == "elementwise forward"
    assert nearest_family("first convolution weight gradient", CALIBRATION.families) == "convolution forward"
    assert nearest_family("wide depthwise convolution forward", CALIBRATION.families) == "convolution forward"
    assert nearest_family("sort forward", CALIBRATION.families) is None


def test_causal_attention_computes_all_scores() -> None:
    dims = {"batch": 1, "heads": 1, "queries": 4, "keys": 4, "head": 8, "value_head": 8, "causal": 1}
    causal = Work(Kind.ATTENTION, Direction.FORWARD, dims, "float32", 256.0, 0.0, 0.0)
    assert terms(table([causal]), 1.0)["FLOP"][0] == 512.0


def test_a_kind_never_timed_is_refused_with_what_to_do(calibrated: Device) -> None:
    with pytest.raises(MissingData, match="calibrate --here"):
        seconds(moved(3, Kind.SORT), calibrated)


def test_half_precision_was_not_timed(calibrated: Device) -> None:
    with pytest.raises(MissingData, match=r"bfloat16.*use precision fp32"):
        seconds(linear(1, 1, 1, "bfloat16"), calibrated)
    assert seconds(linear(2, 3, 4, "tf32"), calibrated) == seconds(linear(2, 3, 4), calibrated)


def test_a_cpu_that_was_never_calibrated_is_refused() -> None:
    with pytest.raises(MissingData, match="run `foretrain calibrate --here`"):
        calibration_of(HERE)
    with pytest.raises(MissingData, match="epyc-7763 is not calibrated"):
        calibration_of(replace(HERE, id="epyc-7763"))


def test_a_file_that_cannot_be_read_is_refused() -> None:
    file = calibration_file("here")
    file.parent.mkdir(parents=True)
    for content in ("{", "[]", '{"format": 0}', '{"format": 1, "families": {}}'):
        file.write_text(content)
        with pytest.raises(InvalidData, match="calibrate --here"):
            calibration_of(HERE)


def test_what_is_kept_is_read_again_and_the_catalogue_uses_it(calibrated: Device) -> None:
    assert calibration_of(calibrated) == CALIBRATION
    names = [model.name for model in operator_models(calibrated)]
    assert names == ["cpu", "roofline"]
    trust = CpuModel().confidence(Kind.LINEAR, calibrated)
    assert (trust.knowledge, trust.p10, trust.p90) == (Knowledge.CALIBRATED, 0.8, 1.1)


def _sequence_convolution(direction: Direction) -> Work:
    dims = {"batch": 2, "in_channels": 8, "out_channels": 4, "groups": 1, "transposed": 0, "width": 10,
            "out_width": 10, "kernel_width": 5}  # fmt: skip
    return Work(Kind.CONVOLUTION, direction, dims, "float32", 2.0 * 2 * 10 * 8 * 4 * 5, 0.0, 0.0)


def test_sequences_and_kernels_wider_than_the_image_are_unrolled() -> None:
    assert family(_sequence_convolution(Direction.FORWARD)) == "unrolled convolution forward"
    tiny = convolution(1, 16, 16, 2)
    to_weight = replace(tiny, direction=Direction.WEIGHT_GRADIENT)
    assert family(tiny) == "convolution forward"
    assert family(to_weight) == "unrolled convolution weight gradient"
    grouped = replace(convolution(1, 16, 16, 2, groups=4), direction=Direction.WEIGHT_GRADIENT)
    assert family(grouped) == "grouped convolution weight gradient"
    assert nearest_family("unrolled convolution forward", CALIBRATION.families) == "convolution forward"


def test_terms_of_an_unrolled_convolution_by_hand() -> None:
    found = terms(table([_sequence_convolution(Direction.WEIGHT_GRADIENT)]), cache_bytes=1.0)
    assert found["FLOP"].tolist() == [6400.0]
    assert found["FLOP on padding"].tolist() == [0.0]
    assert found["weight"].tolist() == [160.0]
    assert found["weight of a sample"].tolist() == [320.0]


def test_gradients_of_single_channel_images_are_padded_to_a_vector() -> None:
    grey, colour = convolution(1, 1, 8, 4), convolution(1, 3, 8, 4)
    padding = {
        direction: [
            terms(table([replace(work, direction=direction)]), 1.0)["FLOP on padding"][0] / work.flop
            for work in (grey, colour)
        ]
        for direction in (Direction.FORWARD, Direction.INPUT_GRADIENT, Direction.WEIGHT_GRADIENT)
    }
    assert padding[Direction.FORWARD] == [0.0, 0.0]
    assert padding[Direction.INPUT_GRADIENT] == pytest.approx([7.0, 5 / 3])
    assert padding[Direction.WEIGHT_GRADIENT] == [7.0, 0.0]  # oneDNN keeps three channels as they are
