"""The requests of simulate, schedule and run, and of a job whose time is predicted."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from foretrain.decoding import DURATION, FILE, SECONDS, SWITCH, TEXT, number, option, texts, whole_number
from foretrain.jobs.options import BatchLimits, EvaluationOptions, LengthOptions
from foretrain.panels import DISTURBANCES, GENERATED, JOB, MACHINES, PARALLELISM, POLICY, STORED
from foretrain.prediction.options import CostModelOptions, InputOptions
from foretrain.serving.requests import Request, StoreOption
from foretrain.workloads.options import ModelOption, TrainingOptions


def policy_help() -> str:
    """The policies, as their registry lists them."""
    from foretrain.scheduling.policies import policies

    return f"Scheduling policy: {', '.join(policies())}."


def policies_help() -> str:
    """The same where several may be compared."""
    return f"{policy_help()} Give several, comma-separated, or `all` to compare them."


@dataclass(frozen=True, kw_only=True)
class PredictedJob(
    Request,
    ModelOption,
    BatchLimits,
    TrainingOptions,
    CostModelOptions,
    InputOptions,
    LengthOptions,
    EvaluationOptions,
):
    """What a job of a job file trains and for how long, where its times are predicted."""

    PART_OF = "simulate"
    TAKES_WORKLOAD_FILE = True

    strategy: tuple[str, ...] = option(
        texts(),
        "Strategies to compare: auto (all), or a subset of ddp,zero1,zero2,zero3.",
        default=("auto",),
        panel=PARALLELISM,
    )


@dataclass(frozen=True, kw_only=True)
class ProblemFields:
    """A problem as files."""

    cluster: Path | None = option(FILE, "Cluster file (YAML): node types, prices, nodes.", panel=MACHINES)
    times: Path | None = option(
        FILE, "CSV with columns job,node_type,gpus,seconds for jobs with known run times.", panel=JOB
    )


@dataclass(frozen=True, kw_only=True)
class SimulateRequest(Request, ProblemFields):
    """The whole horizon of many jobs on a cluster under one or several policies."""

    COMMON = "cluster times policy bound html plot json"
    DETAILS = (
        "At every submission, completion, failure and price change, the policy decides which nodes are on "
        "and which jobs run there, with how many GPUs. The cost is the price of active nodes plus weight "
        "times lateness. Run times are given (--times) or predicted from the model of each job."
    )
    EXAMPLES = (
        "foretrain simulate jobs.csv --cluster cluster.yaml --times times.csv",
        "foretrain simulate jobs.csv --cluster cluster.yaml --policy auto,edf,fifo --html schedule.html",
        "foretrain simulate --generate mixed --nodes 5 --seed 1 --policy all",
    )

    jobs: Path | None = option(
        FILE, "Jobs (CSV or YAML): job,submit_seconds,deadline_seconds,weight_usd_per_second.",
        positional=True, metavar="JOBS",
    )  # fmt: skip
    policy: tuple[str, ...] = option(
        texts(), policies_help, default=("auto",), panel=POLICY, complete="policy"
    )
    bound: bool = option(
        SWITCH, "Compute a lower bound of the cost.", default=True, flags=("bound/no-bound",)
    )
    every: float | None = option(
        DURATION, "Maximum time between scheduling decisions, e.g. 10m.", panel=POLICY
    )
    seed: int = option(whole_number(0), "Random seed.", default=0, panel=DISTURBANCES)
    prediction_error: bool = option(
        SWITCH, "Draw actual run times from the prediction intervals.", default=False,
        panel=DISTURBANCES,
    )  # fmt: skip
    interruptions: bool = option(
        SWITCH, "Interrupt spot nodes at their interruption rate.", default=False, panel=DISTURBANCES
    )
    failures: float = option(number(0), "Failures per node and day.", default=0.0, panel=DISTURBANCES)
    repair: float = option(DURATION, "Repair time of a failed node.", default=3600.0, panel=DISTURBANCES)
    generate: str | None = option(
        TEXT, "Generate a problem of this family instead of reading JOBS: low, high, mixed, exponential ...",
        panel=GENERATED, metavar="FAMILY",
    )  # fmt: skip
    nodes: int | None = option(whole_number(1), "Number of nodes of the generated problem.", panel=GENERATED)
    philly: Path | None = option(
        FILE, "Replay a trace with columns timestamp,duration,num_gpus (.csv or .csv.gz).", panel=GENERATED
    )
    most_jobs: int | None = option(
        whole_number(1), "Maximum number of jobs to read from the trace.", panel=GENERATED
    )


@dataclass(frozen=True, kw_only=True)
class ScheduleRequest(Request, ProblemFields):
    """One decision from the present: which jobs run where, and what is predicted of all of them."""

    COMMON = "cluster times policy now what_if explain json"
    DETAILS = (
        "Makes one decision from the current state: which nodes are on, which jobs run there, which jobs "
        "wait. Then simulates the policy several times with random prediction errors to forecast the start, "
        "end and cost of every job. For jobs that already run, set the columns running_on (NC24:2@0 means "
        "two GPUs of node 0, an NC24) and done."
    )
    EXAMPLES = (
        "foretrain schedule jobs.csv --cluster cluster.yaml --times times.csv --explain",
        "foretrain schedule jobs.csv --cluster cluster.yaml --what-if job.yaml",
    )

    jobs: Path = option(
        FILE, "Jobs (CSV or YAML), as for `simulate`; column `running_on` gives the nodes of running jobs.",
        required=True, positional=True, metavar="JOBS",
    )  # fmt: skip
    policy: str = option(TEXT, policy_help, default="auto", metavar="NAME", panel=POLICY, complete="policy")
    now: float | None = option(
        SECONDS, "Current time on the clock of JOBS (default: time of the last submission)."
    )
    what_if: Path | None = option(FILE, "Show the effect of submitting this job (YAML) now.")
    draws: int = option(
        whole_number(1),
        "Number of simulations with random prediction errors, for intervals.",
        default=20,
        panel=DISTURBANCES,
    )
    seed: int = option(whole_number(0), "Random seed of the simulations.", default=0, panel=DISTURBANCES)


@dataclass(frozen=True, kw_only=True)
class RunRequest(Request, ProblemFields, StoreOption):
    """The jobs of a file for real, on this machine, a Ray cluster or a Slurm cluster."""

    COMMON = "cluster times policy backend name json"
    DETAILS = (
        "Each job has a command, with placeholders such as {gpus}, {checkpoint} and {progress}, or a zoo "
        "model with steps, which is trained on CPUs. You can interrupt the scheduler at any time and run it "
        "again: it picks up finished and running jobs and starts no job twice. Reports the bill next to the "
        "forecast."
    )
    EXAMPLES = (
        "foretrain run jobs.csv --cluster cluster.yaml --times times.csv",
        "foretrain run jobs.csv --cluster cluster.yaml --backend slurm --backend-option partition=gpu",
        "foretrain run jobs.csv --cluster cluster.yaml --backend ray --name nightly --folder /shared/nightly",
    )

    jobs: Path = option(
        FILE, "Jobs (CSV or YAML), as for `simulate`, each with a `command`, or a zoo `model` and `steps`.",
        required=True, positional=True, metavar="JOBS",
    )  # fmt: skip
    policy: str = option(TEXT, policy_help, default="auto", metavar="NAME", panel=POLICY, complete="policy")
    backend: str = option(
        TEXT, "Where jobs run: local, ray or slurm.", default="local", metavar="NAME", panel=MACHINES
    )
    backend_option: tuple[str, ...] = option(
        texts("KEY=VALUE", by_comma=False), "Backend option, e.g. address=auto; may be repeated.",
        default=(), metavar="KEY=VALUE", panel=MACHINES,
    )  # fmt: skip
    name: str = option(
        TEXT,
        "Name of the schedule; an existing schedule of this name is resumed.",
        default="schedule",
        metavar="NAME",
        panel=STORED,
    )
    folder: Path | None = option(
        FILE, "Folder for checkpoints and output, shared by all nodes.", metavar="FOLDER", panel=STORED
    )
    every: float | None = option(
        DURATION, "Maximum time between scheduling decisions, e.g. 10m.", panel=POLICY
    )
    seed: int = option(whole_number(0), "Random seed of the policy.", default=0, panel=POLICY)
