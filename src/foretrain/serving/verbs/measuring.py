"""What happens when it runs: measure a command, run a campaign of short trainings, profile a model."""

from __future__ import annotations

import os
import re
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

from foretrain.answers import Answer
from foretrain.encoding import encode
from foretrain.errors import ForetrainError, InvalidRequest
from foretrain.progress import Progress, no_progress
from foretrain.serving.requests.measuring import CampaignRequest, MeasureRequest, ProfileRequest
from foretrain.serving.verbs.predicting import workload
from foretrain.units import UnitError, format_duration

if TYPE_CHECKING:
    from foretrain.facts.devices import Device
    from foretrain.measuring.campaigns.campaign import Campaign
    from foretrain.measuring.campaigns.running import CampaignProgress as CampaignProgress
    from foretrain.measuring.campaigns.running import CampaignResult
    from foretrain.measuring.campaigns.trials import Trial, TrialRunner
    from foretrain.measuring.profiling.comparison import Profile
    from foretrain.measuring.profiling.running import ProfiledRun
    from foretrain.measuring.watching.outlook import RunOutlook, WatchedTarget
    from foretrain.measuring.watching.report import Report
    from foretrain.measuring.watching.watch import Live, Watched
    from foretrain.prediction.cost_models import CostModel
    from foretrain.store.runs import PredictionMade, Run
    from foretrain.workloads.workload import Workload

_NODE_VARIABLES = ("GROUP_RANK", "NODE_RANK", "SLURM_NODEID")
_NODES_VARIABLES = ("SLURM_NNODES", "SLURM_JOB_NUM_NODES")


# ---------------------------------------------------------------- measure


@final
@dataclass(frozen=True, eq=False)
class Measured(Answer):
    """A watched run, where it is stored (None if it is not), and the exit code of its command here.

    `problem` says why it is not stored although it should be.
    """

    report: Report
    outlook: RunOutlook
    store: str | None
    exit_code: int
    problem: str = ""

    def to_dict(self) -> dict[str, Any]:
        """The report, what is ahead, and the store."""
        return {**self.report.to_dict(), "outlook": encode(self.outlook), "store": self.store}

    def summary(self) -> tuple[tuple[str, str], ...]:
        """How it ended, and the step time."""
        run = self.report.run
        step = () if run.summary is None else (("step", format_duration(run.summary.seconds)),)
        return (("run", run.id), ("status", run.status.value), *step)


@dataclass(frozen=True)
class Watcher:
    """Who looks on while a command runs: `show` gets its progress, `hide` comes before it prints.

    `note` gets a sentence on what else was done, as a run that is stored late.
    """

    progress: Callable[[str], None] = no_progress
    note: Callable[[str], None] = lambda _: None
    show: Callable[[Live, RunOutlook], None] = lambda _, __: None
    hide: Callable[[], None] = lambda: None
    output_to_stderr: bool = False


def measure(request: MeasureRequest, watcher: Watcher | None = None) -> Measured:
    """Run a training `command` unchanged, measure its steps and resource usage, and store the run.

    >>> answer = ft.measure("python3", "-c", "pass", no_store=True)
    >>> answer.exit_code, answer.report.run.status.value
    (0, 'completed')
    """
    from foretrain.measuring.watching.outlook import RunOutlook, TargetMonitor
    from foretrain.measuring.watching.report import report_of
    from foretrain.measuring.watching.watch import (
        WatchRequest,
        check_store,
        joined_nodes,
        recover,
        run_of,
        watch,
    )

    watcher = watcher or Watcher()
    node, nodes = _place(request)
    target, usd_per_hour = TargetMonitor(_watched_target(request)), _usd_per_hour(request)
    totals = [request.steps]  # in the end, that which the command printed last

    def show(live: Live) -> None:
        totals.append(live.total)
        ahead = RunOutlook.after(
            live.steps, live.total, live.step_seconds, live.seconds, usd_per_hour,
            target=request.target, probability=target.latest(),
        )  # fmt: skip
        watcher.show(live, ahead)

    stores = not request.no_store and node == 0
    if stores:
        check_store(request.store)
        for earlier in recover(request.store):
            started = f"{earlier.started_at:%Y-%m-%d %H:%M} UTC"
            watcher.note(f"run {earlier.id}, started {started} and not stored at its end, is stored now")
    watched = watch(
        WatchRequest(
            command=request.command,
            setting=request.setting,
            interval_seconds=request.interval,
            prediction=_prediction(request, watcher),
            join=request.join,
            node=node,
            nodes=nodes,
            output_to_stderr=watcher.output_to_stderr,
        ),
        show,
        watcher.hide,
    )
    gathered = watched.gathered
    if request.join is not None and node == 0:
        gathered = joined_nodes(request.join, nodes, request.wait)
    run = run_of(gathered)
    place, problem = _keep(watched, run, request.store) if stores else (None, "")
    if request.join is None and not problem:
        watched.journal.unlink(missing_ok=True)
    end = watched.gathered.end
    exit_code = 1 if end is None else end.exit_code or 0
    done, step = (
        (0, None)
        if run.summary is None
        else (run.summary.steps + run.summary.warm_up_steps, run.summary.seconds)
    )
    ahead = RunOutlook.after(
        done, totals[-1], step, run.seconds, usd_per_hour, target=request.target, probability=target.at_end()
    )
    return Measured(report_of(run), ahead, place, exit_code, problem)


