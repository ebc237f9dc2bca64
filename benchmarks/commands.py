"""Whole commands as they are typed: fresh processes, in an empty data directory and with a cache of graphs.

Their targets are multiples of a bare `import numpy` in the same run, so that they hold on slow machines too.
Beside them: the memory of the largest search, the size of the wheel, the time of an installation.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

from benchmarks.timing import Benchmark, Failed, NotMeasured, Target, import_torch, register

ROOT = Path(__file__).resolve().parent.parent
MODEL_FILE = """
import torch

def model():
    layers = [torch.nn.Linear(1024, 1024), torch.nn.ReLU()] * 8
    return torch.nn.Sequential(*layers), torch.randn(32, 1024), lambda output: output.sum()
"""
LLAMA_70B = "--strategy auto --global-batch 512 --precision bf16 --seq-len 4096"
_MB = 1e6
_WITHOUT_TORCH = "import sys; sys.modules['torch'] = None; from foretrain.serving.cli import main; main()"
"""A process in which torch cannot be imported, as where it is not installed."""


@dataclass(frozen=True)
class Row:
    """A command with its targets, in an empty data directory and in that of an earlier run."""

    command: str
    cold: Target | None
    cached: Target
    without_torch: bool = False
    cold_runs: int = 3
    cached_runs: int = 5

    @property
    def name(self) -> str:
        """How tables name it."""
        return f"{self.command} (no torch)" if self.without_torch else self.command


def times(cold: float, cached: float) -> tuple[Target, Target]:
    """Targets as multiples of a bare `import numpy`."""
    return Target(times=cold), Target(times=cached)


ROWS = (
    Row("--help", None, Target(0.3)),
    Row("devices --json", None, Target(0.8)),
    Row("predict resnet50 --on rtx3090 --batch 192 --precision fp16", *times(10, 6)),
    Row("predict resnet50 --on rtx3090 --batch 192 --precision fp16", *times(10, 6), without_torch=True),
    Row("fit llama3-8b --on rtx4090 --lora r=16", *times(10, 6)),
    Row(f"predict llama3-70b --on h100-sxm:8x8 {LLAMA_70B}", *times(50, 30), cold_runs=2, cached_runs=3),
    Row(f"predict llama3-70b --on h100-sxm:8x128 {LLAMA_70B}", *times(80, 50), cold_runs=2, cached_runs=3),
    Row("predict llama3-8b --on h100-sxm:8 --strategy fsdp", *times(20, 10)),
    Row("plan resnet50 --samples 1281167 --epochs 90 --precision fp16 --deadline 24h", *times(30, 15)),
    Row("plan llama3-8b --steps 10000 --global-batch 128 --precision bf16", *times(120, 50), cold_runs=2,
        cached_runs=3),
    Row("guide resnet50 bert-base gpt2", *times(80, 40), cold_runs=2, cached_runs=3),
    Row("predict MODEL.py:model --on rtx3090", Target(3.0, 1.0, import_torch), Target(times=10)),
)  # fmt: skip


@cache
def _folder() -> Path:
    """A folder of this run: data directories, and the model of a user."""
    folder = Path(tempfile.mkdtemp(prefix="foretrain-bench-"))
    (folder / "MODEL.py").write_text(MODEL_FILE, encoding="utf-8")
    return folder


def _start(row: Row, home: str) -> subprocess.Popen[bytes]:
    """Start a command, its output dropped."""
    words = row.command.split()
    start = [sys.executable, "-c", _WITHOUT_TORCH] if row.without_torch else [_executable()]
    environment = os.environ | {"FORETRAIN_HOME": str(_folder() / home)}
    return subprocess.Popen(
        [*start, *words], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=environment, cwd=_folder()
    )


@cache
def _executable() -> str:
    """The `foretrain` of the running environment."""
    beside = Path(sys.executable).with_name("foretrain")
    return str(beside) if beside.exists() else shutil.which("foretrain") or "foretrain"


def _run(row: Row, home: str) -> float:
    """Run a command to its end; returns the most memory it had, in MB."""
    process = _start(row, home)
    assert process.stderr is not None
    errors = process.stderr.read().decode()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise Failed(f"foretrain {row.command} failed: {_last_line(errors)}")
    return usage.ru_maxrss * 1024 / _MB


def _forget(home: str) -> None:
    shutil.rmtree(_folder() / home, ignore_errors=True)


for _place, _row in enumerate(ROWS):
    if _row.cold is not None:
        register(
            Benchmark(
                f"{_row.name}, cold",
                _row.cold,
                _row.cold_runs,
                partial(_run, _row, f"cold-{_place}"),
                partial(_forget, f"cold-{_place}"),
                warms_up=False,
            )
        )
    register(
        Benchmark(
            f"{_row.name}, cached", _row.cached, _row.cached_runs, partial(_run, _row, f"cached-{_place}")
        )
    )


# ---------------------------------------------------------------- memory, wheel, installation

_LARGEST = next(row for row in ROWS if "8x8" in row.command)
register(
    Benchmark(
        "peak memory of the search on 64 GPUs, cold",
        Target(300.0),
        1,
        partial(_run, _LARGEST, "peak"),
        partial(_forget, "peak"),
        unit="MB",
        warms_up=False,
    )
)


@cache
def _wheel() -> Path:
    """The wheel of the working tree; its build backend is downloaded."""
    folder = _folder() / "wheel"
    options = ["--quiet", "--no-deps", "-w", str(folder), str(ROOT)]
    built = subprocess.run(
        [sys.executable, "-m", "pip", "wheel", *options], capture_output=True, text=True, check=False
    )
    if built.returncode:
        raise NotMeasured(f"the wheel cannot be built: {_last_line(built.stderr)}")
    return next(folder.glob("*.whl"))


def _wheel_size() -> float:
    return _wheel().stat().st_size / _MB


def _install() -> None:
    """Install the wheel with what it depends on into a bare environment; torch must not come with it."""
    folder = _folder() / "environment"
    shutil.rmtree(folder, ignore_errors=True)
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    python = folder / "bin" / "python"
    installed = subprocess.run(
        [python, "-m", "pip", "install", "--quiet", _wheel()],
        capture_output=True,
        text=True,
        check=False,
    )
    if installed.returncode:
        raise NotMeasured(f"packages cannot be downloaded: {_last_line(installed.stderr)}")
    absent = subprocess.run(
        [folder / "bin" / "python", "-c", "import torch"], capture_output=True, check=False
    )
    if not absent.returncode:
        raise RuntimeError("a bare installation brings torch along")


def _last_line(text: str) -> str:
    return (text.strip().splitlines() or [""])[-1]


register(Benchmark("size of the wheel", Target(12.0), 1, _wheel_size, unit="MB", warms_up=False))
register(Benchmark("pip install in a bare environment", Target(60.0), 1, _install, warms_up=False))
