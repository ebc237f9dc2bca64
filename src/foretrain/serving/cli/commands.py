"""The commands: each verb of the table, decoded, called and printed by `run_command`.

A verb that only prints its answer needs no line here, one that also draws it a line of `PLOTS`. The classes
of `OUTPUTS` are of verbs whose command line offers more: options of the view, files to write, a question to
answer, an exit code.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, redirect_stdout
from dataclasses import dataclass, make_dataclass
from functools import partial
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Any

from foretrain.decoding import FILE, SWITCH, TEXT, number, option, texts
from foretrain.panels import OUTPUT
from foretrain.serving.cli.frame import (
    Command,
    CommandFamily,
    Output,
    draw_chart,
)
from foretrain.serving.cli.terminal import as_far_as_it_is_read, print_answer, spinner
from foretrain.serving.table import FAMILIES, VERBS, VerbEntry

if TYPE_CHECKING:
    from foretrain.jobs.predict import JobPrediction
    from foretrain.learning.regression.learn import LearnAnswer
    from foretrain.measuring.campaigns.running import CampaignProgress
    from foretrain.measuring.watching.outlook import RunOutlook
    from foretrain.measuring.watching.watch import Live
    from foretrain.planning.frontier import Frontier
    from foretrain.planning.size import SizeAnswer
    from foretrain.serving.requests import Request
    from foretrain.serving.requests.measuring import CampaignRequest, MeasureRequest


def declared(word: str) -> Command | CommandFamily:
    """The command, or the family of commands, that begins with this word."""
    verbs = [verb for verb in VERBS.values() if verb.command.partition(" ")[0] == word]
    commands = {verb.command.partition(" ")[2]: (verb.summary, command_of_verb(verb)) for verb in verbs}
    _, alone = commands.pop("", ("", None))
    if alone is not None and not commands:
        return alone
    return CommandFamily(commands, FAMILIES[word][1], alone)


def command_of_verb(verb: VerbEntry) -> Command:
    """The command of a verb."""
    run = RUNS.get(verb.name) or partial(run_command, verb)
    if verb.name in PLOTS:
        plot = ("plot", Path | None, plot_option(PLOTS[verb.name]))
        output: type[Output] = make_dataclass(
            "PlottedOutput", [plot], bases=(Output,), frozen=True, kw_only=True
        )
    else:
        output = OUTPUTS.get(verb.name, Output)
    return Command(verb.request_class, output, run)


def run_command(verb: VerbEntry, request: Request, output: Output) -> int:
    """Call the verb, write the files asked for, and print the answer; returns the exit code."""
    from foretrain.answers import Infeasible

    output.check_files()
    function, further = verb.function, output.verb_arguments()
    with spinner(f"{verb.command} {getattr(request, 'model', None) or ''}".rstrip()) as progress:
        if "progress" in signature(function).parameters:
            further = {**further, "progress": progress}
        answer = function(request, **further)
    is_feasible = not isinstance(answer, Infeasible)  # else there is nothing to write or to choose from
    lines = [*output.write_files(answer, verb.command)] if is_feasible else []
    with as_far_as_it_is_read():
        print_answer(answer, output.json, lines, **(output.view_options() if is_feasible else {}))
    return output.exit_code(answer)


def plot_option(what: str) -> Any:
    """`--plot FILE`, declared by commands whose answer has a chart."""
    return option(FILE, f"Plot {what} to this .png, .svg or .pdf file.", panel=OUTPUT)


def html_option() -> Any:
    """`--html FILE`, declared by commands whose answer has a report."""
    return option(FILE, "Write a self-contained HTML report.", panel=OUTPUT)


@dataclass(frozen=True, kw_only=True)
class FitOutput(Output):
    """Of `fit`."""

    check: bool = option(
        SWITCH, "Exit with status 1 if the job does not fit in memory.", default=False, panel=OUTPUT
    )
    confidence: float = option(
        number(above=0, at_most=1),
        "Minimum probability of fitting in memory, for `check`.",
        default=0.5,
        panel=OUTPUT,
    )

    def exit_code(self, answer: Any) -> int:
        """With `--check`, whether the job fits in memory."""
        from foretrain.answers import Infeasible
        from foretrain.errors import EXIT_INFEASIBLE

        fits = not isinstance(answer, Infeasible) and (
            answer.memory.fits and 1 - answer.memory.out_of_memory_probability >= self.confidence
        )
        return EXIT_INFEASIBLE if self.check and not fits else 0


@dataclass(frozen=True, kw_only=True)
class PredictOutput(FitOutput):
    """Of `predict`."""

    timeline: Path | None = option(
        FILE,
        "Write operators, layers and exchanges of the step over time as a Chrome trace (for Perfetto).",
        panel=OUTPUT,
    )
    plot: Path | None = plot_option("the scaling curve")

    def check_files(self) -> None:
        """The timeline too."""
        from foretrain.facts.user_data import check_file

        check_file("--timeline", self.timeline)
        super().check_files()

    def write_files(self, answer: JobPrediction, command: str) -> Iterator[str]:
        """The timeline too."""
        if self.timeline is not None:
            from foretrain.encoding import to_json
            from foretrain.facts.user_data import write_output
            from foretrain.prediction.timeline import chrome_trace

            title = f"{answer.workload.source.name} on {answer.cluster.name}, {answer.strategy}"
            stages = len({stream.device for stream in answer.timeline.streams})
            devices = [f"{answer.pacing_device}, stage {number + 1}" for number in range(stages)]
            names = tuple(devices) if stages > 1 else (answer.pacing_device,)
            trace = chrome_trace(answer.timeline, title, names)
            write_output("--timeline", self.timeline, to_json(trace))
            yield f"Timeline: {self.timeline}"
        yield from super().write_files(answer, command)


def _launcher_help() -> str:
    """The launch targets, as their registry lists them."""
    from foretrain.planning.launch_files import launch_targets

    return f"Write a launch file: {', '.join(launch_targets())}."


@dataclass(frozen=True, kw_only=True)
class PlanOutput(Output):
    """Of `plan`."""

    VIEW = ("why",)

    why: str | None = option(
        TEXT,
        "Explain why machines with this name or GPU were not selected; `all` for every machine.",
        panel=OUTPUT,
        metavar="NAME",
    )
    emit: str | None = option(TEXT, _launcher_help, panel=OUTPUT, metavar="LAUNCHER")
    emit_to: Path | None = option(
        FILE, "Path of the launch file (default: a standard name in the current folder).", panel=OUTPUT
    )
    script: str | None = option(
        TEXT, "Training command in the launch file (default: train.py).", panel=OUTPUT, metavar="COMMAND"
    )
    html: Path | None = html_option()
    plot: Path | None = plot_option("time against cost of all plans")
    check: bool = option(
        SWITCH, "Exit with status 1 if no plan meets the limits.", default=False, panel=OUTPUT,
        flags=("check", "ci"),
    )  # fmt: skip

    def check_files(self) -> None:
        """The launch file too."""
        from foretrain.errors import InvalidRequest
        from foretrain.facts.user_data import check_file

        if self.emit is not None:
            from foretrain.planning.launch_files import launch_targets

            launch_targets()[self.emit]
        elif self.emit_to is not None:
            raise InvalidRequest("--emit-to is the file of --emit: give that too")
        elif self.script is not None:
            raise InvalidRequest("--script is the command of a launch file: give --emit LAUNCHER too")
        check_file("--emit-to", self.emit_to)
        super().check_files()

    def verb_arguments(self) -> dict[str, Any]:
        """A report shows the step of the chosen plan."""
        return {"with_prediction": self.html is not None}

    def write_files(self, answer: Frontier, command: str) -> Iterator[str]:
        """The launch file of the plan shown too; an existing file is replaced only if it was named."""
        yield from super().write_files(answer, command)
        if self.emit is None:
            return
        import shlex

        from foretrain.errors import InvalidRequest
        from foretrain.facts.user_data import write_output
        from foretrain.planning.launch_files import launch_file, launch_plan, launch_targets

        launched = launch_file(self.emit, launch_plan(answer, self.script or "train.py"))
        file = self.emit_to or Path(launched.file_name)
        if self.emit_to is None and file.exists():
            raise InvalidRequest(f"{file} exists already: move it away, or name a file with --emit-to")
        write_output("--emit-to", file, launched.named(file.name).text)
        late = "" if answer.meets_limits else " of that plan, which does not keep the limits"
        start = launch_targets()[self.emit].how_to_start.format(file=shlex.quote(str(file)))
        yield f"Launch file{late}: {file}; start it with: {start}"

    def exit_code(self, answer: Any) -> int:
        """With `--check`, whether a plan meets the limits."""
        from foretrain.answers import Infeasible
        from foretrain.errors import EXIT_INFEASIBLE

        meets = not isinstance(answer, Infeasible) and answer.meets_limits
        return EXIT_INFEASIBLE if self.check and not meets else 0


@dataclass(frozen=True, kw_only=True)
class SizeOutput(Output):
    """Of `size`."""

    config: Path | None = option(
        FILE,
        "Write the Hugging Face configuration of the chosen model (.json), for plan hf:FILE.",
        panel=OUTPUT,
    )
    plot: Path | None = plot_option("the loss against the number of parameters")

    def check_files(self) -> None:
        """The configuration too."""
        from foretrain.errors import InvalidRequest
        from foretrain.facts.user_data import check_file

        check_file("--config", self.config)
        if self.config is not None and self.config.suffix != ".json":
            raise InvalidRequest(f"--config {self.config}: end the name in .json")
        super().check_files()

    def write_files(self, answer: SizeAnswer, command: str) -> Iterator[str]:
        """The configuration too."""
        if self.config is not None:
            import shlex

            from foretrain.encoding import to_json
            from foretrain.facts.user_data import write_output

            write_output("--config", self.config, to_json(answer.config))
            name = shlex.quote(f"hf:{self.config}")
            plan = f"foretrain plan {name} --tokens {answer.run.tokens:.0f} --master-weights"
            yield f"Configuration: {self.config}; plan it with: {plan}"
        yield from super().write_files(answer, command)


@dataclass(frozen=True, kw_only=True)
class GuideOutput(Output):
    """Of `guide`."""

    VIEW = ("show",)

    show: tuple[str, ...] = option(
        texts(),
        "Tables to print: time, cost, speedup, memory, verdict, throughput, value, transfer.",
        default=(),
        panel=OUTPUT,
        metavar="VIEWS",
    )
    html: Path | None = html_option()

    def check_files(self) -> None:
        """The names of tables too."""
        from foretrain.serving.views.guide import check_names

        check_names(self.show)
        super().check_files()


@dataclass(frozen=True, kw_only=True)
class LearnOutput(Output):
    """Of `learn`."""

    save: Path | None = option(
        FILE, "Save the model (.json) for use with predict --cost-model FILE.", panel=OUTPUT
    )
    plot: Path | None = plot_option("predicted against measured values, with residuals,")

    def check_files(self) -> None:
        """The file of the model too."""
        from foretrain.errors import InvalidRequest
        from foretrain.facts.user_data import check_file
        from foretrain.learning.regression.model import is_model_file

        check_file("--save", self.save)
        if self.save is not None and not is_model_file(self.save):
            raise InvalidRequest(f"--save {self.save}: end the name in .json")
        super().check_files()

    def write_files(self, answer: LearnAnswer, command: str) -> Iterator[str]:
        """The model too."""
        if self.save is not None:
            from foretrain.learning.regression.model import save

            save(answer.model, self.save)
            yield f"Model: {self.save}"
        yield from super().write_files(answer, command)


@dataclass(frozen=True, kw_only=True)
class ProfileOutput(Output):
    """Of `profile`."""

    VIEW = ("layers",)

    layers: bool = option(SWITCH, "Print all layers, not only the longest.", default=False, panel=OUTPUT)


@dataclass(frozen=True, kw_only=True)
class ScheduleOutput(Output):
    """Of `schedule`."""

    VIEW = ("explain",)

    explain: bool = option(
        SWITCH,
        "Explain why each job runs or waits, what will start it, and the cost of lateness.",
        default=False,
        panel=OUTPUT,
    )


@dataclass(frozen=True, kw_only=True)
class SimulateOutput(Output):
    """Of `simulate`."""

    html: Path | None = html_option()
    plot: Path | None = plot_option("the Gantt chart")


@dataclass(frozen=True, kw_only=True)
class ValidateOutput(Output):
    """Of `validate`."""

    VIEW = ("all_runs",)

    all_runs: bool = option(SWITCH, "Show a row for every run.", default=False, panel=OUTPUT, flags=("all",))


@dataclass(frozen=True, kw_only=True)
class DeleteOutput(Output):
    """Of `runs delete`."""

    yes: bool = option(SWITCH, "Delete without asking.", default=False, panel=OUTPUT)

    def verb_arguments(self) -> dict[str, Any]:
        """Who is asked."""
        return {} if self.yes else {"confirm": _confirm}


def _confirm(ids: Sequence[str], place: str) -> bool:
    """Ask the person on the terminal."""
    import click

    from foretrain.errors import InvalidRequest

    count = "1 run" if len(ids) == 1 else f"{len(ids)} runs"
    if not sys.stdin.isatty():
        raise InvalidRequest(f"delete asks before it deletes {count}; without a terminal add --yes")
    some = ", ".join(ids) if len(ids) <= 4 else f"{', '.join(ids[:4])} and {len(ids) - 4} more"
    return click.confirm(f"Delete {count} ({some}) from {place}?", err=True)


OUTPUTS: Mapping[str, type[Output]] = {
    "predict": PredictOutput,
    "fit": FitOutput,
    "plan": PlanOutput,
    "size": SizeOutput,
    "guide": GuideOutput,
    "learn": LearnOutput,
    "profile": ProfileOutput,
    "schedule": ScheduleOutput,
    "simulate": SimulateOutput,
    "validate": ValidateOutput,
    "delete_runs": DeleteOutput,
}
"""The output options of verbs that have more than `--json`, and more than `--plot`."""

PLOTS: Mapping[str, str] = {
    "converge": "the log and its forecast",
    "measure": "steps, resources and bursts",
    "pair": "both jobs on a time axis",
    "rent_or_buy": "the costs",
    "resources": "the bursts on a time axis",
    "scaling": "the step times",
}
"""What `--plot` draws for verbs that have no other output options."""


# ---------------------------------------------------------------- measure


def _measure(request: MeasureRequest, output: Any) -> int:
    """Run and watch the command; its exit code is that of foretrain, whatever becomes of the chart."""
    from foretrain.errors import ForetrainError
    from foretrain.serving.verbs.measuring import Watcher, measure

    def note(text: str) -> None:
        sys.stderr.write(f"foretrain: {text}\n")

    output.check_files()
    line = StatusLine()
    answer = measure(request, Watcher(line.say, note, line.show, line.hide, output.json))
    if answer.problem:
        sys.stderr.write(f"error: {answer.problem}\n")
    with nullcontext() if output.json else redirect_stdout(sys.stderr):
        print_answer(answer, output.json)
    if output.plot is not None:
        try:
            draw_chart(answer, output.plot)
        except (ForetrainError, OSError) as error:
            sys.stderr.write(f"error: {output.plot} is not drawn: {error}\n")
    return answer.exit_code


class StatusLine:
    """A line on the terminal that shows the progress while the command prints nothing."""

    def __init__(self) -> None:
        self._is_terminal = sys.stderr.isatty()
        self._is_shown = False

    def show(self, live: Live, ahead: RunOutlook) -> None:
        """Draw the line anew, unless the command is in the middle of one."""
        if live.at_line_start:
            self.say(status_text(live, ahead))

    def say(self, text: str) -> None:
        """Draw the line anew, cut to the width of the terminal: a line that wraps cannot be removed."""
        if self._is_terminal:
            width = os.get_terminal_size(sys.stderr.fileno()).columns or 80  # 0 where it is not known
            sys.stderr.write(f"\r\x1b[2K\x1b[2m{text[: width - 1]}\x1b[0m")
            sys.stderr.flush()
            self._is_shown = True

    def hide(self) -> None:
        """Remove the line before something else is written."""
        if self._is_shown:
            sys.stderr.write("\r\x1b[2K")
            sys.stderr.flush()
            self._is_shown = False


def status_text(live: Live, ahead: RunOutlook) -> str:
    """`foretrain: 120/1000 steps, 30.8 s and $0.12 left, loss=0.3: 87 %, 35.0 ms per step`."""
    from foretrain.serving.views.measure import left_text
    from foretrain.serving.views.wording import probability
    from foretrain.units import format_duration

    if not live.steps:
        return f"foretrain: {format_duration(live.seconds)}, no steps seen yet"
    total = "" if live.total is None else f"/{live.total}"
    parts = [f"foretrain: {live.steps}{total} steps"]
    parts.append(left_text(ahead) or f"{format_duration(live.seconds)} so far")
    if ahead.probability is not None:
        parts.append(f"{ahead.target}: {probability(ahead.probability)}")
    if live.step_seconds is not None:
        parts.append(f"{format_duration(live.step_seconds)} per step")
    return ", ".join(parts)


# ---------------------------------------------------------------- campaign


def _campaign(request: CampaignRequest, output: Output) -> None:
    """Run the trials that are not stored yet; after Ctrl-C, print how to resume."""
    import click

    from foretrain.serving.verbs.measuring import campaign, count_stored_trials

    try:
        with nullcontext() if request.dry_run else _trials_shown(request.file.stem) as report:
            answer = campaign(request, report) if report is not None else campaign(request)
    except KeyboardInterrupt:
        name, stored = count_stored_trials(request)
        click.echo(f"{name}: {stored} trials are stored; run the same command to resume.", err=True)
        raise
    print_answer(answer, output.json)


@contextmanager
def _trials_shown(title: str) -> Iterator[Callable[[CampaignProgress], None]]:
    """A bar with the predicted time left on a terminal; else a line for each trial on standard error."""
    from foretrain.units import format_duration

    def left(progress: CampaignProgress) -> str:
        return "" if progress.seconds_left is None else f"{format_duration(progress.seconds_left)} left"

    if not sys.stderr.isatty():
        reported = -1

        def report_line(progress: CampaignProgress) -> None:
            nonlocal reported
            if progress.done != reported:
                reported = progress.done
                counted = ", ".join(filter(None, (f"{progress.done}/{progress.total}", left(progress))))
                sys.stderr.write(f"{counted}: {progress.doing}\n")

        yield report_line
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[left]}"),
    )
    with Progress(*columns, console=Console(stderr=True)) as bars:
        bar = bars.add_task(title, total=None, left="")

        def report_bar(progress: CampaignProgress) -> None:
            bars.update(
                bar, completed=progress.done, total=progress.total, left=left(progress),
                description=f"{title}: {progress.doing}",
            )  # fmt: skip

        yield report_bar


RUNS: Mapping[str, Callable[[Any, Any], int | None]] = {"measure": _measure, "campaign": _campaign}
"""Commands with something else on the terminal while they work."""
