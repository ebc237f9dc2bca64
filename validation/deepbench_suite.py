"""DeepBench's training products, FP32 and FP16, on GPUs of 2015 to 2018: as shipped, and the GPU forgotten.

Its convolutions are in the suite kernels_convolution and its recurrent layers in kernels_matrix, both
predicted without the shape and without the family of GPUs.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from calibration.datasets import deepbench
from foretrain.facts.devices import device
from foretrain.prediction.operators import matrix
from foretrain.prediction.operators.matrix import MatrixModel
from foretrain.prediction.operators.pricing import roofline_seconds
from foretrain.workloads.ops import Work
from validation.report import Case, Metrics, SuiteReport, metrics
from validation.splitting import by_group, intervals, worst

UNSEEN, SHIPPED, ROOFLINE = "foretrain, GPU unseen", "foretrain as shipped", "roofline"
_SMALL = 1e8
_NOTES = (
    "GPU unseen: the share of its peak that no device of the GPU's family showed, and no correction for its "
    "kernels; the constants all GPUs share were fitted with it among the others.",
    "DeepBench's smallest products take microseconds: what starting them costs on a host of 2016 to 2018 is "
    "in its times and not in the model's.",
)


def run(data: Path) -> SuiteReport:
    """Price every product on its device."""
    measurements = deepbench.read_products(data)
    predicted = {method: np.zeros(len(measurements)) for method in (UNSEEN, SHIPPED, ROOFLINE)}
    for gpu in measurements.devices:
        here, target = measurements.device_ids == gpu, device(gpu)
        works = measurements.table.rows(here)
        kernels = matrix.calibration().of_single_kernels()
        predicted[UNSEEN][here] = MatrixModel(kernels.without(target)).seconds(works, target)
        predicted[SHIPPED][here] = MatrixModel(kernels).seconds(works, target)
        predicted[ROOFLINE][here] = roofline_seconds(works, target)
    groups = measurements.device_ids.tolist()
    bounds = intervals(
        groups, measurements.seconds, predicted[UNSEEN], [work.dtype for work in measurements.works]
    )
    cases = [
        Case(
            f"{_sizes(work)} {work.dtype} on {groups[row]}",
            groups[row],
            float(measurements.seconds[row]),
            {method: float(values[row]) for method, values in predicted.items()},
            bounds[row],
        )
        for row, work in enumerate(measurements.works)
    ]
    by_set = {"products": _metrics(cases)}
    for dtype in sorted({work.dtype for work in measurements.works}):
        by_set[f"products {dtype}"] = _metrics([case for case in cases if f" {dtype} " in case.name])
    large = [case for case, work in zip(cases, measurements.works, strict=True) if work.flop > _SMALL]
    by_set["products above 0.1 GFLOP"] = _metrics(large)
    for gpu, group in by_group(cases).items():
        by_set[f"products on {gpu}"] = _metrics(group)
    notes = (*_NOTES, f"Worst: {worst(cases, UNSEEN, _why)}.")
    return SuiteReport("deepbench", tuple(cases), by_set, notes=notes)


def _sizes(work: Work) -> str:
    return "x".join(str(work.dims[name]) for name in ("m", "n", "k"))


def _why(case: Case) -> str:
    too_little = case.predicted[UNSEEN] < case.measured
    return "a kernel ill suited to the shape" if too_little else "a kernel better than its GPU's usual ones"


def _metrics(cases: Sequence[Case]) -> dict[str, Metrics]:
    return {method: metrics(cases, method, method == UNSEEN) for method in cases[0].predicted}
