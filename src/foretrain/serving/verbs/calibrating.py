"""Calibrations: learned from timings, this machine, stored runs or a trace; listed, shown, forgotten."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

from foretrain.answers import Answer, Infeasible
from foretrain.encoding import encode
from foretrain.errors import ForetrainError, InvalidData, InvalidRequest, MissingData
from foretrain.progress import Progress, no_progress
from foretrain.serving.requests.calibrating import (
    CalibrateRequest,
    CalibrationRequest,
    ExportCalibrationRequest,
    ImportCalibrationRequest,
    ListCalibrationsRequest,
)
from foretrain.serving.verbs.predicting import workload

if TYPE_CHECKING:
    from foretrain.learning.user_calibration.fitting import WorkerFit
    from foretrain.learning.user_calibration.samples import RunSample, UnusedRun
    from foretrain.measuring.gpus import GpuReader
    from foretrain.measuring.local_all_reduce import AllReduceTiming
    from foretrain.measuring.micro_benchmarks import CudaTimings
    from foretrain.measuring.profiling.comparison import Profile
    from foretrain.measuring.step_timings import StepTiming
    from foretrain.prediction.corrections.apply import ProfiledModel
    from foretrain.prediction.corrections.error_model import StepError
    from foretrain.prediction.corrections.files import CalibrationFile
    from foretrain.prediction.corrections.timings import MeasuredStep, TimedConfiguration
    from foretrain.prediction.operators.cpu import CpuCalibration
    from foretrain.store.runs import Run
    from foretrain.workloads.workload import Workload

EACH, HALF = "each", "half"
"""Held-out models: each in turn, or every second one for good."""


def calibrate(
    request: CalibrateRequest, progress: Progress = no_progress
) -> MachineLearned | GpuLearned | TimingsLearned | RunsLearned | TraceLearned:
    """Learn from your own `timings`, this machine (`here`), stored `runs` or a profiler's `trace`.

    >>> answer = ft.calibrate("docs/examples/step_timings.csv")
    >>> [step.configuration.batch for step in answer.steps], answer.stored
    ([64, 128], 2)
    """
    sources = [request.timings is not None, request.here, request.runs, request.trace is not None]
    if sum(sources) != 1:
        raise InvalidRequest(
            "calibrate takes either a file of timings or `here`, `runs` or `trace`; to see what there is: "
            "foretrain calibrate list"
        )
    if request.timings is not None:
        return learn_timings(request.timings, progress)
    if request.runs:
        wanted = RunFilter(request.store, request.model, request.device, request.campaign)
        return learn_runs(wanted, request.held_out, progress)
    if request.trace is None:
        return _learn_here(request.seconds, progress)
    if request.model is None or request.on is None:
        raise InvalidRequest("`trace` needs `model`, the traced model, and `on`, the device it was made on")
    return learn_trace(workload(request, trace=None), request.trace, request.on, progress)


def _learn_here(seconds: float, progress: Progress) -> GpuLearned | MachineLearned:
    from foretrain.measuring.profiling.running import present_device

    return learn_gpu(seconds, progress) if present_device() == "cuda" else learn_cpu(seconds, progress)


@final
@dataclass(frozen=True)
class MachineLearned(Answer):
    """The timed operators of this machine's CPU, and gloo's all-reduce between two of its processes.

    `all_reduce` is None where it could not be timed or runs have calibrated the machine; `note` says why.
    """

    operators: CpuCalibration
    file: Path
    all_reduce: CalibrationFile | None
    timings: tuple[AllReduceTiming, ...] = ()
    note: str = ""

    def to_dict(self) -> dict[str, Any]:
        """The operators with their fits, and the all-reduce."""
        reduced = None if self.all_reduce is None else plain(self.all_reduce)
        return {**encode(self.operators), "all_reduce": reduced, "note": self.note}

    def summary(self) -> tuple[tuple[str, str], ...]:
        """Errors of the fits."""
        fits = self.operators.families.items()
        return tuple((name, f"error {fit.mean_absolute_error:.0%}") for name, fit in fits)


def learn_cpu(seconds: float, progress: Progress) -> MachineLearned:
    """Time operators and all-reduces on this machine's CPU, and keep them as the device `here`."""
    from foretrain.facts.devices import THIS_MACHINE
    from foretrain.learning.user_calibration.from_benchmarks import TimedWork, calibrate, check_believable
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
    from foretrain.learning.user_calibration.from_benchmarks import keep_all_reduce
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


@final
@dataclass(frozen=True)
class GpuLearned(Answer):
    """The timed operators of a GPU, by kind beside their predictions."""

    timings: CudaTimings
    profile: ProfiledModel
    calibration: CalibrationFile

    def to_dict(self) -> dict[str, Any]:
        """The calibration, and the clocks while it was made."""
        return {"calibration": plain(self.calibration), "clock_hertz": encode(self.timings.clock_hertz)}

    def summary(self) -> tuple[tuple[str, str], ...]:
        """What was timed."""
        return ((self.timings.device_name, f"{len(self.timings.timings)} operators"),)


