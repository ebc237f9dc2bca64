"""What others would answer: torch's MemTracker, and the published formulas of DeepSpeed and accelerate.

* MemTracker (torch.distributed._tools) follows the tensors of a step on the meta device. It does not account
  for allocator, libraries and context, and stores the score matrix of attention.
* DeepSpeed's ZeRO-2 estimator: 4 P + 16 P / N bytes for P parameters on N devices (Adam, no offload); its
  documentation prints 15.93 GB for 2,851 M parameters on 8 devices. Activations are left out.
* accelerate's estimator: training with Adam takes four times the size of the model.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from foretrain.errors import ForetrainError
from foretrain.facts.user_data import write_atomically
from foretrain.workloads.readers.image_libraries import TIMM, read_timm
from foretrain.workloads.zoo.catalogue import BuildOptions

CONSTANT_BYTES = 1500 << 20
"""Added to MemTracker's peak, which is that of fake tensors, as the constant baseline."""
BATCHES = (8, 16)


def deepspeed_bytes(parameters: int, devices: int = 1) -> float:
    """DeepSpeed's estimate for ZeRO stage 2 without offload."""
    return 4.0 * parameters + 16.0 * parameters / devices


def accelerate_bytes(parameters: int, bytes_per_parameter: int = 4) -> float:
    """accelerate's estimate for training with Adam."""
    return 4.0 * parameters * bytes_per_parameter


def tracked_peaks(models: Iterable[str], folder: Path) -> dict[str, tuple[float, float]]:
    """MemTracker's peak at each of `BATCHES`, by model; kept in `folder`, models it fails on left out."""
    listed = list(models)
    with ProcessPoolExecutor(2) as pool:
        answers = list(pool.map(_tracked, listed, [folder] * len(listed)))
    return {model: peaks for model, peaks in zip(listed, answers, strict=True) if peaks is not None}


def at_batch(peaks: tuple[float, float], batch: int) -> float:
    """The peak at another batch: activations grow in proportion."""
    low, high = BATCHES
    return peaks[0] + (peaks[1] - peaks[0]) * (batch - low) / (high - low)


def _tracked(model: str, folder: Path) -> tuple[float, float] | None:
    file = folder / f"memtracker-{model}.json"
    if file.exists():
        stored = json.loads(file.read_text(encoding="utf-8"))
    else:
        stored = _measured(model)
        write_atomically(file, json.dumps(stored))
    return (stored[0], stored[1]) if stored else None


def _measured(model: str) -> list[float]:
    import torch

    torch.set_num_threads(1)
    try:
        return [_peak(model, batch) for batch in BATCHES]
    except (ForetrainError, NotImplementedError, RuntimeError, TypeError):
        return []


def _peak(model: str, batch: int) -> float:
    import torch
    from torch.distributed._tools.mem_tracker import MemTracker

    example = read_timm(TIMM + model).example(BuildOptions(batch=batch))
    module = example.module.to("meta")
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1, momentum=0.9, foreach=True)
    tracker = MemTracker()
    tracker.track_external(module, optimizer, *example.inputs)
    with tracker:
        for _ in range(2):
            example.forward().backward()
            optimizer.step()
            optimizer.zero_grad()
            tracker.reset_mod_stats()
    totals = [snapshot["Total"] for snapshot in tracker.get_tracker_snapshot("peak").values()]
    return float(max(totals))
