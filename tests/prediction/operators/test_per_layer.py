"""Per-layer regression: the complexity table by hand, which line is used, and what must hold anywhere."""

from __future__ import annotations

import numpy as np
import pytest
from calibration.datasets.neusight import gradients
from calibration.datasets.neusight import vector_work as vector
from calibration.datasets.works import Convolution, product
from calibration.kernels.per_layer import Sample, backward_unseen, fit, fit_line, shape_unseen
from hypothesis import given, settings
from hypothesis import strategies as st

from foretrain.errors import MissingData
from foretrain.facts.devices import Device, device
from foretrain.prediction.operators.per_layer import (
    ROWS,
    LayerCalibration,
    LayerType,
    Line,
    PerLayerModel,
    calibration,
    complexity,
    layer_seconds,
)
from foretrain.prediction.operators.pricing import Knowledge, operator_models, roofline_seconds, table
from foretrain.workloads.ops import Direction, Kind, Work

T4, V100, V100_SXM, H100 = (device(name) for name in ("t4", "v100-pcie-32gb", "v100-sxm2-16gb", "h100-sxm"))
WHOLE = tuple(device(name) for name in ("p100-pcie", "p4", "t4", "v100-pcie-32gb", "a100-pcie-40gb"))
LAYER = Convolution(batch=2, in_channels=3, out_channels=4, size=(8, 8), kernel=(3, 3), padding=(1, 1))


def operations(work: Work, kind: Kind | None = None) -> float:
    """The complexity of one work."""
    return float(complexity(table([work]), kind or work.kind)[0])