def _watched_target(request: MeasureRequest) -> WatchedTarget | None:
    """The target and its log; one without the other, and a target that cannot be read, are refused now."""
    from foretrain.convergence.curves import parse_target
    from foretrain.measuring.watching.outlook import WatchedTarget

    if request.target is None and request.log is None:
        return None
    if request.target is None or request.log is None:
        raise InvalidRequest("`target` and `log` belong together: a metric's value, and the log that has it")
    parse_target(request.target)
    return WatchedTarget(request.log, request.target, request.steps)


def _usd_per_hour(request: MeasureRequest) -> float | None:
    """The price that is given, or that of the rented machines it runs on; None on a machine without one."""
    if request.usd_per_hour is not None or request.on is None:
        return request.usd_per_hour
    from foretrain.facts.offers import offer_named

    cloud, _, rest = request.on.partition(":")
    instance, _, count = rest.partition(":")
    try:
        return offer_named(f"{cloud}:{instance}").usd_per_hour * int(count or 1)
    except (ForetrainError, ValueError):  # a device, a file or this machine
        return None


def _place(request: MeasureRequest) -> tuple[int, int]:
    """The number of this node and of all nodes: as given, of torchrun's arguments, or of Slurm."""
    if request.join is None:
        for name in ("node", "nodes"):
            if getattr(request, name) is not None:
                raise InvalidRequest(f"`{name}` is for several nodes that share a folder: give `join` too")
        return 0, 1
    node = request.node
    if node is None:
        node = _number("node-rank", request.command, _NODE_VARIABLES)
    nodes = request.nodes or _number("nnodes", request.command, _NODES_VARIABLES)
    if node is None or nodes is None:
        raise InvalidRequest("`join` requires `node` and `nodes` where neither torchrun nor Slurm has them")
    if node >= nodes:
        raise InvalidRequest(f"`node` is {node}, but {nodes} nodes are numbered 0 to {nodes - 1}")
    return node, nodes


def _number(name: str, command: Sequence[str], variables: Sequence[str]) -> int | None:
    """A number among the arguments of a launcher (`--node-rank 1`, `--node_rank=1`) or in the environment."""
    line = " ".join(command)
    match = re.search(rf"--{name.replace('-', '[-_]')}[ =](\d+)\b", line)
    if match is not None:
        return int(match[1])
    given = (os.environ.get(variable, "") for variable in variables)
    return next((int(text) for text in given if text.isdecimal()), None)


def _prediction(request: MeasureRequest, watcher: Watcher) -> PredictionMade | None:
    """The prediction, made before the run; a setting that cannot be predicted is refused before it, too."""
    if request.model is None or request.on is None:
        return None
    from foretrain.serving.verbs.run_predictions import predicted

    watcher.progress(f"foretrain: predicting {request.model}")
    try:
        return predicted({name: value for name, value in request.setting.items() if name != "steps"})
    finally:
        watcher.hide()


def _keep(watched: Watched, run: Run, store: str | None) -> tuple[str | None, str]:
    """Where the run is stored; if it cannot be, why, and where what was gathered is: nothing is lost."""
    from foretrain.measuring.watching.watch import keep, rescue

    try:
        return keep(run, store), ""
    except ForetrainError as error:
        return None, f"the run is not stored: {error}; what was gathered is in {rescue(watched)}"


# ---------------------------------------------------------------- campaign


@final
@dataclass(frozen=True)
class CampaignTrials(Answer):
    """The trials of a campaign: `pending` are those to run next, `stored` counts those that ran already."""

    campaign: str
    trials: int
    stored: int
    pending: tuple[Trial, ...]

    def to_dict(self) -> dict[str, Any]:
        """Each pending trial with its setting and command."""
        pending = [
            {"trial": trial.key, "setting": trial.setting, "workers": trial.workers, "repeat": trial.repeat,
             "command": list(trial.words)}
            for trial in self.pending
        ]  # fmt: skip
        return {
            "campaign": self.campaign, "trials": self.trials, "stored": self.stored, "pending": pending,
        }  # fmt: skip

    def summary(self) -> tuple[tuple[str, str], ...]:
        """How many."""
        return (("campaign", self.campaign), ("trials", str(self.trials)), ("stored", str(self.stored)))


