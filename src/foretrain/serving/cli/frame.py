"""Commands built from request classes: options, help in named panels, output options, and written files.

A `Command` is the request it decodes, the output options of the command line, and the function to run.
"""

from __future__ import annotations

import difflib
import shlex
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import click

from foretrain.answers import Answer
from foretrain.decoding import SWITCH, Option, decode, option, options
from foretrain.errors import ForetrainError, InvalidData
from foretrain.panels import COMMON, OUTPUT, PANELS
from foretrain.serving.requests import CONFIG, Request, request_from, takes_config
from foretrain.serving.views.wording import as_flags, flag
from foretrain.units import HOUR, MINUTE

if TYPE_CHECKING:
    from foretrain.serving.cli.completion import Completer


@dataclass(frozen=True, kw_only=True)
class Output:
    """Options of the command line alone; commands add their own: `plot`, `html`, those of a view (`VIEW`)."""

    VIEW: ClassVar[tuple[str, ...]] = ()

    json: bool = option(SWITCH, "Print JSON instead of tables.", default=False, panel=OUTPUT)

    def check_files(self) -> None:
        """Refuse files that cannot be written before anything is computed."""
        if (html := getattr(self, "html", None)) is not None:
            from foretrain.facts.user_data import check_file

            check_file("--html", html)
        if (plot := getattr(self, "plot", None)) is not None:
            from foretrain.serving.rendering.charts import check_format

            check_format(plot)

    def verb_arguments(self) -> dict[str, Any]:
        """Further arguments of the verb."""
        return {}

    def view_options(self) -> dict[str, Any]:
        """Further arguments of the view."""
        return {name: getattr(self, name) for name in self.VIEW}

    def write_files(self, answer: Any, command: str) -> Iterator[str]:
        """Write the files asked for; a line about each."""
        if (html := getattr(self, "html", None)) is not None:
            write_report(html, answer, command)
            yield f"Report: {html}"
        if (plot := getattr(self, "plot", None)) is not None:
            draw_chart(answer, plot)
            yield f"Plot: {plot}"

    def exit_code(self, answer: Any) -> int:  # noqa: ARG002 - of commands that check
        """Of an answer that was printed."""
        return 0


def command_line() -> str:
    """The command line as it was typed, quoted for a shell: reports print what made them."""
    return shlex.join(["foretrain", *sys.argv[1:]])


def write_report(file: Path, answer: Answer, verb: str) -> None:
    """Write the report of an answer as one self-contained page that states its command and date."""
    from datetime import date

    from foretrain.facts.user_data import write_output
    from foretrain.serving.rendering.html import document
    from foretrain.serving.views import report_of

    page = document(report_of(answer), f"foretrain {verb}", command_line(), date.today().isoformat())
    write_output("--html", file, page)


def draw_chart(answer: Answer, file: Path) -> None:
    """Draw the chart of an answer into a file."""
    from foretrain.serving.rendering.charts import save_chart
    from foretrain.serving.views import chart_of

    chart = chart_of(answer)
    if chart is not None:
        save_chart(chart, file)


Row = tuple[str, str]
REQUIRED = "required"


@dataclass(frozen=True)
class Command:
    """A command: what it decodes and what it runs.

    `run` gets the request and the output options; what it returns is the exit code, None for 0.
    """

    request: type[Request]
    output: type[Output]
    run: Callable[[Any, Any], int | None]

    @property
    def help(self) -> str:
        """The text of its help after the first line."""
        lines = "\n".join(f"  {line}" for line in self.request.EXAMPLES)
        return "\n\n".join(filter(None, (self.request.DETAILS, lines and f"\b\nExamples:\n{lines}")))


@dataclass(frozen=True)
class CommandFamily:
    """Commands that share their first word: `foretrain runs list`, `foretrain runs show`.

    `default` runs where the next word is none of them (`foretrain calibrate timings.csv`).
    """

    commands: Mapping[str, tuple[str, Command]]
    details: str = ""
    default: Command | None = None


def click_command(declared: Command | CommandFamily, name: str, summary: str) -> click.Command:
    """What click runs for a declared command or family."""
    if isinstance(declared, Command):
        return PanelCommand(declared, name, summary)
    return FamilyGroup(declared, name, summary)


