"""Readers of public measurements, on a few rows of their shape."""

from __future__ import annotations

import csv
import gzip
from collections.abc import Sequence
from pathlib import Path

import pytest
from calibration.datasets.measurements import shape_key

from calibration.datasets import deepbench, justus, neusight
from foretrain.errors import MissingData
from foretrain.workloads.ops import Direction, Kind


def write(data: Path, file: Path, lines: Sequence[Sequence[object]]) -> None:
    """A compressed CSV file."""
    (data / file).parent.mkdir(parents=True, exist_ok=True)
    with gzip.open(data / file, "wt", newline="") as text:
        csv.writer(text).writerows(lines)


def test_neusight_vector(tmp_path: Path) -> None:
    header = ["op", "device", "latency_ms", "B", "H"]
    rows = [["add", "Tesla T4", 0.5, 2, 8], ["ln", "Tesla P4", 1.5, 2, 8]]
    write(tmp_path, neusight.VECTOR_FILE, [header, *rows])
    found = neusight.read_vector_operators(tmp_path)
    assert found.device_ids.tolist() == ["t4", "p4"]
    assert found.seconds.tolist() == [0.0005, 0.0015]
    assert [work.read_bytes for work in found.works] == [2 * 16 * 4, 16 * 4]
    assert [work.kind for work in found.works] == [Kind.ELEMENTWISE, Kind.NORMALISATION]


def test_neusight_products_have_their_inner_dimension_in_column_n(tmp_path: Path) -> None:
    header = "split op device latency_ms B M N K blocks kernel".split()
    rows = [
        ["train", "bmm", "Tesla T4", 1.0, 6, 27, 21, 390, 24, "sgemm_128x128_nn"],
        ["test", "linear", "Tesla T4", 1.0, 1, 64, 32, 16, 1, "sgemm_128x128_tn"],
    ]
    write(tmp_path, neusight.PRODUCT_FILE, [header, *rows])
    batched, layer = neusight.read_products(tmp_path).works
    assert [batched.dims[name] for name in ("batch", "m", "n", "k")] == [6, 27, 390, 21]
    assert batched.write_bytes == 6 * 27 * 390 * 4
    assert (layer.dims["in"], layer.dims["out"], layer.dims["bias"]) == (32, 16, 1)
    assert "bias" not in batched.dims


def test_neusight_convolution(tmp_path: Path) -> None:
    header = "device latency_ms B in_channels out_channels kernel_size input_size stride padding".split()
    write(tmp_path, neusight.CONVOLUTION_FILE, [header, ["Tesla T4", 1.0, 2, 3, 4, 3, 8, 1, 1]])
    (work,) = neusight.read_convolutions(tmp_path).works
    assert work.flop == 2 * 2 * 64 * 4 * 3 * 9
    assert (work.dims["out_height"], work.dims["kernel_width"]) == (8, 3)


def test_justus_takes_forward_layers_and_knows_same_from_valid_padding(tmp_path: Path) -> None:
    header = "device optimizer timeUsed_median batchsize channels_in channels_out".split()
    header += "matsize kernelsize strides padding".split()
    rows = [
        ["K40", 0, 2.0, 1, 2, 3, 9, 3, 1, 1],
        ["K40", 0, 2.0, 1, 2, 3, 9, 3, 1, 0],
        ["K40", 2, 9.0] + [1] * 7,
    ]
    write(tmp_path, justus.CONVOLUTION_FILE, [header, *rows])
    found = justus.read_convolutions(tmp_path)
    assert found.seconds.tolist() == [0.002, 0.002]
    assert [work.dims["out_width"] for work in found.works] == [9, 7]


def test_deepbench_reads_columns_by_title_and_skips_missing_gradients(tmp_path: Path) -> None:
    columns = ["file", "sheet", "row", *(f"c{number}" for number in range(16))]
    titles = "W,H,C,N,K ,R,S,pad_h,pad_w,Vertical stride,Horizontal stride".split(",")
    times = ["Forward (msec)", "wrt Inputs (msec)", "wrt Parameters (msec)"]
    sheet = ["DeepBench_NV_T4", "Results FP32"]
    rows = [
        [*sheet, 0, "Precision", "Float"],
        [*sheet, 173, "Convolution"],
        [*sheet, 174, "", "", *titles, *times],
        [*sheet, 175, "", "", 700, 161, 1, 4, 32, 5, 20, 0, 0, 2, 2, 0.5, "N/A*", 0.25],
    ]
    write(tmp_path, deepbench.FILE, [columns, *rows])
    found = deepbench.read_convolutions(tmp_path)
    assert [work.direction for work in found.works] == [Direction.FORWARD, Direction.WEIGHT_GRADIENT]
    assert found.seconds.tolist() == [0.0005, 0.00025]
    dims = found.works[0].dims
    assert (dims["out_height"], dims["out_width"], dims["kernel_width"]) == (79, 341, 20)


def test_neusight_backward_counts_what_each_gradient_moves(tmp_path: Path) -> None:
    header = "device Name input_shapes output_shape bw_latency".split()
    rows = [
        ["Tesla_V100-PCIE-32GB", "softmax", "[[2, 8]]", "(2, 8)", 1.0],
        ["Tesla_V100-PCIE-32GB", "mul_3", "[[2, 8], [2, 8]]", "(2, 8)", 1.0],
        ["Tesla_V100-PCIE-32GB", "query", "[[2, 8]]", "(2, 8)", 1.0],
        ["Tesla_V100-PCIE-32GB", "gelu", "[[2, 8]]", "(2, 8)", 0.0],
    ]
    write(tmp_path, neusight.LAYER_FILE, [header, *rows])
    found = neusight.read_vector_gradients(tmp_path)
    assert found.labels.tolist() == ["softmax", "mul"]
    assert [work.read_bytes for work in found.works] == [2 * 64, 4 * 64]


def test_a_missing_data_set_says_how_to_name_its_folder(tmp_path: Path) -> None:
    with pytest.raises(MissingData, match="--data"):
        neusight.read_vector_operators(tmp_path)


def test_one_shape_falls_into_one_part_whatever_the_device() -> None:
    first, second = (neusight.vector_work("add", 4, 8) for _ in range(2))
    assert shape_key(first) == shape_key(second) != shape_key(neusight.vector_work("add", 8, 8))
