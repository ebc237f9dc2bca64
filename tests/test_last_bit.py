"""Answers do not depend on the last bit: inputs changed by 1e-12 move every fit by less than 1e-6.

numpy's exp and log differ by one unit in the last place between CPUs. A fit that chooses between local
optima, families, folds or terms by a hair would turn that into another answer.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from foretrain.convergence.batch_size import fit_batch_size_law
from foretrain.convergence.curves import Curve, MetricDirection, Target, curve_of, parse_target
from foretrain.convergence.forecast import Convergence, ConvergenceRequest, forecast, with_planned_end
from foretrain.convergence.history import History
from foretrain.convergence.logs import read_history, read_log
from foretrain.convergence.schedules import logged_schedule, parse_schedule
from foretrain.estimates import Quantiles
from foretrain.learning.regression.layers import learn_layers
from foretrain.learning.regression.learn import learn
from foretrain.learning.regression.table import Sample, read_table, sample_of
from foretrain.learning.regression.techniques._base import techniques
from foretrain.learning.scaling.answer import ScalingProblem, predict_scaling
from foretrain.learning.scaling.configurations import read_configurations, read_timings
from foretrain.learning.user_calibration.fitting import fit_constants
from foretrain.learning.user_calibration.from_benchmarks import calibrate
from foretrain.prediction.corrections.error_model import (
    StepError,
    StepKey,
    TimedSize,
    UserErrors,
    Variances,
    correct_at_size,
)
from foretrain.prediction.corrections.timings import MeasuredStep, TimedConfiguration
from foretrain.prediction.operators.cpu import family, terms
from foretrain.prediction.operators.pricing import Floats, table
from foretrain.prediction.resources.bursts import bursts_of
from foretrain.store.runs import Resource, ResourceSeries
from tests.learning.regression.test_layers import network
from tests.learning.user_calibration.test_fitting import measured as measured_runs
from tests.learning.user_calibration.test_from_benchmarks import PRODUCTS, STREAMS
from tests.support.timing_tables import jobs, per_batch, sample

INPUTS = Path(__file__).parent / "golden" / "inputs"
TABLE = Path(__file__).parents[1] / "docs" / "examples" / "learn_timings.csv"
CHANGE = 1e-12
MOST = 1e-6
SEEDS = (1, 2)

Jitter = Callable[[Any], Any]
"""Numbers, each multiplied by 1 ± 1e-12."""


def jitter(seed: int) -> Jitter:
    """The change of one seed; seed 0 changes nothing."""
    random = np.random.default_rng(seed)
    return lambda values: (
        np.asarray(values, float) * (1 + (CHANGE if seed else 0.0) * random.uniform(-1, 1, np.shape(values)))
    )


def moved(answer: Callable[[Jitter], Iterable[float]], seeds: Sequence[int] = SEEDS) -> float:
    """The largest relative move of an answer's numbers, over the seeds."""
    first = list(answer(jitter(0)))
    assert first
    return max(_apart(a, b) for seed in seeds for a, b in zip(first, answer(jitter(seed)), strict=True))


def _apart(one: float, other: float) -> float:
    if one == other or (math.isnan(one) and math.isnan(other)):
        return 0.0
    if not (math.isfinite(one) and math.isfinite(other)):
        return math.inf
    return abs(one - other) / max(abs(one), abs(other), 1e-9)


def numbers(value: Quantiles) -> tuple[float, float, float]:
    """p10, p50 and p90."""
    return value.p10, value.p50, value.p90


def changed(curve: Curve, change: Jitter) -> Curve:
    """A curve with changed values and steps."""
    return replace(curve, values=change(curve.values), steps=change(curve.steps))


def of_forecast(answer: Convergence) -> list[float]:
    """Everything a forecast says in numbers."""
    return [
        *numbers(answer.steps),
        *numbers(answer.final_value),
        answer.probability,
        *answer.fan.p10,
        *answer.fan.p50,
        *answer.fan.p90,
    ]


