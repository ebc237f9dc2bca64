"""A CPU with round constants, for numbers a reader can check by hand."""

from __future__ import annotations

from dataclasses import replace

from tests.support.plain_devices import plain_device

from foretrain.prediction.operators.cpu import CpuCalibration, FamilyFit

HERE = replace(plain_device(), id="here", kind="cpu")


def fitted(**seconds_per: float) -> FamilyFit:
    """A fit with these seconds per term; blanks in names as underscores."""
    named = {name.replace("_", " "): each for name, each in seconds_per.items()}
    return FamilyFit(named, cases=4, mean_absolute_error=0.1, p10=0.9, p90=1.2)


CALIBRATION = CpuCalibration(
    device_id="here",
    threads=1,
    flop_per_second=100.0,
    bytes_per_second=1000.0,
    memory_bytes_per_second=500.0,
    cache_bytes=1000.0,
    seconds_per_fresh_byte=0.5,
    families={
        "elementwise forward": fitted(call=2.0, byte_in_cache=0.01, byte_in_memory=0.1),
        "linear forward": FamilyFit({"call": 1.0, "FLOP": 0.02, "m x n": 0.5}, 4, 0.1, 0.8, 1.1),
        "convolution forward": FamilyFit({"FLOP": 0.02, "FLOP / row": 0.1}, 4, 0.1, 0.8, 1.1),
        "optimizer": fitted(call=1.0, tensor=3.0),
    },
    software={"torch": "2"},
    measured_on="2026-01-01",
)
