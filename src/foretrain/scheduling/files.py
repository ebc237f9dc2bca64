"""The files of a scheduling problem: jobs (CSV or YAML) and the times of jobs (CSV).

    job,submit_seconds,deadline_seconds,weight_usd_per_second        job,node_type,gpus,seconds
    a,0,3600,0.002                                                    a,NC6,1,5400

Optional columns of jobs are the fields of `JobEntry`, and the options of a verb that predicts how long a job
with a `model` takes (`samples`, `epochs`, `batch` ...), which are kept as they are written. An empty cell is
not given. A YAML file lists the same keys under `jobs`; there, `times` may hold the rows of a job's times.
GPU counts between those of a file are not interpolated: a job runs only where its time is given.
"""

from __future__ import annotations

import csv
import math
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from foretrain.decoding import (
    MONEY,
    TEXT,
    OptionKind,
    Unreadable,
    build,
    number,
    option,
    options,
    read_mapping,
    records,
    values,
    whole_number,
)
from foretrain.errors import InvalidData, InvalidRequest, MissingData, UnknownName
from foretrain.estimates import Quantiles
from foretrain.scheduling.loop import Decision, NodeLoad, violations
from foretrain.scheduling.problem import Configuration, Problem, SubmittedJob, Switching, runnable
from foretrain.scheduling.state import JobState, NodeState, Running, State

T = TypeVar("T")
YAML_SUFFIXES = (".yaml", ".yml")
_YAML_EXAMPLE = "jobs: [{job: a, submit_seconds: 0, deadline_seconds: 3600, weight_usd_per_second: 0.002}]"
_WORDS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}