GOLDEN = {
    "converge-loss": ("loss.csv", "loss=0.7", None, None, None),
    "converge-planned": ("loss.csv", "loss=0.6", 20_000, "cosine", None),
    "converge-history": ("loss.csv", "loss=0.6", 20_000, None, "history"),
    "converge-accuracy": ("accuracy.csv", "accuracy=92.5", 60, None, None),
    "converge-top5": ("top5.csv", "top5=93", 90, "step:0.33,0.67", None),
    "converge-jsonl": ("loss.jsonl", "train/loss=2.2", None, None, None),
    "converge-trainer": ("trainer_state.json", "loss=1.4", None, "linear", None),
    "converge-direction": ("accuracy.csv", "accuracy=99.9", None, None, None),
}
"""The requests of `golden/requests.yaml`: log, target, planned steps, schedule, history."""


@pytest.mark.parametrize("name", GOLDEN)
def test_golden_forecasts(name: str) -> None:
    file, text, steps, schedule, folder = GOLDEN[name]
    target = parse_target(text)
    curve = with_planned_end(read_log(INPUTS / file).curve(target.metric, None), steps)
    earlier = read_history(INPUTS / folder, target.metric, curve.direction)[0] if folder else None
    rates = parse_schedule(schedule) if schedule else None

    def answer(change: Jitter) -> list[float]:
        history = None if earlier is None else History(tuple(changed(each, change) for each in earlier))
        aim = Target(target.metric, float(change(target.value)))
        return of_forecast(forecast(ConvergenceRequest(changed(curve, change), aim, rates, history)))

    assert moved(answer) < MOST


STEPS = np.arange(1.0, 31.0)
NOISELESS = {
    "power law": 2.0 * STEPS**-0.5 + 1.0,
    "halves": 1.0 + 0.5**STEPS,
    "plateau": np.maximum(3.0 - 0.2 * STEPS, 1.0),
    "stairs": np.repeat([3.0, 2.0, 1.5, 1.25, 1.125, 1.0625], 5),
    "orders of magnitude": 100.0 * STEPS**-2.0,
    "four points": np.array([3.0, 2.0, 1.5, 1.2]),
    "five points": np.array([90.0, 80.0, 75.0, 72.0, 71.0]) / 100,
}
"""Logs where ties are exact: several families fit, medians of distances are 0, values repeat."""


@pytest.mark.parametrize("name", NOISELESS)
def test_logs_without_noise(name: str) -> None:
    values = NOISELESS[name]
    curve = curve_of(STEPS[: len(values)], values, "loss")
    target = Target("loss", 0.9 * float(values.min()))

    def answer(change: Jitter) -> list[float]:
        return of_forecast(forecast(ConvergenceRequest(changed(curve, change), target)))

    assert moved(answer) < MOST


def test_a_share_that_reaches_the_whole() -> None:
    curve = curve_of(STEPS[:12], np.minimum(0.5 + 0.05 * STEPS[:12], 1.0), "accuracy", MetricDirection.UP)

    def answer(change: Jitter) -> list[float]:
        asked = ConvergenceRequest(changed(with_planned_end(curve, 20.0), change), Target("accuracy", 1.0))
        return of_forecast(forecast(asked))

    assert moved(answer) < MOST


@pytest.mark.parametrize("decay", ["linear", "cosine", "linear:0.5"])
def test_schedules_read_from_learning_rates(decay: str) -> None:
    share = np.linspace(0.02, 0.6, 30)
    rates = 3e-4 * parse_schedule(decay).rate(share)

    def answer(change: Jitter) -> list[float]:
        read = logged_schedule(change(1000 * share), change(rates), None)
        assert read is not None
        return [read.planned_steps, float(read.schedule.rate(np.array([0.8]))[0])]

    assert moved(answer) < MOST


