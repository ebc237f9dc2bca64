"""DeepBench's training sheets: products, convolutions, recurrent layers, all-reduces on GPUs of 2015-2018.

The file holds the raw cells of spreadsheets, several tables a sheet; tables are recognised by their header
row. The sheets do not name the P100 and V100 variant; their fastest products (10.2 and 108 TFLOP/s) exceed
what PCIe boards sustain, so both are taken as SXM2. Sheets with FP16 data and FP32 arithmetic are skipped.

Recurrent layers skip the product with the input (cuDNN's "skip input"): only the recurrent product runs.
Where the backward pass is split by gradient, the two parts are added.

All-reduces are of floats among 2, 4 and 8 GPUs of one node over PCI Express 3, NCCL 2.0. Multi-node rows are
skipped because the sheets do not name the network, and so are the Maxwell GPUs and the P100: their pairs
reached 6 GB/s, half of what Pascal GPUs with peer access did, on a machine that is not described.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from calibration.datasets.measurements import CollectiveTime, Measurements, measurements_of, rows
from calibration.datasets.works import Convolution, product
from foretrain.prediction.collectives.costs import Verb
from foretrain.workloads.ops import Direction, Kind, Work

SOURCE = "deepbench"
FILE = Path("deepbench/train_sheets.csv.gz")
_PRODUCT_TITLE = "Dense Matrix Multiplication"
_DEVICES = {
    "DeepBench_AMD_MI25": "mi25",
    "DeepBench_AMD_VegaFE": "vega-fe",
    "DeepBench_NV_1080Ti": "gtx1080ti",
    "DeepBench_NV_M40": "m40",
    "DeepBench_NV_P100": "p100-sxm2",
    "DeepBench_NV_T4": "t4",
    "DeepBench_NV_TitanX": "titanx",
    "DeepBench_NV_TitanX_Pascal": "titanx-pascal",
    "DeepBench_NV_TitanXp": "titanxp",
    "DeepBench_NV_V100": "v100-sxm2-16gb",
}
_DIRECTIONS = {
    "forward (msec)": Direction.FORWARD,
    "wrt inputs (msec)": Direction.INPUT_GRADIENT,
    "wrt parameters (msec)": Direction.WEIGHT_GRADIENT,
}
_RECURRENT_TITLE = "Recurrent Layers - "
_GATES = {"Vanilla": 1, "LSTM": 4, "GRU": 3}
_ALL_REDUCE_MACHINES = {
    "DeepBench_NV_1080Ti": ("gtx1080ti:8", "pcie-switch"),
    "DeepBench_NV_TitanX_Pascal": ("titanx-pascal:8", "pcie-switch"),
}
_ALL_REDUCE_TITLE = "All-Reduce"
_ALL_REDUCE_ITEM_BYTES = 4


def read_products(data: Path) -> Measurements:
    """All products on known devices."""
    return measurements_of(SOURCE, _product_cases(data / FILE))


def _product_cases(file: Path) -> Iterator[tuple[Work, str, float, str]]:
    header: dict[str, str] = {}
    for row in rows(file):
        if row["c0"]:
            header = {text.strip(): name for name, text in row.items()} if row["c0"] == _PRODUCT_TITLE else {}
        elif header and row["file"] in _DEVICES and "Psuedo" not in row["sheet"]:
            try:
                m, n, k = (int(float(row[header[name]])) for name in "MNK")
                seconds = float(row[header["Time (msec)"]]) * 1e-3
            except ValueError:
                continue
            dtype = "float16" if "FP16" in row["sheet"] else "float32"
            layout = row[header["A Transpose"]] + row[header["B Transpose"]]
            if seconds > 0:
                yield product(1, m, n, k, dtype, is_linear=True), _DEVICES[row["file"]], seconds, layout


def read_convolutions(data: Path) -> Measurements:
    """All convolutions on known devices."""
    return measurements_of(SOURCE, _by_direction(_convolution_cases(data / FILE)))


def _convolution_cases(file: Path) -> Iterator[tuple[Work, str, float]]:
    header: dict[str, str] = {}
    for row in rows(file):
        cells = {column: text.strip() for column, text in row.items() if column.startswith("c") and text}
        if {"W", "H", "C", "N", "K"} <= set(cells.values()):
            header = {_convolution_column(text): column for column, text in cells.items()}
        elif row["c0"] or row["row"] == "0" or not cells.get(header.get("N", ""), ""):
            header = {}
        elif header and row["file"] in _DEVICES and "Psuedo" not in row["sheet"]:
            yield from _convolution_works(row, header)


def _convolution_column(title: str) -> str:
    """What a column of the table of convolutions holds."""
    lower = title.lower()
    names = {"r": "kernel_height", "s": "kernel_width"}
    if title in ("R", "S") or lower.startswith(("r (", "s (")):
        return names[lower[0]]
    if "stride" in lower:
        return "stride_height" if "vertical" in lower else "stride_width"
    return lower if lower in _DIRECTIONS else title


def _convolution_works(row: dict[str, str], header: dict[str, str]) -> Iterator[tuple[Work, str, float]]:
    def number(name: str) -> int:
        return int(float(row[header[name]]))

    layer = Convolution(
        batch=number("N"),
        in_channels=number("C"),
        out_channels=number("K"),
        size=(number("H"), number("W")),
        kernel=(number("kernel_height"), number("kernel_width")),
        stride=(number("stride_height"), number("stride_width")),
        padding=(number("pad_h"), number("pad_w")),
    )
    dtype = "float16" if "FP16" in row["sheet"] else "float32"
    for title, direction in _DIRECTIONS.items():
        try:
            seconds = float(row[header[title]]) * 1e-3
        except ValueError:  # "N/A*": the first layer has no gradient of its input
            continue
        if seconds > 0:
            yield layer.work(direction, dtype), _DEVICES[row["file"]], seconds


def recurrent_work(gates: int, hidden: int, batch: int, steps: int, dtype: str, direction: Direction) -> Work:
    """A layer without the product with its input: `in` is 0."""
    dims = {"steps": steps, "batch": batch, "in": 0, "hidden": hidden}
    dims |= {"layers": 1, "directions": 1, "gates": gates}
    passes = 1 if direction is Direction.FORWARD else 2
    item = 2 if dtype == "float16" else 4
    flop = passes * 2.0 * steps * batch * gates * hidden * hidden
    moved = float(item * (gates * hidden * hidden + passes * steps * batch * hidden))
    return Work(Kind.RNN, direction, dims, dtype, flop, moved, float(item * steps * batch * hidden), steps)


def read_recurrent(data: Path) -> Measurements:
    """All layers on known devices."""
    return measurements_of(SOURCE, _by_direction(_recurrent_cases(data / FILE)))


def _recurrent_cases(file: Path) -> Iterator[tuple[Work, str, float]]:
    header: dict[str, str] = {}
    gates = 0
    for row in rows(file):
        if row["c0"]:
            header = {}
            if row["c0"].startswith(_RECURRENT_TITLE):
                gates = _GATES[row["c0"].removeprefix(_RECURRENT_TITLE).strip()]
                header = {text.strip().lower(): name for name, text in row.items() if text}
        elif header and row["file"] in _DEVICES and "Psuedo" not in row["sheet"]:
            yield from _recurrent_works(row, header, gates)


def _recurrent_works(
    row: Mapping[str, str], header: Mapping[str, str], gates: int
) -> Iterator[tuple[Work, str, float]]:
    def milliseconds(start: str) -> list[float]:
        return [float(row[name]) for title, name in header.items() if title.startswith(start) and row[name]]

    try:
        hidden, batch, steps = (int(float(row[header[name]])) for name in ("hidden units", "n", "timesteps"))
        forward, backward = sum(milliseconds("time forward")), sum(milliseconds("time backward"))
    except ValueError:  # a heading or a remark between tables
        return
    dtype = "float16" if "FP16" in row["sheet"] else "float32"
    for direction, total in ((Direction.FORWARD, forward), (Direction.BACKWARD, backward)):
        if total > 0:
            done = recurrent_work(gates, hidden, batch, steps, dtype, direction)
            yield done, _DEVICES[row["file"]], total * 1e-3


def _by_direction(cases: Iterable[tuple[Work, str, float]]) -> Iterator[tuple[Work, str, float, str]]:
    """Cases labelled by the direction of their work."""
    for work, device_id, seconds in cases:
        yield work, device_id, seconds, work.direction.value


def read_all_reduces(data: Path) -> tuple[CollectiveTime, ...]:
    """All sizes on machines that are understood."""
    return tuple(_all_reduce_cases(data / FILE))


def _all_reduce_cases(file: Path) -> Iterator[CollectiveTime]:
    inside = False
    for row in rows(file):
        if row["c0"]:
            inside = row["c0"].strip() == _ALL_REDUCE_TITLE
        elif inside and row["file"] in _ALL_REDUCE_MACHINES and row["c2"].isdigit() and not row["c4"].strip():
            size, milliseconds = _ALL_REDUCE_ITEM_BYTES * float(row["c2"]), float(row["c6"])
            yield CollectiveTime(
                SOURCE,
                *_ALL_REDUCE_MACHINES[row["file"]],
                Verb.ALL_REDUCE,
                int(row["c3"]),
                size,
                milliseconds * 1e-3,
            )
