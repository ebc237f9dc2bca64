"""Trains a zoo model on CPUs, for schedules that run for real: `python -m foretrain.backends.trainer MODEL
...`.

One thread stands for one GPU. Steps train on one batch of made-up samples. The trainer resumes from its
checkpoint, reports its progress, and on SIGTERM saves a checkpoint and leaves with exit code 0. Checkpoint
and report are replaced whole, so that a kill at any time leaves the last ones.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from foretrain.backends.supervise import write_whole

if TYPE_CHECKING:
    import torch

    from foretrain.workloads.example import Example

REPORT_SECONDS = 0.25
"""Least time between two reports of progress."""


@dataclass
class TrainerReport:
    """The progress of a training since this attempt resumed it."""

    path: Path
    total: int
    since: int
    saved: int
    start: float = field(default_factory=time.monotonic)
    _next: float = 0.0

    def write(self, done: int, *, now: bool = False) -> None:
        """Write the steps done, unless that was done a moment ago."""
        seconds = time.monotonic() - self.start
        if now or seconds >= self._next:
            self._next = seconds + REPORT_SECONDS
            content = {"done": done, "total": self.total, "saved": self.saved, "seconds": seconds}
            write_whole(self.path, json.dumps({**content, "since": self.since}))


def train(
    example: Example,
    steps: int,
    checkpoint: Path,
    progress: Path,
    checkpoint_seconds: float,
    is_asked: Callable[[], bool] = lambda: False,
) -> int:
    """Train up to `steps` steps from the last checkpoint on; returns the steps that are done."""
    import torch

    optimizer = torch.optim.SGD(example.module.parameters(), lr=1e-4)
    done = _load_checkpoint(example.module, optimizer, checkpoint)
    if done < steps and not is_asked():
        _step(example, optimizer)  # the first step prepares memory and kernels; it is repeated as a real one
    report = TrainerReport(progress, steps, done, done)
    report.write(done, now=True)
    next_save = time.monotonic() + checkpoint_seconds
    while done < steps and not is_asked():
        _step(example, optimizer)
        done += 1
        if time.monotonic() >= next_save and done < steps:
            report.saved = _save_checkpoint(example.module, optimizer, checkpoint, done)
            next_save = time.monotonic() + checkpoint_seconds
        report.write(done)
    report.saved = _save_checkpoint(example.module, optimizer, checkpoint, done)
    report.write(done, now=True)
    return done


def _step(example: Example, optimizer: torch.optim.Optimizer) -> None:
    optimizer.zero_grad(set_to_none=True)
    example.forward().backward()
    optimizer.step()


def _load_checkpoint(module: torch.nn.Module, optimizer: torch.optim.Optimizer, checkpoint: Path) -> int:
    """Load the checkpoint, if there is one; the steps it holds."""
    import torch

    if not checkpoint.exists():
        return 0
    content = torch.load(checkpoint, weights_only=True)
    module.load_state_dict(content["module"])
    optimizer.load_state_dict(content["optimizer"])
    return int(content["done"])


def _save_checkpoint(
    module: torch.nn.Module, optimizer: torch.optim.Optimizer, checkpoint: Path, done: int
) -> int:
    """Replace the checkpoint; the steps it holds."""
    import torch

    partial = checkpoint.with_name(f".{checkpoint.name}.{os.getpid()}")
    content = {"module": module.state_dict(), "optimizer": optimizer.state_dict(), "done": done}
    torch.save(content, partial)
    partial.replace(checkpoint)
    return done


def main(arguments: Sequence[str]) -> int:
    """Train as the command line says."""
    import torch

    from foretrain.workloads.zoo import BuildOptions, build

    asked: list[int] = []
    signal.signal(signal.SIGTERM, lambda *_: asked.append(1))
    given = _parser().parse_args(arguments)
    torch.set_num_threads(given.threads)
    torch.manual_seed(0)
    options = BuildOptions(batch=given.batch, seq_len=given.seq_len, image_size=given.image_size)
    given.progress.parent.mkdir(parents=True, exist_ok=True)
    train(
        build(given.model, options),
        given.steps,
        given.checkpoint,
        given.progress,
        given.checkpoint_seconds,
        lambda: bool(asked),
    )
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m foretrain.backends.trainer", description=__doc__)
    parser.add_argument("model", help="a model of the zoo")
    parser.add_argument("--steps", type=int, required=True, help="steps of the whole training")
    parser.add_argument("--batch", type=int, help="samples of a step")
    parser.add_argument("--seq-len", type=int)
    parser.add_argument("--image-size", type=int)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--checkpoint", type=Path, required=True)
    parser.add_argument("--progress", type=Path, required=True)
    parser.add_argument("--checkpoint-seconds", type=float, default=10.0)
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
