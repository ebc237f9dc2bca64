"""AMD: tuned products (aiter: MI300X, MI308X, MI355X) and convolutions (MIOpen: MI250X, MI300X).

Each is predicted by the shipped calibration, which saw the device, and by a fit without its family. Products
were timed over the same operands: those that fit in the infinity cache beat the memory roofline, which
foretrain never does, so products that cannot have come from it are shown by themselves. The MI308X in BF16 is
limited by its firmware and in no fit.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from calibration.kernels.products_fit import is_cold, least_seconds, samples

from calibration.datasets import amd_kernels
from calibration.kernels import convolution, products
from foretrain.prediction.operators import matrix
from foretrain.prediction.operators.convolution import least_seconds as least_of_convolutions
from foretrain.prediction.operators.matrix import MatrixModel
from foretrain.prediction.operators.pricing import Floats
from validation.report import Case, SuiteReport, metrics

SEEN, GPU, ROOFLINE = "foretrain", "foretrain, GPU unseen", "roofline"
_TYPES = {"tensor": "BF16", "fp8": "FP8"}
_NOTES = (
    "aiter and MIOpen publish the fastest of many kernels: an upper bound for training, which takes the "
    "first choice of a library.",
    "MIOpen's times spread by a factor of ten at the same FLOP where it has no tuned kernel (naive solvers, "
    "im2col): the error is that of the spread, not of a constant.",
    "In half precision kernels for channels-last images, with three transposes around them, compete with "
    "slower ones that read channels-first. One device left out is predicted from the FLOP a cycle of the "
    "other. The MI300X's database has no kernels that read channels-first (MLIR, V4R4), the MI250X's has: "
    "left out, the MI250X comes out 16 % too slow.",
    "With the MI355X left out no BF16 product is left: its constants come from FP8 of other devices.",
)


def run(data: Path) -> SuiteReport:
    """Fit, leave out, compare."""
    cases = [*_products(data), *_convolutions(data)]
    groups: dict[str, list[Case]] = {}
    for case in cases:
        groups.setdefault(case.name, []).append(case)
        groups.setdefault(f"{case.name} on {case.group}", []).append(case)
    by_set = {
        name: {method: metrics(group, method) for method in group[0].predicted}
        for name, group in sorted(groups.items())
    }
    return SuiteReport("amd", tuple(cases), by_set, notes=_NOTES)


def _products(data: Path) -> list[Case]:
    known, model = products.corpus(data), MatrixModel(matrix.calibration().of_single_kernels())
    tuned = amd_kernels.read_products(data)
    shown: dict[tuple[str, str], Floats] = {}
    for unit in _TYPES:
        for each in products.device_unseen(products.of_vendor(known, "amd"), unit):
            shown[unit, each.sample.device.id] = each.seconds
    cases = []
    for part in samples(tuned):
        works = tuned.where(np.isin(np.arange(len(tuned)), part.positions)).table
        seen = model.seconds(works, part.device)
        unseen = shown.get((part.unit, part.device.id), seen)  # the MI308X in BF16 is in no fit
        limit, cold = least_seconds(part), is_cold(part)
        for row in range(len(part.seconds)):
            where = "beyond the cache" if cold[row] else "in the cache"
            predicted = {SEEN: float(seen[row]), GPU: float(unseen[row]), ROOFLINE: float(limit[row])}
            name = f"{_TYPES[part.unit]} products {where}"
            cases.append(Case(name, part.device.id, float(part.seconds[row]), predicted))
    return cases


def _convolutions(data: Path) -> list[Case]:
    known = convolution.read_amd(data)
    learned = convolution.fit_amd(known)
    cases = []
    for unit, part, unseen in convolution.amd_unseen(known):
        seen = learned[unit].shown(part)
        limit = least_of_convolutions(part.work, part.device) + part.floor
        name = f"{'FP32' if unit == 'lanes' else 'half-precision'} convolutions"
        for row in range(len(part.seconds)):
            predicted = {SEEN: float(seen[row]), GPU: float(unseen[row]), ROOFLINE: float(limit[row])}
            cases.append(Case(name, part.device.id, float(part.seconds[row]), predicted))
    return cases
