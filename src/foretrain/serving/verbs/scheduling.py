"""The verbs of scheduling: from files, generators and traces to problems, and what policies make of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from foretrain.decoding import options, part
from foretrain.errors import ForetrainError, InvalidData, InvalidRequest, UnknownName
from foretrain.jobs.options import BatchLimits, JobOptions, LengthOptions
from foretrain.prediction.options import InputOptions
from foretrain.progress import Progress, no_progress
from foretrain.serving.requests import request_from
from foretrain.serving.requests.scheduling import PredictedJob, RunRequest, ScheduleRequest, SimulateRequest
from foretrain.serving.verbs.planning import plan_strategies
from foretrain.serving.verbs.predicting import cost_model, workload

if TYPE_CHECKING:
    from foretrain.backends.answer import RealRun
    from foretrain.backends.job_files import JobCommand
    from foretrain.scheduling.accounting import Comparison, Outcome
    from foretrain.scheduling.files import JobEntry, JobFile, JobTimes
    from foretrain.scheduling.fleet_files import FleetFile
    from foretrain.scheduling.forecast import Schedule
    from foretrain.scheduling.job_times import Training
    from foretrain.scheduling.loop import LoopTurn, Policy
    from foretrain.scheduling.problem import Problem
    from foretrain.scheduling.simulation import Disturbances, PriceChange

ALL = "all"
_NODES = 5
_MOST_CHARTED_JOBS = 20_000
"""Jobs up to which the history of nodes is kept; beyond, memory would grow with the length of a replay."""
_MOST_BOUNDED_JOBS = 1_000
"""Jobs up to which the lower bound is computed: its linear program grows faster than the simulation."""


@dataclass(frozen=True)
class Asked:
    """A problem with what belongs to it: price changes, why jobs fit nowhere, notes."""

    problem: Problem
    price_changes: tuple[PriceChange, ...] = ()
    unfit: Mapping[str, str] | None = None
    notes: tuple[str, ...] = ()


def simulate(request: SimulateRequest, progress: Progress = no_progress) -> Outcome | Comparison:
    """Simulate many jobs on a cluster over their whole horizon; several policies are compared.

    >>> answer = ft.simulate(generate="low", nodes=2, seed=1, policy=["fifo", "edf-packed"], bound=False)
    >>> [outcome.policy for outcome in answer.outcomes], answer.best.policy
    (['fifo', 'edf-packed'], 'edf-packed')
    """
    from foretrain.scheduling.accounting import Comparison

    policies = _policies(request.policy, request.seed)
    asked = _asked(request, progress)
    bound, notes = _bound(request, asked, progress)
    outcomes = []
    for policy in policies:
        progress(f"simulating {policy.name}")
        outcomes.append(_simulated(request, asked, policy, bound, notes))
    return outcomes[0] if len(outcomes) == 1 else Comparison(tuple(outcomes), bound, notes)


def _simulated(
    request: SimulateRequest, asked: Asked, policy: Policy, bound: float | None, notes: tuple[str, ...]
) -> Outcome:
    from foretrain.scheduling.simulation import simulate as core

    every = math.inf if request.every is None else request.every
    if every <= 0:
        raise InvalidRequest("`every` is the time between decisions: give more than 0")
    is_charted = len(asked.problem.jobs) <= _MOST_CHARTED_JOBS
    outcome = core(asked.problem, policy, _disturbances(request, asked), every, keeps_history=is_charted)
    if not is_charted:
        notes = (*notes, f"charts are drawn for up to {_MOST_CHARTED_JOBS:,} jobs")
    jobs = tuple(
        replace(each, message=(asked.unfit or {}).get(each.job, each.message)) if each.message else each
        for each in outcome.jobs
    )
    return replace(outcome, jobs=jobs, bound_usd=bound, notes=(*notes, *outcome.notes))


def _disturbances(request: SimulateRequest, asked: Asked) -> Disturbances:
    from foretrain.scheduling.simulation import Disturbances

    return Disturbances(
        seed=request.seed,
        prediction_error=request.prediction_error,
        interruptions=request.interruptions,
        failures_per_node_day=request.failures,
        repair_seconds=request.repair,
        price_changes=asked.price_changes,
    )


def _bound(
    request: SimulateRequest, asked: Asked, progress: Progress
) -> tuple[float | None, tuple[str, ...]]:
    """The lower bound, or why there is none, after the notes on the problem."""
    notes = [*asked.notes]
    exact = all(job.spread.p10 == job.spread.p90 for job in asked.problem.jobs)
    if request.prediction_error and exact and asked.problem.jobs:
        notes.append("no job has an interval (p10_seconds, p90_seconds), so times are exact")
    if not request.bound:
        return None, tuple(notes)
    if len(asked.problem.jobs) > _MOST_BOUNDED_JOBS:
        notes.append(f"the lower bound is computed for up to {_MOST_BOUNDED_JOBS:,} jobs")
        return None, tuple(notes)
    if asked.price_changes or request.prediction_error:
        what = "price changes" if asked.price_changes else "drawn times"
        notes.append(f"no lower bound: it does not cover {what}")
        return None, tuple(notes)
    from foretrain.scheduling.bound import lower_bound_usd

    progress("computing the lower bound")
    return lower_bound_usd(asked.problem), tuple(notes)


def _policies(names: tuple[str, ...], seed: int) -> list[Policy]:
    from foretrain.scheduling.policies import policies

    chosen = tuple(policies()) if names == (ALL,) else tuple(dict.fromkeys(names))
    if not chosen:
        raise InvalidRequest("`policy` names no policy")
    return [_seeded(policies()[name], seed) for name in chosen]


def _seeded(policy: Any, seed: int) -> Policy:
    """The policy with that seed, where it is a random one."""
    seeded: Policy = (
        replace(policy, seed=seed) if any(each.name == "seed" for each in fields(policy)) else policy
    )
    return seeded


def schedule(request: ScheduleRequest, progress: Progress = no_progress) -> Schedule:
    """Decide once which jobs run where, and predict start, end and cost of all of them.

    >>> cluster, times = "docs/examples/cluster.yaml", "docs/examples/times.csv"
    >>> answer = ft.schedule("docs/examples/jobs.csv", cluster=cluster, times=times, policy="edf-packed")
    >>> answer.jobs[0].runs
    True
    """
    from foretrain.scheduling.files import read_job, read_jobs
    from foretrain.scheduling.fleet_files import read_fleet
    from foretrain.scheduling.forecast import what_if

    (policy,) = _policies((request.policy,), request.seed)
    if request.cluster is None:
        raise InvalidRequest("`cluster` is required: a YAML file with node types, prices and nodes")
    fleet = read_fleet(request.cluster)
    jobs = read_jobs(request.jobs, predicted_options())
    now = request.now
    if now is None:
        now = max((each.submit_seconds for each in jobs.entries), default=0.0)
    progress("deciding")
    answer = _decided(request, policy, jobs, fleet, now, progress)
    if request.what_if is None:
        return answer
    added = read_job(request.what_if, predicted_options(), now)
    job = added.entries[0].job
    if any(each.job == job for each in jobs.entries):
        raise InvalidRequest(f"`what_if`: a job {job!r} is in {request.jobs} already; give another name")
    progress(f"with {job}")
    both = replace(
        jobs,
        entries=(*jobs.entries, replace(added.entries[0], submit_seconds=now)),
        predicted={**jobs.predicted, **added.predicted},
        places={**jobs.places, job: f"{request.what_if}"},
    )
    after = _decided(request, policy, both, fleet, now, progress)
    if job in after.unfit:
        raise InvalidRequest(f"`what_if`: {job} cannot run: {after.unfit[job]}")
    return replace(answer, what_if=what_if(answer, after, job))


def _decided(
    request: ScheduleRequest,
    policy: Policy,
    jobs: JobFile,
    fleet: FleetFile,
    now: float,
    progress: Progress,
) -> Schedule:
    from foretrain.scheduling.files import present_state
    from foretrain.scheduling.forecast import schedule as core

    asked = asked_of(jobs, fleet, request.times, progress)
    try:
        state = present_state(asked.problem, jobs.entries, now)
    except InvalidRequest as reason:
        raise InvalidData(jobs.file, str(reason)) from reason
    answer = core(state, policy, request.draws, request.seed, asked.price_changes)
    waiting = [job for job in asked.problem.jobs if job.submit_seconds > now]
    unfit = {
        job.name: (asked.unfit or {}).get(job.name, "fits on no node of the fleet")
        for job in asked.problem.jobs
        if job.name not in state.jobs and job not in waiting
    }
    done = {each.job for each in jobs.entries if each.done >= 1}
    notes = [*asked.notes, *answer.notes]
    if waiting:
        notes.append(f"{len(waiting)} jobs that are submitted after {now:g} s are left out")
    return replace(
        answer,
        unfit={name: text for name, text in unfit.items() if name not in done},
        notes=tuple(notes),
    )


def run(request: RunRequest, progress: Progress = no_progress) -> RealRun:
    """Run the `jobs` of a file on this machine, a Ray cluster or a Slurm cluster until all have ended.

    A schedule of the same `name` is resumed: no job is started twice or lost.

    >>> from pathlib import Path
    >>> columns = "job,submit_seconds,deadline_seconds,weight_usd_per_second,command"
    >>> _ = Path("jobs.csv").write_text(f"{columns}\\nhello,0,600,0.01,echo hello\\n")
    >>> _ = Path("times.csv").write_text("job,node_type,gpus,seconds\\nhello,small,1,1\\n")
    >>> _ = Path("cluster.yaml").write_text(
    ...     "max_nodes: 1\\nnode_types:\\n  small: {gpu: k80, gpus: 1, usd_per_hour: 0.1}\\n"
    ... )
    >>> answer = ft.run("jobs.csv", cluster="cluster.yaml", times="times.csv", policy="fifo")
    >>> [job.status.value for job in answer.outcome.jobs]
    ['completed']
    """
    from foretrain.backends.attempts import RunOptions
    from foretrain.backends.run import run_schedule
    from foretrain.scheduling.files import read_jobs
    from foretrain.scheduling.fleet_files import read_fleet

    (policy,) = _policies((request.policy,), request.seed)
    if request.cluster is None:
        raise InvalidRequest("`cluster` is required: a YAML file with node types, prices and nodes")
    jobs = read_jobs(request.jobs, predicted_options())
    asked = asked_of(jobs, read_fleet(request.cluster), request.times, progress)
    every = RunOptions().every_seconds if request.every is None else request.every

    def observe(step: LoopTurn) -> None:
        left = len(step.state.jobs)
        happened = f"{step.event.kind.value} {step.event.subject}".strip()
        progress(f"{happened}; {left} job{'' if left == 1 else 's'} left")

    return run_schedule(
        asked.problem,
        {entry.job: _command(jobs, entry) for entry in jobs.entries},
        policy,
        request.backend,
        name=request.name,
        folder=request.folder,
        store=request.store,
        backend_options=dict(_pair(text) for text in request.backend_option),
        options=RunOptions(every_seconds=every),
        observe=observe,
        simulates_first=True,
    )


def _command(jobs: JobFile, entry: JobEntry) -> JobCommand:
    """What a job runs: its command, or the training of a zoo model on CPUs."""
    from foretrain.backends.job_files import JobCommand, zoo_training

    predicted = jobs.predicted.get(entry.job, {})
    try:
        if entry.command is not None:
            return JobCommand(
                entry.command, str(Path(jobs.file).parent), reports="{progress}" in entry.command
            )
        if "model" not in predicted or "steps" not in predicted:
            raise InvalidRequest(
                f"job {entry.job!r} has no `command`, and no zoo `model` with `steps` either"
            )
        asked = request_from(PredictedJob, _beside(jobs)(predicted))
        assert asked.steps is not None
        return zoo_training(asked.model, asked.steps, asked.batch, asked.seq_len, asked.image_size)
    except ForetrainError as reason:
        raise jobs.error(entry.job, reason) from reason


def _pair(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise InvalidRequest(f"`backend_option` is {text!r}; write KEY=VALUE")
    return key, value


# ---------------------------------------------------------------- problems


def _asked(request: SimulateRequest, progress: Progress) -> Asked:
    given = [name for name in ("jobs", "generate", "philly") if getattr(request, name) is not None]
    if len(given) != 1:
        some = f"both `{given[0]}` and `{given[1]}`" if given else "no jobs"
        raise InvalidRequest(f"{some}: give a file of jobs, or `generate`, or `philly`")
    if request.generate is not None:
        return _generated(request)
    if request.philly is not None:
        return _replayed(request, request.philly, progress)
    if request.nodes is not None or request.most_jobs is not None:
        raise InvalidRequest("`nodes` and `most_jobs` are for `generate` and `philly`")
    assert request.jobs is not None
    if request.cluster is None:
        raise InvalidRequest("`cluster` is required: a YAML file with node types, prices and nodes")
    return problem_of(request.jobs, request.cluster, request.times, progress)


def _generated(request: SimulateRequest) -> Asked:
    from foretrain.scheduling.generators import families

    assert request.generate is not None
    if request.cluster is not None or request.times is not None:
        raise InvalidRequest("a generated problem has its own cluster and times: leave out the files")
    if request.most_jobs is not None:
        raise InvalidRequest("`most_jobs` is for `philly`")
    return Asked(families()[request.generate].problem(request.nodes or _NODES, request.seed))


def _replayed(request: SimulateRequest, file: Path, progress: Progress) -> Asked:
    from foretrain.scheduling.fleet_files import read_fleet
    from foretrain.scheduling.generators import trace_fleet, trace_problem

    if request.times is not None:
        raise InvalidRequest("a trace has its own times: leave out `times`")
    if request.cluster is not None and request.nodes is not None:
        raise InvalidRequest("`nodes` is the size of the trace's own cluster: give it or `cluster`")
    progress("reading the trace")
    if request.cluster is None:
        return Asked(trace_problem(file, trace_fleet(request.nodes), request.seed, request.most_jobs))
    cluster = read_fleet(request.cluster)
    problem = trace_problem(file, cluster.fleet, request.seed, request.most_jobs)
    return Asked(replace(problem, caps=cluster.caps), cluster.price_changes, None, cluster.notes)


def problem_of(jobs: Path, cluster: Path, times: Path | None, progress: Progress = no_progress) -> Asked:
    """The problem of files."""
    from foretrain.scheduling.files import read_jobs
    from foretrain.scheduling.fleet_files import read_fleet

    fleet = read_fleet(cluster)
    listed = read_jobs(jobs, predicted_options())
    for entry in listed.entries:
        if entry.running_on is not None or entry.done > 0:
            raise listed.error(
                entry.job, "`running_on` and `done` describe the present, for `schedule`; here all jobs begin"
            )
    return asked_of(listed, fleet, times, progress)


def predicted_options() -> frozenset[str]:
    """The names of the options that say what a job trains."""
    return frozenset(each.name for each in options(PredictedJob))


def asked_of(jobs: JobFile, fleet: FleetFile, times: Path | None, progress: Progress = no_progress) -> Asked:
    """The problem of the jobs of a file, with given or predicted times."""
    from foretrain.scheduling.files import job_from
    from foretrain.scheduling.problem import Problem

    known, notes = _all_times(jobs, fleet, times, progress)
    problem = Problem(
        tuple(job_from(entry, known[entry.job]) for entry in jobs.entries), fleet.fleet, fleet.caps
    )
    unfit = {
        name: f"fits nowhere: {_reasons(each.left_out)}" for name, each in known.items() if each.left_out
    }
    return Asked(problem, fleet.price_changes, unfit, (*fleet.notes, *notes))


def _reasons(left_out: Mapping[Any, str]) -> str:
    reasons = dict.fromkeys(left_out.values())
    return "; ".join(reasons)


def _all_times(
    jobs: JobFile, fleet: FleetFile, times: Path | None, progress: Progress
) -> tuple[dict[str, JobTimes], list[str]]:
    """The times of every job: from its own entry, from the file of times, or predicted."""
    from foretrain.scheduling.files import JobTimes, check_node_types, read_times, times_of

    given = {} if times is None else read_times(times, fleet.fleet.types)
    known: dict[str, JobTimes] = {}
    for entry in jobs.entries:
        listed = entry.times or given.get(entry.job, ())
        try:
            check_node_types(entry.times, fleet.fleet.types)
        except UnknownName as reason:
            raise jobs.error(entry.job, reason) from reason
        if listed:
            known[entry.job] = times_of(listed)
        elif "model" in jobs.predicted.get(entry.job, {}):
            known[entry.job] = _predicted(jobs, entry.job, entry.max_nodes, fleet, progress)
        elif times is None:
            raise jobs.error(
                entry.job, f"the times of {entry.job!r} are unknown: give `times`, or its `model`"
            )
        else:
            known[entry.job] = JobTimes({})
    return known, []


def _predicted(jobs: JobFile, job: str, max_nodes: int, fleet: FleetFile, progress: Progress) -> JobTimes:
    """The times of a job that names a model, on every node type whose GPU is known."""
    from foretrain.scheduling.job_times import predicted_times

    try:
        training = _training(request_from(PredictedJob, _beside(jobs)(jobs.predicted[job])))
        nodes = {name: fleet.node(name) for name in fleet.fleet.types}
        return predicted_times(training, nodes, max_nodes, lambda text: progress(f"{job}: {text}"))
    except ForetrainError as reason:
        raise jobs.error(job, reason) from reason


def _beside(jobs: JobFile) -> Callable[[Mapping[str, Any]], dict[str, Any]]:
    """Files that a job names are looked for beside the file of jobs; words of a table become values."""
    from foretrain.scheduling.files import YES_NO

    kinds = {each.name: each.kind for each in options(PredictedJob)}
    folder = Path(jobs.file).parent

    def read(name: str, value: Any) -> Any:
        kind = kinds[name]
        if kind.is_switch:
            return YES_NO.read(value)
        return value if kind.beside is None else kind.beside(kind.read(value), folder)

    return lambda given: {name: read(name, value) for name, value in given.items()}


def _training(request: PredictedJob) -> Training:
    """The core's noun of a job to predict."""
    from foretrain.jobs.length import length_of
    from foretrain.scheduling.job_times import Training

    trained = workload(request, batch=None)
    length = length_of(part(LengthOptions, request), trained)
    if length is None:
        raise InvalidRequest("the length of the job is unknown: give `steps`, or `epochs` with `samples`")
    return Training(
        workload=trained,
        length=length,
        limits=part(BatchLimits, request),
        strategies=plan_strategies(request.strategy),
        model=cost_model(request),
        input=part(InputOptions, request),
        options=part(JobOptions, request),
    )
