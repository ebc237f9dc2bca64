"""What ran: a watched command, a campaign of trials, a profile of operators and layers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from foretrain.serving.views.blocks import Block, Break, Column, Heading, Page, Sentence, Table, Tone
from foretrain.serving.views.wording import between, notes, percent, probability
from foretrain.units import format_bandwidth, format_bytes, format_duration, format_money

if TYPE_CHECKING:
    from foretrain.measuring.profiling.comparison import Compared, Profile
    from foretrain.measuring.watching.outlook import RunOutlook
    from foretrain.measuring.watching.report import Report, ResourceUse
    from foretrain.prediction.resources.bursts import Bursts
    from foretrain.serving.verbs.measuring import CampaignAnswer, CampaignTrials, Measured
    from foretrain.store.runs import Resource, Run

_NO_VARIATION = 1e-9
"""Below it all steps are equal: a log printed one time for all of them."""


def measured_page(answer: Measured) -> Page:
    """Steps, prediction, resources and bursts of a watched run."""
    return Page.of(f"Run {answer.report.run.id}", _measured(answer))


def _measured(answer: Measured) -> Iterator[Block]:
    report, run = answer.report, answer.report.run
    exit_text = "" if run.exit_code in (0, None) else f" (exit code {run.exit_code})"
    yield Break()
    yield Heading(f"Run {run.id}: {run.status.value}{exit_text} after {format_duration(run.seconds)}")
    if run.message:
        yield Sentence(f"Message: {run.message}")
    yield from _steps(report)
    yield from _ahead(answer.outlook)
    if report.resources:
        yield _resources(report.resources)
    if report.bursts:
        yield _bursts(report.bursts)
    if answer.store is not None:
        yield Sentence(f"Stored in {answer.store}. Again: foretrain runs show {run.id[:8]}")


def _ahead(ahead: RunOutlook) -> Iterator[Block]:
    """Money, what is left of a run that ended early, and the probability of its target."""
    if ahead.usd_so_far is not None:
        yield Sentence(f"Money so far: {format_money(ahead.usd_so_far)}")
    if ahead.seconds_left and ahead.total_steps is not None:
        yield Sentence(f"Ended at step {ahead.steps:,} of {ahead.total_steps:,}: {left_text(ahead)}")
    if ahead.target is not None:
        known = ahead.probability is not None
        chance = (
            probability(ahead.probability or 0.0) if known else "unknown, the log is missing or too short"
        )
        yield Sentence(f"Probability of {ahead.target}: {chance}")


def left_text(ahead: RunOutlook) -> str:
    """`30.8 s and $0.12 left`; "" where the number of steps is not known."""
    if ahead.seconds_left is None:
        return ""
    money = "" if ahead.usd_left is None else f" and {format_money(ahead.usd_left)}"
    return f"{format_duration(ahead.seconds_left)}{money} left"


def _steps(report: Report) -> Iterator[Block]:
    summary, made = report.run.summary, report.run.prediction
    if summary is None:
        yield Sentence(
            "No steps: call foretrain.step() at the end of each step, or print progress.", Tone.WARNING
        )
        return
    yield Sentence(
        f"Step: {format_duration(summary.seconds)}, "
        f"{between(format_duration(summary.p10_seconds), format_duration(summary.p90_seconds))}; "
        f"{summary.steps} steps after {summary.warm_up_steps} of warm-up, from {summary.source}"
    )
    waiting = "unknown" if summary.input_share is None else percent(summary.input_share, 1)
    variation = percent(summary.variation, 1) if summary.variation > _NO_VARIATION else "unknown"
    yield Sentence(f"Variation (standard deviation / mean): {variation}; waiting for input: {waiting}")
    if made is not None:
        interval = between(format_duration(made.p10_seconds), format_duration(made.p90_seconds))
        yield Sentence(
            f"Predicted before the run: {format_duration(made.p50_seconds)}, {interval} ({made.knowledge}); "
            f"measured / predicted = {report.measured_over_predicted:.2f}"
        )
    if report.is_disturbed:
        yield Sentence(
            f"Other processes kept {report.other_cores:.1f} of {report.run.environment.cores} cores busy; "
            "steps may be shorter on a quiet machine.",
            Tone.WARNING,
        )
    if len(report.workers) > 1:
        titles = ("worker", "node", "steps", "step", "p10", "p90", "variation")
        rows = [
            (
                str(each.worker), str(each.node), str(each.summary.steps),
                format_duration(each.summary.seconds), format_duration(each.summary.p10_seconds),
                format_duration(each.summary.p90_seconds), percent(each.summary.variation, 1),
            )
            for each in report.workers
        ]  # fmt: skip
        yield Table([Column(title, right=True) for title in titles], rows)


def _resources(uses: Sequence[ResourceUse]) -> Table:
    columns = [
        Column("resource"),
        Column("of"),
        *(Column(title, right=True) for title in ("mean", "p95", "maximum")),
    ]
    several = len({use.node for use in uses}) > 1
    rows = [
        (
            use.resource.value.replace("_", " "),
            _owner(use.worker, use.node if several else None, use.label),
            *(_amount(use.resource, value) for value in (use.mean, use.p95, use.highest)),
        )
        for use in uses
        if use.highest > 0
    ]
    return Table(columns, rows)


def _bursts(bursts: Sequence[Bursts]) -> Table:
    columns = [Column("bursts of"), Column("of"), Column("pattern")]
    columns += [Column(title, right=True) for title in ("burst amount", "burst duration", "idle duration")]
    several = len({each.node for each in bursts}) > 1
    rows = [
        (
            each.resource.value.replace("_", " "),
            _owner(each.worker, each.node if several else None, each.label),
            each.pattern.value,
            *(
                (_amount(each.resource, each.burst_amount), format_duration(each.burst_duration))
                if each.spans
                else ("-", "-")
            ),
            format_duration(each.idle_duration) if each.idle_duration else "-",
        )
        for each in bursts
    ]
    return Table(columns, rows)


def _owner(worker: int, node: int | None, label: str) -> str:
    """`worker 1`, `node 0, eth0`."""
    from foretrain.store.runs import NODE

    parts = [] if node is None else [f"node {node}"]
    if worker != NODE:
        parts.append(f"worker {worker}")
    elif node is None and not label:
        parts.append("node")
    return ", ".join([*parts, *([label] if label else [])])


def _amount(resource: Resource, value: float) -> str:
    """A value in the unit of its resource."""
    from foretrain.store.runs import UNITS

    unit = UNITS[resource]
    formats: Mapping[str, Any] = {"bytes": format_bytes, "bytes/s": format_bandwidth, "share": percent}
    if unit in formats:
        return str(formats[unit](value))
    return f"{value / 1e9:.2f} GHz" if unit == "Hz" else f"{value:.2f} {unit}"


# ---------------------------------------------------------------- campaigns


def trials_page(answer: CampaignTrials) -> Page:
    """The trials to run, and how many are stored."""
    columns = [Column("trial"), Column("setting"), Column("repeat", right=True)]
    rows = [(trial.key, trial.label, str(trial.repeat)) for trial in answer.pending]
    text = f"{answer.campaign}: {answer.trials} trials, {answer.stored} of them stored."
    return Page.of(answer.campaign, [Table(columns, rows), Sentence(text)])


def campaign_page(answer: CampaignAnswer) -> Page:
    """The runs of this time, measured and predicted."""
    return Page.of(answer.result.campaign, _campaign(answer))


def _campaign(answer: CampaignAnswer) -> Iterator[Block]:
    from foretrain.store.runs import Status

    result = answer.result
    if result.runs:
        titles = ("batch", "measured", "predicted", "error")
        columns = [
            Column("model"),
            Column("workers"),
            *(Column(title, right=True) for title in titles),
            Column(""),
        ]
        yield Table(columns, [_trial_row(run) for run in sorted(result.runs, key=_order)])
    counts = ", ".join(f"{count} {status}" for status in Status if (count := result.count(status)))
    yield Sentence(
        f"{result.campaign}: {len(result.runs)} trials run ({counts or 'none'}), {result.stored_before} were "
        f"stored before, {result.left} left of {result.trials}. Stored in {answer.store}."
    )
    errors = [error for run in result.runs if (error := _error(run)) is not None]
    if errors:
        mean = sum(map(abs, errors)) / len(errors)
        yield Sentence(
            f"Predicted against measured steps: mean absolute error {mean:.0%}, "
            f"bias {sum(errors) / len(errors):+.0%} over {len(errors)} runs."
        )
    reasons = Counter(answer.not_predicted).most_common(3)
    yield notes(f"{count} trials were not predicted: {reason}" for reason, count in reasons)


def _order(run: Run) -> tuple[str, ...]:
    return tuple(str(run.setting.get(name, "")).rjust(8) for name in ("model", "on", "strategy", "batch"))


def _trial_row(run: Run) -> tuple[str, ...]:
    setting = run.setting
    parallel = " ".join(
        str(setting[name]) for name in ("on", "strategy", "network", "precision") if name in setting
    )
    measured = format_duration(run.summary.seconds) if run.summary else "-"
    predicted = format_duration(run.prediction.p50_seconds) if run.prediction else "-"
    error = f"{each:+.0%}" if (each := _error(run)) is not None else "-"
    ended = "" if run.status == "completed" else f"{run.status}: {run.message}"[:80]
    name = str(setting.get("model", " ".join(run.command[:3])))
    return name, parallel, str(setting.get("batch", "")), measured, predicted, error, ended


def _error(run: Run) -> float | None:
    """Predicted over measured, less one."""
    if run.summary is None or run.prediction is None:
        return None
    return run.prediction.p50_seconds / run.summary.seconds - 1


# ---------------------------------------------------------------- profiles

_MOST_LAYERS = 15
_LEAST_SHARE = 0.002


def profile_page(answer: Profile, layers: bool = False) -> Page:
    """Kinds of operators by phase, then the longest layers or all."""
    return Page.of(f"{answer.model} on {answer.device}", _profile(answer, layers))


def _profile(profile: Profile, layers: bool) -> Iterator[Block]:
    prediction = ""
    if profile.predicted_seconds is not None:
        ratio = profile.step_seconds / profile.predicted_seconds
        prediction = f", predicted {format_duration(profile.predicted_seconds)} (ratio {ratio:.2f})"
    yield Heading(
        f"{profile.model} on {profile.device}, batch {profile.batch}: measured "
        f"{format_duration(profile.step_seconds)} a step{prediction}"
    )
    yield notes(profile.notes)
    columns = [
        Column("phase"), Column("operators"), Column("calls", right=True), Column("measured", right=True),
        Column("share", right=True), Column("predicted", right=True), Column("share ", right=True),
        Column("ratio", right=True),
    ]  # fmt: skip
    rows: list[tuple[str, ...]] = [
        (row.phase.value, row.kind.value, str(row.calls), *_cells(row.compared))
        for row in profile.operators
        if max(row.compared.measured_share, row.compared.predicted_share or 0.0) >= _LEAST_SHARE
    ]
    rows.append(("", "outside operators", "", *_cells(profile.idle)))
    rows += [(phase.value, "all", "", *_cells(compared)) for phase, compared in profile.phases.items()]
    yield Table(columns, rows)
    longest = sorted(profile.layers, key=lambda row: -row.measured_seconds)[:_MOST_LAYERS]
    listed = profile.layers if layers else [row for row in profile.layers if row in longest]
    if not listed:
        return
    yield Break()
    is_cut = len(listed) < len(profile.layers)
    yield Heading(
        f"Layers (the longest {len(listed)} of {len(profile.layers)})" if is_cut else "Layers", level=2
    )
    titles = ("forward", "predicted", "ratio", "backward", "predicted ", "ratio ")
    columns = [Column("layer"), Column("type"), *(Column(title, right=True) for title in titles)]

    def cells(compared: Compared) -> tuple[str, str, str]:
        return (
            format_duration(compared.measured_seconds),
            _seconds(compared.predicted_seconds),
            _ratio(compared),
        )

    yield Table(
        columns,
        [
            (row.path or "(outside layers)", row.type, *cells(row.forward), *cells(row.backward))
            for row in listed
        ],
    )


def _cells(compared: Compared) -> tuple[str, ...]:
    share = "-" if compared.predicted_share is None else f"{compared.predicted_share:.1%}"
    return (
        format_duration(compared.measured_seconds),
        f"{compared.measured_share:.1%}",
        _seconds(compared.predicted_seconds),
        share,
        _ratio(compared),
    )


def _seconds(seconds: float | None) -> str:
    return "-" if seconds is None else format_duration(seconds)


def _ratio(compared: Compared) -> str:
    return "-" if compared.ratio is None else f"{compared.ratio:.2f}"
