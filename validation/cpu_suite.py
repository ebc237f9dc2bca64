"""This machine's own CPU: predicted steps against really trained ones.

First operators are timed (`foretrain calibrate --here`), then every step is predicted, and only then is
anything trained: each model in a fresh process, a few steps to warm up, the lower quartile of those that
follow. On a quiet machine all cores are used and the clock on the wall counts. On a busy one a single thread
is timed by the processor time it uses, which others cannot lengthen; a matrix product timed at the start and
at the end shows by how much the speed of the machine itself changed meanwhile.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from foretrain.estimates import Quantiles
from foretrain.facts.devices import THIS_MACHINE, Device
from foretrain.learning.user_calibration.from_benchmarks import TimedWork, calibrate
from foretrain.measuring.micro_benchmarks import run_trials, torch_version
from foretrain.measuring.stopwatch import Stopwatch
from foretrain.measuring.this_machine import measure_this_machine
from foretrain.prediction.cost_models import OperatorCostModel
from foretrain.prediction.operators.cpu import CpuCalibration, keep
from foretrain.workloads.graph import Graph
from foretrain.workloads.options import WorkloadRequest
from foretrain.workloads.workload import graph_of, workload_of
from validation.cpu_training import Training, measured_seconds
from validation.report import Case, SuiteReport, metrics

FORETRAIN, ROOFLINE = "foretrain", "roofline of the measured peaks"
_BENCHMARK_SECONDS = 75.0
_QUIET_LOAD = 0.3
"""Load average per core below which a machine counts as quiet."""
_REFERENCE_SIDE = 768
_REFERENCE_RUNS = 20
TRAININGS = (
    Training("resnet18", 4, image_size=224),
    Training("resnet18", 8, image_size=224),
    Training("mobilenet-v2", 4, image_size=224),
    Training("mobilenet-v2", 8, image_size=224),
    Training("vgg11", 2, image_size=128),
    Training("vgg11", 4, image_size=128),
    Training("bert-base", 2, seq_len=64, attention="eager"),
    Training("bert-base", 4, seq_len=64, attention="eager"),
    Training("gpt2", 2, seq_len=64, attention="eager"),
    Training("gpt2", 4, seq_len=64, attention="eager"),
    Training("nmt-small", 8, seq_len=25),
    Training("nmt-small", 16, seq_len=25),
)


def run(data: Path) -> SuiteReport:
    """Calibrate, predict, then train."""
    del data  # measured here and now
    threads = _threads()
    calibration = _calibrated(threads)
    here = measure_this_machine(
        flop_per_second=calibration.flop_per_second,
        memory_bytes_per_second=calibration.memory_bytes_per_second,
    )
    before = _reference_seconds(threads)
    predicted = [_predictions(training, here) for training in TRAININGS]
    cases = tuple(
        _case(training, by_method, interval, measured_seconds(replace(training, threads=threads)))
        for training, (by_method, interval) in zip(TRAININGS, predicted, strict=True)
    )
    drift = _reference_seconds(threads) / before - 1
    return SuiteReport(
        "cpu",
        cases,
        {
            "steps": {
                FORETRAIN: metrics(cases, FORETRAIN, with_interval=True),
                ROOFLINE: metrics(cases, ROOFLINE),
            }
        },
        notes=(
            f"{here.name}, {calibration.threads} threads, torch {calibration.software['torch']}; at best "
            f"{calibration.flop_per_second / 1e9:.0f} GFLOP/s.",
            "Each step was predicted before it was run; none took part in the fit.",
            f"While they were run, a fixed matrix product changed its time by {drift:+.0%}.",
            *(f"{case.name}: {case.predicted[FORETRAIN] / case.measured - 1:+.1%}" for case in cases),
        ),
    )


def _threads() -> int:
    cores = len(os.sched_getaffinity(0))
    return cores if os.getloadavg()[0] < _QUIET_LOAD * cores else 1


def _calibrated(threads: int) -> CpuCalibration:
    import torch

    torch.set_num_threads(threads)
    timed = run_trials(seconds=_BENCHMARK_SECONDS)
    works = [TimedWork(item.work, item.seconds) for item in timed]
    calibration = calibrate(works, THIS_MACHINE, threads, torch_version())
    keep(calibration)
    return calibration


def _reference_seconds(threads: int) -> float:
    import torch

    matrix, watch = torch.ones(_REFERENCE_SIDE, _REFERENCE_SIDE), Stopwatch(threads)
    for _ in range(_REFERENCE_RUNS):
        with watch:
            torch.mm(matrix, matrix)
    return watch.seconds


def _graph(training: Training) -> Graph:
    request = WorkloadRequest(
        training.model,
        batch=training.batch,
        seq_len=training.seq_len,
        image_size=training.image_size,
        optimizer=training.optimizer,
        attention=None if training.attention == "sdpa" else training.attention,
    )
    return graph_of(workload_of(request))


def _predictions(training: Training, here: Device) -> tuple[dict[str, float], Quantiles]:
    graph = _graph(training)
    step = OperatorCostModel().estimate(graph, here)
    limit = OperatorCostModel("roofline").estimate(graph, here)
    return {FORETRAIN: step.seconds, ROOFLINE: limit.seconds}, step.estimate.quantiles


def _case(training: Training, predicted: dict[str, float], interval: Quantiles, seconds: float) -> Case:
    size = f"{training.image_size} px" if training.image_size else f"{training.seq_len} tokens"
    name = f"{training.model}, batch {training.batch}, {size}"
    return Case(name, training.model, seconds, predicted, interval)
