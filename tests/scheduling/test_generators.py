"""Generated problems follow the rules of their family and are the same for the same seed."""

from __future__ import annotations

import pytest

from foretrain.errors import InvalidRequest, UnknownName
from foretrain.scheduling.generators import families, study_types, table_times
from foretrain.scheduling.problem import Configuration, Problem


@pytest.mark.parametrize("name", families())
def test_a_problem_is_reproducible_and_follows_the_published_rules(name: str) -> None:
    problem = families()[name].problem(nodes=3, seed=7)
    assert problem == families()[name].problem(nodes=3, seed=7)
    assert problem != families()[name].problem(nodes=3, seed=8)
    assert len(problem.jobs) == 30
    for job in problem.jobs:
        slack = (job.deadline_seconds - job.submit_seconds) / job.fastest_seconds
        assert 1 <= slack <= 3
        assert 0.003 <= job.weight_usd_per_second <= 0.015


def test_the_node_types_of_the_study() -> None:
    types = study_types()
    assert {name: each.gpus for name, each in types.items()} == {
        "NC6": 1, "NC12": 2, "NC24": 4, "NC24X": 8, "NV6": 1, "NV12": 2, "NV24": 4, "NV24X": 8,
        "server-1": 2, "server-2": 8, "server-3": 8,
    }  # fmt: skip
    assert (types["NC6"].usd_per_hour, types["NV24X"].usd_per_hour) == (0.56, 4.96)


def test_jobs_of_the_table_scale_badly_and_synthetic_ones_well() -> None:
    def speedup(problem: Problem) -> float:
        ratios = [
            job.seconds[Configuration("NC24X", 1)] / job.seconds[Configuration("NC24X", 4)]
            for job in problem.jobs
        ]
        return sum(ratios) / len(ratios)

    assert speedup(families()["low"].problem(nodes=5)) < 3
    assert speedup(families()["low-scaling"].problem(nodes=5)) > 3.4


def test_utilisation_is_as_stated() -> None:
    for name, share in {"low": 0.3, "high": 1.1}.items():
        problem = families()[name].problem(nodes=10, seed=1, jobs_per_node=100)
        work = sum(min(each.gpus * time for each, time in job.seconds.items()) for job in problem.jobs)
        span = problem.jobs[-1].submit_seconds
        assert work / (span * problem.fleet.most_gpus) == pytest.approx(share, rel=0.1)


def test_times_of_the_table_are_those_of_the_file() -> None:
    assert table_times()["JJ2"].seconds["k80", 1] == 3008
    assert ("p600", 1) not in table_times()["JJ2"].seconds, "vgg19 with batch 32 needs more than 2 GiB"


def test_no_jobs_and_wrong_names() -> None:
    assert families()["low"].problem(nodes=1, jobs_per_node=0).jobs == ()
    with pytest.raises(InvalidRequest, match="at least 1 node"):
        families()["low"].problem(nodes=0)
    with pytest.raises(UnknownName, match="exponential"):
        families()["exponentail"]