class FamilyGroup(click.Group):
    """The commands of a family, by their second word."""

    def __init__(self, family: CommandFamily, name: str, summary: str) -> None:
        commands: dict[str, click.Command] = {
            word: PanelCommand(declared, word, text) for word, (text, declared) in family.commands.items()
        }
        default = family.default
        self.default = PanelCommand(default, name, summary) if default is not None else None
        after = "" if default is None else default.help
        text = "\n\n".join(filter(None, (summary, family.details, after)))
        super().__init__(name, commands=commands, help=text)

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - of click
        """In the order of declaration."""
        return list(self.commands)

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        """That of the default command where the first word is no command of the family."""
        is_of_family = bool(args) and args[0] in {*self.commands, "-h", "--help"}
        if self.default is not None and not is_of_family:
            self._refuse_mistyped(info_name, args, parent)
            return self.default.make_context(info_name, args, parent, **extra)
        return super().make_context(info_name, args or ["--help"], parent, **extra)

    def _refuse_mistyped(self, name: str | None, args: list[str], parent: click.Context | None) -> None:
        """A word that is almost a command of the family, and no file, is that command mistyped."""
        near = difflib.get_close_matches(args[0], self.commands, cutoff=0.75) if args else []
        if near and not Path(args[0]).exists():
            context = click.Context(self, parent=parent, info_name=name)
            context.fail(f"No such command {args[0]!r}. Did you mean {' or '.join(map(repr, near))}?")

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The options of the default command follow those of the family."""
        if self.default is not None:
            self.default.format_usage(ctx, formatter)
            self.default.format_options(ctx, formatter)


class PanelCommand(click.Command):
    """A command whose help shows its options in named panels, the common ones first."""

    def __init__(self, declared: Command, name: str, summary: str) -> None:
        self.declared = declared
        self._switches = bool(declared.request.TAKES_WORKLOAD_FILE)
        self._takes_config = takes_config(declared.request)
        self.allow_interspersed_args = not declared.request.WRAPS
        listed = [*options(declared.request), *options(declared.output)]
        super().__init__(
            name,
            params=[self._parameter(each) for each in listed],
            callback=self._run,
            help="\n\n".join(filter(None, (summary, declared.help))),
        )

    def _parameter(self, declared: Option) -> click.Parameter:
        if declared.positional:
            return click.Argument(
                [declared.name],
                required=declared.is_required and not self._takes_config,
                nargs=-1 if declared.kind.many else 1,
                metavar=f"{declared.metavar}{'...' if declared.kind.many else ''}",
                shell_complete=_completer(declared),
            )
        return click.Option(
            [declared.name, *_declarations(declared, self._switches)],
            default=None,
            is_flag=declared.kind.is_switch,
            multiple=declared.kind.many,
            metavar=declared.metavar or None,
            shell_complete=_completer(declared),
        )

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """The model may be left out where a training configuration names it."""
        left = super().parse_args(ctx, args)
        if self._takes_config and ctx.params.get(CONFIG) is None and not ctx.resilient_parsing:
            for argument in (each for each in self.params if isinstance(each, click.Argument)):
                if ctx.params.get(argument.name or "") is None:
                    raise click.MissingParameter(ctx=ctx, param=argument)
        return left

    def _run(self, **given: Any) -> int | None:
        """Decode and run; fields that an error names are spelled as typed, unless they are of a file."""
        try:
            return self._decoded_run(given)
        except InvalidData:
            raise
        except ForetrainError as error:
            text = str(error)
            for each in options(self.declared.request):
                text = text.replace(f"`{each.name}`", each.metavar) if each.positional else text
            error.args = (as_flags(text, _names(self.declared)),)
            raise

    def _decoded_run(self, given: Mapping[str, Any]) -> int | None:
        chosen = {name: _once(value) for name, value in given.items() if value not in (None, ())}
        cls, output = self.declared.request, self.declared.output
        of_output = {each.name for each in options(output)}
        request = request_from(cls, {name: value for name, value in chosen.items() if name not in of_output})
        printed = decode(output, {name: value for name, value in chosen.items() if name in of_output})
        return self.declared.run(request, printed)

    def format_usage(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """`Usage: foretrain predict MODEL [OPTIONS]`."""
        named = [each for each in options(self.declared.request) if each.positional]
        pieces = [
            f"{each.metavar}{'...' if each.kind.many else ''}" if each.is_required else f"[{each.metavar}]"
            for each in named
        ]
        usage = ["[OPTIONS]", "--", *pieces] if self.declared.request.WRAPS else [*pieces, "[OPTIONS]"]
        formatter.write_usage(ctx.command_path, " ".join(usage))

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """The panels."""
        positional = [(each.name, each.text) for each in arguments(self.declared)]
        _write(formatter, "Arguments", positional)
        listed = [(title, [each.row for each in rows]) for title, rows in panels(self.declared).items()]
        listed[-1][1].append(("-h, --help", "Show this message and exit."))
        for title, rows in listed:
            _write(formatter, title, rows)


@dataclass(frozen=True, slots=True)
class Listed:
    """An argument or option as help and documentation list it."""

    name: str
    metavar: str
    default: str
    text: str

    @property
    def row(self) -> Row:
        """Its two columns in a help text."""
        after = "  [required]" if self.default == REQUIRED else f"  [default: {self.default}]"
        return f"{self.name} {self.metavar}".rstrip(), self.text + (after if self.default else "")


def arguments(declared: Command) -> list[Listed]:
    """The arguments without a name."""
    return [
        Listed(each.metavar, "", REQUIRED if each.is_required else "", as_flags(each.text, _names(declared)))
        for each in options(declared.request)
        if each.positional
    ]


def panels(declared: Command) -> dict[str, list[Listed]]:
    """The options under their headings, the common ones first."""
    named = {
        each.name: each
        for each in (*options(declared.request), *options(declared.output))
        if not each.positional
    }
    common = [named.pop(name) for name in declared.request.COMMON.split() if name in named]
    listed: dict[str, list[Listed]] = {name: [] for name in PANELS}
    own = _names(declared)
    listed[COMMON] += [_listed(each, own) for each in common]
    for each in named.values():
        listed[each.panel or COMMON].append(_listed(each, own))
    return {title: rows for title, rows in listed.items() if rows}


def _names(declared: Command) -> set[str]:
    """The names of a command's own options."""
    listed = (*options(declared.request), *options(declared.output))
    return {each.name for each in listed if not each.positional}


