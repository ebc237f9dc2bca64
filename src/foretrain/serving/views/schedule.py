"""Schedules, decided, simulated or real: what became of the jobs, what they cost, which run where."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from foretrain.serving.views.blocks import (
    Block,
    Break,
    Cell,
    Column,
    Figure,
    Figures,
    Heading,
    Page,
    Row,
    Sentence,
    Table,
    Tone,
)
from foretrain.serving.views.wording import notes, probability, sentence, together
from foretrain.units import format_duration, format_money

if TYPE_CHECKING:
    from foretrain.backends.answer import RealRun
    from foretrain.estimates import Quantiles
    from foretrain.scheduling.accounting import Comparison, JobOutcome, Outcome
    from foretrain.scheduling.forecast import JobForecast, Schedule, ScheduleWhatIf

_MOST_ROWS = 40
"""Jobs that are listed; of more, those that cost most."""
_MOST_REPORTED = 1_000
"""Likewise in a report."""
_MOST_DELAYED = 10
_MOST_SLOTS = 40


def outcome_page(outcome: Outcome) -> Page:
    """One policy: cost, lateness and all jobs."""
    return Page.of(_title(outcome), (*_outcome(outcome), notes(outcome.notes), *_decisions((outcome,))))


def comparison_page(answer: Comparison) -> Page:
    """Policies side by side, the cheapest first and in full."""
    best = answer.best
    return Page.of(
        _title(best),
        (
            _comparison(answer), Break(), *_outcome(best), notes(answer.notes),
            *_decisions(answer.outcomes),
        ),
    )  # fmt: skip


def outcome_report(outcome: Outcome) -> Page:
    """One policy with its Gantt chart, the cluster over time and all jobs."""
    return Page.of(_title(outcome), _report(outcome, None))


def comparison_report(answer: Comparison) -> Page:
    """Policies compared, and the cheapest in full."""
    return Page.of(_title(answer.best), _report(answer.best, answer))


def run_page(answer: RealRun) -> Page:
    """What became of the jobs, and forecast against bill."""
    return Page.of(_title(answer.outcome), (*_outcome(answer.outcome), Break(), *_slots(answer)))


def schedule_page(answer: Schedule, explain: bool = False) -> Page:
    """Which jobs run where, and when the others will; `explain` adds the reasons."""
    return Page.of(_title(answer), _schedule(answer, explain))


def _title(answer: Outcome | Schedule) -> str:
    jobs = len(answer.jobs)
    return f"{jobs:,} job{'' if jobs == 1 else 's'} scheduled by policy {answer.policy}"


def _report(outcome: Outcome, compared: Comparison | None) -> Iterator[Block]:
    from foretrain.serving.views.schedule_charts import schedule_chart  # only reports draw

    yield Heading(_lead(outcome))
    yield _key_figures(outcome)
    if compared is not None:
        yield Heading("Policies compared", level=2)
        yield _all_policies(compared)
    yield Heading("Schedule", level=2)
    yield schedule_chart(outcome)
    yield Heading("Jobs", level=2)
    yield from _all_jobs(outcome)
    remarks = outcome.notes if compared is None else compared.notes
    if remarks:
        yield Heading("Notes", level=2)
        yield notes(map(sentence, remarks))


def _lead(outcome: Outcome) -> str:
    if not outcome.jobs:
        return "There are no jobs."
    bound = outcome.bound_usd
    over = f" No policy can do it for less than {format_money(bound)}." if bound is not None else ""
    late = "No job is late" if not outcome.late_jobs else f"{outcome.late_jobs:,} end late"
    return (
        f"{format_money(outcome.total_usd)}: {format_money(outcome.execution_usd)} for nodes and "
        f"{format_money(outcome.tardiness_usd)} for lateness. {late}; the last ends after "
        f"{together(format_duration(outcome.makespan_seconds))}.{over}"
    )


def _key_figures(outcome: Outcome) -> Figures:
    bound, unused = outcome.bound_usd, outcome.unused_usd
    over = "" if not bound else f"{outcome.total_usd / bound - 1:+.1%} over the lower bound"
    late = f"{outcome.late_jobs:,} of {len(outcome.jobs):,} jobs late"
    return Figures(
        [
            Figure("total", format_money(outcome.total_usd), over),
            Figure(
                "nodes",
                format_money(outcome.execution_usd),
                f"{format_money(unused)} billed after use" if unused else "",
            ),
            Figure("lateness", format_money(outcome.tardiness_usd), late),
            Figure("mean completion", format_duration(outcome.mean_completion_seconds), "after submission"),
        ],
        is_key=True,
    )


def _all_policies(answer: Comparison) -> Table:
    """Every figure of the policies, the cheapest first."""
    best = min(each.total_usd for each in answer.outcomes)
    titles = (
        "total", "against the cheapest", "against the bound", "nodes", "lateness", "late jobs",
        "mean completion", "decision, p50", "decision, max",
    )  # fmt: skip

    def money(usd: float) -> Cell:
        return Cell(format_money(usd), usd)

    def time(seconds: float) -> Cell:
        return Cell(format_duration(seconds), seconds)

    return Table(
        [Column("policy", role="title"), *(Column(title, right=True) for title in titles)],
        [
            (
                each.policy,
                money(each.total_usd),
                f"{each.total_usd / best - 1:+.1%}" if best > 0 else "",
                f"{each.total_usd / answer.bound_usd - 1:+.1%}" if answer.bound_usd else "",
                money(each.execution_usd),
                money(each.tardiness_usd),
                f"{each.late_jobs:,}",
                time(each.mean_completion_seconds),
                time(each.decisions.p50),
                time(each.decisions.max),
            )
            for each in sorted(answer.outcomes, key=lambda each: each.total_usd)
        ],
        marked=frozenset({0}),
        is_sortable=True,
    )


def _all_jobs(outcome: Outcome) -> Iterator[Block]:
    jobs = outcome.jobs
    if len(jobs) > _MOST_REPORTED:
        jobs = tuple(sorted(jobs, key=lambda each: -each.usd)[:_MOST_REPORTED])
        yield Sentence(f"The {_MOST_REPORTED:,} of {len(outcome.jobs):,} jobs that cost most.", Tone.MINOR)
    titles = ("submitted", "starts", "ends", "due", "late", "nodes", "lateness", "attempts")
    yield Table(
        [Column("job", role="title"), *(Column(title, right=True) for title in titles), Column("remark")],
        [_report_row(each) for each in jobs],
        marked=frozenset(number for number, each in enumerate(jobs) if each.late_seconds > 0),
        is_sortable=True,
    )


def _report_row(job: JobOutcome) -> Row:
    def moment(seconds: float | None) -> Cell | str:
        return "" if seconds is None else Cell(clock(seconds), seconds)

    def positive(value: float, write: Callable[[float], str]) -> Cell:
        return Cell(write(value), value) if value > 0 else Cell("", 0.0)

    return (
        job.job,
        moment(job.submit_seconds),
        moment(job.start_seconds),
        moment(job.finish_seconds),
        moment(job.deadline_seconds),
        positive(job.late_seconds, format_duration),
        positive(job.execution_usd, format_money),
        positive(job.tardiness_usd, format_money),
        str(job.starts),
        f"{job.status.value}: {job.message}" if job.message else "",
    )


def _comparison(answer: Comparison) -> Table:
    """Policies side by side, the cheapest first."""
    bound = answer.bound_usd
    return Table(
        [
            Column("policy"),
            Column("total", right=True, tone=Tone.GOOD),
            Column("over bound", right=True),
            Column("execution", right=True),
            Column("lateness", right=True),
            Column("late jobs", right=True),
            Column("mean completion", right=True, expendable=1),
        ],
        [
            (
                each.policy,
                format_money(each.total_usd),
                "" if not bound else f"{each.total_usd / bound - 1:+.1%}",
                format_money(each.execution_usd),
                format_money(each.tardiness_usd),
                str(each.late_jobs),
                format_duration(each.mean_completion_seconds),
            )
            for each in sorted(answer.outcomes, key=lambda each: each.total_usd)
        ],
        title="Policies, the cheapest first"
        + ("" if bound is None else f"; lower bound {format_money(bound)}"),
    )


def _outcome(outcome: Outcome) -> Iterator[Block]:
    """Cost, lateness and all jobs."""
    from foretrain.scheduling.accounting import JobStatus

    late = f"{outcome.late_jobs:,} late" if outcome.late_jobs else "none late"
    ended = Counter(each.status for each in outcome.jobs if each.status is not JobStatus.COMPLETED)
    others = "".join(f", {count:,} {status.value}" for status, count in ended.items())
    yield Heading(f"{_title(outcome)}: {format_money(outcome.total_usd)}, {late}{others}")
    bound = outcome.bound_usd
    if bound is not None:
        over = f" ({outcome.total_usd / bound - 1:+.1%})" if bound > 0 else ""
        yield Sentence(f"lower bound under any policy: {format_money(bound)}{over}", indent=1)
    unused = f", {format_money(outcome.unused_usd)} of it billed after use" if outcome.unused_usd > 0 else ""
    lateness = format_money(outcome.tardiness_usd)
    yield Sentence(f"nodes {format_money(outcome.execution_usd)}{unused}; lateness {lateness}", indent=1)
    yield Sentence(
        f"last job ends after {format_duration(outcome.makespan_seconds)}; mean completion "
        f"{format_duration(outcome.mean_completion_seconds)}",
        indent=1,
    )
    if outcome.jobs:
        yield Break()
        yield from _job_outcomes(outcome)


def _job_outcomes(outcome: Outcome) -> Iterator[Block]:
    jobs = outcome.jobs
    title = "Jobs in order of submission"
    if len(jobs) > _MOST_ROWS:
        jobs = tuple(sorted(jobs, key=lambda each: -each.usd)[:_MOST_ROWS])
        title = f"The {_MOST_ROWS} of {len(outcome.jobs):,} jobs that cost most (all: --json)"
    yield Table(
        [
            Column("job", least=12),
            Column("submitted", right=True, expendable=1),
            Column("starts", right=True),
            Column("ends", right=True),
            Column("due", right=True),
            Column("late", right=True),
            Column("nodes", right=True),
            Column("lateness", right=True),
            Column("", least=12),
        ],
        [_outcome_row(each) for each in jobs],
        title,
    )


def _outcome_row(job: JobOutcome) -> tuple[str, ...]:
    return (
        job.job,
        clock(job.submit_seconds),
        clock(job.start_seconds),
        clock(job.finish_seconds),
        clock(job.deadline_seconds),
        format_duration(job.late_seconds) if job.late_seconds > 0 else "",
        format_money(job.execution_usd),
        format_money(job.tardiness_usd) if job.tardiness_usd > 0 else "",
        f"{job.status.value}: {job.message}" if job.message else "",
    )


def _decisions(outcomes: Sequence[Outcome]) -> Iterator[Block]:
    """How long decisions took."""
    yield Break()
    for each in outcomes:
        times = each.decisions
        middle, most = format_duration(times.p50), format_duration(times.max)
        yield Sentence(f"{each.policy}: {times.count:,} decisions, p50 {middle}, max {most}", Tone.MINOR)


def clock(seconds: float | None) -> str:
    """A moment; nothing where there is none, `never` where it does not come."""
    if seconds is None:
        return ""
    if seconds == 0:
        return "0 s"
    return format_duration(seconds) if math.isfinite(seconds) else "never"


def _slots(answer: RealRun) -> Iterator[Block]:
    yield Table(
        [
            Column("slot", right=True),
            Column("starts", right=True),
            Column("after", least=12),
            Column("forecast", right=True),
            Column("billed", right=True),
        ],
        [
            (
                str(number),
                format_duration(slot.start_seconds),
                f"{slot.event} {slot.subject}".strip(),
                format_money(slot.forecast_usd),
                format_money(slot.billed_usd),
            )
            for number, slot in list(enumerate(answer.slots, 1))[:_MOST_SLOTS]
        ],
        "Forecast against bill, from one decision to the next",
    )
    if len(answer.slots) > _MOST_SLOTS:
        yield Sentence(f"and {len(answer.slots) - _MOST_SLOTS} more (all: --json)", Tone.MINOR)
    yield Heading(
        f"Together: {format_money(answer.forecast_usd)} forecast, {format_money(answer.billed_usd)} billed, "
        f"{answer.difference:+.2%}"
    )


def _schedule(answer: Schedule, explain: bool) -> Iterator[Block]:
    running = sum(each.runs for each in answer.jobs)
    yield Heading(
        f"{answer.policy} at {clock(answer.now_seconds)}: {running} of {len(answer.jobs)} jobs run on "
        f"{len(answer.nodes)} node{'' if len(answer.nodes) == 1 else 's'}; all together will cost "
        f"{format_money(answer.total_usd)} from now on"
    )
    if answer.nodes:
        yield Break()
        yield from _nodes(answer)
    if answer.jobs:
        yield Break()
        yield from _jobs(answer.jobs)
    for job, message in answer.unfit.items():
        yield Sentence(f"{job} cannot run: {message}", Tone.BAD)
    if explain:
        yield from _explain(answer.jobs)
    if answer.what_if is not None:
        yield from _what_if(answer.what_if, explain)
    yield notes(answer.notes)


def _nodes(answer: Schedule) -> Iterator[Block]:
    yield Table(
        [Column("node", right=True), Column("type"), Column("jobs", least=20)],
        [
            (
                str(number),
                node_type,
                ", ".join(f"{job} ({gpus} GPU{'' if gpus == 1 else 's'})" for job, gpus in shares),
            )
            for number, (node_type, shares) in answer.nodes.items()
        ],
        "Nodes that are on",
    )


def _jobs(jobs: tuple[JobForecast, ...]) -> Iterator[Block]:
    yield Table(
        [
            Column("job", least=12),
            Column("now on"),
            Column("starts", right=True),
            Column("ends", right=True),
            Column("80 % between", right=True, expendable=2),
            Column("due", right=True),
            Column("on time", right=True, expendable=1),
            Column("nodes", right=True),
            Column("lateness", right=True),
        ],
        [_row(each) for each in jobs],
        "Jobs, with the predicted start, end and cost",
    )


def _row(each: JobForecast) -> tuple[str, ...]:
    return (
        each.job,
        "waits" if each.configuration is None else str(each.configuration),
        clock(each.start_seconds.p50),
        clock(each.end_seconds.p50),
        _between(each.end_seconds),
        clock(each.deadline_seconds),
        probability(each.on_time) if each.end_seconds.p10 < each.end_seconds.p90 else _yes(each.on_time),
        format_money(each.execution_usd.p50),
        format_money(each.tardiness_usd.p50) if each.tardiness_usd.p50 > 0 else "",
    )


def _yes(share: float) -> str:
    return "yes" if share else "no"


def _between(interval: Quantiles) -> str:
    if interval.p10 == interval.p90:
        return ""
    return f"{clock(interval.p10)} – {clock(interval.p90)}"


def _explain(jobs: tuple[JobForecast, ...]) -> Iterator[Block]:
    for each in jobs:
        yield Break()
        yield Heading(each.job)
        yield Sentence(each.reason.why, indent=1)
        if each.reason.starts_when:
            yield Sentence(f"starts {each.reason.starts_when}", indent=1)
        yield Sentence(each.reason.lateness, indent=1)


def _what_if(answer: ScheduleWhatIf, explain: bool) -> Iterator[Block]:
    own = answer.job
    yield Break()
    start = "starts at once" if own.runs else f"starts at {clock(own.start_seconds.p50)}"
    yield Heading(
        f"If {own.job} were submitted now: it {start}, ends at {clock(own.end_seconds.p50)} (due "
        f"{clock(own.deadline_seconds)}) and adds {format_money(answer.added_usd)} to the cost of all",
        Tone.KEY,
    )
    for job, seconds in answer.delayed[:_MOST_DELAYED]:
        change = "later" if seconds > 0 else "earlier"
        yield Sentence(f"{job} ends {format_duration(abs(seconds))} {change}", indent=1)
    if len(answer.delayed) > _MOST_DELAYED:
        yield Sentence(f"and {len(answer.delayed) - _MOST_DELAYED} more (all: --json)", indent=1)
    if not answer.delayed:
        yield Sentence("no other job ends earlier or later", indent=1)
    if explain:
        yield from _explain((own,))
