"""`foretrain validate`: predictions compared with the runs in the user's own store."""

from __future__ import annotations

from dataclasses import dataclass

from foretrain.serving.cli.frame import Command, Output
from foretrain.serving.requests import Request


@dataclass(frozen=True, kw_only=True)
class ValidateRequest(Request):
    """Compare predictions with your own stored runs.

    No command stores runs yet, so the answer is exit code 3. The accuracy suites on public measurements run
    with `make validate` in a source checkout.
    """

    VERB = "validate"


def run(request: ValidateRequest, output: Output) -> int:
    """Compare the stored runs with their predictions."""
    from foretrain.errors import MissingData

    del request, output
    raise MissingData(
        "there are no stored runs to compare predictions with, and no command stores them yet; the accuracy "
        "suites on public measurements run with `make validate` in a source checkout"
    )


COMMAND = Command(ValidateRequest, Output, run, examples=("foretrain validate",))
