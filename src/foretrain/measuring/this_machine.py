"""This machine's own CPU as a device: cores and memory asked of the system, peaks measured with numpy.

Hardware and software of this machine, as a run records them.
"""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import numpy as np

from foretrain.errors import BackendFailed
from foretrain.facts.devices import THIS_MACHINE, Device, devices, user_devices_dir
from foretrain.facts.topology import driver_matrix
from foretrain.facts.user_data import write_atomically
from foretrain.measuring.gpus import GpuReader, open_gpus
from foretrain.store.runs import Environment

SOURCE_ID = "this-machine"
_MATRIX_SIDE = 2048
"""Large enough that a product is bound by arithmetic, small enough for a fraction of a second."""
_COPY_ELEMENTS = 2**25
"""128 MiB, beyond the caches: the copy measures memory."""
_REPEATS = 5
_PACKAGES = ("foretrain", "torch", "numpy", "transformers", "lightning", "keras", "accelerate", "ray")


@dataclass(frozen=True, slots=True)
class CpuMeasurement:
    """What was found out about this machine."""

    name: str
    cores: int
    memory_bytes: int
    fp32_flop_per_second: float
    memory_bytes_per_second: float
    clock_hertz: float | None = None


def measure_this_machine(
    progress: Callable[[str], None] = lambda _: None,
    flop_per_second: float = 0.0,
    memory_bytes_per_second: float = 0.0,
) -> Device:
    """Measure the CPU (a few seconds), keep its sheet in the user's folder, and return it as a device.

    Rates that other operators were seen to reach may be given; the higher of both is the peak.
    """
    measured = _measure(progress)
    measurement = replace(
        measured,
        fp32_flop_per_second=max(measured.fp32_flop_per_second, flop_per_second),
        memory_bytes_per_second=max(measured.memory_bytes_per_second, memory_bytes_per_second),
    )
    write_atomically(user_devices_dir() / f"{THIS_MACHINE}.toml", _as_toml(measurement))
    devices.cache_clear()
    return devices()[THIS_MACHINE]


def _measure(progress: Callable[[str], None]) -> CpuMeasurement:
    progress("matrix products")
    flop_per_second = _matrix_product_rate()
    progress("memory copies")
    return CpuMeasurement(
        name=cpu_name(),
        cores=len(os.sched_getaffinity(0)),
        memory_bytes=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        fp32_flop_per_second=flop_per_second,
        memory_bytes_per_second=_copy_rate(),
        clock_hertz=_clock_hertz(),
    )


def _matrix_product_rate() -> float:
    """Best of a few square FP32 products: 2 n³ FLOP each."""
    left = np.ones((_MATRIX_SIDE, _MATRIX_SIDE), np.float32)
    out = np.empty_like(left)
    return 2 * _MATRIX_SIDE**3 / min(_seconds(lambda: np.matmul(left, left, out=out)))


def _copy_rate() -> float:
    """Best of a few copies far larger than any cache: every byte is read once and written once."""
    source = np.ones(_COPY_ELEMENTS, np.float32)
    target = np.empty_like(source)
    return 2 * source.nbytes / min(_seconds(lambda: np.copyto(target, source)))


def _seconds(work: Callable[[], object]) -> Iterator[float]:
    work()  # warm up: pages, threads, clocks
    for _ in range(_REPEATS):
        start = time.perf_counter()
        work()
        yield time.perf_counter() - start


def cpu_name() -> str:
    """The name of this machine's CPU as the kernel reports it."""
    return next(iter(_cpu_lines("model name", "Model")), platform.machine())


def _clock_hertz() -> float | None:
    """The highest clock of any core; None where the kernel does not report one."""
    return max((1e6 * float(megahertz) for megahertz in _cpu_lines("cpu MHz")), default=None)


def _cpu_lines(*keys: str) -> list[str]:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise BackendFailed(f"cannot read this machine's CPU from /proc/cpuinfo: {error}") from error
    return [line.split(":", 1)[1].strip() for line in lines if line.startswith(keys)]


def _as_toml(measurement: CpuMeasurement) -> str:
    name = measurement.name.replace("\\", "").replace('"', "")
    clock = f"boost_clock_hertz = {measurement.clock_hertz:.4e}\n" if measurement.clock_hertz else ""
    return f'''id = "{THIS_MACHINE}"
name = "This machine: {name}"
kind = "cpu"
vendor = "{platform.machine()}"
family = "{THIS_MACHINE}"
generation = "{platform.machine()}"
form = "host"
per = "machine"
aliases = ["this machine", "cpu"]

[[facts]]
kind = "measured"
source = "{SOURCE_ID}"
cores = {measurement.cores}
memory_bytes = {measurement.memory_bytes}
fp32_flop_per_second = {measurement.fp32_flop_per_second:.4e}
memory_bytes_per_second = {measurement.memory_bytes_per_second:.4e}
{clock}'''


def this_environment(*, nodes: int = 1, devices_per_node: int | None = None) -> Environment:
    """This machine: its GPUs where NVML lists some, else its CPU as the device `here`.

    Versions are those installed for the interpreter that runs foretrain.
    """
    gpus = open_gpus()
    try:
        return _environment(gpus, nodes, devices_per_node)
    finally:
        if gpus is not None:
            gpus.close()


def _environment(gpus: GpuReader | None, nodes: int, devices_per_node: int | None) -> Environment:
    cpu = cpu_name()
    names = gpus.names() if gpus is not None else ()
    return Environment(
        device=device_id(names[0]) if names else THIS_MACHINE,
        device_name=names[0] if names else cpu,
        devices_per_node=devices_per_node or len(names) or 1,
        nodes=nodes,
        cpu=cpu,
        cores=len(os.sched_getaffinity(0)),
        memory_bytes=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        driver=gpus.driver() if gpus is not None else "",
        topology=driver_matrix() if len(names) > 1 else "",
        versions=installed_versions(),
    )


def device_id(name: str) -> str:
    """foretrain's id of a GPU by the name its driver reports; that name where no sheet lists it."""
    known = devices().find(name)
    return name if known is None else known.id


def installed_versions() -> dict[str, str]:
    """Versions of Python, foretrain and the packages that decide how fast training is."""
    versions = {"python": platform.python_version(), "system": platform.platform()}
    for package in _PACKAGES:
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            continue
    return versions
