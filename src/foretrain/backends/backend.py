"""The backend that carries decisions out: one for every kind of cluster, which an executor hides.

What a decision changes is stored before it is done (an attempt is `starting`) and again afterwards (its
handle). A process that dies in between leaves an attempt that the next one finds by its key, or that never
began; the file `owner` of a job then keeps a late start from running beside the next attempt.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from foretrain.backends.answer import RunSlot, SlotForecast, compare_slots, slot_forecast
from foretrain.backends.attempts import Attempts, RunOptions
from foretrain.backends.clock import ScheduleClock, resume_clock
from foretrain.backends.executors._base import Attempt, Executor
from foretrain.backends.job_files import Exit, JobCommand, attempt_folder, last_output
from foretrain.backends.node_book import HostMap, NodeBook, NodeInterval, interval_of, unused_usd
from foretrain.backends.records import (
    COMPLETED,
    ENDED,
    FAILED,
    REJECTED,
    RUNNING,
    STARTED,
    STARTING,
    WAITING,
    JobRecord,
    LiveAttempt,
    job_outcome,
    job_record,
    origin_of,
)
from foretrain.errors import BackendFailed, InvalidRequest
from foretrain.scheduling.accounting import Outcome, decision_times
from foretrain.scheduling.loop import (
    Backend,
    Decision,
    Event,
    EventKind,
    NodeLoad,
    goes_on,
    nodes_by_job,
    place_loads,
)
from foretrain.scheduling.problem import Configuration, Problem, SubmittedJob, runnable
from foretrain.scheduling.state import JobState, Running, State, month_of
from foretrain.store.schedules import ScheduleStore, StoredSchedule

_STOPPED = (0, -15, 143, -9, 137)
"""Exit codes of a command that was asked to stop: it left, or did not handle the signal."""


class RealBackend(Backend):
    """The jobs of a problem, each a command, on a cluster; all that happens is stored."""

    def __init__(
        self,
        problem: Problem,
        commands: Mapping[str, JobCommand],
        executor: Executor,
        store: ScheduleStore,
        stored: StoredSchedule,
        options: RunOptions,
    ) -> None:
        self._problem = problem
        self._by_name = {job.name: job for job in problem.jobs}
        missing = [name for name in self._by_name if name not in commands]
        if missing:
            raise InvalidRequest(f"job {missing[0]!r} has no command to run; give one for each job")
        self._store = store
        self._id = stored.head["id"]
        self._options = options
        self._clock = ScheduleClock(resume_clock(origin_of(stored.head), stored.head["last_seconds"]))
        self._attempts = Attempts(executor, Path(stored.head["folder"]), commands, options)
        self._hosts = HostMap(problem.fleet, stored.head["hosts"])
        self._book = NodeBook(problem.fleet, map(interval_of, stored.intervals))
        self._records = {row["job"]: job_record(row) for row in stored.jobs}
        self._slots = [slot_forecast(row) for row in stored.slots]
        self._now = self._clock.now()
        self._lost: frozenset[int] = frozenset()
        self._event = Event(self._now, EventKind.WOKEN, "start")
        self._pending: list[Event] = []
        self._wake_at = math.inf
        self._next_check = 0.0
        self._quiet_since = self._now
        self._unreachable_since: float | None = None
        self._recover(stored)

    # ------------------------------------------------------------ the three verbs of a backend

    def next_event(self) -> Event | None:
        """Wait for the next event; all that happened by then is part of the state."""
        while True:
            self._now = self._clock.now()
            events = [*self._pending, *self._happened()]
            self._pending.clear()
            if events:
                self._quiet_since = self._now
                self._event = events[0]
                self._measure()
                return self._event
            if not self._expects_more():
                self._finish()
                return None
            time.sleep(self._options.poll_seconds)

    def state(self) -> State:
        """A snapshot."""
        spent = self._book.spent(self._now)
        by_user: dict[str, float] = {}
        for name, usd in spent.items():
            user = self._by_name[name].user
            by_user[user] = by_user.get(user, 0.0) + usd
        month = self._book.ledger.usd_by_month.get(month_of(self._now), 0.0)
        return State(
            now=self._now,
            fleet=self._problem.fleet,
            jobs={name: self._job_state(name, spent.get(name, 0.0)) for name in self._active()},
            nodes=self._book.nodes,
            lost=self._lost,
            caps=self._problem.caps,
            spent_by_user=by_user,
            spent_this_month=month + self._book.running_usd(self._now),
        )

    def apply(self, decision: Decision) -> None:
        """Stop jobs with a checkpoint, switch nodes, start jobs, and note what that should cost."""
        decision_seconds = self._clock.now() - self._now
        slot_start, before = self._now, self.state()
        loads = place_loads(before, decision)
        where = nodes_by_job(loads)
        stops = [
            name
            for name, job in before.jobs.items()
            if job.running is not None
            and (job.running.nodes != where.get(name, ()) or not goes_on(job.running, name, loads))
        ]
        for live, exit_ in self._attempts.stop(stops):
            self._now = self._clock.now()
            self._stopped(live, exit_)
        self._now = self._clock.now()
        closed = self._switch_nodes(loads)
        for name, nodes in where.items():
            if name in self._active() and name not in self._attempts.live:
                self._start(name, nodes, loads, before.jobs[name])
        self._now = self._clock.now()
        self._wake_at = self._wake_up(decision, slot_start)
        self._note_slot(slot_start, decision_seconds, closed)

    def _wake_up(self, decision: Decision, decided_at: float) -> float:
        """When the next decision is asked for if nothing happens before."""
        if not self._active():
            return math.inf
        wake_at = self._now + self._options.every_seconds
        if decision.wake_at is not None and decision.wake_at > decided_at:
            wake_at = min(wake_at, max(decision.wake_at, self._now + self._options.pause_seconds))
        return wake_at

    # ------------------------------------------------------------ events

    def _happened(self) -> Iterator[Event]:
        yield from self._submissions()
        for live, exit_ in self._attempts.ended():
            yield self._ended(live, exit_)
        if self._now >= self._next_check:
            self._next_check = self._now + self._options.check_seconds
            yield from self._checks()
        if self._now >= self._wake_at:
            self._wake_at = math.inf
            yield Event(self._now, EventKind.WOKEN)

    def _submissions(self) -> Iterator[Event]:
        for job in self._problem.jobs:
            if job.submit_seconds > self._now:
                break
            if job.name not in self._records:
                self._submit(job)
                yield Event(self._now, EventKind.SUBMITTED, job.name)

    def _submit(self, job: SubmittedJob) -> None:
        configurations = runnable(job, self._problem.fleet)
        state = JobState(job, counted_at=self._now)
        cheapest = min((self.state().finish_usd(state, each) for each in configurations), default=0.0)
        if not configurations:
            record = JobRecord(job.name, REJECTED, message="fits on no node of the fleet")
        elif cheapest > job.budget_usd:
            message = f"costs at least {cheapest:.2f} USD, its budget is {job.budget_usd:.2f} USD"
            record = JobRecord(job.name, REJECTED, message=message)
        else:
            record = JobRecord(job.name)
        self._keep(record)

    def _ended(self, live: LiveAttempt, exit_: Exit) -> Event:
        """An attempt ended by itself: the job is complete, or it failed."""
        name, seconds = live.attempt.job, self._clock.at(exit_.stamp, live.started_seconds)
        if self._is_complete(name, exit_):
            record = self._after(live, status=COMPLETED, work_left=0.0, finish_seconds=seconds, failures=0)
            self._attempts.end(live, is_complete=True)
            self._close(live, record, seconds, exit_.code)
            return Event(self._now, EventKind.COMPLETED, name)
        if exit_.was_stopped and exit_.code in _STOPPED:
            self._give_back(live, "stopped from outside", counts=False, code=exit_.code, at=seconds)
        else:
            reason = exit_.reason or f"exit code {exit_.code}"
            self._give_back(live, reason, counts=True, code=exit_.code, at=seconds)
        return Event(self._now, EventKind.FAILED, name)

    def _is_complete(self, name: str, exit_: Exit) -> bool:
        """Exit code 0; after a request to stop only if the job reported all its work."""
        if exit_.code != 0:
            return False
        if not exit_.was_stopped:
            return True
        return self._attempts.reports(name) and self._attempts.progress(name).share_left == 0

    def _stopped(self, live: LiveAttempt, exit_: Exit | None) -> None:
        """An attempt that a decision stopped has ended, or did not within its time."""
        name = live.attempt.job
        if exit_ is None:
            self._give_back(live, "did not stop in time", counts=False)
        elif self._is_complete(name, exit_) or exit_.code not in _STOPPED:
            self._pending.append(self._ended(live, exit_))
        else:
            self._give_back(live, "", counts=False, code=exit_.code, was_stopped=True)

    def _checks(self) -> Iterator[Event]:
        """Look after hosts and attempts; a cluster that does not answer is asked again for a while."""
        try:
            hosts = self._attempts.executor.hosts()
            gone = self._attempts.gone()
        except BackendFailed:
            self._unreachable_since = self._unreachable_since or self._now
            if self._now > self._unreachable_since + self._options.patience_seconds:
                raise
            return
        self._unreachable_since = None
        names = dict(self._hosts.names)
        lost = self._hosts.update(hosts)
        moved = {node for node, host in names.items() if self._hosts.names[node] != host}
        if self._hosts.names != names:
            with self._store.changing(self._id) as change:
                change.head(hosts=self._hosts.stored())
        for node in sorted((lost | moved) - self._lost):
            if node in moved or node in self._book.nodes or names.get(node):
                yield self._lose(node)
        for node in sorted(self._lost - lost):
            yield Event(self._now, EventKind.REPAIRED, str(node))
        self._lost = lost
        for live in gone:
            if self._attempts.live.get(live.attempt.job) is live:
                self._give_back(live, "its process disappeared", counts=True)
                yield Event(self._now, EventKind.FAILED, live.attempt.job)

    def _lose(self, node: int) -> Event:
        """A host failed: its jobs go back to their last checkpoint."""
        for live in self._attempts.on_node(node):
            self._give_back(live, f"node {node} was lost", counts=False)
        with self._store.changing(self._id) as change:
            for interval in self._book.switch_off(node, self._now):
                change.interval(interval.row())
        return Event(self._now, EventKind.FAILED, str(node))

    def _expects_more(self) -> bool:
        """Whether anything can still happen: a job runs, is submitted later, or may get a node again."""
        if len(self._records) < len(self._problem.jobs) or self._attempts.live:
            return True
        if not self._active():
            return False
        can_change = bool(self._lost) or math.isfinite(self._wake_at)
        return can_change and self._now < self._quiet_since + self._options.patience_seconds

    # ------------------------------------------------------------ jobs

    def _active(self) -> tuple[str, ...]:
        """Jobs that are submitted and have not ended, in order of submission."""
        return tuple(
            job.name
            for job in self._problem.jobs
            if job.name in self._records and self._records[job.name].status in (WAITING, RUNNING)
        )

    def _job_state(self, name: str, spent_usd: float) -> JobState:
        record, live = self._records[name], self._attempts.live.get(name)
        running = None
        if live is not None:
            attempt = live.attempt
            configuration = Configuration(attempt.node_type, attempt.gpus, len(attempt.nodes))
            running = Running(attempt.nodes, configuration, live.started_seconds, live.progress_from)
        is_measured = live is None or self._attempts.reports(name)
        return JobState(
            self._by_name[name],
            work_left=record.work_left,
            counted_at=self._now if is_measured else live.started_seconds if live else 0.0,
            running=running,
            pace=record.pace,
            spent_usd=spent_usd,
            run_seconds=record.run_seconds,
            starts=record.starts,
        )

    def _measure(self) -> None:
        """Read the progress of running jobs: work left, pace, and whether they have begun to work."""
        for name, live in list(self._attempts.live.items()):
            if not self._attempts.reports(name):
                continue
            progress = self._attempts.progress(name)
            if progress.done <= live.done_before:
                waits = replace(live, progress_from=max(live.progress_from, self._now))
                self._attempts.live[name] = waits
                continue
            self._attempts.live[name] = replace(live, progress_from=min(live.progress_from, self._now))
            attempt, job = live.attempt, self._by_name[name]
            predicted = job.seconds[Configuration(attempt.node_type, attempt.gpus, len(attempt.nodes))]
            full = progress.full_seconds
            record = self._records[name]
            pace = record.pace if full is None else full / predicted
            self._records[name] = replace(record, work_left=progress.share_left, pace=pace)

    def _after(self, live: LiveAttempt, **values: object) -> JobRecord:
        record = self._records[live.attempt.job]
        run_seconds = record.run_seconds + self._now - live.started_seconds
        return replace(record, run_seconds=run_seconds, **values)  # type: ignore[arg-type]

    def _give_back(
        self,
        live: LiveAttempt,
        message: str,
        *,
        counts: bool,
        code: int | None = None,
        at: float | None = None,
        was_stopped: bool = False,
    ) -> None:
        """An attempt ended before its job was complete: the job waits again, or is given up."""
        name = live.attempt.job
        job = self._job_state(name, 0.0)
        output = last_output(live.attempt) if counts else ""
        self._attempts.end(live, is_complete=False)
        progress = self._attempts.progress(name)
        if self._attempts.reports(name):
            left = progress.share_unsaved
        else:
            left = job.left(self._now) if was_stopped else job.work_left
        failures = 0 if progress.saved > live.done_before else self._records[name].failures
        failures += counts
        is_given_up = failures >= self._options.max_failures
        text = f"{message}; it printed: {output}" if output else message
        record = self._after(
            live,
            status=FAILED if is_given_up else WAITING,
            work_left=left,
            failures=failures,
            message=text or self._records[name].message,
        )
        self._close(live, record, at if at is not None else self._now, code)

    def _close(self, live: LiveAttempt, record: JobRecord, seconds: float, code: int | None) -> None:
        """Store the end of an attempt and what follows for its job and its nodes, all at once."""
        changed = self._book.drop(record.job, self._now)
        self._keep(record, changed, live.ended_row(seconds, code, record.message))

    def _keep(
        self,
        record: JobRecord,
        intervals: Iterable[NodeInterval] = (),
        attempt: Mapping[str, object] | None = None,
    ) -> None:
        self._records[record.job] = record
        with self._store.changing(self._id) as change:
            change.head(last_seconds=self._now)
            change.job(record.row())
            for interval in intervals:
                change.interval(interval.row())
            if attempt is not None:
                change.attempt(attempt)

    # ------------------------------------------------------------ nodes and attempts

    def _switch_nodes(self, loads: Mapping[int, NodeLoad]) -> list[NodeInterval]:
        """Switch nodes on, over and off; jobs that ended in the meantime are left out."""
        active = set(self._active())
        changed = []
        for node in [each for each in self._book.nodes if each not in loads]:
            changed += self._book.switch_off(node, self._now)
        for node, load in loads.items():
            shares = tuple(each for each in load.shares if each[0] in active)
            if shares:
                changed += self._book.hold(node, load.node_type, shares, self._now)
            else:
                changed += self._book.switch_off(node, self._now)
        with self._store.changing(self._id) as change:
            for interval in changed:
                change.interval(interval.row())
        return [each for each in changed if each.is_last]

    def _start(
        self, name: str, nodes: tuple[int, ...], loads: Mapping[int, NodeLoad], before: JobState
    ) -> None:
        """Start a job: the intention is stored first, its handle afterwards."""
        gpus, node_type = dict(loads[nodes[0]].shares)[name], loads[nodes[0]].node_type
        record = self._records[name]
        number = record.starts + 1
        attempt = Attempt(
            key=f"{self._id}-{self._problem.jobs.index(self._by_name[name])}-{number}",
            job=name,
            number=number,
            folder=attempt_folder(self._attempts.folder, name, number),
            node_type=node_type,
            gpus=gpus,
            nodes=nodes,
            hosts=tuple(self._hosts.names[node] for node in nodes),
            devices=tuple(self._attempts.free_devices(node, gpus) for node in nodes),
        )
        same_node = before.running is not None and before.running.nodes == nodes
        overhead = before.overhead_seconds(Configuration(node_type, gpus, len(nodes)), same_node)
        startup = self._problem.fleet.types[node_type].startup_seconds
        ready = max(self._now, *(self._book.nodes[node].on_since + startup for node in nodes))
        done = self._attempts.progress(name).done
        live = LiveAttempt(attempt, self._now, ready + overhead, done)
        first = self._now if record.start_seconds is None else record.start_seconds
        self._keep(
            replace(record, status=RUNNING, starts=number, start_seconds=first), (), live.row(STARTING)
        )
        try:
            live = self._attempts.launch(live)
        except BackendFailed as error:
            self._now = self._clock.now()
            self._give_back(live, str(error), counts=True)
            self._pending.append(Event(self._now, EventKind.FAILED, name))
            return
        self._keep(self._records[name], (), live.row(STARTED))

    def _note_slot(self, start: float, decision_seconds: float, closed: Iterable[NodeInterval]) -> None:
        """Store what the time until the next event should cost."""
        seconds = max(0.0, self._next_expected() - start)
        if not math.isfinite(seconds):
            seconds = 0.0
        usd = self._book.usd_per_second() * seconds
        usd += sum(unused_usd(each, self._problem.fleet) for each in closed)
        event, subject = self._event.kind.value, self._event.subject
        slot = SlotForecast(len(self._slots), start, event, subject, seconds, usd, decision_seconds)
        self._slots.append(slot)
        with self._store.changing(self._id) as change:
            change.head(last_seconds=self._now)
            change.slot(slot.row())

    def _next_expected(self) -> float:
        """When the next event is due, by the times that were predicted and the pace so far."""
        if self._pending:
            return self._now
        ends = [self._wake_at]
        ends += [job.submit_seconds for job in self._problem.jobs if job.name not in self._records][:1]
        for state in self.state().jobs.values():
            if state.running is not None:
                ends.append(self._now + state.seconds_left(state.running.configuration, self._now))
        return min(ends)

    def _recover(self, stored: StoredSchedule) -> None:
        """Take on the attempts that another foretrain left, and let a decision follow."""
        for row in stored.attempts:
            if row["state"] == ENDED:
                continue
            if self._attempts.recover(row) is None:
                record = replace(self._records[row["job"]], status=WAITING)
                ended = {**row, "state": ENDED, "ended_seconds": self._now, "message": "never began"}
                self._keep(record, self._book.drop(row["job"], self._now), ended)
        held = {name for node in self._book.nodes.values() for name, _ in node.shares}
        for name in held - set(self._attempts.live):  # a decision that was carried out in part
            status = self._records[name].status
            record = replace(self._records[name], status=WAITING if status == RUNNING else status)
            self._keep(record, self._book.drop(name, self._now))
        self._lost = self._hosts.update(self._attempts.executor.hosts())
        with self._store.changing(self._id) as change:
            origin = self._clock.origin
            change.head(boot=origin.boot, origin_seconds=origin.monotonic, hosts=self._hosts.stored())
        if stored.slots and self._active():
            self._pending.append(Event(self._now, EventKind.WOKEN, "restart"))

    def _finish(self) -> None:
        """Nothing more can happen: nodes that are still on are switched off."""
        with self._store.changing(self._id) as change:
            change.head(last_seconds=self._now)
            for node in list(self._book.nodes):
                for interval in self._book.switch_off(node, self._now):
                    change.interval(interval.row())

    # ------------------------------------------------------------ the answer

    def slots(self) -> tuple[RunSlot, ...]:
        """Forecast and bill of every slot that cost something."""
        return compare_slots(self._slots, self._book.intervals, self._problem.fleet, self._now)

    def outcome(self, policy: str) -> Outcome:
        """What became of all jobs that were submitted; those still active are unfinished."""
        ledger = self._book.ledger
        return Outcome(
            policy=policy,
            jobs=tuple(
                job_outcome(self._records[job.name], job, ledger)
                for job in self._problem.jobs
                if job.name in self._records
            ),
            execution_usd=ledger.execution_usd,
            unused_usd=ledger.unused_usd,
            decisions=decision_times([each.decision_seconds for each in self._slots]),
            history=tuple(ledger.history),
        )