@final
@dataclass(frozen=True)
class CampaignAnswer(Answer):
    """What a campaign did, where its runs are stored, and why trials were not predicted, with how many."""

    result: CampaignResult
    store: str
    not_predicted: Mapping[str, int]

    def to_dict(self) -> dict[str, Any]:
        """Each run with its measured and predicted step."""
        from foretrain.store.runs import Status

        result = self.result
        return {
            "campaign": result.campaign,
            "store": self.store,
            "trials": result.trials,
            "stored_before": result.stored_before,
            "left": result.left,
            "statuses": {str(status): result.count(status) for status in Status},
            "runs": [
                {
                    "id": run.id,
                    "trial": run.trial,
                    "status": str(run.status),
                    "setting": dict(run.setting),
                    "seconds": run.seconds,
                    "step_seconds": run.summary.seconds if run.summary else None,
                    "predicted_seconds": run.prediction.p50_seconds if run.prediction else None,
                    "message": run.message,
                }
                for run in result.runs
            ],
            "not_predicted": dict(self.not_predicted),
        }

    def summary(self) -> tuple[tuple[str, str], ...]:
        """How many ran, and how many are left."""
        result = self.result
        return (("campaign", result.campaign), ("run", str(len(result.runs))), ("left", str(result.left)))


def campaign(
    request: CampaignRequest, report: Callable[[CampaignProgress], None] = lambda _: None
) -> CampaignTrials | CampaignAnswer:
    """Run the trials of a campaign `file` that are not stored yet; with `dry_run` list them.

    >>> ft.campaign("campaigns/batch_sizes.yaml", dry_run=True).trials
    58
    """
    from foretrain.measuring.campaigns.campaign import read_campaign
    from foretrain.measuring.campaigns.running import run_campaign
    from foretrain.measuring.campaigns.trials import trials_of
    from foretrain.store import open_store

    read = read_campaign(request.file)
    with open_store(request.store) as store:
        if request.dry_run:
            trials, stored = trials_of(read), store.trials(read.name)
            pending = [trial for trial in trials if trial.key not in stored]
            done = len(trials) - len(pending)
            return CampaignTrials(read.name, len(trials), done, tuple(pending[: request.limit]))
        reasons: Counter[str] = Counter()
        result = run_campaign(
            read,
            store,
            _runner(request.on, read),
            lambda setting: _predict_trial(setting, reasons),
            report,
            request.limit,
        )
        return CampaignAnswer(result, store.place, reasons)


def count_stored_trials(request: CampaignRequest) -> tuple[str, int]:
    """The name of a campaign and how many of its trials are stored, e.g. after an interruption."""
    from foretrain.measuring.campaigns.campaign import read_campaign
    from foretrain.store import open_store

    name = read_campaign(request.file).name
    with open_store(request.store) as store:
        return name, len(store.trials(name))


def _predict_trial(setting: dict[str, Any], reasons: Counter[str]) -> PredictionMade | None:
    """What is predicted of a setting; where nothing can be, the reason is counted."""
    from foretrain.serving.verbs.run_predictions import predicted

    try:
        return predicted(setting)
    except (ForetrainError, UnitError) as reason:
        reasons[str(reason)] += 1
        return None


def _runner(place: str | None, read: Campaign) -> Callable[[], TrialRunner]:
    """What runs the trials."""
    if place is None:
        from foretrain.measuring.campaigns.local import LocalRunner, run_command

        return lambda: LocalRunner(run_command)
    from foretrain.measuring.campaigns.on_ray import RayRunner

    address = place.partition("=")[2] or None
    return lambda: RayRunner(read, address)


# ---------------------------------------------------------------- profile


def profile(request: ProfileRequest, progress: Progress = no_progress) -> Profile:
    """Compare measured and predicted times of operators and layers, run `here` or read from a `trace`.

    >>> answer = ft.profile("mnist-cnn", here=True, batch=2, seconds=0.1)
    >>> answer.device, answer.step_seconds > 0
    ('here', True)
    """
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
    from foretrain.prediction.corrections.apply import resolve_cost_model
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
    return compare(
        trained.source.name, graph, device, model or resolve_cost_model(DEFAULT, trained), measured, run
    )


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
