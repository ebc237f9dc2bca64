"""Time the trials: what each operator really takes on this machine's CPU or a CUDA GPU, forward and backward.

Tensors are taken in turns from several sets, so that operands come from where they come from in training:
the last results from cache, weights and saved activations from memory. On the CPU results are also kept until
the next turn, and trials that other processes disturbed are repeated. On a GPU events time the calls on the
device's own clock, and NVML reports at which frequency it ran; the interfaces of `torch.cuda` and NVML are
passed in, so that the code runs against stand-ins without a GPU.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from foretrain.errors import BackendFailed, MissingData
from foretrain.measuring.stopwatch import QuietWatch, Stopwatch
from foretrain.prediction.operators.cpu import MMAP_THRESHOLD_BYTES
from foretrain.store.runs import Resource
from foretrain.workloads.ops import Work

if TYPE_CHECKING:
    from foretrain.measuring.gpus import GpuReader
    from foretrain.measuring.trials import OperatorTrial

SECONDS = 75.0
"""How long all trials together may take by default."""
_FOOTPRINT = 96 * 2**20
"""Bytes that the sets of a trial together fill: more than a last-level cache keeps of them."""
_MOST_SETS = 8
"""Sets of tensors take turns, so that small ones are not always found in the cache."""
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
"""The numbers of mallopt's options in glibc's malloc.h."""
_FEWEST_RUNS, _MOST_RUNS = 4, 60
_START_RUNS, _START_OPERATORS = 50, 21
"""The start of a backward pass is what one operator takes beyond the mean of many."""
_ATTEMPTS = 3
_MOST_DISTURBED = 0.1
"""Share of trials that may stay disturbed: a fit by least absolute errors bears a few."""
_LEAST_SHARE = 0.1
"""Of a backward time at least this share is the operator's own."""
_CUDA_WARM_UP, _CUDA_FEWEST_RUNS, _CUDA_MOST_RUNS = 2, 3, 50
_CUDA_FOOTPRINT = 256 * 2**20
"""Bytes that the sets of operands of a trial together fill: more than a GPU's cache."""
_CUDA_MOST_SETS = 4
_MILLISECOND = 1e-3

Progress = Callable[[str, float], None]


@dataclass(frozen=True)
class OperatorTiming:
    """One piece of work and the seconds it took; `label` is the trial's kind, which may be finer than the
    work's."""

    label: str
    work: Work
    seconds: float


def works_of(trial: OperatorTrial) -> tuple[Work, ...]:
    """The work of the forward pass and that of each backward pass, as traced on the meta device."""
    import torch

    from foretrain.workloads.graph import Graph, Phase, Role
    from foretrain.workloads.rules import operators
    from foretrain.workloads.tracing.reality import Reality
    from foretrain.workloads.tracing.recorder import ModuleStack, Recorder

    recorder = Recorder(torch.device("meta"), ModuleStack(torch.nn.Identity()))
    tensors = _tensors(trial, "meta")
    for tensor, operand in zip(tensors, trial.operands, strict=True):
        recorder.own(tensor, Role.PARAMETER if operand.weight else Role.INPUT, "operand")
    recorder.phase = trial.phase
    ends: list[int] = []
    with Reality(None, "sdpa"), recorder:
        out = trial.function(*tensors)
        ends.append(len(recorder.calls))
        recorder.phase = Phase.BACKWARD
        for group in trial.gradients:
            slope = torch.empty_like(out)
            torch.autograd.grad(out, [tensors[index] for index in group], slope, retain_graph=True)
            ends.append(len(recorder.calls))
    graph = Graph(recorder.specs, tuple(recorder.calls), tuple(recorder.buffers()), (), 1, 1, 0)
    ops = operators(graph)
    starts = [0, *ends[:-1]]
    return tuple(
        _only([op.work for op in ops if start <= op.call < end and op.work.kernels], trial)
        for start, end in zip(starts, ends, strict=True)
    )


def _only(works: Sequence[Work], trial: OperatorTrial) -> Work:
    """The one work of a pass; filling a start state or a gradient with zeros is not counted."""
    main = [work for work in works if work.flop or len(works) == 1] or list(works[-1:])
    assert len(main) == 1, f"{trial.kind}: {[(work.kind, work.direction) for work in works]}"
    if "dropout" in trial.kind and trial.kind != "dropout":
        return replace(main[0], dims={**main[0].dims, "dropout": 1})
    return main[0]


