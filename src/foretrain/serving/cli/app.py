"""The tree of commands, each imported when it is run, and shell completion."""

from __future__ import annotations

import difflib
import os
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import click

from foretrain import __version__

SUMMARIES = {
    "predict": "Predict a training step and the whole job on given hardware.",
    "plan": "Find what to rent: the best plan among all offers.",
    "trace": "See a model's training step: parameters, FLOP, bytes, layers.",
    "scaling": "From a few timed configurations of a job to all others.",
    "resources": "Bursts and idle gaps: what a step uses over time, and what changes it.",
    "pair": "Would two jobs share a device and a link well?",
    "converge": "When does a training log reach its target?",
    "measure": "Run a training command and watch its steps and resources.",
    "campaign": "Run many short trainings and keep their results.",
    "calibrate": "Learn from your own timings, or time this machine.",
    "learn": "Regression on your own timings, judged beyond them.",
    "profile": "Measured times of operators and layers beside the predicted ones.",
    "devices": "List GPUs and CPUs with their peaks, memory and links.",
    "models": "List the models of the zoo, and what else can be given as a model.",
    "links": "List links and networks with their rates and sources.",
    "offers": "List what machines cost to rent, every price with its date.",
    "guide": "The buyer's guide: networks by hardware by batch size.",
    "rent-or-buy": "Rent or buy: after how many hours of use does owning win?",
    "explain": "Show every fact about a name with its kind and source.",
    "schedule": "One decision: which jobs run where now, and when the others will.",
    "simulate": "Many jobs on a cluster over time: cost, lateness, one policy or several.",
    "run": "Run the jobs for real: on this machine, Ray or Slurm; forecast against bill.",
    "runs": "List, show, compare, export, import and delete stored runs.",
    "validate": "Compare predictions with your own stored runs.",
}
COMPLETION_VARIABLE = "_FORETRAIN_COMPLETE"
"""The variable by which a shell asks for completions."""
_START_FILES = {"bash": ".bashrc", "zsh": ".zshrc", "fish": ".config/fish/completions/foretrain.fish"}


class CommandGroup(click.Group):
    """All commands by name, each with its one-line summary; the module of the same name declares it."""

    def __init__(self, summaries: Mapping[str, str], **attributes: Any) -> None:
        super().__init__(**attributes)
        self._summaries = summaries

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - of click
        """In the order of declaration."""
        return list(self._summaries)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """The command, whose module is imported now."""
        if cmd_name not in self._summaries:
            return None
        from foretrain.serving.cli.frame import click_command

        module = import_module(f"foretrain.serving.cli.{cmd_name.replace('-', '_')}")
        return click_command(module.COMMAND, cmd_name, self._summaries[cmd_name])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command of the first word; a mistyped one is an error that names near ones."""
        name = args[0]
        if name not in self._summaries and not name.startswith("-") and not ctx.resilient_parsing:
            near = difflib.get_close_matches(name, self._summaries)
            hint = f" Did you mean {' or '.join(map(repr, near))}?" if near else ""
            ctx.fail(f"No such command {name!r}.{hint}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """Summaries come from the table: no command is imported for them."""
        with formatter.section("Commands"):
            formatter.write_dl(list(self._summaries.items()))


def _version(ctx: click.Context, _: click.Parameter, wanted: bool) -> None:
    if wanted:
        click.echo(f"foretrain {__version__}")
        ctx.exit()


def _show_completion(ctx: click.Context, _: click.Parameter, shell: str | None) -> None:
    if shell:
        click.echo(_completion_script(shell, ctx.command))
        ctx.exit()


def _install_completion(ctx: click.Context, _: click.Parameter, wanted: bool) -> None:
    if wanted:
        click.echo(_installed_completion(ctx.command))
        ctx.exit()


def _completion_script(shell: str, command: click.Command) -> str:
    """The completion script of a shell."""
    from click.shell_completion import get_completion_class

    from foretrain.errors import BackendFailed, InvalidRequest

    completion = get_completion_class(shell)
    if completion is None:
        raise InvalidRequest(f"no completion for {shell!r}; there is one for {', '.join(_START_FILES)}")
    try:
        return completion(command, {}, "foretrain", COMPLETION_VARIABLE).source()
    except RuntimeError as error:
        raise BackendFailed(f"no completion in this {shell}: {error}") from error


def _installed_completion(command: click.Command) -> str:
    """Make the current shell complete `foretrain` from its next start on; returns what was written."""
    from foretrain.errors import InvalidRequest

    shell = Path(os.environ.get("SHELL", "")).name
    if shell not in _START_FILES:
        raise InvalidRequest(
            f"the current shell is {shell or 'unknown'!r}; completion is for {', '.join(_START_FILES)}"
        )
    file = Path.home() / _START_FILES[shell]
    if shell == "fish":
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(_completion_script(shell, command), encoding="utf-8")
        return f"Completion written to {file}; it starts with the next {shell}."
    line = f'eval "$(foretrain --show-completion {shell})"'
    present = file.read_text(encoding="utf-8") if file.exists() else ""
    if line not in present.splitlines():
        with file.open("a", encoding="utf-8") as opened:
            opened.write(f"\n{line}\n")
    return f"Completion is set in {file}; it starts with the next {shell}."


def _eager(name: str, help: str, callback: object, **attributes: object) -> click.Option:  # noqa: A002
    return click.Option(
        [name],
        help=help,
        callback=callback,
        is_eager=True,
        expose_value=False,
        **attributes,  # type: ignore[arg-type]
    )


app = CommandGroup(
    SUMMARIES,
    name="foretrain",
    help="Know what a training job will take - time, money, memory, machines - before you run it.",
    context_settings={"help_option_names": ["-h", "--help"]},
    params=[
        _eager("--version", "Print the version and exit.", _version, is_flag=True),
        _eager(
            "--install-completion", "Install completion for the current shell.", _install_completion,
            is_flag=True,
        ),
        _eager("--show-completion", "Print the completion script of a shell.", _show_completion,
               type=click.Choice(tuple(_START_FILES))),
    ],
)  # fmt: skip
