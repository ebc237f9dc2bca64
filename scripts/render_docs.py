"""Bring the generated parts of the documentation up to date.

    python scripts/render_docs.py            rewrite them
    python scripts/render_docs.py --check    only say which pages are out of date (exit 1)

Two things are generated. A table between `<!-- begin generated: NAME -->` and `<!-- end generated -->` is
made from the data or code it describes. In a ```console block, the output below each `$ foretrain ...` line
is what that command prints in a pipe with an empty data directory, so no figure is typed by hand. A command
there may end in `| grep "TEXT"`, in `| head -N` and in `; echo "exit $?"`.
"""

from __future__ import annotations

import argparse
import inspect
import io
import os
import re
import shlex
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args, get_type_hints
from unittest import mock

ROOT = Path(__file__).resolve().parent.parent
_TABLE = re.compile(r"(<!-- begin generated: (\S+) -->\n).*?(<!-- end generated -->)", re.DOTALL)
_BLOCK = re.compile(r"(?<=```console\n)\$ foretrain .*?(?=```)", re.DOTALL)
_SHOWN = re.compile(
    r"(?P<arguments>.*?)(?: \| grep \"(?P<text>[^\"]+)\")?(?: \| head -(?P<head>\d+))?"
    r"(?P<status>; echo \"exit \$\?\")?"
)


@dataclass(frozen=True)
class Parameter:
    """An argument or option of a command, as its function declares it."""

    name: str
    value: str
    default: str
    help: str


@dataclass(frozen=True)
class Command:
    """A command of the command line."""

    name: str
    help: str
    parameters: tuple[Parameter, ...]


def main() -> None:
    """Rewrite the pages, or check them."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--check", action="store_true", help="change nothing; exit 1 if a page is out of date"
    )
    parser.add_argument("--root", type=Path, default=ROOT, help="the repository")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as home:
        os.environ["FORETRAIN_HOME"] = home
        stale = [page for page in pages(options.root) if page.read_text() != rendered(page.read_text())]
        for page in stale if not options.check else ():
            page.write_text(rendered(page.read_text()))
    verdict = "out of date, run scripts/render_docs.py" if options.check else "brought up to date"
    sys.stdout.writelines(f"{page.relative_to(options.root)}: {verdict}\n" for page in stale)
    sys.exit(1 if options.check and stale else 0)


def pages(root: Path) -> Iterator[Path]:
    """The pages of the documentation."""
    at_the_root = (root / name for name in ("README.md", "CONTRIBUTING.md", "ARCHITECTURE.md"))
    yield from (page for page in at_the_root if page.is_file())
    yield from sorted((root / "docs").rglob("*.md"))


def rendered(text: str) -> str:
    """A page with its tables and outputs as they should be now."""
    text = _TABLE.sub(lambda found: f"{found[1]}\n{TABLES[found[2]]()}\n\n{found[3]}", text)
    return _BLOCK.sub(lambda found: _session(found[0]), text)


def _session(block: str) -> str:
    """The commands of a console block (a trailing backslash continues one), each with its output now."""
    commands = re.findall(r"^\$ foretrain (?:.*\\\n)*.*\n", block, re.MULTILINE)
    return "\n".join(
        command + output(command.removeprefix("$ foretrain ").replace("\\\n", " ").strip())
        for command in commands
    )


def output(command: str) -> str:
    """What `foretrain COMMAND` prints in a pipe."""
    from foretrain.serving.cli import main as run

    shown = _SHOWN.fullmatch(command)
    assert shown is not None
    printed = io.StringIO()
    status: object = 0
    with (
        mock.patch.object(sys, "argv", ["foretrain", *shlex.split(shown["arguments"])]),
        redirect_stdout(printed),
        redirect_stderr(printed),
    ):
        try:
            run()
        except SystemExit as left:
            status = left.code or 0
    lines = printed.getvalue().splitlines(keepends=True)
    lines = [line for line in lines if (shown["text"] or "") in line]
    lines = lines[: int(shown["head"])] if shown["head"] else lines
    return "".join(lines) + (f"exit {status}\n" if shown["status"] else "")


def commands() -> tuple[Command, ...]:
    """Every command, read from the functions that implement them."""
    from foretrain.serving.cli.app import app

    return tuple(
        Command(
            info.name or info.callback.__name__,
            inspect.getdoc(info.callback) or "",
            _parameters(info.callback),
        )
        for info in app.registered_commands
        if info.callback is not None and not info.hidden
    )


def _parameters(function: Callable[..., Any]) -> tuple[Parameter, ...]:
    hints = get_type_hints(function, include_extras=True)
    found = []
    for name, declared in inspect.signature(function).parameters.items():
        kind, info = get_args(hints[name])[:2]
        declared_names = (info.default, *(getattr(info, "param_decls", None) or ()))
        flags = [flag for flag in declared_names if isinstance(flag, str) and flag.startswith("-")]
        is_argument = type(info).__name__ == "ArgumentInfo"
        label = name.upper() if is_argument else ", ".join(flags) or f"--{name.replace('_', '-')}"
        value = "" if is_argument else _value(kind, info)
        found.append(Parameter(label, value, _default(declared.default), info.help or ""))
    return tuple(found)


def _value(kind: Any, info: Any) -> str:
    """What to write after an option: its parser's or its type's name; nothing after a switch."""
    if getattr(info, "metavar", None):
        return str(info.metavar)
    if info.parser is not None:
        return str(info.parser.__name__)
    named = [part for part in get_args(kind) or (kind,) if part is not type(None)]
    names = {"bool": "", "str": "TEXT", "int": "INTEGER", "float": "NUMBER", "datetime": "DATE"}
    name = str(named[0].__name__)
    return names.get(name, name.upper())


def _default(value: object) -> str:
    if value is inspect.Parameter.empty:
        return "required"
    return "" if value is None or value is False else str(value)


def _command_reference() -> str:
    parts = []
    for command in commands():
        rows = [(f"`{p.name}{p.value and ' '}{p.value}`", p.default, p.help) for p in command.parameters]
        table = _table(("argument or option", "default", "meaning"), rows)
        parts.append(f"## `foretrain {command.name}`\n\n{_as_markdown(command.help)}\n\n{table}")
    return "\n\n".join(parts)


def _as_markdown(help_text: str) -> str:
    """A command's docstring, its examples as a block of commands."""
    text, *examples = re.split(r"\s*Examples?:\n", help_text.replace("\b", ""))
    if not examples:
        return text
    listed = "\n".join(line.strip() for line in examples[0].splitlines())
    return f"{text.strip()}\n\n```sh\n{listed}\n```"


