"""What calibrations are made from: timings of a user, this machine, stored runs, a profiler's trace."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from foretrain.errors import ForetrainError, InvalidData, InvalidRequest, MissingData

if TYPE_CHECKING:
    from foretrain.learning.user_calibration.fitting import WorkerFit
    from foretrain.learning.user_calibration.samples import RunSample, UnusedRun
    from foretrain.measuring.cuda_benchmarks import CudaTimings
    from foretrain.measuring.gpus import GpuReader
    from foretrain.measuring.local_all_reduce import AllReduceTiming
    from foretrain.measuring.profiling.comparison import Profile
    from foretrain.measuring.step_timings import StepTiming
    from foretrain.prediction.corrections.error_model import StepError
    from foretrain.prediction.corrections.files import CalibrationFile
    from foretrain.prediction.corrections.kinds import ProfiledModel
    from foretrain.prediction.corrections.timings import Configuration, MeasuredStep
    from foretrain.prediction.operators.cpu import CpuCalibration
    from foretrain.store.runs import Run
    from foretrain.workloads.workload import Workload

Progress = Callable[[str], None]
EACH, HALF = "each", "half"
"""Held-out models: each in turn, or every second one for good."""


BarProgress = Callable[[str, float], None]
"""Gets what is being done, and which share of all is done."""


@dataclass(frozen=True)
class MachineLearned:
    """The timed operators of this machine's CPU, and gloo's all-reduce between two of its processes.

    `all_reduce` is None where it could not be timed or runs have calibrated the machine; `note` says why.
    """

    operators: CpuCalibration
    file: Path
    all_reduce: CalibrationFile | None
    timings: tuple[AllReduceTiming, ...] = ()
    note: str = ""


def learn_cpu(seconds: float, progress: BarProgress) -> MachineLearned:
    """Time operators and all-reduces on this machine's CPU, and keep them as the device `here`."""
    from foretrain.facts.devices import THIS_MACHINE
    from foretrain.learning.cpu import TimedWork, calibrate, check_believable
    from foretrain.measuring.micro_benchmarks import run_trials, torch_threads, torch_version
    from foretrain.measuring.this_machine import measure_this_machine
    from foretrain.prediction.operators.cpu import keep

    timed = [TimedWork(item.work, item.seconds) for item in run_trials(progress, seconds)]
    progress("peaks", 1.0)
    operators = calibrate(timed, THIS_MACHINE, torch_threads(), torch_version())
    check_believable(operators, timed)  # before anything is kept
    measure_this_machine(
        flop_per_second=operators.flop_per_second,
        memory_bytes_per_second=operators.memory_bytes_per_second,
    )
    file = keep(operators)
    progress("all-reduce", 1.0)
    return replace(_learn_all_reduce(operators, torch_version()), file=file)


def _learn_all_reduce(operators: CpuCalibration, torch: str) -> MachineLearned:
    import os

    from foretrain.errors import BackendFailed
    from foretrain.facts.devices import THIS_MACHINE
    from foretrain.learning.user_calibration.micro_benchmarks import keep_all_reduce
    from foretrain.measuring.local_all_reduce import time_all_reduce

    learned = MachineLearned(operators, Path(), None)
    try:
        timings = time_all_reduce()
    except BackendFailed as error:
        return replace(learned, note=str(error))
    kept = keep_all_reduce(
        [(each.bytes, each.seconds) for each in timings], THIS_MACHINE, os.cpu_count() or 1, {"torch": torch}
    )
    note = "" if kept is not None else "constants fitted to runs are kept"
    return replace(learned, all_reduce=kept, timings=timings, note=note)


@dataclass(frozen=True)
class GpuLearned:
    """The timed operators of a GPU, by kind beside their predictions."""

    timings: CudaTimings
    profile: ProfiledModel
    calibration: CalibrationFile


