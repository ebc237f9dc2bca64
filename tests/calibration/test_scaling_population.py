"""The common properties of jobs are recovered, and a cluster that differs is distinguished."""

import math

import numpy as np
import pytest
from calibration.scaling import Job, learn_population

from foretrain.learning.scaling.configurations import ScalingConfiguration, Timing, columns, parse_placement
from foretrain.learning.scaling.forms import form

PLACES = ("1", "2", "4", "1+1", "2+2", "4+4", "1+1+1", "4+4+4", "1+1+1+1", "4+4+4+4")
GRID = tuple(
    ScalingConfiguration(parse_placement(place), batch) for place in PLACES for batch in (8, 32, 128)
)
PHYSICAL = form("physical")
TWO, BETWEEN = PHYSICAL.names.index("two nodes"), PHYSICAL.names.index("sync between nodes")


def job(model: str, cluster: str, two_nodes: float, level: float) -> Job:
    middle = np.array([item.mean for item in PHYSICAL.parameters])
    middle[0], middle[BETWEEN], middle[TWO] = math.log(level), 0.5, two_nodes
    seconds = np.exp(PHYSICAL.log_seconds(middle, columns(GRID, 32)))
    timings = tuple(Timing(item, float(value)) for item, value in zip(GRID, seconds, strict=True))
    return Job(model, cluster, timings, "made up")


def test_parameters_and_clusters_are_found_again() -> None:
    jobs = [job(f"model {row}", "plain", 0.0, 0.1 * row) for row in range(1, 6)]
    jobs += [job(f"model {row}", "slow pairs", 0.5, 2.0 * row) for row in range(1, 6)]
    found = learn_population(PHYSICAL, jobs)
    assert found.prior.means[BETWEEN] == pytest.approx(0.5, abs=0.1)
    assert found.prior.means[TWO] == pytest.approx(0.25, abs=0.1)
    assert found.by_cluster["plain"].means[TWO] < 0.1
    assert found.by_cluster["slow pairs"].means[TWO] > 0.4
    deviations = {name: math.sqrt(prior.covariance[TWO, TWO]) for name, prior in found.by_cluster.items()}
    assert max(deviations.values()) < math.sqrt(found.prior.covariance[TWO, TWO])
    assert found.prior.noise < 0.02, "the form predicts its own times"


def test_one_odd_job_does_not_move_the_others() -> None:
    similar = [job(f"model {row}", "plain", 0.02 * (row - 3), 0.1 * row) for row in range(1, 6)]
    usual = learn_population(PHYSICAL, similar).prior
    odd = learn_population(PHYSICAL, [*similar, job("odd", "plain", 3.0, 1.0)]).prior
    assert odd.means[TWO] == pytest.approx(usual.means[TWO], abs=0.05)


def test_levels_of_jobs_say_nothing_of_another() -> None:
    prior = learn_population(
        PHYSICAL, [job("model", "plain", 0.0, 1e-3), job("other", "plain", 0.0, 1e-3)]
    ).prior
    assert (prior.means[0], math.sqrt(prior.covariance[0, 0])) == (0.0, 10.0)
