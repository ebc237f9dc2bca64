"""What watching costs: `python -m benchmarks.measuring [SECONDS]`.

A CPU-bound training loop on all cores runs under `foretrain measure`. Every second foretrain is paused or
continued, so that seconds with and without it are pairs of neighbours which other load on the machine slows
equally. The overhead is the median ratio of the mean step times of a pair. Then the same loop runs alone and
watched as a whole, in turns. What `foretrain.step()` itself takes is timed apart, and so is the CPU time of
foretrain while it watches, which other load does not change.
"""

from __future__ import annotations

import json
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.timing import benchmark
from foretrain.measuring.watching.processes import WatchedProcess
from foretrain.measuring.watching.samplers import INTERVAL_SECONDS, Sampler

TARGET_SHARE = 0.01
_PAIR_SECONDS = 1.0
_WHOLE_PAIRS = 6
_STEPS = 2000
_LEAST_STEPS = 10
_LOOP = """
import json, sys, time, torch, foretrain
torch.manual_seed(0)
model = torch.nn.Sequential(*(torch.nn.Linear(256, 256) for _ in range(4)))
optimizer, batch = torch.optim.SGD(model.parameters(), 0.01), torch.randn(64, 256)
def train():
    optimizer.zero_grad(); model(batch).square().mean().backward(); optimizer.step(); foretrain.step()
for _ in range(50): train()
ends, end = [time.monotonic()], time.monotonic() + float(sys.argv[1])
print(ends[0], flush=True)
while (ends[-1] < end) if len(sys.argv) < 3 else (len(ends) <= int(sys.argv[2])):
    train(); ends.append(time.monotonic())
print(json.dumps(ends))
"""


def main(seconds: float) -> int:
    """Measure and print; the exit code says whether the overhead is below the target."""
    with tempfile.TemporaryDirectory() as home:
        os.environ["FORETRAIN_HOME"] = home
        ratios, cpu_share = paused_ratios(seconds)
        print(f"seconds with and without foretrain: {_spread(ratios)}")
        print(f"CPU time of foretrain: {cpu_share:.2%} of a core")
        print(f"whole runs, watched and alone in turns: {_spread(whole_ratios(_WHOLE_PAIRS))}")
    print(f"foretrain.step(): {1e6 * hook_seconds():.2f} us")
    return 0 if statistics.median(ratios) - 1 <= TARGET_SHARE else 1


def paused_ratios(seconds: float) -> tuple[list[float], float]:
    """Mean step times of seconds with foretrain over those without; the CPU time it takes of a core."""
    command = [sys.executable, "-m", "foretrain", "measure", "--no-store", "--", sys.executable, "-c", _LOOP]
    watching = subprocess.Popen(
        [*command, str(seconds)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    assert watching.stdout is not None
    start, itself = float(watching.stdout.readline()), WatchedProcess(watching.pid)
    used, pairs, coin = itself.usage().cpu_seconds, [], random.Random(0)
    while time.monotonic() < start + seconds - 2 * _PAIR_SECONDS:
        pairs.append([_window(watching, is_watched) for is_watched in coin.sample((True, False), 2)])
    used = itself.usage().cpu_seconds - used
    watching.send_signal(signal.SIGCONT)
    ends = json.loads(watching.stdout.read())
    watching.wait()
    times = [dict(_step_seconds(ends, window) for window in pair) for pair in pairs]
    ratios = [pair[True] / pair[False] for pair in times if pair[True] and pair[False]]
    return ratios, used / (_PAIR_SECONDS * len(pairs))


def _window(watching: subprocess.Popen[str], is_watched: bool) -> tuple[bool, float, float]:
    """A second in which foretrain runs or is paused."""
    watching.send_signal(signal.SIGCONT if is_watched else signal.SIGSTOP)
    began = time.monotonic()
    time.sleep(_PAIR_SECONDS)
    return is_watched, began, time.monotonic()


def _step_seconds(ends: list[float], window: tuple[bool, float, float]) -> tuple[bool, float]:
    """The mean step time within a window; 0 where it has too few steps."""
    is_watched, start, end = window
    inside = [second for second in ends if start <= second <= end]
    if len(inside) < _LEAST_STEPS:
        return is_watched, 0.0
    return is_watched, (inside[-1] - inside[0]) / (len(inside) - 1)


def whole_ratios(pairs: int) -> list[float]:
    """The loop watched over the loop alone; which comes first alternates."""
    ratios = []
    for index in range(pairs):
        order = (True, False) if index % 2 else (False, True)
        seconds = {is_watched: _loop_seconds(is_watched) for is_watched in order}
        ratios.append(seconds[True] / seconds[False])
    return ratios


def _loop_seconds(is_watched: bool) -> float:
    watch = [sys.executable, "-m", "foretrain", "measure", "--no-store", "--"] if is_watched else []
    command = [*watch, sys.executable, "-c", _LOOP, "0", str(_STEPS)]
    ends = json.loads(
        subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()[1]
    )
    return float(ends[-1] - ends[0])


def hook_seconds() -> float:
    """What a call of `foretrain.step()` takes in a process that is watched."""
    code = (
        "import time, foretrain; foretrain.step(); start = time.perf_counter()\n"
        "for _ in range(100_000): foretrain.step()\n"
        "print((time.perf_counter() - start) / 100_000)"
    )
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as folder:
        environment = {**os.environ, "FORETRAIN_STEPS": folder}
        command = [sys.executable, "-c", code]
        return float(subprocess.run(command, env=environment, capture_output=True, check=True).stdout)


def _spread(ratios: list[float]) -> str:
    low, high = statistics.quantiles(ratios, n=4)[::2]
    middle = statistics.median(ratios)
    return f"{middle - 1:+.2%} (quartiles {low - 1:+.2%} and {high - 1:+.2%}, {len(ratios)} pairs)"


_sampler = Sampler((os.getpid(),))


@benchmark("a second of samples", target_seconds=TARGET_SHARE, runs=50, prepare=_sampler.discover)
def a_second_of_samples() -> None:
    """All samples of a second and a look for new processes take less than a hundredth of it."""
    _sampler.discover()
    for _ in range(round(1 / INTERVAL_SECONDS)):
        _sampler.sample(time.monotonic(), INTERVAL_SECONDS)


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1]) if len(sys.argv) > 1 else 120.0))
