"""Time the trials on a CUDA GPU with events, and watch its clock: what each operator takes on the device.

The interface of `torch.cuda` and NVML is passed in, so that the code runs against stand-ins without a GPU.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from foretrain.errors import MissingData
from foretrain.measuring.micro_benchmarks import OperatorTiming, works_of
from foretrain.store.runs import Resource

if TYPE_CHECKING:
    from foretrain.measuring.gpus import GpuReader
    from foretrain.measuring.trials import OperatorTrial

_MILLISECOND = 1e-3
_WARM_UP, _FEWEST_RUNS, _MOST_RUNS = 2, 3, 50
_FOOTPRINT = 256 * 2**20
"""Bytes that the sets of operands of a trial together fill: more than a GPU's cache."""
_MOST_SETS = 4

Progress = Callable[[str, float], None]


@dataclass(frozen=True)
class CudaTimings:
    """Timed operators of a GPU, and its lowest and highest clock meanwhile; None without NVML."""

    device_name: str
    driver: str
    torch_version: str
    timings: tuple[OperatorTiming, ...]
    skipped: int
    clock_hertz: tuple[float, float] | None


def run_cuda_trials(
    trials: Sequence[OperatorTrial],
    seconds: float,
    progress: Progress = lambda *_: None,
    cuda: Any = None,
    device: str = "cuda",
    gpus: GpuReader | None = None,
) -> CudaTimings:
    """Time trials on a GPU within about `seconds`; those that do not fit its memory are left out."""
    import torch

    cuda = cuda or torch.cuda
    if not cuda.is_available():
        raise MissingData("torch sees no CUDA device; without one, the CPU is calibrated as `here`")
    torch.manual_seed(0)
    timings: list[OperatorTiming] = []
    clocks: list[float] = []
    skipped = 0
    for index, trial in enumerate(trials):
        progress(trial.kind, index / len(trials))
        try:
            timings += _timings(trial, seconds / len(trials), cuda, device)
        except cuda.OutOfMemoryError:
            skipped += 1
        clocks += _clocks(gpus)
    return CudaTimings(
        device_name=str(cuda.get_device_name()),
        driver="" if gpus is None else gpus.driver(),
        torch_version=str(torch.__version__),
        timings=tuple(timings),
        skipped=skipped,
        clock_hertz=(min(clocks), max(clocks)) if clocks else None,
    )


def _clocks(gpus: GpuReader | None) -> Iterator[float]:
    if gpus is not None:
        yield from (value for resource, _, value in gpus.samples() if resource is Resource.CLOCK)


def _timings(trial: OperatorTrial, budget: float, cuda: Any, device: str) -> list[OperatorTiming]:
    """The timings of a trial's forward pass and of each of its backward passes."""
    works = works_of(trial)
    taken = _run(trial, budget, cuda, device)
    return [OperatorTiming(trial.kind, work, seconds) for work, seconds in zip(works, taken, strict=True)]


def _run(trial: OperatorTrial, budget: float, cuda: Any, device: str) -> list[float]:
    import torch

    sets = _operand_sets(trial, device)
    slope = torch.randn_like(trial.function(*sets[0])) if trial.gradients else None
    taken: list[list[float]] = [[] for _ in range(1 + len(trial.gradients))]
    deadline = time.perf_counter() + budget
    runs = 0
    while runs < _WARM_UP + _FEWEST_RUNS or (runs < _MOST_RUNS and time.perf_counter() < deadline):
        tensors = sets[runs % len(sets)]
        seconds, out = _time_call(cuda, partial(trial.function, *tensors))
        taken[0].append(seconds)
        for place, group in enumerate(trial.gradients, start=1):
            wanted = [tensors[index] for index in group]
            backward = partial(torch.autograd.grad, out, wanted, slope, retain_graph=True)
            seconds, _ = _time_call(cuda, backward)
            taken[place].append(seconds)
        runs += 1
    return [statistics.median(each[_WARM_UP:]) for each in taken]


def _operand_sets(trial: OperatorTrial, device: str) -> list[list[Any]]:
    """Operands several times over, so that they do not all come from the cache."""
    first = _operands(trial, device)
    size = sum(tensor.numel() * tensor.element_size() for tensor in first)
    count = int(min(max(_FOOTPRINT // max(1, size), 1), _MOST_SETS))
    return [first, *(_operands(trial, device) for _ in range(count - 1))]


def _operands(trial: OperatorTrial, device: str) -> list[Any]:
    made = [operand.make(device) for operand in trial.operands]
    for index in trial.differentiated:
        made[index].requires_grad_()
    return made


def _time_call(cuda: Any, call: Callable[[], Any]) -> tuple[float, Any]:
    """Seconds between two events around a call, on the device's own clock."""
    start, end = cuda.Event(enable_timing=True), cuda.Event(enable_timing=True)
    start.record()
    result = call()
    end.record()
    end.synchronize()
    return start.elapsed_time(end) * _MILLISECOND, result
