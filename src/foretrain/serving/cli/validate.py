"""`foretrain validate`: predictions compared with the runs in the user's own store."""

from __future__ import annotations

from dataclasses import dataclass

from foretrain.errors import MissingData
from foretrain.serving.cli.frame import Command, Output
from foretrain.serving.requests import Request


@dataclass(frozen=True, kw_only=True)
class ValidateRequest(Request):
    """All stored runs: there is nothing to choose yet."""

    VERB = "validate"


def run(request: ValidateRequest, output: Output) -> int:
    """Answer that no runs are stored, and where the public suites are."""
    del request, output
    raise MissingData(
        "there are no stored runs to compare predictions with, and no command stores them yet; the accuracy "
        "suites on public measurements run with `make validate` in a source checkout"
    )


COMMAND = Command(
    ValidateRequest,
    Output,
    run,
    details="No command stores runs yet, so the answer is exit code 3. The accuracy suites on public "
    "measurements run with `make validate` in a source checkout.",
    examples=("foretrain validate",),
)
