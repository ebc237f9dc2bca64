"""CPUs are devices too: every kind of operator, priced by what `foretrain calibrate --here` measured.

The terms of `cpu_terms` times the seconds fitted to each, but never less than the best the machine was seen
to do: FLOP at its highest rate, bytes at that of its fastest cache. Calls are part of the price, because
a CPU launches nothing: it computes, then goes on to the next operator.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from foretrain.errors import MissingData
from foretrain.facts.devices import Device
from foretrain.prediction.operators._base import Confidence, Knowledge, OperatorModel
from foretrain.prediction.operators.cpu_calibration import CpuCalibration, calibration_of
from foretrain.prediction.operators.cpu_terms import family, fresh_bytes, nearest_family, terms
from foretrain.prediction.operators.table import Floats, WorkTable
from foretrain.workloads.ops import MATRIX_KINDS, Kind

KIND = "cpu"
"""What devices of this sort say they are."""
_MEASURED_TYPES = frozenset({"float32", "tf32"})
"""Types products were timed in; TF32 is a GPU's way to compute FP32, which a CPU does as it is."""


class CpuModel(OperatorModel):
    """Prices every kind a rule knows on a calibrated CPU."""

    name: ClassVar[str] = "cpu"
    kinds: ClassVar[frozenset[Kind]] = frozenset(Kind) - {Kind.VIEW, Kind.UNKNOWN}

    def seconds(self, works: WorkTable, device: Device) -> Floats:
        """Seconds of each work, its call included."""
        _refuse_untimed_types(works)
        known = calibration_of(device)
        names = np.array([_timed_family(family(work), known) for work in works.works])
        seconds = least_seconds(works, known)
        for name in sorted(set(names.tolist())):
            mine = names == name
            told = told_seconds(works.rows(mine), known, name)
            seconds[mine] = np.maximum(seconds[mine], told)
        return seconds

    def confidence(self, kind: Kind, device: Device) -> Confidence:
        """The residuals of the kind's families, by how many shapes each was timed on."""
        known = calibration_of(device)
        mine = [fit for name, fit in known.families.items() if _kind_of(name) is kind]
        fits = mine or list(known.families.values())
        cases = [fit.cases for fit in fits]
        p10 = float(np.average([fit.p10 for fit in fits], weights=cases))
        p90 = float(np.average([fit.p90 for fit in fits], weights=cases))
        return Confidence(Knowledge.CALIBRATED, min(p10, 1.0), max(p90, 1.0), f"calibrate --here: {kind}")


def told_seconds(works: WorkTable, known: CpuCalibration, name: str) -> Floats:
    """What the fit of a family says of works of it."""
    found = terms(works, known.cache_bytes)
    seconds = fresh_bytes(works) * known.seconds_per_fresh_byte
    for term, each in known.families[name].seconds_per.items():
        if term in found:
            seconds += each * found[term]
    return seconds


def least_seconds(works: WorkTable, known: CpuCalibration) -> Floats:
    """The roofline of the best rates measured on the machine, in any cache."""
    return np.maximum(works.flop / known.flop_per_second, works.bytes / known.bytes_per_second)


def _refuse_untimed_types(works: WorkTable) -> None:
    untimed = {work.dtype for work in works.works if work.kind in MATRIX_KINDS} - _MEASURED_TYPES
    if untimed:
        raise MissingData(
            f"products in {', '.join(sorted(untimed))} are not timed on CPUs; predict with --precision fp32"
        )


def _timed_family(wanted: str, known: CpuCalibration) -> str:
    found = nearest_family(wanted, known.families)
    if found is None:
        raise MissingData(f"{wanted} was not timed on {known.device_id}; run `foretrain calibrate --here`")
    return found


def _kind_of(name: str) -> Kind | None:
    """The kind a family's name has in it."""
    words = name.replace("lstm", Kind.RNN.value).split()
    return next((kind for kind in Kind if kind.value in words), None)
