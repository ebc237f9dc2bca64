"""The tree of commands, each imported when it is run, and shell completion."""

from __future__ import annotations

import difflib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from foretrain import __version__
from foretrain.serving.table import first_words

SUMMARIES = first_words()
"""The commands by their first word, each with its line of help."""
COMPLETION_VARIABLE = "_FORETRAIN_COMPLETE"
"""The variable by which a shell asks for completions."""
_START_FILES = {"bash": ".bashrc", "zsh": ".zshrc", "fish": ".config/fish/completions/foretrain.fish"}


class CommandGroup(click.Group):
    """All commands by name, each with its one-line summary; `commands` finds the rest."""

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
        from foretrain.serving.cli.commands import declared
        from foretrain.serving.cli.frame import click_command

        return click_command(declared(cmd_name), cmd_name, self._summaries[cmd_name])

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
    help="Predict the time, cost and memory of deep-learning training jobs before you run them.",
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
