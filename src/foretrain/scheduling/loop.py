"""One loop for simulation and reality: a backend reports an event and its state, a policy decides.

    while backend.next_event() is not None:
        backend.apply(policy.decide(backend.state()))

A decision is the load of every node that is on. It names no node numbers: equal nodes are interchangeable.
`violations` checks it before it is carried out; `place_loads` gives each load a node, so that jobs that go on
stay where they are and nodes keep their type.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import lru_cache
from typing import ClassVar

from foretrain.errors import ForetrainError
from foretrain.scheduling.problem import Configuration
from foretrain.scheduling.state import Running, State


class EventKind(Enum):
    """What calls for a decision."""

    SUBMITTED = "submitted"
    COMPLETED = "completed"
    FAILED = "failed"
    REPAIRED = "repaired"
    INTERRUPTED = "interrupted"
    PRICE_CHANGED = "price changed"
    ELAPSED = "time elapsed"
    WOKEN = "wake-up"


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened at a time; `subject` is a job, a node or a node type."""

    seconds: float
    kind: EventKind
    subject: str = ""


@dataclass(frozen=True, slots=True)
class NodeLoad:
    """One node of a group, the type it takes, and the GPUs of each job on it."""

    group: int
    node_type: str
    shares: tuple[tuple[str, int], ...]

    @property
    def used_gpus(self) -> int:
        """GPUs in use."""
        return sum(gpus for _, gpus in self.shares)


@dataclass(frozen=True)
class Decision:
    """The loads of all nodes that are on from now; every other node is off and every other job waits.

    `wake_at` asks for another decision at that time. `notes` are remarks on how the decision was made
    (a solver's gap, a fallback); `reasons` state why single jobs wait or run as they do.
    """

    loads: tuple[NodeLoad, ...] = ()
    wake_at: float | None = None
    notes: tuple[str, ...] = ()
    reasons: Mapping[str, str] = field(default_factory=dict)

    def configurations(self) -> dict[str, Configuration]:
        """The configuration of each job that runs."""
        chosen: dict[str, Configuration] = {}
        for load in self.loads:
            for job, gpus in load.shares:
                first = chosen.get(job)
                chosen[job] = (
                    _configuration(load.node_type, gpus, 1)
                    if first is None
                    else _configuration(first.node_type, first.gpus, first.nodes + 1)
                )
        return chosen


@lru_cache(maxsize=4096)
def _configuration(node_type: str, gpus: int, nodes: int) -> Configuration:
    return Configuration(node_type, gpus, nodes)


class Backend(ABC):
    """Where jobs run."""

    @abstractmethod
    def next_event(self) -> Event | None:
        """The next event, once it happened: a simulation jumps to it, a real backend waits for it.

        None when every job has ended (or can never run).
        """

    @abstractmethod
    def state(self) -> State:
        """The state right after the last event."""

    @abstractmethod
    def apply(self, decision: Decision) -> None:
        """Carry out a decision: start, stop, move and resize jobs, switch nodes on and off."""


class Policy(ABC):
    """Decides which jobs run where. Final classes are frozen dataclasses whose fields are its parameters.

    `decide` depends on the state and these parameters alone (a random one has a `seed`), so that the same
    question has the same answer, in a simulation and on a real cluster. `forecast_by` names a quicker policy
    that stands for a slow one in forecasts of many decisions.
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    forecast_by: ClassVar[str] = ""

    @abstractmethod
    def decide(self, state: State) -> Decision:
        """What runs from now on."""


class InvalidDecision(ForetrainError):
    """A policy broke a rule: a bug of that policy, reported with the rule and the policy's name."""

    exit_code = 4
    http_status = 502


@dataclass(frozen=True, slots=True)
class LoopTurn:
    """One turn of the loop: the event, the decision, and how long deciding took."""

    event: Event
    state: State
    decision: Decision
    decision_seconds: float


def drive(
    backend: Backend, policy: Policy, observe: Callable[[LoopTurn], None] = lambda _: None, check: bool = True
) -> None:
    """Let a policy decide at every event until all jobs have ended."""
    while (event := backend.next_event()) is not None:
        state = backend.state()
        start = time.perf_counter()
        decision = policy.decide(state)
        seconds = time.perf_counter() - start
        broken = violations(state, decision) if check else ()
        if broken:
            raise InvalidDecision(f"policy {policy.name!r} made an invalid decision: {'; '.join(broken)}")
        backend.apply(decision)
        observe(LoopTurn(event, state, decision, seconds))


