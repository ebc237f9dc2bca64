"""`foretrain validate`: predictions compared with the runs in the user's own store."""

from __future__ import annotations

from foretrain.errors import MissingData
from foretrain.serving.cli.parameters import Json


def validate(json: Json = False) -> None:
    """Compare predictions with your own stored runs.

    No command stores runs yet, so the answer is exit code 3. The accuracy suites on public measurements run
    with `make validate` in a source checkout.

    \b
    Examples:
      foretrain validate
    """
    del json
    raise MissingData(
        "there are no stored runs to compare predictions with, and no command stores them yet; the accuracy "
        "suites on public measurements run with `make validate` in a source checkout"
    )
