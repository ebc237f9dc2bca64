"""Samples of real processes: CPU, memory and disk of a tree, ranks, networks, and a stand-in for NVML."""

import os
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from foretrain.measuring.distributed_trials.namespaces import joined_hosts, why_not
from foretrain.measuring.gpus import GpuReader, visible_gpus
from foretrain.measuring.watching import samplers
from foretrain.measuring.watching.processes import InterfaceTraffic, descendants, environment_of, traffic_of
from foretrain.measuring.watching.samplers import Sampler
from foretrain.store.runs import NODE, Resource, ResourceSeries

BUSY = "import time\nend = time.monotonic() + 0.8\nwhile time.monotonic() < end: pass"


def run(code: str, **environment: str) -> "subprocess.Popen[bytes]":
    return subprocess.Popen([sys.executable, "-c", code], env={**os.environ, **environment})


def network_of(pid: int) -> str:
    return str(Path(f"/proc/{pid}/ns/net").readlink())


def wait_until_it_left(network: str, pid: int) -> None:
    end = time.monotonic() + 30
    while network_of(pid) == network:
        assert time.monotonic() < end
        time.sleep(0.01)


def of(series: tuple[ResourceSeries, ...], resource: Resource) -> dict[int, ResourceSeries]:
    return {each.worker: each for each in series if each.resource is resource}


def watched(process: "subprocess.Popen[bytes]", **options: Any) -> tuple[ResourceSeries, ...]:
    with Sampler((process.pid,), 0.02, gpus=lambda: None, **options) as sampler:
        process.wait()
    return sampler.series()


def test_a_busy_process_uses_up_to_one_core_and_holds_memory() -> None:
    series = watched(run(BUSY))
    cpu = of(series, Resource.CPU)[0]
    used = float(np.sum(cpu.values * np.diff(cpu.seconds, prepend=cpu.seconds[0] - 0.02)))
    assert 0.05 < used < 1.5  # other work shares the cores; a process of one thread cannot use more
    assert np.all(np.diff(cpu.seconds) > 0)
    assert of(series, Resource.MEMORY)[0].values.max() > 1_000_000


def test_processes_belong_to_their_rank_and_the_launcher_to_the_node() -> None:
    launcher = (
        "import os, subprocess, sys\n"
        "start = lambda rank: subprocess.Popen([sys.executable, '-c', os.environ['CODE']],"
        " env={**os.environ, 'RANK': rank})\n"
        "for worker in [start('0'), start('3')]: worker.wait()"
    )
    series = watched(run(launcher, CODE=BUSY))
    assert sorted(of(series, Resource.CPU)) == [NODE, 0, 3]


def test_trees_without_ranks_are_numbered() -> None:
    first, second = run(BUSY), run(BUSY)
    with Sampler((first.pid, second.pid), 0.02, gpus=lambda: None) as sampler:
        first.wait()
        second.wait()
    assert sorted(of(sampler.series(), Resource.CPU)) == [0, 1]


def test_a_process_is_attributed_to_the_worker_it_reports() -> None:
    process = run(BUSY)
    sampler = Sampler((process.pid,), 0.02, gpus=lambda: None)
    sampler.assign(process.pid, 5)
    with sampler:
        process.wait()
    assert sorted(of(sampler.series(), Resource.CPU)) == [5]


def test_what_is_written_to_disk_is_counted_as_the_kernel_counts_it(tmp_path: Path) -> None:
    data, counted = tmp_path / "data", tmp_path / "counted"
    code = (
        "import os, pathlib, time\n"
        "time.sleep(0.3)\n"
        f"pathlib.Path({str(data)!r}).write_bytes(bytes(4_000_000))\n"
        f"pathlib.Path({str(counted)!r}).write_text(pathlib.Path('/proc/self/io').read_text())\n"
        "time.sleep(0.3)"
    )
    series = of(watched(run(code)), Resource.DISK_WRITE)[0]
    total = float(np.sum(series.values[1:] * np.diff(series.seconds)))
    (line,) = [line for line in counted.read_text().splitlines() if line.startswith("write_bytes")]
    assert total == pytest.approx(int(line.split()[1]), abs=10_000)


