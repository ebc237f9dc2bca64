"""`foretrain campaign`: run many short trainings, predicted before they run, and keep the results."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from foretrain.serving.cli.frame import Command, Output
from foretrain.serving.requests.measure import CampaignRequest

if TYPE_CHECKING:
    from foretrain.measuring.campaigns.running import CampaignProgress


def run(request: CampaignRequest, output: Output) -> None:
    """Run the trials that are not stored yet."""
    from foretrain.serving.cli.terminal import print_answer
    from foretrain.serving.verbs import measuring

    if request.dry_run:
        answer = measuring.campaign(request)
    else:
        with _interruption_explained(request), _progress(request.file.stem) as report:
            answer = measuring.campaign(request, report)
    print_answer(answer, output.json)


@contextmanager
def _interruption_explained(request: CampaignRequest) -> Iterator[None]:
    """After Ctrl-C, print how far the campaign is and how to resume it."""
    import click

    from foretrain.serving.verbs import measuring

    try:
        yield
    except KeyboardInterrupt:
        name, stored = measuring.count_stored_trials(request)
        click.echo(f"{name}: {stored} trials are stored; run the same command to resume.", err=True)
        raise


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


@contextmanager
def _progress(title: str) -> Iterator[Callable[[CampaignProgress], None]]:
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

        def report(progress: CampaignProgress) -> None:
            left = "" if progress.seconds_left is None else f"{format_duration(progress.seconds_left)} left"
            bars.update(
                bar, completed=progress.done, total=progress.total, left=left,
                description=f"{title}: {progress.doing}",
            )  # fmt: skip

        yield report


def _line_reporter() -> Callable[[CampaignProgress], None]:
    import click

    from foretrain.units import format_duration

    reported = [-1]

    def report(progress: CampaignProgress) -> None:
        if progress.done != reported[0]:
            reported[0] = progress.done
            left = "" if progress.seconds_left is None else f", {format_duration(progress.seconds_left)} left"
            click.echo(f"{progress.done}/{progress.total}{left}: {progress.doing}", err=True)

    return report