def _read_yes_no(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    answer = _WORDS.get(str(value).strip().lower())
    if answer is None:
        raise Unreadable
    return answer


def _read_name(value: Any) -> str:
    """A name; YAML reads `job: 7` as a number."""
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise Unreadable
    name = str(value).strip()
    if not name or not name.isprintable():
        raise Unreadable
    return name


class RunningOn(NamedTuple):
    """Where a job runs: its configuration, and the numbers of its nodes."""

    configuration: Configuration
    nodes: tuple[int, ...]


def _read_running_on(value: Any) -> RunningOn:
    match = re.fullmatch(r"(.+):(\d+)@(\d+(?:\+\d+)*)", value.strip()) if isinstance(value, str) else None
    if match is None:
        raise Unreadable
    nodes = tuple(int(number_of) for number_of in match[3].split("+"))
    if int(match[2]) < 1 or len(set(nodes)) < len(nodes):
        raise Unreadable
    return RunningOn(Configuration(match[1], int(match[2]), len(nodes)), nodes)


RUNNING_ON = OptionKind(
    "TYPE:GPUS@NODE", "NODE_TYPE:GPUS@NODE, e.g. NC24:2@0 or, on two nodes, NC24:4@0+1", _read_running_on
)
YES_NO = OptionKind("YES|NO", "yes or no", _read_yes_no)
NAME = OptionKind("NAME", "a name", _read_name)
_SECONDS = number(at_least=0)


@dataclass(frozen=True, kw_only=True)
class TimeEntry:
    """The time of a whole job on one configuration, with an interval where it is known."""

    node_type: str = option(NAME, "Type of the nodes.", required=True)
    gpus: int = option(whole_number(1), "GPUs on each node.", required=True)
    seconds: float = option(number(above=0), "Time of the whole job.", required=True)
    nodes: int = option(whole_number(1), "Nodes.", default=1)
    p10_seconds: float | None = option(number(above=0), "10th percentile of the time.")
    p90_seconds: float | None = option(number(above=0), "90th percentile of the time.")

    def __post_init__(self) -> None:
        low = self.seconds if self.p10_seconds is None else self.p10_seconds
        high = self.seconds if self.p90_seconds is None else self.p90_seconds
        if not low <= self.seconds <= high:
            raise InvalidRequest(
                f"`seconds` {self.seconds:g} is the median: it lies between `p10_seconds` and `p90_seconds`, "
                f"not outside {low:g} to {high:g}"
            )

    @property
    def configuration(self) -> Configuration:
        """Where this time holds."""
        return Configuration(self.node_type, self.gpus, self.nodes)

    @property
    def quantiles(self) -> Quantiles:
        """The time with its interval; without one it is exact."""
        low = self.seconds if self.p10_seconds is None else self.p10_seconds
        high = self.seconds if self.p90_seconds is None else self.p90_seconds
        return Quantiles(low, self.seconds, high)


@dataclass(frozen=True, kw_only=True)
class JobEntry:
    """A job as it is written in a file. A deadline may lie before the submission: such a job is late."""

    job: str = option(NAME, "Name, once in a file.", required=True)
    submit_seconds: float = option(_SECONDS, "When it is submitted.", required=True)
    deadline_seconds: float = option(number(), "When it is due, on the same clock.", required=True)
    weight_usd_per_second: float = option(_SECONDS, "What a second of lateness costs.", required=True)
    priority: float = option(number(), "Higher first, where a policy asks for it.", default=0.0)
    user: str = option(NAME, "Who pays, for the caps of users.", default="")
    budget_usd: float | None = option(MONEY, "Most that may be spent on it.")
    movable: bool = option(YES_NO, "Whether it may be stopped, moved and resized.", default=True)
    start_seconds: float = option(_SECONDS, "Time of every start before it progresses.", default=0.0)
    checkpoint_seconds: float = option(_SECONDS, "Time to save it when it is stopped.", default=0.0)
    restart_seconds: float = option(_SECONDS, "Time to load it when it is started again.", default=0.0)
    migration_seconds: float = option(_SECONDS, "More of it on another node.", default=0.0)
    minimum_run_seconds: float = option(_SECONDS, "Least time between start and stop.", default=0.0)
    checkpoint_every_seconds: float = option(
        _SECONDS,
        "Work between two checkpoints, lost at most when a node fails (0: none is lost).",
        default=0.0,
    )
    max_nodes: int = option(whole_number(1), "Most nodes it may span, where its time is known.", default=1)
    command: str | None = option(TEXT, "What a real run starts.")
    done: float = option(number(at_least=0, at_most=1), "Share of its work that is done.", default=0.0)
    running_on: RunningOn | None = option(
        RUNNING_ON, "Where it runs at present: NODE_TYPE:GPUS@NODE, on several nodes @0+1."
    )
    started_seconds: float | None = option(_SECONDS, "When it was started there.")
    spent_usd: float = option(MONEY, "What its nodes have cost so far.", default=0.0)
    times: tuple[TimeEntry, ...] = option(
        records(TimeEntry, "{node_type: NC6, gpus: 1, seconds: 5400}"),
        "Its times, in a YAML file.",
        default=(),
    )


@dataclass(frozen=True)
class JobFile:
    """The jobs of a file; `places` says where each was read, for errors about it further on.

    `predicted` holds the options of jobs whose times are predicted, by job and name.
    """

    file: str
    entries: tuple[JobEntry, ...]
    predicted: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    places: Mapping[str, str] = field(default_factory=dict)

    def error(self, job: str, problem: object) -> InvalidData:
        """The error about one job."""
        return InvalidData(self.file, f"{self.places.get(job, job)}: {problem}")


@dataclass(frozen=True)
class JobTimes:
    """Times of a whole job, the relative interval of them, and why other configurations are left out."""

    seconds: Mapping[Configuration, float]
    spread: Quantiles = field(default_factory=lambda: Quantiles(1.0, 1.0, 1.0))
    left_out: Mapping[Configuration, str] = field(default_factory=dict)


def read_jobs(file: Path, predicted: Collection[str] = ()) -> JobFile:
    """The jobs of a file. `predicted` are the names of options that predict times; any other is refused."""
    rows = _yaml_rows(file) if file.suffix.lower() in YAML_SUFFIXES else _csv_rows(file)
    return _job_file(file, rows, frozenset(predicted))


def read_job(file: Path, predicted: Collection[str], now: float) -> JobFile:
    """One job, submitted `now`: the same keys in a YAML file, without `jobs` and `submit_seconds`."""
    content = {"submit_seconds": now, **read_mapping(file, "job file", "job: a")}
    rows = _yaml_rows(file) if "jobs" in content else iter([("the job", content)])
    jobs = _job_file(file, rows, frozenset(predicted))
    if len(jobs.entries) != 1:
        raise InvalidData(str(file), f"holds {len(jobs.entries)} jobs; give one")
    return jobs


def read_times(file: Path, node_types: Collection[str]) -> dict[str, tuple[TimeEntry, ...]]:
    """The times of each job of a CSV file, on node types of the cluster."""
    times: dict[str, list[TimeEntry]] = {}
    seen: dict[tuple[str, Configuration], str] = {}
    for place, cells in _csv_rows(file):
        job = cells.pop("job", None)
        entry = _decode_row(TimeEntry, cells, file, place)
        if job is None:
            raise InvalidData(str(file), f"{place}: `job` is required: the job that takes this time")
        try:
            check_node_types((entry,), node_types)
        except UnknownName as reason:
            raise InvalidData(str(file), f"{place}: {reason}") from reason
        earlier = seen.setdefault((job, entry.configuration), place)
        if earlier != place:
            raise InvalidData(
                str(file), f"{place}: {job} on {entry.configuration} stands in {earlier} already"
            )
        times.setdefault(job, []).append(entry)
    if not times:
        raise InvalidData(str(file), "has no rows below its header `job,node_type,gpus,seconds`")
    return {job: tuple(entries) for job, entries in times.items()}


def check_node_types(entries: Collection[TimeEntry], known: Collection[str]) -> None:
    """Refuse times on node types that a cluster does not have."""
    for entry in entries:
        if entry.node_type not in known:
            raise UnknownName("node type", entry.node_type, known, f"The cluster has {', '.join(known)}.")


def times_of(entries: Collection[TimeEntry]) -> JobTimes:
    """Given times. The relative interval of a job is the median of those of its configurations."""
    relative = [(each.quantiles.p10 / each.seconds, each.quantiles.p90 / each.seconds) for each in entries]
    return JobTimes({each.configuration: each.seconds for each in entries}, middle_spread(relative))


def middle_spread(relative: Collection[tuple[float, float]]) -> Quantiles:
    """The median of relative intervals (p10 and p90 over p50)."""
    if not relative:
        return Quantiles(1.0, 1.0, 1.0)
    low = sorted(low for low, _ in relative)
    high = sorted(high for _, high in relative)
    return Quantiles(low[len(low) // 2], 1.0, high[len(high) // 2])


def job_from(entry: JobEntry, times: JobTimes) -> SubmittedJob:
    """The job of an entry, with its times; on several nodes only up to its `max_nodes`, if it has one."""
    return SubmittedJob(
        name=entry.job,
        submit_seconds=entry.submit_seconds,
        deadline_seconds=entry.deadline_seconds,
        weight_usd_per_second=entry.weight_usd_per_second,
        seconds={each: seconds for each, seconds in times.seconds.items() if each.nodes <= entry.max_nodes},
        priority=entry.priority,
        user=entry.user,
        budget_usd=math.inf if entry.budget_usd is None else entry.budget_usd,
        spread=times.spread,
        switching=Switching(**{each.name: getattr(entry, each.name) for each in fields(Switching)}),
    )


# ---------------------------------------------------------------- rows


def _job_file(file: Path, rows: Iterator[tuple[str, dict[str, Any]]], predicted: frozenset[str]) -> JobFile:
    own = {each.name for each in options(JobEntry)}
    entries: dict[str, JobEntry] = {}
    places: dict[str, str] = {}
    more: dict[str, dict[str, Any]] = {}
    for place, cells in rows:
        given = {name: value for name, value in cells.items() if name in own or name not in predicted}
        entry = _decode_row(JobEntry, given, file, place)
        if entry.job in entries:
            problem = f"job {entry.job!r} stands in {places[entry.job]} already; name each job once"
            raise InvalidData(str(file), f"{place}: {problem}")
        entries[entry.job] = entry
        places[entry.job] = place
        rest = {name: value for name, value in cells.items() if name not in given and value is not None}
        if rest:
            more[entry.job] = rest
    return JobFile(str(file), tuple(entries.values()), more, places)


def _decode_row(cls: type[T], cells: Mapping[str, Any], file: Path, place: str) -> T:
    try:
        return build(cls, values(cls, cells))
    except InvalidRequest as reason:
        raise InvalidData(str(file), f"{place}: {reason}") from reason


def _csv_rows(file: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """The rows of a CSV file as (row 2, cells); empty cells are left out."""
    try:
        with file.open(encoding="utf-8-sig", newline="") as stream:
            lines = csv.DictReader(stream, skipinitialspace=True, strict=True)
            columns = [str(name).strip() for name in lines.fieldnames or ()]
            _check_header(file, columns)
            lines.fieldnames = columns
            for line in lines:
                yield _row(file, f"row {lines.line_num}", line)
    except FileNotFoundError:
        raise MissingData(f"there is no file {str(file)!r}; give a CSV file with a header") from None
    except IsADirectoryError:
        raise InvalidRequest(f"{str(file)!r} is a folder; name a CSV file") from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise InvalidData(str(file), f"is not a CSV file: {error}") from error


def _check_header(file: Path, columns: list[str]) -> None:
    if not columns:
        raise InvalidData(str(file), "is empty; its first row names the columns, beginning with `job`")
    if "job" not in columns:
        raise InvalidData(str(file), f"row 1: no column `job`; the columns are {', '.join(columns)}")
    repeated = sorted({name for name in columns if columns.count(name) > 1})
    if repeated:
        raise InvalidData(str(file), f"row 1: the column {repeated[0]!r} is listed more than once")


def _row(file: Path, place: str, line: Mapping[Any, Any]) -> tuple[str, dict[str, Any]]:
    if None in line:
        raise InvalidData(str(file), f"{place}: more cells than columns ({', '.join(line[None])})")
    if any(value is None for value in line.values()):
        missing = next(name for name, value in line.items() if value is None)
        raise InvalidData(str(file), f"{place}: ends before the column {missing}")
    return place, {name: value.strip() for name, value in line.items() if value.strip()}


def _yaml_rows(file: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    content = read_mapping(file, "job file", _YAML_EXAMPLE)
    unknown = [key for key in content if key != "jobs"]
    if unknown or not isinstance(content.get("jobs"), list):
        problem = f"has the key {unknown[0]!r}" if unknown else "has no list `jobs`"
        raise InvalidData(str(file), f"{problem}; write `{_YAML_EXAMPLE}`")
    for number_of, entry in enumerate(content["jobs"], 1):
        if not isinstance(entry, Mapping):
            raise InvalidData(str(file), f"entry {number_of}: {entry!r} is not a list of `key: value` lines")
        yield f"entry {number_of}", {str(key): value for key, value in entry.items()}


# ---------------------------------------------------------------- the present


def present_state(problem: Problem, entries: Iterable[JobEntry], now: float) -> State:
    """The state at `now`: jobs that were submitted by then and are unfinished.

    Jobs that fit on no node are not in it. What runs must be possible at once: GPUs and nodes are checked.
    """
    by_name = {each.job: each for each in entries}
    jobs: dict[str, JobState] = {}
    for job in problem.jobs:
        entry = by_name[job.name]
        if job.submit_seconds > now or entry.done >= 1:
            if entry.running_on is not None:
                raise InvalidRequest(
                    f"job {job.name!r} cannot run at {now:g} s: it is not submitted, or done"
                )
            continue
        if entry.running_on is not None or runnable(job, problem.fleet):
            jobs[job.name] = _job_state(job, entry, now)
    state = State(
        now=now,
        fleet=problem.fleet,
        jobs=jobs,
        nodes=_nodes(problem, jobs, now),
        caps=problem.caps,
    )
    begun = replace(state, nodes={}, jobs={name: replace(job, running=None) for name, job in jobs.items()})
    broken = violations(begun, Decision(tuple(_loads(state))))
    if broken:
        raise InvalidRequest(f"what runs at present is not possible: {'; '.join(broken)}")
    return state


def _job_state(job: SubmittedJob, entry: JobEntry, now: float) -> JobState:
    running = None
    if entry.running_on is not None:
        if entry.running_on.configuration not in job.seconds:
            raise InvalidRequest(
                f"job {job.name!r} runs on {entry.running_on.configuration}: its time there is unknown"
            )
        started = job.submit_seconds if entry.started_seconds is None else entry.started_seconds
        running = Running(entry.running_on.nodes, entry.running_on.configuration, min(started, now), now)
    return JobState(
        job,
        work_left=1.0 - entry.done,
        counted_at=now,
        running=running,
        spent_usd=entry.spent_usd,
        starts=int(running is not None or entry.done > 0),
    )


def _nodes(problem: Problem, jobs: dict[str, JobState], now: float) -> dict[int, NodeState]:
    shares: dict[int, list[tuple[str, int]]] = defaultdict(list)
    types: dict[int, str] = {}
    since: dict[int, float] = {}
    for name, job in jobs.items():
        running = job.running
        for node in () if running is None else running.nodes:
            assert running is not None
            if not 0 <= node < problem.fleet.nodes:
                raise InvalidRequest(
                    f"job {name!r} runs on node {node}, but nodes are numbered 0 to {problem.fleet.nodes - 1}"
                )
            node_type = types.setdefault(node, running.configuration.node_type)
            if node_type != running.configuration.node_type:
                raise InvalidRequest(f"node {node} is a {node_type} for one job and a "
                                     f"{running.configuration.node_type} for {name!r}")  # fmt: skip
            shares[node].append((name, running.configuration.gpus))
            since[node] = min(since.get(node, now), running.started_seconds)
    return {node: NodeState(node, types[node], since[node], tuple(shares[node])) for node in sorted(types)}


def _loads(state: State) -> Iterable[NodeLoad]:
    for node in state.nodes.values():
        yield NodeLoad(state.fleet.group_of(node.number), node.node_type, node.shares)
