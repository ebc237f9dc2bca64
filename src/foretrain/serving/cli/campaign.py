"""`foretrain campaign`: run many short trainings, predicted before they run, and keep the results."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from foretrain.decoding import FILE, SWITCH, TEXT, Kind, Unreadable, option, whole_number
from foretrain.panels import STORED
from foretrain.serving.cli.frame import Command, Output
from foretrain.serving.requests import Request

if TYPE_CHECKING:
    from foretrain.measuring.campaigns.campaign import Campaign
    from foretrain.measuring.campaigns.running import CampaignResult, Progress
    from foretrain.measuring.campaigns.trials import Runner, Trial
    from foretrain.store.database import Store
    from foretrain.store.runs import PredictionMade, Run

_RAY = "ray"


def _read_place(value: Any) -> str:
    if not isinstance(value, str) or value.partition("=")[0] != _RAY or value.endswith("="):
        raise Unreadable
    return value


_PLACE = Kind("ray[=ADDRESS]", "ray or ray=ADDRESS", _read_place)


@dataclass(frozen=True, kw_only=True)
class CampaignRequest(Request):
    """A campaign file, and where it runs."""

    VERB = "campaign"

    file: Path = option(FILE, "Campaign file (YAML).", required=True, positional=True, metavar="FILE")
    on: str | None = option(_PLACE, "Run on a Ray cluster, by default the one of this machine's environment.")
    store: str | None = option(
        TEXT, "Store of the results: a file or a database URL.", metavar="URL", panel=STORED
    )
    limit: int | None = option(whole_number(1), "Most trials to run this time.")
    dry_run: bool = option(SWITCH, "List the trials without running them.", default=False)


def run(request: CampaignRequest, output: Output) -> int | None:
    """Run the trials that are not stored yet."""
    from foretrain.measuring.campaigns.campaign import read_campaign
    from foretrain.measuring.campaigns.running import run_campaign
    from foretrain.store import open_store

    campaign = read_campaign(request.file)
    with open_store(request.store) as store:
        if request.dry_run:
            _show_trials(campaign, store.trials(campaign.name), request.limit, output.json)
            return None
        reasons: Counter[str] = Counter()
        with _interruption_explained(campaign.name, store), _progress(campaign.name) as report:
            result = run_campaign(
                campaign,
                store,
                _runner(request.on, campaign),
                lambda setting: _predicted(setting, reasons),
                report,
                request.limit,
            )
        _show_result(result, reasons, store.place, output.json)
    return None


@contextmanager
def _interruption_explained(name: str, store: Store) -> Iterator[None]:
    """After Ctrl-C, print how far the campaign is and how to resume it."""
    import click

    try:
        yield
    except KeyboardInterrupt:
        stored = len(store.trials(name))
        click.echo(f"{name}: {stored} trials are stored; run the same command to resume.", err=True)
        raise


def _predicted(setting: dict[str, Any], reasons: Counter[str]) -> PredictionMade | None:
    """What is predicted of a setting; where nothing can be, the reason is counted."""
    from foretrain.errors import ForetrainError
    from foretrain.serving.verbs.run_predictions import predicted
    from foretrain.units import UnitError

    try:
        return predicted(setting)
    except (ForetrainError, UnitError) as reason:
        reasons[str(reason)] += 1
        return None


COMMAND = Command(
    CampaignRequest,
    Output,
    run,
    "Each trial is predicted before it runs and stored when it ends, including failures. You can interrupt "
    "a campaign at any time and run it again: stored trials are not repeated. Trials of models run in "
    "network namespaces, which require root and iproute2.",
    (
        "foretrain campaign campaigns/seeds.yaml",
        "foretrain campaign campaign.yaml --dry-run",
        "foretrain campaign campaign.yaml --on ray=auto --store postgresql://user@host/runs",
    ),
)


def _runner(place: str | None, campaign: Campaign) -> Callable[[], Runner]:
    """What runs the trials."""
    if place is None:
        from foretrain.measuring.campaigns.local import LocalRunner, run_command

        return lambda: LocalRunner(run_command)
    from foretrain.measuring.campaigns.on_ray import RayRunner

    address = place.partition("=")[2] or None
    return lambda: RayRunner(campaign, address)


@contextmanager
def _progress(title: str) -> Iterator[Callable[[Progress], None]]:
    """A bar with the predicted time left on a terminal; else a line for each trial on standard error."""
    if not sys.stderr.isatty():
        yield _line_reporter()
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
    from rich.progress import Progress as Bars

    from foretrain.units import format_duration

    left_column = TextColumn("{task.fields[left]}")
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), left_column)
    with Bars(*columns, console=Console(stderr=True)) as bars:
        bar = bars.add_task(title, total=None, left="")

        def report(progress: Progress) -> None:
            left = "" if progress.seconds_left is None else f"{format_duration(progress.seconds_left)} left"
            bars.update(
                bar, completed=progress.done, total=progress.total, left=left,
                description=f"{title}: {progress.doing}",
            )  # fmt: skip

        yield report


def _line_reporter() -> Callable[[Progress], None]:
    import click

    from foretrain.units import format_duration

    reported = [-1]

    def report(progress: Progress) -> None:
        if progress.done != reported[0]:
            reported[0] = progress.done
            left = "" if progress.seconds_left is None else f", {format_duration(progress.seconds_left)} left"
            click.echo(f"{progress.done}/{progress.total}{left}: {progress.doing}", err=True)

    return report


def _show_trials(campaign: Campaign, stored: dict[str, Any], limit: int | None, as_json: bool) -> None:
    from foretrain.measuring.campaigns.trials import trials_of
    from foretrain.serving.cli.terminal import Column, print_json, print_line, print_table

    trials = trials_of(campaign)
    listed = [trial for trial in trials if trial.key not in stored][:limit]
    if as_json:
        print_json(
            {
                "campaign": campaign.name,
                "trials": len(trials),
                "stored": len(trials) - sum(trial.key not in stored for trial in trials),
                "pending": [_plain_trial(trial) for trial in listed],
            }
        )
        return
    columns = [Column("trial"), Column("setting"), Column("repeat", right=True)]
    print_table(columns, [(trial.key, trial.label, str(trial.repeat)) for trial in listed])
    done = sum(trial.key in stored for trial in trials)
    print_line(f"{campaign.name}: {len(trials)} trials, {done} of them stored.")


def _plain_trial(trial: Trial) -> dict[str, Any]:
    return {
        "trial": trial.key, "setting": trial.setting, "workers": trial.workers, "repeat": trial.repeat,
        "command": list(trial.words),
    }  # fmt: skip


def _show_result(result: CampaignResult, reasons: Counter[str], place: str, as_json: bool) -> None:
    from foretrain.serving.cli.terminal import Column, print_json, print_line, print_notes, print_table

    if as_json:
        print_json({**_plain_result(result, place), "not_predicted": dict(reasons)})
        return
    right = ("batch", "measured", "predicted", "error")
    columns = [
        Column("model"),
        Column("workers"),
        *(Column(title, right=True) for title in right),
        Column(""),
    ]
    if result.runs:
        print_table(columns, [_row(run) for run in sorted(result.runs, key=_order)])
    counts = _counts(result)
    print_line(
        f"{result.campaign}: {len(result.runs)} trials run ({counts or 'none'}), {result.stored_before} were "
        f"stored before, {result.left} left of {result.trials}. Stored in {place}."
    )
    errors = _errors(result.runs)
    if errors:
        mean = sum(map(abs, errors)) / len(errors)
        print_line(
            f"Predicted against measured steps: mean absolute error {mean:.0%}, "
            f"bias {sum(errors) / len(errors):+.0%} over {len(errors)} runs."
        )
    print_notes(f"{count} trials were not predicted: {reason}" for reason, count in reasons.most_common(3))


def _order(run: Run) -> tuple[str, ...]:
    return tuple(str(run.setting.get(name, "")).rjust(8) for name in ("model", "on", "strategy", "batch"))


def _row(run: Run) -> tuple[str, ...]:
    from foretrain.units import format_duration

    setting = run.setting
    parallel = " ".join(
        str(setting[name]) for name in ("on", "strategy", "network", "precision") if name in setting
    )
    measured = format_duration(run.summary.seconds) if run.summary else "-"
    predicted = format_duration(run.prediction.p50_seconds) if run.prediction else "-"
    error = f"{each:+.0%}" if (each := _error(run)) is not None else "-"
    outcome = "" if run.status == "completed" else f"{run.status}: {run.message}"[:80]
    name = str(setting.get("model", " ".join(run.command[:3])))
    return name, parallel, str(setting.get("batch", "")), measured, predicted, error, outcome


def _error(run: Run) -> float | None:
    """Predicted over measured, less one."""
    if run.summary is None or run.prediction is None:
        return None
    return run.prediction.p50_seconds / run.summary.seconds - 1


def _errors(runs: Sequence[Run]) -> list[float]:
    return [error for run in runs if (error := _error(run)) is not None]


def _counts(result: CampaignResult) -> str:
    from foretrain.store.runs import Status

    return ", ".join(f"{count} {status}" for status in Status if (count := result.count(status)))


def _plain_result(result: CampaignResult, place: str) -> dict[str, Any]:
    from foretrain.store.runs import Status

    return {
        "campaign": result.campaign,
        "store": place,
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
    }