def test_samples_after_an_instant_are_a_part_of_all() -> None:
    process = run("import time; time.sleep(0.4)")
    with Sampler((process.pid,), 0.02, gpus=lambda: None) as sampler:
        process.wait()
    cpu = of(sampler.series(), Resource.CPU)[0]
    middle = float(cpu.seconds[len(cpu.seconds) // 2])
    later = of(sampler.series(since=middle), Resource.CPU)[0]
    assert list(later.seconds) == [second for second in cpu.seconds if second > middle]


def test_long_runs_are_kept_at_a_lower_rate() -> None:
    process = run("import time; time.sleep(0.8)")
    with Sampler((process.pid,), 0.01, gpus=lambda: None, most_samples=8) as sampler:
        process.wait()
    cpu = of(sampler.series(), Resource.CPU)[0]
    assert len(cpu.seconds) <= 9
    assert np.all(np.diff(cpu.seconds) > 0)


def test_seconds_count_from_the_origin() -> None:
    origin = time.monotonic() - 100
    series = watched(run("import time; time.sleep(0.2)"), origin=origin)
    assert of(series, Resource.CPU)[0].seconds.min() > 100


def test_an_ended_process_has_no_samples_and_is_no_error() -> None:
    process = run("pass")
    process.wait()
    assert of(watched(process), Resource.CPU) == {}


def test_the_descendants_of_this_process_start_with_itself() -> None:
    assert next(descendants(os.getpid())) == os.getpid()
    assert "PATH" in environment_of(os.getpid())


def test_counters_of_interfaces_are_read_from_the_kernels_table() -> None:
    table = (
        b"Inter-|   Receive    |  Transmit\n face |bytes packets ...\n"
        b"    lo: 12 1 0 0 0 0 0 0 12 1 0 0 0 0 0 0\n"
        b"  eth0:2828883819 65478 0 0 0 0 0 0 3831753 41232 0 0 0 0 0 0\n"
    )
    assert traffic_of(table) == {
        "lo": InterfaceTraffic(12, 12),
        "eth0": InterfaceTraffic(3831753, 2828883819),
    }


class FakeNvml(SimpleNamespace):
    """The functions of NVML that are used, for two GPUs; the second one reports no power."""

    class NVMLError(Exception):
        pass

    NVML_CLOCK_SM = 1

    def nvmlInit(self) -> None:  # noqa: N802 - the names of NVML
        self.open = True

    def nvmlShutdown(self) -> None:  # noqa: N802
        self.open = False

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802
        return 2

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:  # noqa: N802
        return index

    def nvmlDeviceGetName(self, handle: int) -> bytes:  # noqa: N802
        return b"NVIDIA A100-SXM4-40GB"

    def nvmlDeviceGetUUID(self, handle: int) -> str:  # noqa: N802
        return f"GPU-{handle}abc"

    def nvmlSystemGetDriverVersion(self) -> str:  # noqa: N802
        return "550.54"

    def nvmlDeviceGetUtilizationRates(self, handle: int) -> SimpleNamespace:  # noqa: N802
        return SimpleNamespace(gpu=90 + handle, memory=50)

    def nvmlDeviceGetMemoryInfo(self, handle: int) -> SimpleNamespace:  # noqa: N802
        return SimpleNamespace(used=2**30)

    def nvmlDeviceGetPowerUsage(self, handle: int) -> int:  # noqa: N802
        if handle:
            raise self.NVMLError
        return 250_000

    def nvmlDeviceGetClockInfo(self, handle: int, clock: int) -> int:  # noqa: N802
        return 1410


def test_gpus_are_read_through_nvml_in_base_units(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    reader = GpuReader(FakeNvml())
    assert reader.names() == ("NVIDIA A100-SXM4-40GB",) * 2 and reader.driver() == "550.54"
    assert set(reader.samples()) == {
        (Resource.GPU, "0", 0.9),
        (Resource.GPU_MEMORY_BUSY, "0", 0.5),
        (Resource.GPU_MEMORY, "0", 2.0**30),
        (Resource.POWER, "0", 250.0),
        (Resource.CLOCK, "0", 1.41e9),
        (Resource.GPU, "1", 0.91),
        (Resource.GPU_MEMORY_BUSY, "1", 0.5),
        (Resource.GPU_MEMORY, "1", 2.0**30),
        (Resource.CLOCK, "1", 1.41e9),
    }


def test_gpus_are_sampled_beside_the_processes() -> None:
    nvml = FakeNvml()
    process = run("import time; time.sleep(0.2)")
    with Sampler((process.pid,), 0.02, gpus=lambda: GpuReader(nvml)) as sampler:
        process.wait()
    gpus = [each for each in sampler.series() if each.resource is Resource.GPU]
    assert [(each.worker, each.label) for each in gpus] == [(NODE, "0"), (NODE, "1")]
    assert not nvml.open


@pytest.mark.parametrize(
    ("setting", "visible"),
    [(None, ("0", "1")), ("1", ("1",)), ("GPU-0a", ("0",)), ("", ()), ("7", ())],
)
def test_only_visible_gpus_are_read(setting: str | None, visible: tuple[str, ...]) -> None:
    assert visible_gpus(setting, ("0", "1"), lambda index: f"GPU-{index}abc") == visible


SEND = (
    "import socket, sys, time\n"
    "server = socket.create_server((sys.argv[1], 7000))\n"
    "time.sleep(1)\n"
    "sender = socket.create_connection((sys.argv[2], 7000))\n"
    "taken, _ = server.accept()\n"
    "sender.sendall(bytes(500_000))\n"
    "left = 500_000\n"
    "while left: left -= len(taken.recv(65536))\n"
    "time.sleep(1)\n"
)


@pytest.mark.skipif(why_not() is not None, reason=str(why_not()))
def test_the_network_of_a_namespace_belongs_to_the_worker_that_lives_there() -> None:
    with joined_hosts(2) as network:
        first, second = network.hosts
        workers = [
            subprocess.Popen(
                [
                    "ip",
                    "netns",
                    "exec",
                    here.namespace,
                    sys.executable,
                    "-c",
                    SEND,
                    here.address,
                    there.address,
                ]
            )
            for here, there in ((first, second), (second, first))
        ]
        for worker in workers:  # a worker that is still on its way there would count as one of this machine
            wait_until_it_left(network_of(os.getpid()), worker.pid)
        with Sampler([worker.pid for worker in workers], 0.05, gpus=lambda: None) as sampler:
            assert [worker.wait(timeout=60) for worker in workers] == [0, 0]
    sent = of(sampler.series(), Resource.TRANSMIT)
    assert sorted(sent) == [0, 1]
    for series in sent.values():
        assert series.label == "eth0"
        assert float(np.sum(series.values[1:] * np.diff(series.seconds))) == pytest.approx(500_000, rel=0.2)


def test_other_processes_use_what_is_left_of_the_machines_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    used = iter((100.0, 103.0, 104.0))
    monkeypatch.setattr(samplers, "busy_cpu_seconds", lambda: next(used))
    monkeypatch.setattr(time, "monotonic", lambda: 0.0)
    others = samplers._OtherProcesses()
    others.own_cpu_seconds += 2.0
    assert others.cores(0.5) is None  # too early to divide ticks of a hundredth of a second
    assert others.cores(2.0) == (3.0 - 2.0) / 2.0
    others.own_cpu_seconds += 5.0
    assert others.cores(3.0) == 0.0  # clocks of different resolution never make it negative
