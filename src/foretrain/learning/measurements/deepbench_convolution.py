"""DeepBench's training convolutions: forward, gradient of the input, gradient of the weights; FP32 and FP16.

The sheets do not say which P100 and V100 were used; their fastest products (10.2 and 108 TFLOP/s) are above
what the PCIe boards sustain, so they are taken for the SXM2 ones. Sheets with FP16 data and FP32 arithmetic
are left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from foretrain.learning.measurements._base import Measurements, measurements, rows
from foretrain.learning.measurements.convolutions import Convolution
from foretrain.workloads.ops import Direction, Work

FILE = Path("deepbench/train_sheets.csv.gz")
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


def read(data: Path) -> Measurements:
    """All convolutions on known devices."""
    found = list(_cases(data / FILE))
    return measurements(
        "deepbench",
        [work for work, _, _ in found],
        [device_id for _, device_id, _ in found],
        [seconds for _, _, seconds in found],
        [work.direction.value for work, _, _ in found],
    )


def _cases(file: Path) -> Iterator[tuple[Work, str, float]]:
    header: dict[str, str] = {}
    for row in rows(file):
        cells = {column: text.strip() for column, text in row.items() if column.startswith("c") and text}
        if {"W", "H", "C", "N", "K"} <= set(cells.values()):
            header = {_meaning(text): column for column, text in cells.items()}
        elif row["c0"] or row["row"] == "0" or not cells.get(header.get("N", ""), ""):
            header = {}
        elif header and row["file"] in _DEVICES and "Psuedo" not in row["sheet"]:
            yield from _works(row, header)


def _meaning(title: str) -> str:
    """What a column of the table of convolutions holds."""
    lower = title.lower()
    names = {"r": "kernel_height", "s": "kernel_width"}
    if title in ("R", "S") or lower.startswith(("r (", "s (")):
        return names[lower[0]]
    if "stride" in lower:
        return "stride_height" if "vertical" in lower else "stride_width"
    return lower if lower in _DIRECTIONS else title


def _works(row: dict[str, str], header: dict[str, str]) -> Iterator[tuple[Work, str, float]]:
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
