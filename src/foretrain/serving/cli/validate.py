"""`foretrain validate`: predictions compared with the runs in the user's own store."""

from __future__ import annotations

from dataclasses import dataclass

from foretrain.decoding import SWITCH, option
from foretrain.panels import OUTPUT
from foretrain.serving.cli.frame import Command, Output
from foretrain.serving.requests.runs import ValidateRequest
from foretrain.serving.verbs.stored_runs import PUBLIC_SUITES


@dataclass(frozen=True, kw_only=True)
class ValidateOutput(Output):
    """What is printed."""

    all: bool = option(SWITCH, "Also a row for every run.", default=False, panel=OUTPUT)


def run(request: ValidateRequest, output: ValidateOutput) -> None:
    """Compare, and print."""
    from foretrain.serving import verbs
    from foretrain.serving.cli.terminal import print_answer, spinner

    with spinner("Predicting the stored runs") as progress:
        answer = verbs.validate(request, progress)
    print_answer(answer, output.json, with_runs=output.all)


COMMAND = Command(
    ValidateRequest,
    ValidateOutput,
    run,
    details="Compares the prediction made before each completed run, and the prediction of today, with the "
    "measured step time: error, bias and interval coverage by model and device, and the worst cases. Runs of "
    f"the same setting are predicted once. For public data: {PUBLIC_SUITES}.",
    examples=("foretrain validate", "foretrain validate --model resnet18 --all", "foretrain validate --json"),
)
