"""Profiles: a model run here, or a trace from another machine, beside its prediction."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from foretrain.errors import InvalidRequest
from foretrain.serving.requests.measure import ProfileRequest
from foretrain.serving.verbs.predicting import Progress, no_progress, workload

if TYPE_CHECKING:
    from foretrain.facts.devices import Device
    from foretrain.measuring.profiling.comparison import Profile
    from foretrain.measuring.profiling.running import ProfiledRun
    from foretrain.prediction.cost_models import CostModel
    from foretrain.workloads.workload import Workload


def profile(request: ProfileRequest, progress: Progress = no_progress) -> Profile:
    """Measured times of a model's operators and layers beside the predicted ones."""
    from foretrain.facts.devices import device

    if request.here == (request.trace is not None):
        raise InvalidRequest(
            "profile takes either `here`, to run the model on this machine, or `trace`, a file of "
            "torch.profiler"
        )
    if request.here and request.on is not None:
        raise InvalidRequest("`on` names the device of a `trace`; `here` is the present device")
    if request.trace is not None and request.on is None:
        raise InvalidRequest("`trace` needs `on`, the device that it was made on, e.g. rtx3090")
    progress("reading the model")
    trained = workload(request, trace=None)  # its own `trace` is a file
    if request.trace is not None and request.on is not None:
        return traced_profile(trained, request.trace, device(request.on), progress)
    return _profile_here(trained, request.seconds, progress)


def traced_profile(
    trained: Workload,
    trace: Path,
    device: Device,
    progress: Progress = no_progress,
    run: ProfiledRun | None = None,
    model: CostModel | None = None,
) -> Profile:
    """The profile of a workload from a trace file, beside what a cost model (the default one) predicts."""
    from foretrain.errors import InvalidData
    from foretrain.measuring.profiling.attribution import measured_operators
    from foretrain.measuring.profiling.comparison import compare
    from foretrain.measuring.profiling.kineto import read_trace
    from foretrain.prediction.corrections.apply import cost_model
    from foretrain.prediction.operators.pricing import DEFAULT
    from foretrain.workloads.workload import graph_of

    progress("reading the trace")
    events = read_trace(trace)
    if not device.is_cpu and not events.has_kernels:
        raise InvalidData(
            str(trace),
            f"has no GPU kernels, but `on` is {device.id}; profile with ProfilerActivity.CUDA, or name the "
            "device here for a trace of this machine's CPU",
        )
    progress("recording the step")
    graph = graph_of(trained)
    measured = measured_operators(events, graph)
    return compare(trained.source.name, graph, device, model or cost_model(DEFAULT, trained), measured, run)


def _profile_here(trained: Workload, seconds: float, progress: Progress) -> Profile:
    from foretrain.facts.devices import THIS_MACHINE, device
    from foretrain.measuring.profiling.running import present_device_id, profile_here
    from foretrain.measuring.this_machine import measure_this_machine

    device_id = present_device_id()
    if device_id == THIS_MACHINE and not _is_measured():
        measure_this_machine(progress)
    with tempfile.TemporaryDirectory(prefix="foretrain-profile-") as folder:
        file = Path(folder) / "trace.json"
        run = profile_here(trained, file, seconds, progress)
        return traced_profile(trained, file, device(device_id), progress, run)


def _is_measured() -> bool:
    from foretrain.facts.devices import THIS_MACHINE, devices

    return THIS_MACHINE in devices()