def _tensors(trial: OperatorTrial, device: str) -> list[Any]:
    made = [operand.make(device) for operand in trial.operands]
    for index in trial.differentiated:
        made[index].requires_grad_()
    return made


def run_trials(progress: Progress = lambda *_: None, seconds: float = SECONDS) -> tuple[OperatorTiming, ...]:
    """Time all trials on the CPU within about `seconds`; `progress` gets what is run and the share done."""
    try:
        import torch
    except ModuleNotFoundError as error:
        raise MissingData("the micro-benchmark runs torch operators: pip install foretrain[torch]") from error
    from foretrain.measuring.trials import trials

    torch.manual_seed(0)
    fix_allocator_thresholds()
    every = trials()
    progress("waiting for idle cores", 0.0)
    watch = QuietWatch(torch.get_num_threads())
    watch.wait()
    start = _backward_start()
    timings: dict[int, list[OperatorTiming]] = {}
    left = list(range(len(every)))
    for attempt in range(_ATTEMPTS):
        left, others = _time_trials(
            every, left, timings, watch, seconds / len(every), start, progress, attempt
        )
        if not left:
            break
    if len(left) > _MOST_DISTURBED * len(every):
        raise BackendFailed(
            f"{len(left)} of {len(every)} trials were disturbed in each of {_ATTEMPTS} attempts: "
            + watch.refusal(others)
        )
    return tuple(timing for index in sorted(timings) for timing in timings[index])


def _time_trials(
    every: Sequence[OperatorTrial],
    wanted: Sequence[int],
    timings: dict[int, list[OperatorTiming]],
    watch: QuietWatch,
    budget: float,
    start: float,
    progress: Progress,
    attempt: int,
) -> tuple[list[int], float]:
    """Time some trials; those during which others used the machine, and how many cores they used at most.

    Others can only lengthen a time: of a trial that is repeated the shortest counts.
    """
    disturbed: list[int] = []
    recent: list[int] = []
    most = 0.0
    for place, index in enumerate(wanted):
        trial = every[index]
        share = place / len(wanted)
        progress(trial.kind if attempt == 0 else f"{trial.kind}, again: it was disturbed", share)
        now = list(_timings(trial, budget, start))
        before = timings.get(index, now)
        timings[index] = [
            replace(one, seconds=min(one.seconds, other.seconds))
            for one, other in zip(now, before, strict=True)
        ]
        recent.append(index)
        others = watch.disturbing_cores()
        if others is None:
            continue
        if others:
            disturbed += recent
            most = max(most, others)
        recent = []
    return disturbed, most


def _timings(trial: OperatorTrial, budget: float, start: float) -> Iterator[OperatorTiming]:
    """The timings of a trial; `start` is what starting a backward pass takes, once a step in training."""
    forward, *backward = _run(trial, budget)
    own = [forward, *(max(taken - start, _LEAST_SHARE * taken) for taken in backward)]
    for work, seconds in zip(works_of(trial), own, strict=True):
        yield OperatorTiming(trial.kind, work, seconds)


def _backward_start() -> float:
    """Seconds that starting a backward pass takes: that of one tiny operator, less what each further adds."""
    import torch

    def taken(operators: int) -> float:
        first = torch.ones(1, requires_grad=True)
        last = first
        for _ in range(operators):
            last = last.neg()
        watch, slope = Stopwatch(torch.get_num_threads()), torch.ones(1)
        for _ in range(_START_RUNS):
            with watch:
                torch.autograd.grad(last, first, slope, retain_graph=True)
        return watch.seconds

    one, many = taken(1), taken(_START_OPERATORS)
    return max(0.0, one - (many - one) / (_START_OPERATORS - 1))


def torch_threads() -> int:
    """How many threads torch's operators use here."""
    import torch

    return int(torch.get_num_threads())


def torch_version() -> str:
    """Which torch was timed."""
    import torch

    return str(torch.__version__)


