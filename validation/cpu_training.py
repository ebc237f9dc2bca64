"""Really train a zoo model on this CPU for a few steps, in a process of its own.

Prints the seconds of a step as JSON. The optimizer is the one the trace records; the model is built for real.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from dataclasses import asdict, dataclass

from foretrain.errors import BackendFailed
from foretrain.measuring.stopwatch import Stopwatch

_WARM_UP = 3
_FEWEST, _MOST = 4, 20


@dataclass(frozen=True)
class Training:
    """What is trained: a zoo model at sizes, with an optimizer, on some threads, for about some seconds."""

    model: str
    batch: int
    seq_len: int | None = None
    image_size: int | None = None
    attention: str = "sdpa"
    optimizer: str = "momentum"
    threads: int = 1
    seconds: float = 6.0


def measured_seconds(training: Training) -> float:
    """The time of a step, measured in a fresh process."""
    command = [sys.executable, "-m", "validation.cpu_training", json.dumps(asdict(training))]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    if run.returncode:
        raise BackendFailed(f"training {training.model} failed: {run.stderr.strip().splitlines()[-1]}")
    return float(json.loads(run.stdout)["step_seconds"])


def _train(training: Training) -> float:
    import torch

    from foretrain.workloads.tracing.optimizers import optimizer
    from foretrain.workloads.zoo import BuildOptions
    from foretrain.workloads.zoo.catalogue import build

    torch.set_num_threads(training.threads)
    torch.manual_seed(0)
    sizes = BuildOptions(training.batch, training.seq_len, training.image_size, training.attention)  # type: ignore[arg-type]
    example = build(training.model, sizes)
    update = optimizer(training.optimizer, example.module.parameters())
    watch = Stopwatch(training.threads)
    deadline = 0.0
    for run in range(_WARM_UP + _MOST):
        if run == _WARM_UP:
            watch = Stopwatch(training.threads)
            deadline = time.perf_counter() + training.seconds
        elif run >= _WARM_UP + _FEWEST and time.perf_counter() > deadline:
            break
        with watch:
            example.forward().backward()
            update.step()
            update.zero_grad(set_to_none=True)
    return watch.seconds


if __name__ == "__main__":
    sys.stdout.write(json.dumps({"step_seconds": _train(Training(**json.loads(sys.argv[1])))}) + "\n")