def learn_gpu(
    seconds: float,
    progress: BarProgress,
    cuda: Any = None,
    where: str = "cuda",
    gpus: GpuReader | None = None,
) -> GpuLearned:
    """Time operators on this machine's GPU; `cuda` and `gpus` are those of torch and NVML by default."""
    from foretrain.facts.devices import device
    from foretrain.learning.cpu import TimedWork
    from foretrain.learning.user_calibration.micro_benchmarks import benchmark_profile, keep_benchmarks
    from foretrain.measuring.cuda_benchmarks import run_cuda_trials
    from foretrain.measuring.gpus import open_gpus
    from foretrain.measuring.trials import trials

    timings = run_cuda_trials(trials(), seconds, progress, cuda, where, gpus or open_gpus())
    known = device(timings.device_name)
    timed = [TimedWork(item.work, item.seconds) for item in timings.timings]
    versions = {"torch": timings.torch_version, "driver": timings.driver}
    kept = keep_benchmarks(timed, known, versions)
    return GpuLearned(timings, benchmark_profile(timed, known), kept)


@dataclass(frozen=True)
class TimingsLearned:
    """Timed steps with their predictions, and how many are stored now."""

    steps: tuple[MeasuredStep, ...]
    stored: int


def learn_timings(file: Path, progress: Progress) -> TimingsLearned:
    """Store the timings of a CSV file; of a line that cannot be right nothing is stored."""
    from foretrain.measuring.step_timings import read_timings
    from foretrain.prediction.corrections.timings import remember

    steps = []
    for timing in read_timings(file):
        progress(f"{timing.configuration.model} on {timing.configuration.device}")
        steps.append(_predicted(timing, file))
    return TimingsLearned(tuple(steps), len(remember(steps)))


def _predicted(timing: StepTiming, file: Path) -> MeasuredStep:
    from foretrain.learning.user_calibration.plausibility import check_plausible
    from foretrain.prediction.corrections.timings import measured_step

    try:
        step = measured_step(timing.configuration, timing.step_seconds, _uncorrected(timing.configuration))
        check_plausible(step.step_seconds, step.predicted_seconds)
    except ForetrainError as error:
        raise InvalidData(str(file), str(error), timing.row) from error
    return step


def _uncorrected(of: Configuration) -> StepError:
    """The step of a configuration, predicted without any measurement of the user."""
    from foretrain.prediction.cost_models import OperatorCostModel
    from foretrain.prediction.predict import evaluated
    from foretrain.prediction.scenario import whole_error
    from foretrain.serving.requests import PredictRequest, request_from
    from foretrain.serving.verbs.predicting import scenario

    asked = {**asdict(of), "on": of.device if of.devices == "1" else f"{of.device}:{of.devices}"}
    for name in ("device", "devices"):
        del asked[name]
    request = request_from(
        PredictRequest, {name: value for name, value in asked.items() if value is not None}
    )
    uncorrected = replace(scenario(request), cost_model=OperatorCostModel())
    return whole_error(evaluated(uncorrected), of.model)


@dataclass(frozen=True)
class RunsLearned:
    """What was fitted to the runs of each machine, and the runs that were not used."""

    fits: tuple[tuple[CalibrationFile, WorkerFit], ...]
    unused: tuple[UnusedRun, ...]


@dataclass(frozen=True, slots=True)
class RunFilter:
    """Which stored runs count."""

    store: str | None = None
    model: str | None = None
    device: str | None = None
    campaign: str | None = None


def learn_runs(wanted: RunFilter, held_out: str, progress: Progress) -> RunsLearned:
    """Fit machines to stored runs; `held_out` is `each`, `half`, or models by comma."""
    return learn_from(list(_stored_runs(wanted)), held_out, progress)


def _stored_runs(wanted: RunFilter) -> Iterator[Run]:
    from foretrain.store import RunQuery, open_store
    from foretrain.store.runs import Status

    with open_store(wanted.store) as store:
        yield from store.runs(
            RunQuery(
                model=wanted.model,
                device=wanted.device,
                campaign=wanted.campaign,
                status=Status.COMPLETED,
            )
        )


