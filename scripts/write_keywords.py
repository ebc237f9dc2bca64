"""Write `foretrain/__init__.pyi`: public names and keywords of verbs, for type checkers and editors.

    python scripts/write_keywords.py

Each verb of `serving/table.py` becomes a function with its documentation. Each noun that requests are
composed of becomes a `TypedDict` with the same bases, each option a key with the type that Python callers may
pass and its help as documentation.
"""

from __future__ import annotations

import inspect
import subprocess
import sys
import textwrap
from pathlib import Path

import foretrain
from foretrain.decoding import Option, options
from foretrain.serving.python import MODULE, first_option, takes
from foretrain.serving.requests import Request, takes_config
from foretrain.serving.table import VERBS, VerbEntry, homes

FILE = Path(foretrain.__file__).with_suffix(".pyi")
WIDTH = 106
HEADER = '''"""The public names of foretrain, as type checkers and editors read them.

Written by `scripts/write_keywords.py` from the table of verbs and from the requests, whose options are
declared on the nouns of the core.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypedDict, Unpack

import torch

'''


def stub_text() -> str:
    """The text of the stub."""
    own: dict[str, str] = vars(foretrain)["_HOMES"]
    imports = [
        "from {} import {} as {}\n".format(*(path.rpartition(".")[index] for index in (0, 2)), name)
        for name, path in {**own, **homes()}.items()
    ]
    names = f"\n__all__ = {sorted(foretrain.__all__)}\n__version__: str\n"
    text = "".join([HEADER, *imports, names, *map(_typed_dict, _nouns()), *map(_function, VERBS.values())])
    for command in (["check", "--select", "I", "--fix-only", "-q"], ["format"]):
        text = subprocess.run(
            [sys.executable, "-m", "ruff", *command, "--stdin-filename", str(FILE), "-"],
            input=text, capture_output=True, text=True, check=True,
        ).stdout  # fmt: skip
    return text


def _nouns() -> list[type]:
    """The requests of the verbs and all they are composed of, each after its bases."""
    found: dict[type, None] = {}

    def add(noun: type) -> None:
        for base in _bases(noun):
            add(base)
        found[noun] = None

    for verb in VERBS.values():
        add(verb.request_class)
    return [noun for noun in found if _keys(noun) or issubclass(noun, Request)]


def _bases(noun: type) -> list[type]:
    return [base for base in noun.__bases__ if base not in (object, Request) and _keys(base)]


def _parameters(verb: VerbEntry) -> set[str]:
    """The options of a verb that are parameters of its own rather than keywords."""
    first = first_option(verb)
    return {*([] if first is None else [first.name]), *(MODULE if takes(verb, "source") else ())}


def _keys(noun: type) -> list[Option]:
    """The options of a noun, but for those that a verb which takes it has as a parameter of its own.

    A request gets them back where its own verb has no such parameter.
    """
    verbs = [
        verb
        for verb in VERBS.values()
        if (verb.request_class is noun if issubclass(noun, Request) else issubclass(verb.request_class, noun))
    ]
    refused = set().union(*map(_parameters, verbs))
    return [each for each in options(noun) if each.name not in refused]


def _keywords(noun: type) -> str:
    return f"_{noun.__name__}Keywords"


def _typed_dict(noun: type) -> str:
    bases = [*map(_keywords, _bases(noun))] or ["TypedDict"]
    inherited = {each.name for base in _bases(noun) for each in _keys(base)}
    summary = (noun.__doc__ or noun.__name__).strip().splitlines()[0]
    lines = [f"\n\nclass {_keywords(noun)}({', '.join(bases)}, total=False):", f'    """{summary}"""', ""]
    for each in _keys(noun):
        if each.name not in inherited:
            text = textwrap.wrap(f'"""{each.text}"""', WIDTH, break_on_hyphens=False)
            lines += [f"    {each.name}: {each.python}", *(f"    {line}" for line in text)]
    return "\n".join(lines) + "\n"


def _function(verb: VerbEntry) -> str:
    """The signature and documentation of a verb."""
    first, request = first_option(verb), verb.request
    if first is None:
        parameters = [f"request: {request} | None = None"]
    else:
        types = [first.python.removesuffix(" | None"), request]
        types += ["torch.nn.Module"] if takes(verb, "source") else []
        types += ["Sequence[Mapping[str, Any]]"] if takes(verb, "rows") else []
        may_be_left_out = not first.is_required or takes_config(verb.request_class)
        is_optional = may_be_left_out and not first.kind.many
        star = "*" if first.kind.many else ""
        optional = " | None = None" if is_optional else ""
        parameters = [f"{star}{first.name}: {' | '.join(types)}{optional}"]
    if takes(verb, "source"):
        parameters += ["*", *(f"{name}: Any = None" for name in MODULE)]
    parameters.append(f"**options: Unpack[{_keywords(verb.request_class)}]")
    documented = textwrap.indent(inspect.cleandoc(verb.function.__doc__ or ""), "    ").strip()
    end = "\n    " if "\n" in documented else ""
    returned = verb.function.__annotations__["return"]
    return f'\n\ndef {verb.name}({", ".join(parameters)}) -> {returned}:\n    """{documented}{end}"""\n'


if __name__ == "__main__":
    FILE.write_text(stub_text(), encoding="utf-8")