@pytest.mark.parametrize("form", ["all", "ring", "pollux", "optimus", "sanghvi"])
def test_scaling(form: str) -> None:
    timings, asked = read_timings(INPUTS / "timings.csv"), read_configurations(INPUTS / "configurations.csv")

    def answer(change: Jitter) -> list[float]:
        timed = [
            replace(each, step_seconds=float(seconds))
            for each, seconds in zip(timings, change([each.step_seconds for each in timings]), strict=True)
        ]
        made = predict_scaling(ScalingProblem(tuple(timed), asked, form=form))
        errors = [value for each in made.comparison for value in (each.mean_error, each.largest_error)]
        return [value for row in made.predictions for value in numbers(row.step_seconds)] + errors

    assert moved(answer) < MOST


@pytest.mark.parametrize("cluster", ["", "aws-4xt4"])
def test_scaling_of_one_timing(cluster: str) -> None:
    (timing,) = read_timings(INPUTS / "one_timing.csv")

    def answer(change: Jitter) -> list[float]:
        timed = replace(timing, step_seconds=float(change(timing.step_seconds)))
        made = predict_scaling(ScalingProblem((timed,), cluster=cluster))
        return [value for row in made.predictions for value in numbers(row.step_seconds)]

    assert moved(answer) < MOST


def changed_sample(known: Sample, change: Jitter) -> Sample:
    """Numbers and times of a table changed; categories stay."""
    rows = known.rows.copy()
    for place, feature in enumerate(known.schema.features):
        if not feature.is_text:
            rows[:, place] = _equal_stay_equal(known.rows[:, place], change)
    return replace(known, rows=rows, measured=change(known.measured))


def _equal_stay_equal(column: Floats, change: Jitter) -> Floats:
    """Equal values stay equal: a batch of 16 is one batch, however it is written."""
    values, places = np.unique(column, return_inverse=True)
    return np.asarray(change(values)[places])


def tables() -> dict[str, Sample]:
    """The table of the documentation, one that follows a law exactly, and one of six noiseless rows."""
    return {
        "documented": sample_of(read_table(TABLE), "seconds"),
        "exact law": sample(jobs()),
        "six rows": sample(per_batch()),
    }


SMOOTH = ("gray-box", "linear", "nnls", "svr")
"""Techniques that are also tried on the noiseless table."""


@pytest.mark.parametrize(
    ("technique", "name"),
    [
        (technique, name)
        for technique in sorted(techniques())
        for name, known in tables().items()
        if (name != "six rows" or technique in SMOOTH) and not techniques()[technique].lacks(known.schema)
    ],
)
def test_learned_regressions(technique: str, name: str) -> None:
    known, learner = tables()[name], techniques()[technique]
    beyond = known.rows.copy()
    for place, feature in enumerate(known.schema.features):
        beyond[:, place] *= 1.0 if feature.is_text else 1.37

    def answer(change: Jitter) -> list[float]:
        rows = changed_sample(known, change)
        values: list[float] = []
        for parameters in learner.grid():
            fitted = learner.fit(rows, parameters)
            values += [*fitted.predict(rows.rows).tolist(), *fitted.predict(beyond).tolist()]
        return values

    assert moved(answer, SEEDS[:1]) < MOST


def test_the_technique_chosen_by_cross_validation() -> None:
    known = tables()["six rows"]  # linear and nnls are both exact: a tie

    def answer(change: Jitter) -> list[float]:
        made = learn(changed_sample(known, change), ["random"], ["linear", "nnls"])
        return [each.predicted for each in made.held_out] + [made.model.p10, made.model.p90]

    assert moved(answer, SEEDS[:1]) < MOST