def learn_from(runs: Sequence[Run], held_out: str, progress: Progress) -> RunsLearned:
    """Fit each machine to its runs."""
    from foretrain.learning.user_calibration.fitting import fit_workers
    from foretrain.learning.user_calibration.samples import samples_of
    from foretrain.learning.user_calibration.storing import keep_workers

    if not runs:
        raise MissingData(
            "no completed run matches; `foretrain runs list` shows the runs, `foretrain measure` and "
            "`foretrain campaign` make them"
        )
    samples, unused = samples_of(runs, progress)
    if not samples:
        raise MissingData(f"none of {len(runs)} runs can be used: {unused[0].reason}")
    versions = {run.id: dict(run.environment.versions) for run in runs}
    fits = []
    for device_id in dict.fromkeys(sample.device for sample in samples):
        own = [sample for sample in samples if sample.device == device_id]
        progress(f"fitting {device_id} to {len(own)} runs")
        fit = fit_workers(own, held_out_models(own, held_out))
        fits.append((keep_workers(fit, device_id, versions[own[0].id]), fit))
    return RunsLearned(tuple(fits), tuple(unused))


def held_out_models(samples: Sequence[RunSample], held_out: str) -> frozenset[str]:
    """The models that a fit must not see."""
    models = sorted({sample.model for sample in samples})
    if held_out == EACH:
        return frozenset()
    if held_out == HALF:
        return frozenset(models[1::2])
    named = {name.strip() for name in held_out.split(",") if name.strip()}
    unknown = named - set(models)
    if unknown:
        raise InvalidRequest(
            f"`held_out` names {', '.join(sorted(unknown))}, of which there are no runs; there are runs of "
            f"{', '.join(models)}. It is {EACH}, {HALF}, or models by comma"
        )
    return frozenset(named)


def learn_trace(
    trained: Workload, trace: Path, on: str, progress: Progress
) -> tuple[Profile, CalibrationFile]:
    """Correct the kinds of operators of a device by a profile."""
    from foretrain.facts.devices import device
    from foretrain.learning.user_calibration.storing import keep_profile
    from foretrain.prediction.cost_models import OperatorCostModel
    from foretrain.serving.verbs.profiling import traced_profile

    where = device(on)
    profile = traced_profile(trained, trace, where, progress, model=OperatorCostModel())
    return profile, keep_profile(profiled_model(profile, trace), where.id, {"trace": trace.name})


def profiled_model(profile: Profile, trace: Path) -> ProfiledModel:
    """What a profile says about kinds of operators; refused where it cannot be meant."""
    from foretrain.learning.user_calibration.plausibility import check_plausible
    from foretrain.prediction.corrections.kinds import KindTimes, ProfiledModel

    if profile.predicted_seconds is None:
        raise MissingData(f"{profile.device} has no prediction to correct: {'; '.join(profile.notes)}")
    try:
        check_plausible(profile.step_seconds, profile.predicted_seconds, "the traced step")
    except InvalidRequest as error:
        raise InvalidData(str(trace), str(error)) from error
    kinds = [
        KindTimes(row.phase, row.kind, row.compared.measured_seconds, row.compared.predicted_seconds)
        for row in profile.operators
        if row.compared.ratio is not None and row.compared.predicted_seconds is not None
    ]
    if not kinds:
        raise InvalidData(
            str(trace), "shares no kind of operator with the model; is it a trace of this model?"
        )
    return ProfiledModel(
        profile.model, profile.batch, profile.step_seconds, profile.predicted_seconds, tuple(kinds)
    )


def plain(calibration: CalibrationFile) -> dict[str, Any]:
    """A calibration as the plain data of its file."""
    import json

    from foretrain.prediction.corrections.files import as_text

    content: dict[str, Any] = json.loads(as_text(calibration))
    return content
