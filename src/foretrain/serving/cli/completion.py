"""Completion of commands, options and names in a shell."""

from __future__ import annotations

import os
from pathlib import Path

import click
from click.shell_completion import get_completion_class

from foretrain.errors import BackendFailed, InvalidRequest

VARIABLE = "_FORETRAIN_COMPLETE"
_START_FILES = {"bash": ".bashrc", "zsh": ".zshrc", "fish": ".config/fish/completions/foretrain.fish"}


def script(shell: str, command: click.Command) -> str:
    """The completion script of a shell."""
    completion = get_completion_class(shell)
    if completion is None:
        raise InvalidRequest(f"no completion for {shell!r}; there is one for {', '.join(_START_FILES)}")
    try:
        return completion(command, {}, "foretrain", VARIABLE).source()
    except RuntimeError as error:
        raise BackendFailed(f"no completion in this {shell}: {error}") from error


def install(command: click.Command) -> str:
    """Make the current shell complete `foretrain` from its next start on; says what was written where."""
    shell = Path(os.environ.get("SHELL", "")).name
    if shell not in _START_FILES:
        raise InvalidRequest(
            f"the current shell is {shell or 'unknown'!r}; completion is for {', '.join(_START_FILES)}"
        )
    file = Path.home() / _START_FILES[shell]
    if shell == "fish":
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(script(shell, command), encoding="utf-8")
        return f"Completion written to {file}; it starts with the next {shell}."
    line = f'eval "$(foretrain --show-completion {shell})"'
    present = file.read_text(encoding="utf-8") if file.exists() else ""
    if line not in present.splitlines():
        with file.open("a", encoding="utf-8") as opened:
            opened.write(f"\n{line}\n")
    return f"Completion is set in {file}; it starts with the next {shell}."