# ---- the check of a decision


def unchanged_nodes(state: State, loads: Sequence[NodeLoad]) -> dict[int, int]:
    """The nodes whose load stays as it is, by the position of that load."""
    groups = [state.fleet.nodes_of(group) for group in range(len(state.fleet.groups))]
    same: dict[int, int] = {}
    taken: set[int] = set()
    for position, load in enumerate(loads):
        job = state.jobs.get(load.shares[0][0]) if load.shares else None
        if job is None or job.running is None or not 0 <= load.group < len(groups):
            continue
        for number in job.running.nodes:
            node = state.nodes[number]
            is_same = node.shares == load.shares and node.node_type == load.node_type
            if is_same and number not in taken and number in groups[load.group]:
                same[position] = number
                taken.add(number)
                break
    return same


def violations(state: State, decision: Decision) -> tuple[str, ...]:
    """Every way in which a decision breaks the rules; empty for a valid one.

    Loads that stay as they are were valid before; only the others are looked at one by one.
    """
    same = unchanged_nodes(state, decision.loads)
    if not same:
        return tuple(_violations(state, decision, frozenset()))
    changed = tuple(load for position, load in enumerate(decision.loads) if position not in same)
    kept = frozenset(same.values())
    if any(_runs_on(state, name, kept) for load in changed for name, _ in load.shares):
        return tuple(_violations(state, decision, frozenset()))
    used = Counter(load.group for load in decision.loads)
    too_many = [
        f"{count} nodes of group {group} are used, but there are {state.available(group)}"
        for group, count in used.items()
        if 0 <= group < len(state.fleet.groups) and count > state.available(group)
    ]
    return (*too_many, *_violations(state, Decision(changed), kept))


def _runs_on(state: State, name: str, nodes: frozenset[int]) -> bool:
    """Whether a job runs on one of these nodes."""
    job = state.jobs.get(name)
    return job is not None and job.running is not None and not nodes.isdisjoint(job.running.nodes)


def _violations(state: State, decision: Decision, kept: frozenset[int]) -> Iterator[str]:
    """The violations of a decision on all nodes but those that are `kept` as they are."""
    yield from _node_violations(state, decision)
    chosen = decision.configurations()
    sharing = {name for load in decision.loads if len(load.shares) > 1 for name, _ in load.shares}
    for name, configuration in chosen.items():
        job = state.jobs.get(name)
        if job is None:
            yield f"{name} is not an active job"
        elif configuration not in job.job.seconds:
            yield f"{name} has no time on {configuration}"
        elif configuration.nodes > 1 and name in sharing:
            yield f"{name} spans nodes that it does not have to itself"
    yield from _split_violations(decision)
    fixed = {name: where for name, where in state.fixed.items() if kept.isdisjoint(where.nodes)}
    yield from _fixed_violations(state, decision, chosen, fixed)


def _node_violations(state: State, decision: Decision) -> Iterator[str]:
    used: Counter[int] = Counter()
    for load in decision.loads:
        if not 0 <= load.group < len(state.fleet.groups):
            yield f"there is no group {load.group} of nodes"
            continue
        used[load.group] += 1
        group = state.fleet.groups[load.group]
        if load.node_type not in group.types:
            yield f"nodes of group {load.group} cannot be of type {load.node_type}"
        elif (used_gpus := load.used_gpus) > (gpus := state.fleet.types[load.node_type].gpus):
            yield f"{used_gpus} GPUs are used on a {load.node_type}, which has {gpus}"
        if not load.shares or min(gpus for _, gpus in load.shares) < 1:
            yield f"a {load.node_type} is on without a job, or with a job on no GPU"
    for number, count in used.items():
        if count > state.available(number):
            yield f"{count} nodes of group {number} are used, but there are {state.available(number)}"


def _split_violations(decision: Decision) -> Iterator[str]:
    """A job on several nodes uses the same type and number of GPUs on each; on one node it appears once."""
    first: dict[str, tuple[int, str, int]] = {}
    divided: set[str] = set()
    for load in decision.loads:
        if len(load.shares) > 1 and len(dict(load.shares)) < len(load.shares):
            names = [name for name, _ in load.shares]
            for name in sorted({name for name in names if names.count(name) > 1}):
                yield f"{name} appears twice on one node"
        for name, gpus in load.shares:
            place = (load.group, load.node_type, gpus)
            if first.setdefault(name, place) != place:
                divided.add(name)
    for name in sorted(divided):
        yield f"{name} is divided over different kinds of nodes"


