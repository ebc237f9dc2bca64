"""Hardware and software of this machine, as a run records them."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from importlib.metadata import PackageNotFoundError, version

from foretrain.facts.devices import devices
from foretrain.measuring.gpus import GpuReader, open_gpus
from foretrain.measuring.this_machine import DEVICE_ID, cpu_name
from foretrain.store.runs import Environment

_PACKAGES = ("foretrain", "torch", "numpy", "transformers", "lightning", "keras", "accelerate", "ray")
_TOPOLOGY_SECONDS = 10.0


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
        device=device_id(names[0]) if names else DEVICE_ID,
        device_name=names[0] if names else cpu,
        devices_per_node=devices_per_node or len(names) or 1,
        nodes=nodes,
        cpu=cpu,
        cores=len(os.sched_getaffinity(0)),
        memory_bytes=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        driver=gpus.driver() if gpus is not None else "",
        topology=_topology() if len(names) > 1 else "",
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


def _topology() -> str:
    """How the GPUs are connected, as `nvidia-smi topo -m` prints it."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return ""
    try:
        run = subprocess.run(
            [tool, "topo", "-m"], capture_output=True, text=True, check=False, timeout=_TOPOLOGY_SECONDS
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return run.stdout if run.returncode == 0 else ""
