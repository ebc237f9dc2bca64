"""The load of other processes, distinguished from one's own work."""

from __future__ import annotations

import os
import subprocess
import sys
import time

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
