"""The suites of scaling leave out what they judge."""

import math

import numpy as np
from calibration.datasets.sia import PLACEMENTS, SiaStep
from calibration.scaling import sia_jobs
from validation.scaling_cases import ANY, HERE, METHODS, NEVER, Priors, answered, by_method
from validation.sia_suite import _questions, _six

from foretrain.learning.scaling.configurations import Placement, ScalingConfiguration, columns
from foretrain.learning.scaling.forms import form

PLACES = ((1,), (2,), (4,), (1, 1), (4, 4), (4, 4, 4, 4))


def steps(model: str, cluster: str, factor: float) -> list[SiaStep]:
    """Steps as the physical form has them with all parameters in their middle."""
    of = form("physical")
    values = np.array([item.mean for item in of.parameters])
    found = []
    for place in PLACES:
        for batch in (8, 16, 64):
            at = columns([ScalingConfiguration(Placement(place), batch)], 22.6)
            seconds = factor * float(np.exp(of.log_seconds(values, at))[0])
            found.append(SiaStep(model, cluster, PLACEMENTS, len(place), sum(place), place, batch, seconds))
    return found


def everything() -> list[SiaStep]:
    return [
        step
        for cluster in ("aws-4xt4", "gavel-k80")
        for number, model in enumerate(("a", "b", "c"))
        for step in steps(model, cluster, 0.1 * (number + 1))
    ]


def test_six_timings_are_fitted_to_and_all_others_judged() -> None:
    (question,) = _questions(steps("a", "aws-4xt4", 1.0), _six)
    assert [str(item.configuration) for item in question.known] == [
        "1 at batch 8",
        "1 at batch 64",
        "4 at batch 8",
        "4 at batch 64",
        "4+4+4+4 at batch 8",
        "4+4+4+4 at batch 64",
    ]
    assert len(question.wanted) == len(PLACES) * 3 - 6
    assert not {item.configuration for item in question.known} & {
        item.configuration for item in question.wanted
    }


def test_the_judged_model_is_in_no_prior() -> None:
    jobs = sia_jobs(everything())
    spoiled = [job for job in jobs if job.model != "a"]
    for method in (HERE, ANY):
        with_it, without = (Priors(some).of(method, "a", "aws-4xt4") for some in (jobs, spoiled))
        assert np.array_equal(with_it.means, without.means)
    elsewhere = [job for job in spoiled if job.cluster != "aws-4xt4"]
    never = Priors(jobs).of(NEVER, "a", "aws-4xt4")
    assert np.array_equal(never.means, Priors(elsewhere).of(ANY, "a", "aws-4xt4").means)


def test_a_job_of_the_form_is_predicted() -> None:
    jobs = sia_jobs(everything())
    (question,) = _questions(steps("a", "aws-4xt4", 0.1), _six)
    cases = answered(question, Priors(jobs))
    found = by_method(cases)
    assert tuple(found) == METHODS
    assert found[HERE].mean < 0.05
    assert found[HERE].coverage is not None
    assert all(case.interval is not None and math.isfinite(case.interval.p90) for case in cases)
