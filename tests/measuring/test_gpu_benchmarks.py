"""Micro-benchmarks of a GPU against stand-ins for its events and NVML, and gloo between real processes."""

from __future__ import annotations

import math
from typing import Any

import pytest
from tests.support.cuda_stand_ins import DEVICE_NAME, OutOfMemoryError, cuda, nvml

from foretrain.errors import MissingData
from foretrain.facts.devices import device
from foretrain.learning.user_calibration.catalogue import calibration_named
from foretrain.learning.user_calibration.from_benchmarks import TimedWork, benchmark_profile, keep_all_reduce
from foretrain.measuring import trials as all_trials
from foretrain.measuring.gpus import GpuReader
from foretrain.measuring.local_all_reduce import time_all_reduce
from foretrain.measuring.micro_benchmarks import run_cuda_trials
from foretrain.measuring.trials import Operand, OperatorTrial, trials
from foretrain.prediction.operators.pricing import DEFAULT, operator_models, price
from foretrain.serving.verbs.calibrating import learn_gpu, plain
from foretrain.workloads.graph import Phase
from foretrain.workloads.ops import Kind, Op


def small_trials() -> list[OperatorTrial]:
    """Those that take no time."""
    return [each for each in trials() if sum(math.prod(one.shape) for one in each.operands) < 2**12]


def test_operators_are_timed_by_events_and_the_clock_is_watched() -> None:
    reader = GpuReader(nvml([1695, 1200, 1710]))
    timed = run_cuda_trials(small_trials(), 0.1, cuda=cuda(), device="cpu", gpus=reader)
    assert timed.device_name == DEVICE_NAME
    assert timed.driver == "550.54"
    assert timed.clock_hertz == (1.2e9, 1.71e9)
    assert {item.work.kind for item in timed.timings} >= {Kind.ELEMENTWISE, Kind.SOFTMAX}
    assert all(item.seconds > 0 for item in timed.timings)
    assert timed.skipped == 0


def test_trials_that_do_not_fit_are_left_out() -> None:
    def full(*_: Any) -> Any:
        raise OutOfMemoryError("CUDA out of memory")

    too_large = OperatorTrial("elementwise", full, (Operand((4,)),))
    timed = run_cuda_trials([too_large], 0.1, cuda=cuda(), device="cpu")
    assert (timed.skipped, timed.timings, timed.clock_hertz) == (1, (), None)


def test_without_a_gpu_the_cpu_is_named() -> None:
    with pytest.raises(MissingData, match="no CUDA device"):
        run_cuda_trials(small_trials(), 0.1, cuda=cuda(is_available=False), device="cpu")


def test_the_ratio_of_a_kind_is_the_median_of_its_shapes() -> None:
    gpu = device("rtx3090")
    timed = run_cuda_trials(small_trials(), 0.1, cuda=cuda(), device="cpu")
    ops = [Op(item.work, index, "", Phase.FORWARD, "", False) for index, item in enumerate(timed.timings)]
    seconds = price(ops, gpu, operator_models(gpu, DEFAULT)).seconds.tolist()
    tripled = [TimedWork(op.work, 3 * each) for op, each in zip(ops, seconds, strict=True)]
    kinds = benchmark_profile(tripled, gpu).kinds
    assert kinds
    assert all(row.measured_seconds / row.predicted_seconds == pytest.approx(3) for row in kinds)


def test_a_gpu_owner_calibrates_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(all_trials, "trials", small_trials)
    learned = learn_gpu(0.1, lambda *_: None, cuda(), "cpu", GpuReader(nvml([1695])))
    stored = calibration_named("kinds-rtx3090")
    assert plain(stored) == plain(learned.calibration)
    assert stored.fitted_on == {"profiles": ["micro-benchmarks, batch 1"]}
    assert stored.software["driver"] == "550.54"


def test_gloo_between_real_processes_gives_latency_and_time_per_byte() -> None:
    timings = time_all_reduce(sizes=(4096, 1 << 20))
    assert [each.bytes for each in timings] == [4096, 1 << 20]
    assert all(each.seconds > 0 for each in timings)


def test_an_all_reduce_calibrates_ddp_until_runs_do() -> None:
    stored = keep_all_reduce([(1000, 0.002), (1_000_000, 0.003), (10_000_000, 0.012)], "here", 2, {})
    assert stored is not None
    constants = stored.content["constants"]
    assert constants["ddp_message_seconds"] == pytest.approx(0.002, rel=0.2)
    assert constants["ddp_byte_seconds"] == pytest.approx(1e-9, rel=0.2)
    assert stored.content["strategies"] == ["ddp"]
