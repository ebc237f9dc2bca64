"""A lower bound of what a problem can cost under any policy, even one that knows all submissions in advance.

It is the optimum of a linear program that every schedule satisfies. Time is cut at boundaries
τ_0 < τ_1 < ... < τ_K = ∞, and x[j,c,k] is the share of job j done on configuration c between τ_k and τ_k+1.
With seconds p[j,c] and the price of a configuration's GPUs as a share of their nodes,

    minimise   Σ x[j,c,k] · p[j,c] · usd[c]  +  Σ_j weight_j · L_j
    such that  Σ_c,k x[j,c,k] = 1                                      all work is done
               Σ_c x[j,c,k] · p[j,c] <= time of interval k after the submission of j
               Σ_j,c x[j,c,k] · p[j,c] · share of nodes[c] <= nodes · length of interval k, each kind
               L_j >= ∫_d^τ u_j + p_j · u_j(τ)   for boundaries τ >= d_j

where u_j(τ) is the share left at τ, d_j the deadline and p_j the fastest time.

Why it is a bound: take any schedule and let x be the shares it does.
- A job runs on one configuration at a time, not before its submission: the second constraint.
- At each moment the GPUs in use on a node are at most those it has: the third. Groups of nodes that have a
  type in common are counted together, which only relaxes it.
- Nodes are paid in full, so GPUs cost at least their share of the node. Start-up, billing units, switching
  and lost work only add to it. Prices are those of the problem, so changes of price are not covered.
- For τ >= d the job is unfinished at least for ∫_d^τ u_j seconds between d and τ, since u_j <= 1; and if it
  is unfinished at τ it takes at least p_j · u_j(τ) more. So lateness satisfies the last constraint. u_j
  decreases, so its value at the end of an interval bounds it from below inside.

Jobs that a simulation rejects (they fit nowhere, or cost more than their budget) are left out, as they cost
nothing there. All others are assumed to end.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from foretrain.errors import ForetrainError
from foretrain.scheduling.problem import Configuration, Fleet, Problem, SubmittedJob, runnable

_INTERVALS = 100
_ROUNDING = 1e-6
"""Relative tolerance of the solver, subtracted from its optimum."""

Array = np.ndarray[Any, np.dtype[np.float64]]
Numbers = np.ndarray[Any, np.dtype[np.int64]]


class BoundFailed(ForetrainError):
    """The solver found no optimum of the linear program."""

    exit_code = 4
    http_status = 502


@dataclass(frozen=True)
class _Choices:
    """The configurations of a job that are not dominated; all amounts are for the whole job."""

    job: SubmittedJob
    seconds: Array
    usd: Array
    node_seconds: Array
    kinds: tuple[int, ...]


def lower_bound_usd(problem: Problem, intervals: int = _INTERVALS) -> float:
    """A lower bound of the total cost: execution and lateness. More intervals make it tighter."""
    kinds = _kinds_of_nodes(problem.fleet)
    choices = [
        _choices(job, problem.fleet, kinds) for job in problem.jobs if _is_accepted(job, problem.fleet)
    ]
    if not choices:
        return 0.0
    nodes = [0] * (max(kinds) + 1)
    for group, kind in zip(problem.fleet.groups, kinds, strict=True):
        nodes[kind] += group.count
    program = _Program(_boundaries(choices, nodes, intervals), nodes)
    for each in choices:
        program.add(each)
    return program.solve()


def _is_accepted(job: SubmittedJob, fleet: Fleet) -> bool:
    configurations = runnable(job, fleet)
    least = min(
        (job.seconds[each] * _usd_per_second(each, fleet) for each in configurations), default=math.inf
    )
    return bool(configurations) and least <= job.budget_usd


def _usd_per_second(configuration: Configuration, fleet: Fleet) -> float:
    node_type = fleet.types[configuration.node_type]
    return node_type.usd_per_second * configuration.nodes * configuration.gpus / node_type.gpus


def _kinds_of_nodes(fleet: Fleet) -> list[int]:
    """A number for each group; groups with a type in common, directly or not, have the same."""
    kinds = list(range(len(fleet.groups)))
    for one, first in enumerate(fleet.groups):
        for other, second in enumerate(fleet.groups[:one]):
            if set(first.types) & set(second.types):
                merged, into = kinds[one], kinds[other]
                kinds = [into if kind == merged else kind for kind in kinds]
    numbers = {kind: number for number, kind in enumerate(dict.fromkeys(kinds))}
    return [numbers[kind] for kind in kinds]


def _choices(job: SubmittedJob, fleet: Fleet, kinds: Sequence[int]) -> _Choices:
    kind_of = {name: kinds[index] for index, group in enumerate(fleet.groups) for name in group.types}
    rows = sorted(
        (
            job.seconds[each],
            job.seconds[each] * _usd_per_second(each, fleet),
            job.seconds[each] * each.nodes * each.gpus / fleet.types[each.node_type].gpus,
            kind_of[each.node_type],
        )
        for each in runnable(job, fleet)
    )
    kept: list[tuple[float, float, float, int]] = []
    for row in rows:
        if not any(other[1] <= row[1] and other[2] <= row[2] and other[3] == row[3] for other in kept):
            kept.append(row)
    seconds, usd, node_seconds = (np.array([row[column] for row in kept]) for column in range(3))
    return _Choices(job, seconds, usd, node_seconds, tuple(row[3] for row in kept))


def _boundaries(choices: Sequence[_Choices], nodes: Sequence[int], intervals: int) -> Array:
    """Submissions and deadlines (or some of them), and even steps to a time when all could be done."""
    first = min(each.job.submit_seconds for each in choices)
    marks = sorted(
        {time for each in choices for time in (each.job.submit_seconds, each.job.deadline_seconds)}
    )
    marks = [time for time in marks if time >= first]
    if len(marks) > 2 * intervals // 3:
        marks = [marks[round(at)] for at in np.linspace(0, len(marks) - 1, 2 * intervals // 3)]
    busy = sum(float(each.node_seconds.min()) for each in choices) / min(nodes)
    slowest = max(float(each.seconds.min()) for each in choices)
    last = max(each.job.submit_seconds for each in choices) + busy + slowest
    even = np.linspace(first, max(last, marks[-1]), max(4, intervals - len(marks)))
    return np.unique(np.concatenate([marks, even]))


class _Program:
    """The linear program, built job by job as sparse triplets."""

    def __init__(self, boundaries: Array, nodes: Sequence[int]) -> None:
        self._starts = boundaries
        self._ends = np.append(boundaries[1:], math.inf)
        self._last = len(boundaries) - 1
        self._costs: list[Array] = []
        self._variables = 0
        self._upper = _Rows()
        self._equal = _Rows()
        limited = self._ends[:-1] - self._starts[:-1]
        self._capacity_rows = [
            [self._upper.new(count * float(length)) for length in limited] for count in nodes
        ]

    def _new(self, costs: Array) -> Numbers:
        """New variables, at least 0."""
        self._costs.append(costs)
        numbers = np.arange(self._variables, self._variables + len(costs), dtype=np.int64)
        self._variables += len(costs)
        return numbers

    def add(self, choices: _Choices) -> None:
        """Variables and constraints of one job."""
        job = choices.job
        first = int(np.searchsorted(self._ends, job.submit_seconds, side="right"))
        periods = range(first, self._last + 1)
        work = self._new(np.tile(choices.usd, len(periods))).reshape(len(periods), -1)
        lateness = int(self._new(np.array([job.weight_usd_per_second]))[0])
        for position, period in enumerate(periods[:-1]):
            available = self._ends[period] - max(self._starts[period], job.submit_seconds)
            self._upper.add(self._upper.new(available), work[position], choices.seconds)
            for kind in set(choices.kinds):
                here = np.array([each == kind for each in choices.kinds])
                row = self._capacity_rows[kind][period]
                self._upper.add(row, work[position][here], choices.node_seconds[here])
        self._add_lateness(job, periods, work, lateness)

    def _add_lateness(self, job: SubmittedJob, periods: range, work: Numbers, lateness: int) -> None:
        """Shares left at the ends of intervals from the deadline on, and the lateness that follows."""
        due = max(job.deadline_seconds, job.submit_seconds)
        late = max(int(np.searchsorted(self._ends, due - 1e-9, side="left")) - periods[0], 0)
        before = self._equal.new(1.0)
        self._equal.add(before, work[: late + 1].ravel(), np.ones(work[: late + 1].size))
        left = self._new(np.zeros(len(periods) - 1 - late))
        if not len(left):  # due in the last interval, which has no end
            return
        self._equal.add(before, left[:1], np.ones(1))
        for step in range(1, len(periods) - late):
            row = self._equal.new(0.0)
            now = work[late + step]
            self._equal.add(row, now, np.ones(len(now)))
            self._equal.add(row, left[step - 1 : step], -np.ones(1))
            self._equal.add(row, left[step : step + 1], np.ones(len(left[step : step + 1])))
        ends = self._ends[periods[0] + late : periods[-1]]
        lengths = np.diff(ends, prepend=due)
        for step in sorted({0, *(2**power for power in range(20)), len(left) - 1}):
            if step < len(left):
                weights = lengths[: step + 1].copy()
                weights[step] += job.fastest_seconds
                row = self._upper.new(job.deadline_seconds - due)
                self._upper.add(row, left[: step + 1], weights)
                self._upper.add(row, np.array([lateness]), -np.ones(1))

    def solve(self) -> float:
        """The optimum, less the tolerance of the solver."""
        from scipy.optimize import linprog

        answer = linprog(
            np.concatenate(self._costs),
            A_ub=self._upper.matrix(self._variables),
            b_ub=self._upper.limits,
            A_eq=self._equal.matrix(self._variables),
            b_eq=self._equal.limits,
            method="highs",
        )
        if answer.status != 0:
            raise BoundFailed(f"no lower bound: the solver reports {answer.message!r}")
        return max(0.0, float(answer.fun) * (1 - _ROUNDING))


class _Rows:
    """Rows of a sparse matrix with their limits."""

    def __init__(self) -> None:
        self.limits: list[float] = []
        self._entries: list[tuple[int, Numbers, Array]] = []

    def new(self, limit: float) -> int:
        """The number of a new row."""
        self.limits.append(float(limit))
        return len(self.limits) - 1

    def add(self, row: int, columns: Numbers, values: Array) -> None:
        """Coefficients of a row."""
        self._entries.append((row, columns, values))

    def matrix(self, columns: int) -> Any:
        """The matrix in compressed rows."""
        from scipy.sparse import csr_matrix

        numbers = np.concatenate([np.full(len(at), row) for row, at, _ in self._entries])
        where = np.concatenate([at for _, at, _ in self._entries])
        values = np.concatenate([each for _, _, each in self._entries])
        return csr_matrix((values, (numbers, where)), shape=(len(self.limits), columns))
