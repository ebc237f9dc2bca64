"""`calibrate` with 1, 3 or 10 timings of a source: how much closer are its other rows, and is any farther?

A source (one harness, its framework, hosts and cluster) stands for a user. Rows are drawn at random (fixed
seeds), given to the correction of `calibrate`, and all its other rows are predicted with it. The variances
that the correction rests on are fitted without the data set of the source.

Predictions take most of the time, so rows are a fixed sample: of each source of the transfer suite `SAMPLES`
cases, evenly over its table, and those of `calibration.steps.timed_rows`. They are kept as
`build/own_timings/rows.csv`, from which `make spread` fits the shipped variances.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import fmean, median

import numpy as np
from calibration.steps.error_transfer import by_source, fit_variances
from calibration.steps.timed_rows import READERS, TimedRow, timed_row, write_rows

from foretrain.errors import ForetrainError
from foretrain.estimates import Z90, Quantiles
from foretrain.prediction.corrections.error_model import StepError, UserErrors, Variances
from foretrain.prediction.cost_models import OperatorCostModel
from foretrain.prediction.predict import pace_of
from foretrain.prediction.scenario import Evaluation, whole_error
from validation.report import Case, Metrics, SuiteReport, Table, Verdicts, quantile
from validation.transfer.case import TransferCase, scenario_of
from validation.transfer.judging import cases_of

COUNTS = (1, 3, 10)
NONE = "no timings"
ROWS = Path(__file__).parents[1] / "build" / "own_timings" / "rows.csv"
SAMPLES = {
    "timm": 90, "profet": 100, "lambda": 60, "neusight": 40, "mlperf": 40, "dle": 40, "sailor_layers": 40,
    "vtrain": 40, "ultrascale": 40, "llm_foundry": 36, "simumax": 20, "sailor": 20, "peft": 40,
    "megatron_bridge": 30,
}  # fmt: skip
"""Cases of each source of the transfer suite. Its `published` rows are each of another source."""
SETUPS: Mapping[str, Callable[[TransferCase], str]] = {
    "profet": lambda case: f"profet {case.device.id}",
    "timm": lambda case: case.sets[0].split(",")[0],
}
"""Sources of several set-ups: PROFET's cloud instances, timm's versions of torch."""
OTHER_PROGRAM = "PEFT, other adapters as LoRA"
"""Cases of another program than the one predicted: no user gives these as timings of LoRA."""
RATIO = "error over error before, by source"
_PROCESSES = 2
_DRAWS = {1: 200, 3: 200, 10: 100}
"""Enough that the method is judged and not luck: one misleading draw of a source with wild errors costs as
much as dozens of others gain. The fewer timings, the more one draw differs from the next."""
_FEWEST_LEFT = 3
_TOLERANCE = 0.001
"""Of the error before: what counts as not worse. A mean over random draws has an error itself."""
_NOTES = (
    "Target: never worse than no timings, every source, 1, 3 and 10 timings; with 10 the error of the median "
    "source at most 70 % of that before. Not worse: by less than a thousandth of the error before, in the "
    "mean of 200, 200 and 100 random draws of 1, 3 and 10 timings.",
    "The constants of trust (priors, weight of evidence) are the same for all sources and chosen on all of "
    "them (also without the data set judged: 69 % instead of 67 % with 10 timings); variances are fitted "
    "without it.",
    "All other rows of a source count: those of models that were timed at other sizes or on other devices, "
    "and those of models that were not, which are also reported apart.",
    "The interval is that of the prediction without timings, as much wider or narrower as `calibrate` says.",
    "The shipped operator models were fitted on rows of timm, NeuSight and ryujaehun, so that these have no "
    "set-up to learn from; they count all the same.",
)


@dataclass(frozen=True)
class Judged:
    """One row predicted after some others of its source were given to `calibrate`."""

    row: TimedRow
    count: int
    draw: int
    log_factor: float
    deviation: float
    prior_deviation: float
    model_timed: bool
    place_timed: bool

    @property
    def error(self) -> float:
        """The relative error with timings."""
        return abs(self.row.predicted * math.exp(self.log_factor) / self.row.measured - 1)

    @property
    def error_before(self) -> float:
        """The relative error without."""
        return abs(self.row.predicted / self.row.measured - 1)

    def interval(self, with_timings: bool) -> Quantiles:
        """The 80 % interval."""
        row = self.row
        factor, width = (
            (math.exp(self.log_factor), self.deviation / self.prior_deviation) if with_timings else (1.0, 1.0)
        )
        p50 = row.predicted * factor
        return Quantiles(
            max(0.0, p50 - (row.predicted - row.p10) * factor * width),
            p50,
            p50 + (row.p90 - row.predicted) * factor * width,
        )

    def is_explained(self, with_timings: bool) -> bool:
        """Whether the 80 % interval of the model of errors alone holds the measurement."""
        off = math.log(self.row.measured / self.row.predicted) - (self.log_factor if with_timings else 0.0)
        return abs(off) <= Z90 * (self.deviation if with_timings else self.prior_deviation)

    def is_inside(self, with_timings: bool) -> bool:
        """Whether the interval holds the measurement."""
        bounds = self.interval(with_timings)
        return bounds.p10 <= self.row.measured <= bounds.p90


def run(data: Path) -> SuiteReport:
    """Calibrate every source by some of its rows, predict the others."""
    with ProcessPoolExecutor(_PROCESSES) as pool:
        parts = pool.map(partial(_rows, data=data), [*SAMPLES, *READERS])
        rows = unrepeated(row for part in parts for row in part)
    ROWS.parent.mkdir(parents=True, exist_ok=True)
    write_rows(ROWS, rows)
    return report(judge(by_source(rows)))


def unrepeated(rows: Iterable[TimedRow]) -> list[TimedRow]:
    """The first row of every configuration: one that was timed is no test of what timings say of others."""
    kept: dict[object, TimedRow] = {}
    for row in rows:
        kept.setdefault((row.source, row.error.key, f"{row.predicted:.5g}"), row)
    return list(kept.values())


def _rows(name: str, data: Path) -> list[TimedRow]:
    if name in READERS:
        return list(READERS[name](data))
    rows = [_row(case) for case in cases_of(name, data, SAMPLES[name])]
    sys.stderr.write(f"{name}: {len(rows)} rows\n")
    return [row for row in rows if row is not None]


def _row(case: TransferCase) -> TimedRow | None:
    """A case of the transfer suite as a timing, predicted without any; None if it has no time or answer."""
    if not case.seconds or OTHER_PROGRAM in case.sets:
        return None
    try:
        evaluation = pace_of(scenario_of(case, cost_model=OperatorCostModel()))
        assert isinstance(evaluation, Evaluation), str(evaluation)
    except ForetrainError:
        return None
    name = case.settings["model"] if case.model is None else case.model.name
    step, bounds = whole_error(evaluation, str(name).rsplit("/", 1)[-1]), evaluation.total.quantiles
    source = SETUPS[case.source](case) if case.source in SETUPS else case.source
    batch = evaluation.configuration.global_batch
    own = step.predicted_seconds / evaluation.seconds  # without input that the step waits for
    return timed_row(source, step, case.seconds, own * bounds.p10, own * bounds.p90, batch, case.devices)


def judge(sources: Mapping[str, Sequence[TimedRow]]) -> list[Judged]:
    """All sources with enough rows, each with variances fitted without its data set."""
    errors = {source: [row.error for row in rows] for source, rows in sources.items()}
    everything = fit_variances(list(errors.values()))
    fitted: dict[str, Variances] = {}
    judged: list[Judged] = []
    for source, rows in sources.items():
        name = rows[0].data_set
        if name not in fitted:
            others = [errors[other] for other, members in sources.items() if members[0].data_set != name]
            fitted[name] = fit_variances(others, everything)
        for count in COUNTS:
            if len(rows) >= count + _FEWEST_LEFT:
                judged += _judge_source(rows, errors[source], count, fitted[name])
    return judged


def _judge_source(
    rows: Sequence[TimedRow], errors: Sequence[StepError], count: int, variances: Variances
) -> Iterator[Judged]:
    for draw in range(_DRAWS[count]):
        order = np.random.default_rng((count, draw)).permutation(len(rows)).tolist()
        timed, others = order[:count], order[count:]
        user = UserErrors([errors[place] for place in timed], variances)
        models = {rows[place].model for place in timed}
        places = {(rows[place].device, rows[place].precision) for place in timed}
        for place, shift in zip(others, user.shifts([errors[place] for place in others]), strict=True):
            row = rows[place]
            yield Judged(
                row, count, draw, shift.log_factor, shift.deviation, shift.prior_deviation,
                row.model in models, (row.device, row.precision) in places,
            )  # fmt: skip


def report(judged: Sequence[Judged]) -> SuiteReport:
    """Figures by source, and how many sources became worse."""
    sources = sorted({each.row.source for each in judged})
    by_set = {"all sources": _metrics(judged)}
    by_set |= {
        f"source {source}": _metrics([j for j in judged if j.row.source == source]) for source in sources
    }
    groups = {
        "other rows": list(judged),
        "models timed": [each for each in judged if each.model_timed],
        "models not timed": [each for each in judged if not each.model_timed],
        "models not timed, device and precision timed": [
            each for each in judged if not each.model_timed and each.place_timed
        ],
        "models not timed, device or precision not timed": [
            each for each in judged if not each.model_timed and not each.place_timed
        ],
    }
    verdicts: dict[str, dict[str, Verdicts]] = {}
    by_set[RATIO] = {_method(count): _spread_of(error_ratios(judged, count)) for count in COUNTS}
    rows = []
    for name, group in groups.items():
        for count in COUNTS:
            ratios = error_ratios(group, count)
            if not ratios:
                continue
            kept = sum(ratio <= 1 + _TOLERANCE for ratio in ratios.values())
            verdicts.setdefault(f"not worse, {name}", {})[_method(count)] = Verdicts(kept, len(ratios))
            farthest = max(ratios, key=lambda source: ratios[source])
            rows.append(
                (name, str(count), str(len(ratios)), f"{median(ratios.values()):.2f}",
                 f"{ratios[farthest]:.3f}", farthest)
            )  # fmt: skip
    headings = ("rows", "timings", "sources", "error over error before, median", "largest", "source")
    table = Table("error with timings over error without, by source", headings, tuple(rows))
    by_source = Table("by source", _HEADINGS, tuple(_source_row(judged, source) for source in sources))
    coverage = Table(
        "measurements in 80 % intervals",
        ("timings", "of the prediction", "of the model of errors", "width over width before"),
        tuple(_coverage_row(judged, count) for count in (0, *COUNTS)),
    )
    cases = tuple(_case(each) for each in judged if each.count == COUNTS[-1] and each.draw == 0)
    return SuiteReport("own_timings", cases, by_set, verdicts, _NOTES, (table, coverage, by_source))


def _coverage_row(judged: Sequence[Judged], count: int) -> tuple[str, ...]:
    """Every source counts the same."""
    by_source: dict[str, list[Judged]] = {}
    for each in judged:
        if count in (0, each.count):
            by_source.setdefault(each.row.source, []).append(each)
    groups, timed = by_source.values(), count > 0
    inside = fmean(fmean(each.is_inside(timed) for each in group) for group in groups)
    explained = fmean(fmean(each.is_explained(timed) for each in group) for group in groups)
    width = fmean(fmean(each.deviation / each.prior_deviation for each in group) for group in groups)
    return (str(count), f"{inside:.0%}", f"{explained:.0%}", f"{width:.2f}" if timed else "1")


_HEADINGS = ("source", "rows", "no timings", *(f"{count}" for count in COUNTS), "10 over none")


def _source_row(judged: Sequence[Judged], source: str) -> tuple[str, ...]:
    own = [each for each in judged if each.row.source == source]
    ratios = {count: error_ratios(own, count).get(source) for count in COUNTS}
    before = fmean(each.error_before for each in own)
    cells = [
        f"{fmean(each.error for each in own if each.count == count):.1%}" if ratios[count] is not None else ""
        for count in COUNTS
    ]
    last = ratios[COUNTS[-1]]
    count = len({(each.row.model, each.row.device, each.row.variant, each.row.batch) for each in own})
    return (source, str(count), f"{before:.1%}", *cells, "" if last is None else f"{last:.2f}")


def error_ratios(judged: Sequence[Judged], count: int) -> dict[str, float]:
    """The mean error with `count` timings over that without, by source; each draw counts the same."""
    pairs: dict[str, dict[int, list[tuple[float, float]]]] = {}
    for each in judged:
        if each.count == count:
            draws = pairs.setdefault(each.row.source, {})
            draws.setdefault(each.draw, []).append((each.error, each.error_before))
    ratios = {}
    for source, draws in pairs.items():
        after = fmean(fmean(pair[0] for pair in draw) for draw in draws.values())
        before = fmean(fmean(pair[1] for pair in draw) for draw in draws.values())
        if before > 0:
            ratios[source] = after / before
    return ratios


def _method(count: int) -> str:
    return f"{count} timing{'s' if count > 1 else ''}"


def _metrics(judged: Sequence[Judged]) -> dict[str, Metrics]:
    by_method = {NONE: _figures(judged, False)}
    for count in COUNTS:
        group = [each for each in judged if each.count == count]
        if group:
            by_method[_method(count)] = _figures(group, True)
    return by_method


def _figures(judged: Sequence[Judged], with_timings: bool) -> Metrics:
    signed = [
        each.row.predicted * math.exp(each.log_factor if with_timings else 0.0) / each.row.measured - 1
        for each in judged
    ]
    sizes = [abs(error) for error in signed]
    return Metrics(
        cases=len(sizes),
        mean=fmean(sizes),
        median=median(sizes),
        p90=quantile(sizes, 0.9),
        bias=median(signed),
        coverage=fmean(each.is_inside(with_timings) for each in judged),
    )


def _spread_of(by_source: Mapping[str, float]) -> Metrics:
    """Figures of ratios, one for each source."""
    ratios = list(by_source.values())
    return Metrics(len(ratios), fmean(ratios), median(ratios), quantile(ratios, 0.9), median(ratios) - 1)


def _case(each: Judged) -> Case:
    row = each.row
    after = row.predicted * math.exp(each.log_factor)
    name = f"{row.model} on {row.device}, {row.precision}, batch {row.batch:g}, {row.variant}"
    return Case(
        name, row.source, row.measured, {_method(each.count): after, NONE: row.predicted}, each.interval(True)
    )
