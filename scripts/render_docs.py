"""Bring the generated parts of the documentation up to date.

    python scripts/render_docs.py            rewrite them
    python scripts/render_docs.py docs/plan.md README.md    rewrite these pages
    python scripts/render_docs.py --check    only list the pages that are out of date (exit 1)

Two things are generated. A table between `<!-- begin generated: NAME -->` and `<!-- end generated -->` is
made from the data or code it describes. In a ```console block, the output below each `$ foretrain ...` line
is what that command prints in a pipe with an empty data directory, so no figure is typed by hand. A command
there may end in `| grep "TEXT"`, in `| head -N` and in `; echo "exit $?"`. In a ```pycon block, the output
below each `>>>` statement is what that statement prints. The head of the page of a model (docs/models) names
modules, constants and suites: its equations are the docstrings of these modules, its errors those of the
suites.
"""

from __future__ import annotations

import argparse
import ast
import inspect
import io
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

from foretrain.serving.cli import frame
from foretrain.serving.cli.app import SUMMARIES
from foretrain.serving.cli.commands import declared
from foretrain.serving.cli.frame import CommandFamily, Listed, arguments, panels
from foretrain.serving.python import first_option, keyword_options, takes
from foretrain.serving.table import VERBS, VerbEntry

ROOT = Path(__file__).resolve().parent.parent
WALK = "predict resnet50 --on rtx3090 --batch 192"
"""The request that ARCHITECTURE.md walks through the tree."""
_TABLE = re.compile(r"(<!-- begin generated: (\S+) -->\n).*?(<!-- end generated -->)", re.DOTALL)
_BLOCK = re.compile(r"(?<=```console\n)\$ foretrain .*?(?=```)", re.DOTALL)
_PYTHON = re.compile(r"(?<=```pycon\n)>>> .*?(?=```)", re.DOTALL)
_SHOWN = re.compile(
    r"(?P<arguments>.*?)(?: \| grep \"(?P<text>[^\"]+)\")?(?: \| head -(?P<head>\d+))?"
    r"(?P<status>; echo \"exit \$\?\")?"
)


@dataclass(frozen=True)
class Command:
    """A command of the command line: its options under their headings."""

    name: str
    help: str
    examples: tuple[str, ...]
    panels: dict[str, list[Listed]]

    @property
    def parameters(self) -> list[Listed]:
        """All arguments and options."""
        return [each for rows in self.panels.values() for each in rows]


