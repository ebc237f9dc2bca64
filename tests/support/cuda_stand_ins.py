"""Stand-ins for torch.cuda's events and for NVML, so that GPU code runs on a CPU."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

DEVICE_NAME = "NVIDIA GeForce RTX 3090"


class Event:
    """An event in the form of `torch.cuda.Event`: records when it is reached, in milliseconds."""

    def __init__(self, enable_timing: bool = False) -> None:
        assert enable_timing, "events measure nothing without timing"
        self._at: float | None = None
        self._is_synchronised = False

    def record(self) -> None:
        """Take the time."""
        self._at = time.perf_counter()

    def synchronize(self) -> None:
        """Wait until the device has reached it."""
        assert self._at is not None, "recorded first"
        self._is_synchronised = True

    def elapsed_time(self, end: Event) -> float:
        """Milliseconds until a later event, which must have been waited for."""
        assert end._is_synchronised, "torch raises here: the end was not reached"
        assert self._at is not None
        assert end._at is not None
        return 1e3 * (end._at - self._at)


class OutOfMemoryError(RuntimeError):
    """What torch raises when the memory of a device is full."""


def cuda(is_available: bool = True, name: str = DEVICE_NAME) -> Any:
    """`torch.cuda` with one device."""
    return SimpleNamespace(
        Event=Event,
        OutOfMemoryError=OutOfMemoryError,
        is_available=lambda: is_available,
        get_device_name=lambda: name,
        synchronize=lambda: None,
    )


class NvmlError(Exception):
    """What NVML raises for what a GPU does not support."""


def nvml(clocks: list[int]) -> Any:
    """`pynvml` with one GPU whose clock takes these values in MHz, one after another, then the last."""

    def clock(_: object, __: int) -> int:
        return clocks.pop(0) if len(clocks) > 1 else clocks[0]

    def unsupported(_: object) -> float:
        raise NvmlError("Not Supported")

    return SimpleNamespace(
        NVMLError=NvmlError,
        NVML_CLOCK_SM=1,
        nvmlInit=lambda: None,
        nvmlShutdown=lambda: None,
        nvmlDeviceGetCount=lambda: 1,
        nvmlDeviceGetHandleByIndex=lambda index: index,
        nvmlDeviceGetUUID=lambda _: "GPU-0",
        nvmlDeviceGetName=lambda _: DEVICE_NAME,
        nvmlSystemGetDriverVersion=lambda: "550.54",
        nvmlDeviceGetUtilizationRates=lambda _: SimpleNamespace(gpu=97, memory=40),
        nvmlDeviceGetMemoryInfo=lambda _: SimpleNamespace(used=2**30),
        nvmlDeviceGetPowerUsage=unsupported,
        nvmlDeviceGetClockInfo=clock,
    )