def streamed(kind: Kind, direction: Direction, elements: int = 24, length: int = 6) -> Work:
    """A layer of some elements, normalised over rows of `length`."""
    dims = {"elements": elements, "rows": elements // length, "length": length, "kernel": 4}
    tensor = 4.0 * elements
    return Work(kind, direction, dims, "float32", float(elements), tensor, tensor)


def bias_gradient(outputs: int, channels: int) -> Work:
    """As the rules describe it: a sum over the outputs of each channel."""
    dims = {"rows": channels, "length": outputs // channels}
    return Work(Kind.REDUCTION, Direction.BACKWARD, dims, "float32", float(outputs), 4.0 * outputs, 4.0)


def test_a_convolution_forward_takes_its_window_times_inputs_for_every_output() -> None:
    outputs = 2 * 8 * 8 * 4
    assert operations(LAYER.work(Direction.FORWARD)) == 3 * 3 * 3 * outputs


def test_the_gradients_of_a_convolution_add_up_to_the_backward_row() -> None:
    outputs, window = 2 * 8 * 8 * 4, 3 * 3 * 3
    gradients = (Direction.INPUT_GRADIENT, Direction.WEIGHT_GRADIENT)
    bias = operations(bias_gradient(outputs, 4)) / 4  # a sum is one of the four operations of its row
    assert (
        sum(operations(LAYER.work(direction)) for direction in gradients) + bias == (2 * window + 1) * outputs
    )


def test_a_fully_connected_layer_takes_twice_as_much_backward() -> None:
    layer = product(1, 5, 7, 11, "float32", is_linear=True)
    assert operations(layer) == 5 * 7 * 11
    assert sum(map(operations, gradients(layer))) == 2 * 5 * 7 * 11


@pytest.mark.parametrize(
    ("kind", "forward", "backward"),
    [
        (Kind.SOFTMAX, 4 * 24 - 1, 24 + 1),
        (Kind.LOSS, 4 * 24 - 1, 24 + 1),
        (Kind.NORMALISATION, 5 * 24 + 6 - 2, 8 * 24 + 6 - 1),
        (Kind.POOLING, 4 * 6, (4 + 1) * 6),  # 24 inputs in windows of 4 are 6 outputs
        (Kind.ELEMENTWISE, 3 * 24, 4 * 24),
    ],
)
def test_the_table_by_hand(kind: Kind, forward: int, backward: int) -> None:
    assert operations(streamed(kind, Direction.FORWARD)) == forward
    assert operations(streamed(kind, Direction.BACKWARD)) == backward


def test_an_update_counts_what_it_writes() -> None:
    lists_of_three = Work(Kind.OPTIMIZER, Direction.UPDATE, {"elements": 30}, "float32", 30.0, 120.0, 40.0)
    assert operations(lists_of_three) == 3 * 10


def lines(**ratios: float) -> LayerCalibration:
    """Lines a reader can follow: one for elementwise layers, on the PCIe V100 alone."""
    forward = {"elementwise forward float32": Line(1.0, 2.0)}
    return LayerCalibration({V100.id: forward}, ratios or {"elementwise backward float32": 3.0})


def test_the_line_of_a_layer() -> None:
    times = layer_seconds(table([vector("relu", 2, 5)]), V100, lines())
    assert times.tolist() == [1 + 2 * 30]


def test_backward_that_was_not_measured_is_the_forward_line_times_the_ratio_found_elsewhere() -> None:
    backward = streamed(Kind.ELEMENTWISE, Direction.BACKWARD)
    assert layer_seconds(table([backward]), V100, lines()).tolist() == [3 * (1 + 2 * 4 * 24)]


def test_kinds_never_measured_are_priced_as_elementwise_ones() -> None:
    for kind in (Kind.POOLING, Kind.COPY, Kind.OPTIMIZER):
        times = layer_seconds(table([streamed(kind, Direction.FORWARD)]), V100, lines())
        assert times.tolist() == [1 + 2 * 3 * 24]


def test_a_board_of_the_same_family_stands_in() -> None:
    relu = table([vector("relu", 2, 5)])
    assert layer_seconds(relu, V100_SXM, lines()).tolist() == layer_seconds(relu, V100, lines()).tolist()


def test_a_device_that_was_not_measured_is_an_error_that_names_those_that_were() -> None:
    with pytest.raises(MissingData, match="not measured on h100-sxm, only on v100-pcie-32gb"):
        layer_seconds(table([vector("relu", 2, 5)]), H100, lines())


def test_a_type_of_number_that_was_not_measured_is_an_error() -> None:
    half = Work(Kind.ELEMENTWISE, Direction.FORWARD, {"elements": 8}, "float16", 8.0, 16.0, 16.0)
    with pytest.raises(MissingData, match="elementwise forward float16"):
        PerLayerModel().seconds(table([half]), T4)


def test_whole_numbers_take_the_time_of_fp32_ones() -> None:
    whole = Work(Kind.COPY, Direction.FORWARD, {"elements": 10}, "int64", 0.0, 80.0, 80.0)
    assert layer_seconds(table([whole]), V100, lines()).tolist() == [61.0]


def test_the_fit_recovers_its_line_and_a_few_wild_measurements_do_not_move_it() -> None:
    at = np.geomspace(1e3, 1e9, 200)
    seconds = Line(2e-5, 3e-12).seconds(at)
    seconds[::20] *= 5
    fitted = fit_line(at, seconds)
    assert fitted.start_seconds == pytest.approx(2e-5, rel=0.01)
    assert fitted.seconds_per_operation == pytest.approx(3e-12, rel=0.01)


def sample(direction: Direction, factor: float, count: int = 60, device_id: str = "t4") -> Sample:
    """Layers on a known line, `factor` times as long."""
    at = np.geomspace(1e3, 1e9, count)
    layer = LayerType(Kind.CONVOLUTION, direction, "float32")
    return Sample(device_id, layer, at, factor * Line(2e-5, 3e-12).seconds(at), np.arange(count) % 3)


def test_backward_over_forward_is_found_where_both_were_measured() -> None:
    forward, elsewhere = sample(Direction.FORWARD, 1.0), sample(Direction.FORWARD, 1.0, device_id="p4")
    fitted = fit([forward, elsewhere, sample(Direction.INPUT_GRADIENT, 1.5)])
    times = fitted.line(LayerType(Kind.CONVOLUTION, Direction.INPUT_GRADIENT, "float32"), device("p4"))
    assert times.start_seconds == pytest.approx(1.5 * 2e-5, rel=1e-3)


def test_backward_left_out_is_predicted_by_the_ratio_of_other_devices() -> None:
    forward = [sample(Direction.FORWARD, speed, device_id=name) for name, speed in (("t4", 1.0), ("p4", 2.0))]
    backward = [sample(Direction.INPUT_GRADIENT, 1.5), sample(Direction.INPUT_GRADIENT, 8.0, device_id="p4")]
    times = {part.device_id: predicted for part, predicted in backward_unseen([*forward, *backward])}
    assert times["t4"] == pytest.approx(4 * forward[0].seconds, rel=1e-3)
    assert times["p4"] == pytest.approx(1.5 * forward[1].seconds, rel=1e-3)


def test_too_few_measurements_make_no_line() -> None:
    few = sample(Direction.FORWARD, 1.0, count=7)
    assert fit([few]).lines == {}
    assert np.isnan(shape_unseen([few])[0]).all()


def test_a_shape_left_out_of_a_clean_line_is_predicted() -> None:
    part = sample(Direction.FORWARD, 1.0)
    assert shape_unseen([part])[0] == pytest.approx(part.seconds, rel=1e-3)


def test_the_shipped_lines_rise_and_every_layer_of_a_network_can_be_priced_where_all_were_measured() -> None:
    fitted = calibration()
    every = [line for by_layer in fitted.lines.values() for line in by_layer.values()]
    assert all(line.start_seconds > 0 and line.seconds_per_operation > 0 for line in every)
    for target in WHOLE:
        for kind in ROWS.keys() - {Kind.RNN, Kind.ATTENTION}:
            for direction in (Direction.FORWARD, Direction.INPUT_GRADIENT, Direction.WEIGHT_GRADIENT):
                similar = kind if fitted.measures(kind) else Kind.ELEMENTWISE
                line = fitted.line(LayerType(similar, direction, "float32"), target)
                assert line.seconds(np.array([1e6])) > 0


def test_neusight_layers_on_a_v100() -> None:
    """A linear layer of 4096 x 4096 for 4096 tokens takes 10.1 ms of FLOP at peak; lines predict 11 to 13."""
    layer = product(1, 4096, 4096, 4096, "float32", is_linear=True)
    assert 10.1e-3 < float(PerLayerModel().seconds(table([layer]), V100)[0]) < 13e-3


@settings(max_examples=40)
@given(
    st.sampled_from(WHOLE),
    st.sampled_from(sorted(ROWS.keys() - {Kind.CONVOLUTION, Kind.RNN, Kind.ATTENTION})),
    st.sampled_from([Direction.FORWARD, Direction.BACKWARD]),
    st.integers(1, 1 << 20),
)
def test_conforms(target: Device, kind: Kind, direction: Direction, rows: int) -> None:
    works = table([streamed(kind, direction, elements=6 * rows * times) for times in (1, 2)])
    once, twice = PerLayerModel().seconds(works, target).tolist()
    limit = roofline_seconds(works, target).tolist()
    assert 0 < limit[0] <= once
    assert limit[1] <= twice
    assert once <= twice


def test_confidence_states_what_was_measured_on_the_device() -> None:
    model = PerLayerModel()
    assert model.confidence(Kind.SOFTMAX, T4).knowledge is Knowledge.CALIBRATED
    assert model.confidence(Kind.SOFTMAX, V100_SXM).knowledge is Knowledge.EXTRAPOLATED
    pooling, elementwise = (model.confidence(kind, T4) for kind in (Kind.POOLING, Kind.ELEMENTWISE))
    assert pooling.knowledge is Knowledge.EXTRAPOLATED
    assert pooling.p10 <= elementwise.p10 < 1 < elementwise.p90 <= pooling.p90


def test_backward_predicted_by_ratio_is_trusted_less() -> None:
    by_ratio, measured = (
        PerLayerModel().confidence(Kind.CONVOLUTION, target) for target in (device("p4"), V100_SXM)
    )
    assert by_ratio.p10 <= measured.p10
    assert by_ratio.p90 > measured.p90


def test_is_selected_by_name() -> None:
    first, *rest = operator_models(T4, "per-layer")
    assert isinstance(first, PerLayerModel)
    assert {Kind.UNKNOWN} <= set().union(*(model.kinds for model in rest))
