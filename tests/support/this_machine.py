"""This machine with round times for all kinds of operators, and runs on it; nothing is measured."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from foretrain.facts.devices import devices
from foretrain.measuring.this_machine import measure_this_machine
from foretrain.prediction.operators.cpu import CpuCalibration, FamilyFit, keep
from foretrain.store.runs import Environment, PredictionMade, Run, Status, StepSummary, new_run_id
from foretrain.workloads.ops import MATRIX_KINDS, Kind

_PRODUCTS = {"call": 1e-5, "FLOP": 1e-10}
_STREAMS = {"call": 5e-6, "byte in cache": 1e-10, "byte in memory": 3e-10}


def calibrated_machine() -> CpuCalibration:
    """The device `here`, calibrated: 10 GFLOP/s, 3 to 10 GB/s. Use with the fixture `quick_measurement`."""
    measure_this_machine()
    devices.cache_clear()
    families = {}
    for kind in Kind:
        per = _PRODUCTS if kind in MATRIX_KINDS else _STREAMS
        name = kind.value if kind in (Kind.MATMUL, Kind.OPTIMIZER) else f"{kind.value} forward"
        families[name] = FamilyFit(per, cases=4, mean_absolute_error=0.1, p10=0.9, p90=1.1)
    families["lstm forward"] = families["linear forward"]
    calibration = CpuCalibration(
        device_id="here",
        threads=1,
        flop_per_second=1e11,
        bytes_per_second=1e11,
        memory_bytes_per_second=1e10,
        cache_bytes=1e6,
        seconds_per_fresh_byte=0.0,
        families=families,
        software={"torch": "2"},
        measured_on="2026-01-01",
    )
    keep(calibration)
    return calibration


def run_of(
    seconds: float,
    status: Status = Status.COMPLETED,
    predicted_seconds: float | None = None,
    **setting: Any,
) -> Run:
    """A run of two cores whose steps took `seconds`."""
    made = None
    now = datetime(2026, 1, 1, tzinfo=UTC)
    if predicted_seconds is not None:
        made = PredictionMade(
            made_at=now,
            version="0",
            knowledge="calibrated",
            p10_seconds=0.9 * predicted_seconds,
            p50_seconds=predicted_seconds,
            p90_seconds=1.1 * predicted_seconds,
        )
    summary = StepSummary(
        seconds=seconds, p10_seconds=seconds, p90_seconds=seconds, steps=5, warm_up_steps=1, variation=0.0
    )
    return Run(
        id=new_run_id(),
        started_at=now,
        seconds=5 * seconds,
        status=status,
        exit_code=0,
        command=(),
        setting=setting,
        environment=Environment(device="here", device_name="CPU", cores=2, versions={"torch": "2"}),
        provenance="test",
        summary=summary if status is Status.COMPLETED else None,
        prediction=made,
    )
