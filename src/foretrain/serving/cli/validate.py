"""`foretrain validate`: predictions compared with the runs in the user's own store."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from foretrain.decoding import SWITCH, option
from foretrain.errors import ForetrainError, MissingData
from foretrain.panels import OUTPUT
from foretrain.serving.cli.frame import Command, Output
from foretrain.serving.cli.runs import QueryFields, query_of
from foretrain.serving.requests import Request
from foretrain.units import UnitError

if TYPE_CHECKING:
    from foretrain.learning.validation import Accuracy, Comparison, Validation
    from foretrain.store.runs import PredictionMade, Run

_PUBLIC = "the accuracy suites on public measurements run with `make validate` in a source checkout"


@dataclass(frozen=True, kw_only=True)
class ValidateRequest(Request, QueryFields):
    """Which runs are compared."""

    VERB = "validate"


@dataclass(frozen=True, kw_only=True)
class ValidateOutput(Output):
    """What is printed."""

    all: bool = option(SWITCH, "Also a row for every run.", default=False, panel=OUTPUT)


@dataclass(frozen=True, kw_only=True)
class Skipped:
    """A run that was not compared with a prediction made now, and why.

    `before` is whether it was compared with the prediction made before it.
    """

    run: str
    before: bool
    reason: str


@dataclass(frozen=True, kw_only=True)
class ValidateAnswer:
    """`before` compares the predictions made before the runs, `now` those that foretrain makes today."""

    store: str
    stored_runs: int
    before: Validation | None
    now: Validation | None
    skipped: tuple[Skipped, ...]


def run(request: ValidateRequest, output: ValidateOutput) -> None:
    """Compare, and print."""
    from foretrain.serving.cli.terminal import print_json, spinner
    from foretrain.store import open_store

    with open_store(request.store) as store:
        runs, place = store.runs(query_of(request)), store.place
    if not runs:
        raise MissingData(
            f"there are no stored runs in {place} that meet the conditions; `foretrain measure -- COMMAND` "
            f"and `foretrain runs import FILE` store some; {_PUBLIC}"
        )
    with spinner("Predicting the stored runs") as progress:
        answer = validate(runs, place, progress)
    if answer.before is None and answer.now is None:
        first = answer.skipped[0]
        raise MissingData(
            f"none of the {len(runs)} stored runs can be compared; the newest, {first.run}: {first.reason}"
        )
    if output.json:
        print_json(answer)
    else:
        _show(answer, output.all)


def validate(runs: Sequence[Run], place: str, progress: Callable[[str], None]) -> ValidateAnswer:
    """Compare each run with the prediction made before it, and with that of today."""
    from foretrain.learning.validation import compare_run, validation_of, why_not_comparable

    predict = _Predictor()
    before, now, skipped = [], [], []
    for place_of_run, each in enumerate(runs, 1):
        reason = why_not_comparable(each)
        if not reason:
            progress(f"{place_of_run} of {len(runs)}")
            if each.prediction is not None:
                before.append(compare_run(each, each.prediction))
            made, reason = predict(each)
            if made is not None:
                now.append(compare_run(each, made))
        if reason:
            is_before = bool(before) and before[-1].run == each.id
            skipped.append(Skipped(run=each.id, before=is_before, reason=reason))
    return ValidateAnswer(
        store=place,
        stored_runs=len(runs),
        before=validation_of(before),
        now=validation_of(now),
        skipped=tuple(skipped),
    )


class _Predictor:
    """Predicts settings, each once."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[PredictionMade | None, str]] = {}

    def __call__(self, run: Run) -> tuple[PredictionMade | None, str]:
        from foretrain.encoding import to_json

        key = to_json(dict(sorted(run.setting.items())))
        if key not in self._known:
            self._known[key] = _predicted(run.setting)
        return self._known[key]


def _predicted(setting: Mapping[str, object]) -> tuple[PredictionMade | None, str]:
    from foretrain.serving.verbs.run_predictions import predicted

    try:
        return predicted(setting), ""
    except (ForetrainError, UnitError) as error:
        return None, f"it cannot be predicted: {error}"


def _show(answer: ValidateAnswer, with_runs: bool) -> None:
    from foretrain.serving.cli.terminal import print_line

    for title, validation in (
        ("Predictions made before the runs", answer.before),
        ("Predictions made now", answer.now),
    ):
        if validation is None:
            print_line(f"{title}: none can be compared.")
        else:
            _show_validation(title, validation, with_runs)
        print_line()
    left_out = sum(not each.before for each in answer.skipped)
    print_line(f"{answer.stored_runs - left_out} of {answer.stored_runs} runs compared.")
    groups: dict[str, list[str]] = {}
    for each in answer.skipped:
        with_what = " with a prediction made now" if each.before else ""
        groups.setdefault(f"not compared{with_what}: {each.reason}", []).append(each.run)
    for reason, ids in sorted(groups.items(), key=lambda item: -len(item[1])):
        print_line(f"  {len(ids)} {reason} ({', '.join(ids[:3])}{' ...' if len(ids) > 3 else ''})")


def _show_validation(title: str, validation: Validation, with_runs: bool) -> None:
    from foretrain.serving.cli.terminal import Column, print_line, print_table

    columns = [
        Column(""),
        *(
            Column(name, right=True)
            for name in ("runs", "mean error", "median", "p90", "bias", "in interval")
        ),
    ]
    rows = [_figures("all runs", validation.overall)]
    rows += [_figures(f"model {name or 'unknown'}", each) for name, each in validation.by_model.items()]
    rows += [_figures(f"device {name}", each) for name, each in validation.by_device.items()]
    print_table(columns, rows, title)
    print_line(
        "Bias is the median signed error: positive where the prediction is too long. The interval is 80 %."
    )
    _show_runs(
        "Every run" if with_runs else "Worst cases", validation.runs if with_runs else validation.worst
    )


def _figures(name: str, figures: Accuracy) -> tuple[str, ...]:
    coverage = "-" if figures.coverage is None else f"{figures.coverage:.0%}"
    shares = (f"{figures.mean:.1%}", f"{figures.median:.1%}", f"{figures.p90:.1%}", f"{figures.bias:+.1%}")
    return (name, str(figures.runs), *shares, coverage)


def _show_runs(title: str, listed: Sequence[Comparison]) -> None:
    from foretrain.serving.cli.terminal import Column, print_table
    from foretrain.units import format_duration

    columns = [
        Column("run", style="bold"),
        Column("model", least=12),
        Column("on"),
        Column("batch", right=True),
        *(Column(name, right=True) for name in ("measured", "p10", "predicted", "p90", "error")),
        Column("interval"),
    ]
    rows = [
        (
            each.run[:8],
            each.model,
            str(each.setting.get("on", each.device)),
            str(each.setting.get("batch", each.setting.get("global_batch", "-"))),
            *(
                format_duration(seconds)
                for seconds in (
                    each.measured_seconds,
                    each.p10_seconds,
                    each.predicted_seconds,
                    each.p90_seconds,
                )
            ),
            f"{each.error:+.1%}",
            {True: "holds", False: "missed", None: "-"}[each.inside],
        )
        for each in listed
    ]
    print_table(columns, rows, title)


COMMAND = Command(
    ValidateRequest,
    ValidateOutput,
    run,
    details="Compares the prediction made before each completed run, and the prediction of today, with the "
    "measured step time: error, bias and interval coverage by model and device, and the worst cases. Runs of "
    f"the same setting are predicted once. For public data: {_PUBLIC}.",
    examples=("foretrain validate", "foretrain validate --model resnet18 --all", "foretrain validate --json"),
)