def _nomenclature() -> str:
    from foretrain.facts.sheets import quantities

    return _table(
        ("quantity", "unit", "meaning", "sane between", "required of"),
        [
            (
                f"`{quantity.name}`",
                quantity.unit,
                quantity.meaning,
                "" if quantity.bounds is None else f"{quantity.bounds[0]:g} and {quantity.bounds[1]:g}",
                ", ".join(quantity.required),
            )
            for quantity in quantities().values()
        ],
    )


def _error_table() -> str:
    from foretrain import errors

    tree: tuple[type[errors.ForetrainError], ...] = (
        errors.InvalidRequest,
        errors.InvalidData,
        errors.UnknownName,
        errors.MissingData,
        errors.BackendFailed,
    )
    return _table(
        ("error", "when", "exit code", "HTTP status"),
        [
            (f"`{kind.__name__}`", inspect.getdoc(kind) or "", str(kind.exit_code), str(kind.http_status))
            for kind in tree
        ],
    )


def _billing_table() -> str:
    from foretrain.facts.providers import providers
    from foretrain.units import format_duration, format_money

    return _table(
        ("provider", "instances", "rounded up to", "at least", "egress per GB", "kind", "source"),
        [
            (
                provider.id,
                f"`{rule.instances}`" + (" (historical)" if rule.historical else ""),
                format_duration(rule.terms.granularity_seconds),
                format_duration(rule.terms.minimum_seconds) if rule.terms.minimum_seconds else "",
                "" if rule.terms.egress_usd_per_gb is None else format_money(rule.terms.egress_usd_per_gb),
                rule.terms.kind.value,
                rule.terms.source,
            )
            for provider in providers().values()
            for rule in provider.billing_rules
        ],
    )


def _table(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [titles, ["---"] * len(titles), *([cell.replace("|", "\\|") for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


TABLES: dict[str, Callable[[], str]] = {
    "billing": _billing_table,
    "commands": _command_reference,
    "errors": _error_table,
    "nomenclature": _nomenclature,
}

if __name__ == "__main__":
    main()
