"""What charts of a schedule show: bars that conserve GPU time, lines that end where the bill does."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foretrain.scheduling import charts
from foretrain.scheduling.accounting import Outcome
from foretrain.scheduling.charts import Bar, gantt, over_time
from foretrain.scheduling.generators import families
from foretrain.scheduling.policies.catalogue import policies
from foretrain.scheduling.policies.rules import Fifo
from foretrain.scheduling.problem import Configuration, NodeType, Problem, SubmittedJob, elastic
from foretrain.scheduling.simulation import simulate

NODE = NodeType(name="one", gpu="k80", gpus=1, usd_per_hour=3600)


def two_jobs() -> Outcome:
    """One node for 1 USD per second: a from 0 to 10, b (submitted at 4, due at 15) from 10 to 20."""
    jobs = tuple(
        SubmittedJob(
            name=name,
            submit_seconds=submit,
            deadline_seconds=deadline,
            weight_usd_per_second=2,
            seconds={Configuration("one", 1): 10},
        )
        for name, submit, deadline in (("a", 0, 12), ("b", 4, 15))
    )
    return simulate(Problem(jobs, elastic([NODE], max_nodes=1)), Fifo())


def test_bars_of_two_jobs() -> None:
    chart = gantt(two_jobs())
    assert (chart.start_seconds, chart.end_seconds) == (0, 20)
    assert [lane.name for lane in chart.lanes] == ["node 0 · one"]
    assert chart.bars == (
        Bar(0, "a", "one", 0, 10, 0, 1, is_late=False),
        Bar(0, "b", "one", 10, 20, 0, 1, is_late=True),
    )
    assert chart.on == (((0, 20, 1),),)


def test_lines_of_two_jobs() -> None:
    data = over_time(two_jobs())
    assert list(data.seconds) == [0, 4, 10, 20]
    assert list(data.used_gpus) == list(data.paid_gpus) == [1, 1, 1, 0]
    assert list(data.waiting_jobs) == [0, 1, 0, 0]
    assert data.spent_usd == pytest.approx((0, 4, 10, 20))
    assert list(data.late_usd) == [0, 0, 0, 10]


def test_nothing_to_draw() -> None:
    nothing = simulate(Problem((), elastic([NODE], max_nodes=1)), Fifo())
    assert (gantt(nothing).lanes, over_time(nothing).seconds) == ((), ())


@settings(max_examples=4)
@given(st.sampled_from(["mixed", "poisson-30", "hybrid"]), st.integers(0, 99), st.integers(1, 2))
def test_bars_conserve_gpu_time_and_never_overlap(family: str, seed: int, nodes: int) -> None:
    outcome = simulate(families()[family].problem(nodes, seed), policies()["edf-packed"])
    chart, data = gantt(outcome), over_time(outcome)
    drawn = sum(bar.gpus * (bar.end_seconds - bar.start_seconds) for bar in chart.bars)
    assert drawn == pytest.approx(sum(job.gpu_seconds for job in outcome.jobs))
    assert data.spent_usd[-1] == pytest.approx(outcome.execution_usd - outcome.unused_usd)
    assert data.late_usd[-1] == pytest.approx(outcome.tardiness_usd)
    assert data.waiting_jobs[-1] == data.used_gpus[-1] == data.paid_gpus[-1] == 0
    assert min(data.waiting_jobs) >= 0
    for lane in range(len(chart.lanes)):
        bars = sorted((bar for bar in chart.bars if bar.lane == lane), key=lambda bar: bar.start_seconds)
        assert all(bar.first_gpu + bar.gpus <= chart.lanes[lane].gpus for bar in bars)
        for index, bar in enumerate(bars):
            for other in bars[index + 1 :]:
                apart = other.start_seconds >= bar.end_seconds - 1e-6
                beside = (
                    other.first_gpu >= bar.first_gpu + bar.gpus
                    or bar.first_gpu >= other.first_gpu + other.gpus
                )
                assert apart or beside


def test_too_many_bars_become_shares(monkeypatch: pytest.MonkeyPatch) -> None:
    outcome = simulate(families()["mixed"].problem(4, 1), policies()["edf-packed"])
    monkeypatch.setattr(charts, "_MOST_BARS", 10)
    monkeypatch.setattr(charts, "_MOST_LANES", 2)
    chart = gantt(outcome)
    assert (chart.bars, len(chart.lanes), len(chart.shares)) == ((), 2, 2)
    width = (chart.end_seconds - chart.start_seconds) / len(chart.shares[0])
    drawn = sum(
        lane.gpus * width * share
        for lane, shares in zip(chart.lanes, chart.shares, strict=True)
        for share in shares
    )
    assert drawn == pytest.approx(sum(job.gpu_seconds for job in outcome.jobs))


def test_long_lines_are_thinned() -> None:
    outcome = simulate(families()["mixed"].problem(2, 1), policies()["edf-packed"])
    thin = over_time(replace(outcome), points=5)
    assert len(thin.seconds) <= 5
    assert thin.spent_usd[-1] == pytest.approx(outcome.execution_usd)