def learn_gpu(
    seconds: float,
    progress: Progress,
    cuda: Any = None,
    where: str = "cuda",
    gpus: GpuReader | None = None,
) -> GpuLearned:
    """Time operators on this machine's GPU; `cuda` and `gpus` are those of torch and NVML by default."""
    from foretrain.facts.devices import device
    from foretrain.learning.user_calibration.from_benchmarks import (
        TimedWork,
        benchmark_profile,
        keep_benchmarks,
    )
    from foretrain.measuring.gpus import open_gpus
    from foretrain.measuring.micro_benchmarks import run_cuda_trials
    from foretrain.measuring.trials import trials

    timings = run_cuda_trials(trials(), seconds, progress, cuda, where, gpus or open_gpus())
    known = device(timings.device_name)
    timed = [TimedWork(item.work, item.seconds) for item in timings.timings]
    versions = {"torch": timings.torch_version, "driver": timings.driver}
    kept = keep_benchmarks(timed, known, versions)
    return GpuLearned(timings, benchmark_profile(timed, known), kept)


@final
@dataclass(frozen=True)
class TimingsLearned(Answer):
    """Timed steps with their predictions, how many are stored now, and where."""

    steps: tuple[MeasuredStep, ...]
    stored: int
    file: Path

    def to_dict(self) -> dict[str, Any]:
        """Each step with its prediction."""
        steps = [
            {**encode(step.configuration), "step_seconds": step.step_seconds,
             "predicted_seconds": step.predicted_seconds, "ratio": step.step_seconds / step.predicted_seconds}
            for step in self.steps
        ]  # fmt: skip
        return {"steps": steps, "kept": self.stored, "file": str(self.file)}

    def summary(self) -> tuple[tuple[str, str], ...]:
        """Measured over predicted."""
        return tuple(
            (
                f"{step.configuration.model} on {step.configuration.device}",
                f"{step.step_seconds / step.predicted_seconds:.2f}",
            )
            for step in self.steps
        )


def learn_timings(file: Path, progress: Progress) -> TimingsLearned:
    """Store the timings of a CSV file; of a line that cannot be right nothing is stored."""
    from foretrain.measuring.step_timings import read_timings
    from foretrain.prediction.corrections.files import measurements_file
    from foretrain.prediction.corrections.timings import remember

    steps = []
    for timing in read_timings(file):
        progress(f"{timing.configuration.model} on {timing.configuration.device}")
        steps.append(_predicted(timing, file))
    return TimingsLearned(tuple(steps), len(remember(steps)), measurements_file())


def _predicted(timing: StepTiming, file: Path) -> MeasuredStep:
    from foretrain.learning.user_calibration.samples import check_plausible
    from foretrain.prediction.corrections.timings import measured_step

    try:
        step = measured_step(timing.configuration, timing.step_seconds, _uncorrected(timing.configuration))
        check_plausible(step.step_seconds, step.predicted_seconds)
    except ForetrainError as error:
        raise InvalidData(str(file), str(error), timing.row) from error
    return step


def _uncorrected(of: TimedConfiguration) -> StepError:
    """The step of a configuration, predicted without any measurement of the user."""
    from foretrain.prediction.cost_models import OperatorCostModel
    from foretrain.prediction.predict import pace_of
    from foretrain.prediction.scenario import whole_error
    from foretrain.serving.requests import request_from
    from foretrain.serving.requests.predicting import PredictRequest
    from foretrain.serving.verbs.predicting import scenario

    asked = {**asdict(of), "on": of.device if of.devices == "1" else f"{of.device}:{of.devices}"}
    for name in ("device", "devices"):
        del asked[name]
    request = request_from(
        PredictRequest, {name: value for name, value in asked.items() if value is not None}
    )
    uncorrected = replace(scenario(request), cost_model=OperatorCostModel())
    pace = pace_of(uncorrected)
    if isinstance(pace, Infeasible):
        raise InvalidRequest(str(pace))
    return whole_error(pace, of.model)


@final
@dataclass(frozen=True)
class RunsLearned(Answer):
    """What was fitted to the runs of each machine, and the runs that were not used."""

    fits: tuple[tuple[CalibrationFile, WorkerFit], ...]
    unused: tuple[UnusedRun, ...]

    def to_dict(self) -> dict[str, Any]:
        """Each calibration with its accuracy before and after."""
        fits = [
            {
                "calibration": plain(calibration),
                "before": encode(fit.before),
                "left_out": encode(fit.left_out),
                "held_out_models": list(fit.held_out_models),
                "held_out_before": encode(fit.held_out_before),
                "held_out": encode(fit.held_out),
            }
            for calibration, fit in self.fits
        ]
        return {"calibrations": fits, "unused": encode(self.unused)}

    def summary(self) -> tuple[tuple[str, str], ...]:
        """How many runs each was fitted to."""
        return tuple((calibration.name, f"{fit.samples} runs") for calibration, fit in self.fits)


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
    from foretrain.learning.user_calibration.catalogue import keep_workers
    from foretrain.learning.user_calibration.fitting import fit_workers
    from foretrain.learning.user_calibration.samples import samples_of

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