def fix_allocator_thresholds() -> None:
    """Let glibc recycle memory as it does once a training has run a few steps.

    Its threshold for mapping a large tensor anew creeps up to 32 MiB with the tensors that are freed, and it
    gives the top of its heap back at twice that; both are set to where they end up. Other systems are left
    as they are.
    """
    import ctypes

    with suppress(OSError, AttributeError):
        options = ctypes.CDLL("libc.so.6").mallopt
        options(_MMAP_THRESHOLD, MMAP_THRESHOLD_BYTES)
        options(_TRIM_THRESHOLD, 2 * MMAP_THRESHOLD_BYTES)


def _run(trial: OperatorTrial, budget: float) -> list[float]:
    """Seconds of the forward pass and of each backward pass."""
    import torch

    first = _tensors(trial, "cpu")
    size = sum(tensor.numel() * tensor.element_size() for tensor in first)
    count = int(min(max(_FOOTPRINT // max(1, 2 * size), 2), _MOST_SETS))
    sets = [first, *(_tensors(trial, "cpu") for _ in range(count - 1))]
    kept: list[Any] = [None] * count
    slope = torch.randn_like(trial.function(*first)) if trial.gradients else None
    watches = [Stopwatch(torch.get_num_threads()) for _ in range(1 + len(trial.gradients))]
    deadline = time.perf_counter() + budget
    runs = 0
    while runs < _FEWEST_RUNS or (runs < _MOST_RUNS and time.perf_counter() < deadline):
        turn = runs % count
        tensors = sets[turn]
        with watches[0]:
            out = trial.function(*tensors)
        for watch, group in zip(watches[1:], trial.gradients, strict=True):
            wanted = [tensors[index] for index in group]
            with watch:
                kept_gradient = torch.autograd.grad(out, wanted, slope, retain_graph=True)
            del kept_gradient
        kept[turn] = out
        runs += 1
    return [watch.seconds for watch in watches]


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
            timings += _cuda_timings(trial, seconds / len(trials), cuda, device)
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


def _cuda_timings(trial: OperatorTrial, budget: float, cuda: Any, device: str) -> list[OperatorTiming]:
    """The timings of a trial's forward pass and of each of its backward passes."""
    works = works_of(trial)
    taken = _run_on_cuda(trial, budget, cuda, device)
    return [OperatorTiming(trial.kind, work, seconds) for work, seconds in zip(works, taken, strict=True)]


def _run_on_cuda(trial: OperatorTrial, budget: float, cuda: Any, device: str) -> list[float]:
    import torch

    sets = _operand_sets(trial, device)
    slope = torch.randn_like(trial.function(*sets[0])) if trial.gradients else None
    taken: list[list[float]] = [[] for _ in range(1 + len(trial.gradients))]
    deadline = time.perf_counter() + budget
    runs = 0
    while runs < _CUDA_WARM_UP + _CUDA_FEWEST_RUNS or (
        runs < _CUDA_MOST_RUNS and time.perf_counter() < deadline
    ):
        tensors = sets[runs % len(sets)]
        seconds, out = _time_call(cuda, partial(trial.function, *tensors))
        taken[0].append(seconds)
        for place, group in enumerate(trial.gradients, start=1):
            wanted = [tensors[index] for index in group]
            backward = partial(torch.autograd.grad, out, wanted, slope, retain_graph=True)
            seconds, _ = _time_call(cuda, backward)
            taken[place].append(seconds)
        runs += 1
    return [statistics.median(each[_CUDA_WARM_UP:]) for each in taken]


def _operand_sets(trial: OperatorTrial, device: str) -> list[list[Any]]:
    """Operands several times over, so that they do not all come from the cache."""
    first = _tensors(trial, device)
    size = sum(tensor.numel() * tensor.element_size() for tensor in first)
    count = int(min(max(_CUDA_FOOTPRINT // max(1, size), 1), _CUDA_MOST_SETS))
    return [first, *(_tensors(trial, device) for _ in range(count - 1))]


def _time_call(cuda: Any, call: Callable[[], Any]) -> tuple[float, Any]:
    """Seconds between two events around a call, on the device's own clock."""
    start, end = cuda.Event(enable_timing=True), cuda.Event(enable_timing=True)
    start.record()
    result = call()
    end.record()
    end.synchronize()
    return start.elapsed_time(end) * _MILLISECOND, result
