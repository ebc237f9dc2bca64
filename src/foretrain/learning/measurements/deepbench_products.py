"""DeepBench's training products: FP32 and FP16, all layouts, on GPUs of 2015 to 2018 and two AMD boards.

Which P100 and V100 were used is told in `deepbench_convolution`. Sheets with FP16 data and FP32 arithmetic
are left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from foretrain.learning.measurements._base import Measurements, measurements, rows
from foretrain.learning.measurements.deepbench_convolution import _DEVICES as DEVICES
from foretrain.learning.measurements.product_works import product
from foretrain.workloads.ops import Work

FILE = Path("deepbench/train_sheets.csv.gz")
_TITLE = "Dense Matrix Multiplication"


def read(data: Path) -> Measurements:
    """All products on known devices."""
    found = list(_cases(data / FILE))
    return measurements(
        "deepbench",
        [work for work, _, _, _ in found],
        [device_id for _, device_id, _, _ in found],
        [seconds for _, _, seconds, _ in found],
        [layout for _, _, _, layout in found],
    )


def _cases(file: Path) -> Iterator[tuple[Work, str, float, str]]:
    header: dict[str, str] = {}
    for row in rows(file):
        if row["c0"]:
            header = {text.strip(): name for name, text in row.items()} if row["c0"] == _TITLE else {}
        elif header and row["file"] in DEVICES and "Psuedo" not in row["sheet"]:
            try:
                m, n, k = (int(float(row[header[name]])) for name in "MNK")
                seconds = float(row[header["Time (msec)"]]) * 1e-3
            except ValueError:
                continue
            dtype = "float16" if "FP16" in row["sheet"] else "float32"
            layout = row[header["A Transpose"]] + row[header["B Transpose"]]
            if seconds > 0:
                yield product(1, m, n, k, dtype, is_linear=True), DEVICES[row["file"]], seconds, layout
