"""NeuSight's linear layers and batched products: PyTorch 2.1, FP32 with TF32 off, forward, five GPUs.

The P4's linear layers of the authors' test split ran another library (kernels `sgemm_128x128x8_NT`), up to
four times faster than the same shapes of the training split; both are kept, since shapes alone do not tell.
The columns M, N, K are rows, inner dimension and columns: the blocks launched are those of the tiles of M x K
in every batched product, and of M x N in the few where both come to the same.
Reference: S. Lee, A. Phanishayee, D. Mahajan, "Forecasting GPU performance for deep learning training and
inference", ASPLOS 2025.
"""

from __future__ import annotations

from pathlib import Path

from foretrain.facts.devices import device
from foretrain.learning.measurements._base import Measurements, measurements, rows
from foretrain.learning.measurements.product_works import product

FILE = Path("neusight/ops_gemm_fp32.csv.gz")


def read(data: Path) -> Measurements:
    """All single-operator measurements."""
    found = list(rows(data / FILE))
    ids = {name: device(name).id for name in {row["device"] for row in found}}
    return measurements(
        "neusight",
        [
            product(b, m, n, k, "float32", row["op"] == "linear", has_bias=row["op"] == "linear")
            for row in found
            for b, m, k, n in [[int(row[name]) for name in "BMNK"]]
        ],
        [ids[row["device"]] for row in found],
        [float(row["latency_ms"]) * 1e-3 for row in found],
        [row["op"] for row in found],
    )