@final
@dataclass(frozen=True)
class TraceLearned(Answer):
    """A traced step beside its prediction, and the calibration made of it."""

    profile: Profile
    calibration: CalibrationFile

    def to_dict(self) -> dict[str, Any]:
        """Both in full."""
        return {"profile": self.profile.to_dict(), "calibration": plain(self.calibration)}

    def summary(self) -> tuple[tuple[str, str], ...]:
        """What the calibration corrects."""
        return ((self.calibration.name, self.calibration.device),)


def learn_trace(trained: Workload, trace: Path, on: str, progress: Progress) -> TraceLearned:
    """Correct the kinds of operators of a device by a profile."""
    from foretrain.facts.devices import device
    from foretrain.learning.user_calibration.catalogue import keep_profile
    from foretrain.prediction.cost_models import OperatorCostModel
    from foretrain.serving.verbs.measuring import traced_profile

    where = device(on)
    profile = traced_profile(trained, trace, where, progress, model=OperatorCostModel())
    kept = keep_profile(profiled_model(profile, trace), where.id, {"trace": trace.name})
    return TraceLearned(profile, kept)


def profiled_model(profile: Profile, trace: Path) -> ProfiledModel:
    """What a profile says about kinds of operators; refused where it cannot be meant."""
    from foretrain.learning.user_calibration.samples import check_plausible
    from foretrain.prediction.corrections.apply import KindTimes, ProfiledModel

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


# ---------------------------------------------------------------- what there is


@final
@dataclass(frozen=True)
class CalibrationList(Answer):
    """All calibrations of the user."""

    calibrations: tuple[CalibrationFile, ...]

    def to_dict(self) -> list[Any]:
        """Each without its content."""
        return [{**plain(each), "content": None} for each in self.calibrations]

    def summary(self) -> tuple[tuple[str, str], ...]:
        """Names and devices."""
        return tuple((each.name, each.device) for each in self.calibrations)


@final
@dataclass(frozen=True)
class CalibrationAnswer(Answer):
    """One calibration, what was `done` with it (shown, forgotten, exported, imported), and its file."""

    calibration: CalibrationFile
    done: str
    file: Path | None = None

    def to_dict(self) -> dict[str, Any]:
        """The content of its file."""
        return plain(self.calibration)

    def summary(self) -> tuple[tuple[str, str], ...]:
        """What it is and what was done."""
        return ((self.calibration.name, self.calibration.device_name), ("done", self.done))


def list_calibrations(_: ListCalibrationsRequest) -> CalibrationList:
    """List all calibrations that correct predictions on this machine.

    >>> ft.calibrate("docs/examples/step_timings.csv").stored
    2
    >>> [each.name for each in ft.list_calibrations().calibrations]
    ['timings-rtx3090']
    """
    from foretrain.learning.user_calibration.catalogue import calibrations

    return CalibrationList(tuple(calibrations()))


def show_calibration(request: CalibrationRequest) -> CalibrationAnswer:
    """Show the calibration of this `name` and what it was fitted on.

    >>> ft.calibrate("docs/examples/step_timings.csv").stored
    2
    >>> ft.show_calibration("timings-rtx3090").calibration.device
    'rtx3090'
    """
    from foretrain.learning.user_calibration.catalogue import calibration_named

    return CalibrationAnswer(calibration_named(request.name), "shown")


def forget_calibration(request: CalibrationRequest) -> CalibrationAnswer:
    """Remove the calibration of this `name` and its effect on predictions.

    >>> ft.calibrate("docs/examples/step_timings.csv").stored
    2
    >>> ft.forget_calibration("timings-rtx3090").done
    'forgotten'
    """
    from foretrain.learning.user_calibration.catalogue import forget

    return CalibrationAnswer(forget(request.name), "forgotten")


def export_calibration(request: ExportCalibrationRequest) -> CalibrationAnswer:
    """Write the calibration of this `name` to a portable `file`.

    >>> ft.calibrate("docs/examples/step_timings.csv").stored
    2
    >>> ft.export_calibration("timings-rtx3090", file="mine.json").done
    'exported'
    """
    from foretrain.facts.user_data import check_file, write_output
    from foretrain.learning.user_calibration.catalogue import calibration_named
    from foretrain.prediction.corrections.files import as_text

    check_file("FILE", request.file)
    known = calibration_named(request.name)
    write_output("FILE", request.file, as_text(known))
    return CalibrationAnswer(known, "exported", request.file)


def import_calibration(request: ImportCalibrationRequest) -> CalibrationAnswer:
    """Validate and store a calibration `file`, written by `export_calibration` here or elsewhere.

    >>> ft.calibrate("docs/examples/step_timings.csv").stored
    2
    >>> ft.export_calibration("timings-rtx3090", file="mine.json").done
    'exported'
    >>> ft.import_calibration("mine.json").done
    'imported'
    """
    from foretrain.learning.user_calibration import catalogue

    return CalibrationAnswer(catalogue.import_calibration(request.file), "imported", request.file)
