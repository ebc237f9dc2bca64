"""aiconfigurator's products: BF16 and FP8 kernels of inference stacks on four data-centre GPUs.

Kernels were timed in a loop over the same operands: those that fit the cache are read from it, and small
products come out faster than the memory roofline. The A100 reads up to 1.75 TB/s, so it is the 80 GB one.
"""

from __future__ import annotations

from pathlib import Path

from foretrain.learning.measurements._base import Measurements, measurements, rows
from foretrain.learning.measurements.product_works import product

FILE = Path("aiconfigurator/gemm.csv.gz")
DEVICES = {"a100_sxm": "a100-sxm-80gb", "l40s": "l40s", "h200_sxm": "h200-sxm", "b200_sxm": "b200"}
_DTYPES = {"bfloat16": "bfloat16", "fp8": "float8_e4m3fn"}


def read(data: Path) -> Measurements:
    """The BF16 and the plain FP8 products."""
    found = [row for row in rows(data / FILE) if row["dtype"] in _DTYPES]
    return measurements(
        "aiconfigurator",
        [
            product(1, int(row["m"]), int(row["n"]), int(row["k"]), _DTYPES[row["dtype"]], is_linear=True)
            for row in found
        ],
        [DEVICES[row["system"]] for row in found],
        [float(row["latency_ms"]) * 1e-3 for row in found],
        [row["dtype"] for row in found],
    )
