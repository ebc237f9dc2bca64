"""The load of other processes, distinguished from one's own work."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest

from foretrain.errors import BackendFailed
from foretrain.measuring import stopwatch
from foretrain.measuring.stopwatch import OtherLoad

BUSY = "import time\nwhile True: pass"


def test_a_busy_process_counts_unless_it_is_ones_own() -> None:
    with subprocess.Popen([sys.executable, "-c", BUSY]) as process:
        try:
            time.sleep(0.3)
            everyone, others = OtherLoad([]), OtherLoad([os.getpid(), process.pid])
            time.sleep(1.0)
            busy, without = everyone.cores, others.cores
        finally:
            process.kill()
    assert 0 <= without < busy
    assert busy - without > 0.1  # however busy the machine is, the process gets some of it


def test_a_process_that_has_ended_counts_nothing() -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    assert OtherLoad([ended.pid]).cores >= 0


class BusyLoad:
    """Other processes that use 1.6 cores."""

    cores = 1.6

    def __init__(self, processes: object) -> None:
        del processes


def test_a_busy_machine_is_refused_with_what_would_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stopwatch, "OtherLoad", BusyLoad)
    monkeypatch.setattr(stopwatch, "_GLANCE_SECONDS", 0.0)
    monkeypatch.setattr(os, "cpu_count", lambda: 3)
    with pytest.raises(BackendFailed, match=r"use 1\.6 of its 3 cores.*OMP_NUM_THREADS=1 foretrain") as error:
        stopwatch.QuietWatch(threads=3).wait(patience=0.0)
    assert error.value.exit_code == 4
    stopwatch.QuietWatch(threads=1).wait(patience=0.0)  # as many cores are idle