def main() -> None:
    """Rewrite the pages, or check them."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--check", action="store_true", help="change nothing; exit 1 if a page is out of date"
    )
    parser.add_argument("--root", type=Path, default=ROOT, help="the repository")
    parser.add_argument("pages", nargs="*", type=Path, help="pages to look at (default: all)")
    options = parser.parse_args()
    verdict = "out of date, run scripts/render_docs.py" if options.check else "updated"
    stale = 0
    with tempfile.TemporaryDirectory() as home:
        os.environ["FORETRAIN_HOME"] = home
        os.environ["SOURCE_DATE_EPOCH"] = "0"  # no lines about the age of prices
        os.environ["FORETRAIN_PROGRESS"] = "3600"  # no lines about slow machines
        for page in options.pages or pages(options.root):
            text = page.read_text()
            now = rendered(text)
            if now == text:
                continue
            stale += 1
            if not options.check:
                page.write_text(now)
            sys.stdout.write(f"{page.resolve().relative_to(options.root.resolve())}: {verdict}\n")
            sys.stdout.flush()
    sys.exit(1 if options.check and stale else 0)


def pages(root: Path) -> Iterator[Path]:
    """The pages of the documentation."""
    at_the_root = (root / name for name in ("README.md", "CONTRIBUTING.md", "ARCHITECTURE.md"))
    yield from (page for page in at_the_root if page.is_file())
    yield from sorted((root / "docs").rglob("*.md"))


def rendered(text: str) -> str:
    """A page with its tables and outputs as they should be now."""
    tables = TABLES | {"model": lambda: _model(model_head(text))}
    text = _TABLE.sub(lambda found: f"{found[1]}\n{tables[found[2]]()}\n\n{found[3]}", text)
    text = _PYTHON.sub(lambda found: _python_session(found[0]), text)
    return _BLOCK.sub(lambda found: _session(found[0]), text)


def _session(block: str) -> str:
    """The commands of a console block (a trailing backslash continues one), each with its output now."""
    commands = re.findall(r"^\$ foretrain (?:.*\\\n)*.*\n", block, re.MULTILINE)
    return "\n".join(
        command + output(command.removeprefix("$ foretrain ").replace("\\\n", " ").strip())
        for command in commands
    )


def _python_session(block: str) -> str:
    """The statements of a Python session, each with its output now."""
    namespace: dict[str, Any] = {"__name__": "__console__"}
    parts = []
    for statement in re.findall(r"^>>> .*\n(?:\.\.\. .*\n)*", block, re.MULTILINE):
        source = "\n".join(line[4:] for line in statement.splitlines()) + "\n"
        printed = io.StringIO()
        with redirect_stdout(printed):
            exec(compile(source, "<documentation>", "single"), namespace)
        parts.append(statement + printed.getvalue())
    return "".join(parts)


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
    """Every command as it is declared."""
    return tuple(each for name, summary in SUMMARIES.items() for each in _commands(name, summary))


def _commands(name: str, summary: str) -> Iterator[Command]:
    """The command of a name, or all of its family."""
    command = declared(name)
    if not isinstance(command, CommandFamily):
        yield _command(name, summary, command)
        return
    if command.default is not None:
        yield _command(name, summary, command.default)
    for word, (text, each) in command.commands.items():
        yield _command(f"{name} {word}", text, each)


def _command(name: str, summary: str, command: frame.Command) -> Command:
    text = "\n\n".join(filter(None, (summary, command.request.DETAILS)))
    positional = {"Arguments": arguments(command)} if arguments(command) else {}
    return Command(name, text, command.request.EXAMPLES, {**positional, **panels(command)})


def _command_reference() -> str:
    return "\n\n".join(_reference_of(command) for command in commands())


def _reference_of(command: Command) -> str:
    examples = "\n".join(("```sh", *command.examples, "```"))
    tables = (
        _table(
            (title, "default", "meaning"),
            [
                (f"`{each.name}{each.metavar and ' '}{each.metavar}`", each.default, each.text)
                for each in rows
            ],
        )
        for title, rows in command.panels.items()
    )
    return "\n\n".join((f"## `foretrain {command.name}`", command.help, examples, *tables))


def _verb_reference() -> str:
    """The Python verbs: a table, then each with its common arguments and an example that a test executes."""
    rows = [
        (
            f"[`{verb.name}`](#{verb.name})",
            f"`{verb.request}`",
            ", ".join(f"`{name}`" for name in verb.function.__annotations__["return"].split(" | ")),
            f"`{verb.command}`",
        )
        for verb in VERBS.values()
    ]
    table = _table(("verb", "request", "answer", "command"), rows)
    return "\n\n".join((table, *map(_verb_section, VERBS.values())))


def _verb_section(verb: VerbEntry) -> str:
    text, _, example = inspect.cleandoc(verb.function.__doc__ or "").partition("\n\n>>> ")
    first = first_option(verb)
    taken = [] if first is None else [(first.name, first.text)]
    if takes(verb, "source"):
        taken += [
            ("inputs", "Example inputs of a torch module given as `model`: a tensor, a tuple or a dict."),
            ("loss", "Function of the module's output, unless the module returns its loss; or the option."),
        ]
    others = keyword_options(verb)
    common = verb.request_class.COMMON.split() or [each.name for each in others]
    listed = [each for name in common for each in others if each.name == name]
    shown = [f"`{name}`: {text}" for name, text in (*taken, *((each.name, each.text) for each in listed))]
    more = len(others) - len(listed)
    if more > 0:
        shown.append(
            f"and {more} more, as [`foretrain {verb.command}`]"
            f"(command-line.md#foretrain-{verb.command.replace(' ', '-')}) lists them"
        )
    arguments = "\n".join(f"- {line}" for line in shown)
    code = f"```python\n>>> {example}\n```"
    return "\n\n".join(filter(None, (f"## `{verb.name}` {{#{verb.name}}}", text, arguments, code)))


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


def _walk_table() -> str:
    """The modules that one prediction enters, by package, in the order the packages are entered."""
    command = [sys.executable, str(ROOT / "scripts" / "walk.py"), "--json", *WALK.split()]
    walked: dict[str, int] = json.loads(
        subprocess.run(command, capture_output=True, text=True, check=True).stdout
    )
    packages: dict[str, list[str]] = {}
    for name in walked:
        package, _, module = name.removeprefix("foretrain.").rpartition(".")
        packages.setdefault(package.replace(".", "/") or "foretrain", []).append(module)
    rows = [(f"`{package}`", ", ".join(f"`{name}`" for name in names)) for package, names in packages.items()]
    return f"{_table(('package', 'modules'), rows)}\n\n{len(walked)} modules in all."


def model_head(text: str) -> dict[str, list[str]]:
    """What the page of a model is about: its `modules`, `constants` and suites (`accuracy`)."""
    import yaml

    head: dict[str, list[str]] = yaml.safe_load(text.split("---\n", 2)[1])
    return head


def _model(head: dict[str, list[str]]) -> str:
    """Where a model is, what it was fitted to, how large its errors are; then its equations."""
    files = dict.fromkeys(f"src/foretrain/{name.partition('::')[0]}" for name in head["modules"])
    constants = [f"`src/foretrain/{name}`" for name in head["constants"]] or ["none: nothing is fitted"]
    rows = [
        ("code", "<br>".join(f"`{name}`" for name in files)),
        ("constants", "<br>".join(constants)),
        ("errors", "<br>".join(map(_suite_errors, head["accuracy"])) or "no suite judges it by itself"),
    ]
    return "\n\n".join((_table(("what", "where"), rows), "## Equations", *map(_equations, head["modules"])))


def _suite_errors(wanted: str) -> str:
    """A suite with the median error (else the mean) of two sets of cases; `SUITE:TEXT`: those with TEXT."""
    name, _, about = wanted.partition(":")
    sys.path.insert(0, str(ROOT))
    from validation.targets import suites

    (suite,) = [each for each in suites() if each.id == name]
    shown = []
    for target in [each for each in suite.targets if about in each.what][:2]:
        if (figures := target.figures) is not None:
            error = f"{figures.mean:.0%} mean" if figures.median is None else f"{figures.median:.0%} median"
            left_out = target.left_out if target.left_out == "not fitted" else f"{target.left_out} left out"
            shown.append(f"{target.what} ({left_out}) {error}")
    return f"[{suite.title}](../accuracy/{name}.md): {'; '.join(shown)}"


def _equations(name: str) -> str:
    """The docstring of a module, of a class (`PATH::NAME`), or of all classes with equations (`PATH::*`)."""
    path, _, wanted = name.partition("::")
    tree = ast.parse((ROOT / "src" / "foretrain" / path).read_text(encoding="utf-8"))
    classes = {each.name: each for each in tree.body if isinstance(each, ast.ClassDef)}
    title = path.removesuffix(".py").replace("/", ".")
    if not wanted:
        texts = [ast.get_docstring(tree) or ""]
    elif wanted == "*":
        title += ", classes"
        shown = filter(_has_equation, classes.values())
        texts = [f"**{each.name}**: {ast.get_docstring(each)}" for each in shown]
    else:
        title += f".{wanted}"
        texts = [ast.get_docstring(classes[wanted]) or ""]
    return "\n\n".join((f"### {title}", *texts))


def _has_equation(declared: ast.ClassDef) -> bool:
    """Whether a class states an equation: as its attribute, or set apart in its docstring."""
    assigned = [each for line in declared.body if isinstance(line, ast.Assign) for each in line.targets]
    names = {each.id for each in assigned if isinstance(each, ast.Name)}
    return "equation" in names or "\n    " in (ast.get_docstring(declared) or "")


def _table(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [titles, ["---"] * len(titles), *([cell.replace("|", "\\|") for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


TABLES: dict[str, Callable[[], str]] = {
    "billing": _billing_table,
    "commands": _command_reference,
    "errors": _error_table,
    "nomenclature": _nomenclature,
    "verbs": _verb_reference,
    "walk": _walk_table,
}

if __name__ == "__main__":
    main()
