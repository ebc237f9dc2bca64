"""What NVIDIA's management library (NVML, package `nvidia-ml-py`) reports about the GPUs of this node."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any

from foretrain.store.runs import Resource

_WATT_PER_MILLIWATT = 1e-3
_HERTZ_PER_MEGAHERTZ = 1e6


class GpuReader:
    """The GPUs that are visible to training commands, read one after the other.

    NVML averages utilisation over its own window (1/6 s to 1 s by product), so that samples closer together
    repeat. A quantity that a GPU does not support is left out.
    """

    def __init__(self, nvml: Any) -> None:
        self._nvml = nvml
        nvml.nvmlInit()
        listed = range(nvml.nvmlDeviceGetCount())
        self._handles = {str(index): nvml.nvmlDeviceGetHandleByIndex(index) for index in listed}
        visible = visible_gpus(os.environ.get("CUDA_VISIBLE_DEVICES"), tuple(self._handles), self._uuid)
        self._handles = {index: self._handles[index] for index in visible}

    def names(self) -> tuple[str, ...]:
        """The product name of each visible GPU."""
        return tuple(_text(self._nvml.nvmlDeviceGetName(handle)) for handle in self._handles.values())

    def driver(self) -> str:
        """The version of the driver."""
        return _text(self._nvml.nvmlSystemGetDriverVersion())

    def samples(self) -> Iterator[tuple[Resource, str, float]]:
        """Resource, index of the GPU, and value of all that is supported."""
        for index, handle in self._handles.items():
            for read in (self._utilisation, self._memory, self._power, self._clock):
                try:
                    yield from ((resource, index, value) for resource, value in read(handle))
                except self._nvml.NVMLError:
                    continue

    def close(self) -> None:
        """Release the library."""
        self._nvml.nvmlShutdown()

    def _uuid(self, index: str) -> str:
        return _text(self._nvml.nvmlDeviceGetUUID(self._handles[index]))

    def _utilisation(self, handle: Any) -> tuple[tuple[Resource, float], ...]:
        rates = self._nvml.nvmlDeviceGetUtilizationRates(handle)
        return (Resource.GPU, rates.gpu / 100), (Resource.GPU_MEMORY_BUSY, rates.memory / 100)

    def _memory(self, handle: Any) -> tuple[tuple[Resource, float], ...]:
        return ((Resource.GPU_MEMORY, float(self._nvml.nvmlDeviceGetMemoryInfo(handle).used)),)

    def _power(self, handle: Any) -> tuple[tuple[Resource, float], ...]:
        return ((Resource.POWER, self._nvml.nvmlDeviceGetPowerUsage(handle) * _WATT_PER_MILLIWATT),)

    def _clock(self, handle: Any) -> tuple[tuple[Resource, float], ...]:
        clock = self._nvml.nvmlDeviceGetClockInfo(handle, self._nvml.NVML_CLOCK_SM)
        return ((Resource.CLOCK, clock * _HERTZ_PER_MEGAHERTZ),)


def open_gpus() -> GpuReader | None:
    """A reader of this node's GPUs; None without NVML, without a driver, or without a GPU."""
    try:
        nvml = import_module("pynvml")
    except ImportError:
        return None
    try:
        return GpuReader(nvml)
    except nvml.NVMLError:
        return None


def visible_gpus(
    setting: str | None, indices: tuple[str, ...], uuid: Callable[[str], str]
) -> tuple[str, ...]:
    """The GPUs that CUDA_VISIBLE_DEVICES admits, by index or by the start of a UUID; all without it."""
    if setting is None:
        return indices
    wanted = [entry.strip() for entry in setting.split(",") if entry.strip()]
    return tuple(
        index
        for index in indices
        if any(index == entry or (len(entry) > 4 and uuid(index).startswith(entry)) for entry in wanted)
    )


def _text(value: str | bytes) -> str:
    """Older versions of the library answer with bytes."""
    return value.decode() if isinstance(value, bytes) else value
