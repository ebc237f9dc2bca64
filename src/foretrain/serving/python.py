"""The verbs in Python: `import foretrain as ft`, made from the table of verbs.

Keywords are the options of the command line (`--global-batch` is `global_batch`), with the same units
(`deadline="12h"`) and the same checks. An answer's `to_dict()` is what `--json` prints, its `str()` what the
command prints, its `repr()` one line, and notebooks show it as a table. Each verb also takes its request
(`ft.predict(ft.PredictRequest(model="resnet50", on="t4"))`). `Infeasible` is an answer too: the request was
understood, and nothing satisfies it. `foretrain/__init__.pyi`, written by `scripts/write_keywords.py`, shows
the verbs to type checkers and editors.
"""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from functools import cache
from inspect import Parameter
from pathlib import Path
from typing import Any, TypeVar

from foretrain.decoding import Option, options
from foretrain.errors import InvalidRequest
from foretrain.serving import rendering
from foretrain.serving.requests import Request, command_of, request_from, takes_config
from foretrain.serving.table import VERBS, VerbEntry

rendering.register()

R = TypeVar("R", bound=Request)
MODULE = ("inputs", "loss")
"""What a verb that takes a `source` accepts beside a torch module."""


@cache
def python_verb(name: str) -> Callable[..., Any]:
    """The verb of this name: from keywords, or its request, to an answer."""
    verb = VERBS[name]
    cls, function = verb.request_class, verb.function
    first = first_option(verb)
    takes_source, takes_rows = takes(verb, "source"), takes(verb, "rows")

    def call(*given: Any, **keywords: Any) -> Any:
        value, keywords = _first_value(verb, first, given, keywords)
        if takes_source:
            request, source = _with_source(cls, value, keywords)
            return function(request, source=source)
        if takes_rows and not (value is None or isinstance(value, str | Path | Request)):
            return function(_request(cls, None, keywords), rows=value)
        return function(_request(cls, value, keywords, first.name if first else ""))

    call.__name__ = call.__qualname__ = name
    call.__module__ = "foretrain"
    call.__doc__ = documentation(verb)
    call.__signature__ = _signature(verb)  # type: ignore[attr-defined]
    return call


def takes(verb: VerbEntry, parameter: str) -> bool:
    """Whether the function of a verb has this parameter."""
    return parameter in inspect.signature(verb.function).parameters


def first_option(verb: VerbEntry) -> Option | None:
    """The option that may be given without its name."""
    return next((each for each in options(verb.request_class) if each.positional), None)


def keyword_options(verb: VerbEntry) -> list[Option]:
    """The options that are keywords of a verb in Python."""
    first = first_option(verb)
    own = MODULE if takes(verb, "source") else ()
    return [
        each
        for each in options(verb.request_class)
        if each.name not in own and not (first is not None and each.name == first.name)
    ]


def documentation(verb: VerbEntry) -> str:
    """The docstring of a verb, and a line for each of its keywords.

    What a registry lists is left to the command line, so that none is loaded.
    """
    looked_up = f"as `foretrain {verb.command} --help` lists them."
    texts = {
        each.name: each.help if isinstance(each.help, str) else looked_up for each in keyword_options(verb)
    }
    lines = [
        textwrap.fill(f"{name}: {text}", 100, initial_indent="    ", subsequent_indent="        ")
        for name, text in texts.items()
    ]
    text = inspect.cleandoc(verb.function.__doc__ or "")
    return "\n".join((text, "", "Keywords:", *lines)) if lines else text


def _signature(verb: VerbEntry) -> inspect.Signature:
    first = first_option(verb)
    parameters = []
    if first is None:
        parameters.append(Parameter("request", Parameter.POSITIONAL_OR_KEYWORD, default=None))
    elif first.kind.many:
        parameters.append(Parameter(first.name, Parameter.VAR_POSITIONAL))
    else:
        is_required = first.is_required and not takes_config(verb.request_class)
        default = Parameter.empty if is_required else None
        parameters.append(Parameter(first.name, Parameter.POSITIONAL_OR_KEYWORD, default=default))
    if takes(verb, "source"):
        parameters += [Parameter(name, Parameter.KEYWORD_ONLY, default=None) for name in MODULE]
    parameters += [
        Parameter(
            each.name,
            Parameter.KEYWORD_ONLY,
            default=Parameter.empty if each.is_required else each.default,
            annotation=each.python,
        )
        for each in keyword_options(verb)
    ]
    return inspect.Signature(parameters, return_annotation=verb.function.__annotations__["return"])


def _first_value(
    verb: VerbEntry, first: Option | None, given: Sequence[Any], keywords: dict[str, Any]
) -> tuple[Any, dict[str, Any]]:
    """What stands for the first option: a request, its value, or nothing; and the other keywords.

    An option of many values takes them as arguments (`guide("resnet50", "bert-base")`) or as a list.
    """
    name = first.name if first is not None else "request"
    if not given:
        return keywords.pop(name, None), keywords
    if name in keywords:
        raise InvalidRequest(f"`{name}` is given twice: as the first argument and by name")
    if first is not None and first.kind.many and not isinstance(given[0], Request):
        single = len(given) == 1 and not isinstance(given[0], str)
        return list(given[0] if single else given), keywords
    if len(given) > 1:
        raise InvalidRequest(f"{verb.name} takes one argument without a name, got {len(given)}")
    return given[0], keywords


def _with_source(cls: type[R], model: Any, keywords: Mapping[str, Any]) -> tuple[R, Any]:
    """The request, and the source of a module that was handed in.

    `loss` is a function of a module's output; text is the option of that name.
    """
    options = {name: value for name, value in keywords.items() if name not in MODULE}
    inputs, loss = (keywords.get(name) for name in MODULE)
    if isinstance(loss, str):
        options, loss = {**options, "loss": loss}, None
    if model is None or isinstance(model, str | Request):
        if inputs is not None or loss is not None:
            raise InvalidRequest("`inputs` and `loss` belong to a module; models by name have their own")
        return _request(cls, model, options, "model"), None
    from foretrain.workloads.readers.python_file import live_module

    source = live_module(model, inputs, loss)
    return _request(cls, source.name, options, "model"), source


def _request(cls: type[R], first: Any, keywords: Mapping[str, Any], name: str = "") -> R:
    """The request of a verb's arguments: `first` is a request itself, the option `name`, or nothing."""
    if isinstance(first, cls):
        # What is left at its default is not given: a workload file or training configuration may set it
        every = ((each, getattr(first, each.name)) for each in fields(cls))
        given = {each.name: value for each, value in every if value != each.default}
        return request_from(cls, {**given, **keywords})
    if isinstance(first, Request):
        raise InvalidRequest(f"{command_of(cls)} takes a {cls.__name__}, not a {type(first).__name__}")
    return request_from(cls, {**({} if first is None else {name: first}), **keywords})