def test_lines_of_layers() -> None:
    profiles = [network("a", 1e9, 2e9, 5e9), network("b", 3e9, 4e9)]

    def answer(change: Jitter) -> list[float]:
        fitted = [
            replace(
                each,
                layers=tuple(
                    replace(layer, measured_seconds=float(change(layer.measured_seconds)))
                    for layer in each.layers
                ),
            )
            for each in profiles
        ]
        made = learn_layers(fitted, [network("c", 7e9)])
        return [each.predicted_seconds for each in made.predictions]

    assert moved(answer) < MOST


def test_epochs_over_batch_sizes() -> None:
    batches, epochs = [256, 512, 1024, 2048, 4096], [40.0, 40.0, 42.0, 46.0, 54.0]

    def answer(change: Jitter) -> list[float]:
        law = fit_batch_size_law(change(batches).tolist(), change(epochs).tolist())
        return [value for batch in (300, 1500, 10_000) for value in numbers(law.epochs_at(batch))]

    assert moved(answer) < MOST


def test_a_machine_calibrated_by_runs() -> None:
    runs = measured_runs(noise=0.05)[::9]

    def answer(change: Jitter) -> list[float]:
        times = change([each.measured_seconds for each in runs])
        changed_runs = [
            replace(each, measured_seconds=float(time)) for each, time in zip(runs, times, strict=True)
        ]
        return list(asdict(fit_constants(changed_runs)).values())

    assert moved(answer, SEEDS[:1]) < MOST


def test_a_cpu_calibrated_by_its_operators() -> None:
    timed = [*STREAMS, *PRODUCTS]

    def answer(change: Jitter) -> list[float]:
        times = change([each.seconds for each in timed])
        made = calibrate(
            [replace(each, seconds=float(time)) for each, time in zip(timed, times, strict=True)], "here", 1
        )
        spreads = [value for fit in made.families.values() for value in (fit.p10, fit.p90)]
        priced = [
            float(np.sum([rate * known[name] for name, rate in fit.seconds_per.items()], axis=0)[0])
            for fit, known in (
                (made.families[family(item.work)], terms(table([item.work]), made.cache_bytes))
                for item in timed
            )
        ]
        return [made.cache_bytes, 1 + made.seconds_per_fresh_byte, *spreads, *priced]

    assert moved(answer) < MOST


def test_corrections_by_own_timings() -> None:
    sizes, predicted, timed = (8.0, 16.0, 64.0), (0.1, 0.19, 0.7), (0.13, 0.2, 0.8)
    variances = Variances(setup=0.01, device_precision=0.02, model=0.02, similar=0.01, own=0.005)
    not_timed, as_timed = StepError(StepKey("b", "y"), 0.1), StepError(StepKey("a", "x"), 0.1)
    asked = (not_timed, as_timed, replace(as_timed, predicted_seconds=0.3))

    def answer(change: Jitter) -> list[float]:
        times = change(timed).tolist()
        few = [TimedSize(*each) for each in zip(sizes, change(predicted).tolist(), times, strict=True)]
        steps = [
            MeasuredStep(TimedConfiguration(model, device, 8), seconds, 0.1)
            for model, device, seconds in zip("aab", "xyx", times, strict=True)
        ]
        shifts = UserErrors([step.error for step in steps], variances).shifts(asked)
        factors = [math.exp(shift.log_factor) for shift in shifts]
        return [
            *numbers(correct_at_size(few, 128.0, 1.3)),
            *factors,
            shifts[0].narrowing,
            shifts[-1].narrowing,
        ]

    assert moved(answer) < MOST


def test_bursts_of_a_resource() -> None:
    seconds = np.arange(40.0)
    values = np.where(np.arange(40) % 8 < 3, 0.9, 0.05) + 0.01 * (np.arange(40) % 5)

    def answer(change: Jitter) -> list[float]:
        found = bursts_of(
            ResourceSeries(resource=Resource.GPU, worker=0, seconds=seconds, values=change(values))
        )
        assert found is not None
        return [found.burst_amount, found.idle_amount, found.burst_duration, found.idle_duration]

    assert moved(answer) < MOST