def _fixed_violations(
    state: State, decision: Decision, chosen: Mapping[str, Configuration], fixed: Mapping[str, Running]
) -> Iterator[str]:
    """Jobs that may not be stopped keep their configuration and their nodes."""
    for name, running in fixed.items():
        if chosen.get(name) != running.configuration:
            yield f"{name} may not be stopped or resized now"
    if not fixed:
        return
    loads_of: dict[tuple[int, ...], set[int]] = defaultdict(set)
    for position, load in enumerate(decision.loads):
        here = {fixed[name].nodes for name, _ in load.shares if name in fixed}
        if len(here) > 1:
            yield f"jobs that may not be moved are put together on one {load.node_type}"
        for nodes in here:
            loads_of[nodes].add(position)
            if state.fleet.group_of(nodes[0]) != load.group:
                yield f"jobs of node {nodes[0]} may not be moved to another group now"
    for nodes, positions in loads_of.items():
        if len(positions) > len(nodes):
            yield f"jobs of node {nodes[0]} that may not be moved are divided over several nodes"


# ---- which node takes which load


def place_loads(state: State, decision: Decision) -> dict[int, NodeLoad]:
    """The load of each node that is on; decisions that break the rules of `violations` are not accepted."""
    # First loads that stay as they are, then those with jobs in common, most GPUs first: as few jobs as
    # possible move. What is left takes any node, one of its type that is on before one that is off.
    same = unchanged_nodes(state, decision.loads)
    result = {node: decision.loads[position] for position, node in same.items()}
    changed = [load for position, load in enumerate(decision.loads) if position not in same]
    matched: set[int] = set()
    for (_, _, position, _), load, node in sorted(_overlaps(state, changed), key=lambda each: each[0]):
        if node not in result and position not in matched:
            result[node] = load
            matched.add(position)
    _fill(state, [load for position, load in enumerate(changed) if position not in matched], result)
    return result


def nodes_by_job(loads: Mapping[int, NodeLoad]) -> dict[str, tuple[int, ...]]:
    """The nodes of each job that runs."""
    nodes: dict[str, list[int]] = {}
    for node in sorted(loads):
        for name, _ in loads[node].shares:
            nodes.setdefault(name, []).append(node)
    return {name: tuple(numbers) for name, numbers in nodes.items()}


def goes_on(running: Running, name: str, loads: Mapping[int, NodeLoad]) -> bool:
    """Whether a job that keeps its nodes also keeps their type and its GPUs."""
    load = loads[running.nodes[0]]
    same_type = load.node_type == running.configuration.node_type
    return same_type and (name, running.configuration.gpus) in load.shares


def _overlaps(
    state: State, loads: Sequence[NodeLoad]
) -> Iterator[tuple[tuple[bool, int, int, int], NodeLoad, int]]:
    """Loads and nodes that have jobs in common, the most important matches first."""
    fixed = state.fixed
    numbers = [state.fleet.nodes_of(group) for group in range(len(state.fleet.groups))]
    for position, load in enumerate(loads):
        common: dict[int, int] = {}
        stays: set[int] = set()
        for name, gpus in load.shares:
            running = state.jobs[name].running
            if running is None:
                continue
            for node in running.nodes:
                if state.nodes[node].node_type == load.node_type:
                    common[node] = common.get(node, 0) + gpus
                    if name in fixed:
                        stays.add(node)
        for node, gpus in common.items():
            if node in numbers[load.group]:
                yield (node not in stays, -gpus, position, node), load, node


def _fill(state: State, waiting: Sequence[NodeLoad], result: dict[int, NodeLoad]) -> None:
    """Give the loads without a match a node: one of the same type that is on, else any free one."""
    for index in range(len(state.fleet.groups)):
        loads = [load for load in waiting if load.group == index]
        if not loads:
            continue
        free = [node for node in state.fleet.nodes_of(index) if node not in result and node not in state.lost]
        on: dict[str, list[int]] = {}
        for node in reversed(free):
            if node in state.nodes:
                on.setdefault(state.nodes[node].node_type, []).append(node)
        others = [load for load in loads if not _reuse(load, on, result)]
        left = [node for node in free if node not in result]
        off_first = sorted(left, key=lambda node: node in state.nodes)
        result.update(zip(off_first, others, strict=False))


def _reuse(load: NodeLoad, on: dict[str, list[int]], result: dict[int, NodeLoad]) -> bool:
    nodes = on.get(load.node_type)
    if not nodes:
        return False
    result[nodes.pop()] = load
    return True