def _listed(declared: Option, own: Iterable[str]) -> Listed:
    name = ", ".join(_declarations(declared, with_negatives=False)).replace("/", " / ")
    return Listed(name, declared.metavar, _default(declared), as_flags(declared.text, own))


def _declarations(declared: Option, with_negatives: bool) -> tuple[str, ...]:
    """How an option is written; switches that a workload file may set can be turned off again."""
    if declared.flags:
        return tuple("/".join(f"--{word}" for word in each.split("/")) for each in declared.flags)
    name = flag(declared.name)
    if not declared.kind.is_switch:
        return (name,)
    if with_negatives and not declared.name.startswith("no_") and declared.panel != OUTPUT:
        return (f"{name}/--no-{name[2:]}",)
    return (name,)


def _default(declared: Option) -> str:
    value = declared.default
    if declared.is_required:
        return REQUIRED
    if value in (None, False, (), "", 0.0):
        return ""
    if declared.kind.is_switch:
        return declared.flags[0].partition("/")[0]
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    if declared.kind.needs_unit:  # shown as it may be typed: a bare number is refused
        return f"{value / MINUTE:g}min" if value < HOUR else f"{value / HOUR:g}h"
    return f"{value:g}" if isinstance(value, float) else str(value)


def spellings(command: Command, declared: Option) -> tuple[str, ...]:
    """The flags of an option on a command line: `--prefetch`, `--no-overlap`."""
    written = _declarations(declared, bool(command.request.TAKES_WORKLOAD_FILE))
    return tuple(flag for each in written for flag in each.split("/"))


def _completer(declared: Option) -> Completer | None:
    """What shells complete an option from; None for what they complete by themselves, as files."""
    if not declared.kind.choices and not declared.complete:
        return None

    def complete(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
        from foretrain.serving.cli.completion import COMPLETERS, choices

        names = choices(declared.kind.choices) if declared.kind.choices else COMPLETERS[declared.complete]
        return names(context, parameter, incomplete)

    return complete


def _once(value: Any) -> Any:
    """The value of an option that may be repeated and was not."""
    return value[0] if isinstance(value, tuple) and len(value) == 1 else value


def _write(formatter: click.HelpFormatter, title: str, rows: Sequence[Row]) -> None:
    if rows:
        with formatter.section(title):
            formatter.write_dl(rows)
