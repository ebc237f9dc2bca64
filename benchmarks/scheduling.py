"""How long one scheduling decision takes, by the number of nodes and jobs.

`python -m benchmarks.scheduling` draws the decision times of several policies by size.
"""

from __future__ import annotations

import time
from functools import cache
from pathlib import Path

from benchmarks.timing import benchmark
from foretrain.scheduling.generators import families
from foretrain.scheduling.policies.catalogue import policies
from foretrain.scheduling.state import JobState, State

JOBS_PER_NODE = 4.5
PLOT = Path("docs/images/decision-seconds.svg")
_SIZES = (3, 10, 30, 100, 300, 1000)
_SLOW_FROM = {"path-relinking": 300}
"""Sizes that take minutes."""


@cache
def crowded(nodes: int, family: str = "high-scaling") -> State:
    """A state in which all jobs of a problem, 4.5 a node, were submitted and none has started."""
    problem = families()[family].problem(nodes, seed=0, jobs_per_node=JOBS_PER_NODE)
    now = problem.jobs[-1].submit_seconds
    return State(now, problem.fleet, {job.name: JobState(job, counted_at=now) for job in problem.jobs}, {})


def _prepare_100() -> None:
    crowded(100)


def _prepare_1000() -> None:
    crowded(1000)


@benchmark("auto, 100 nodes, 450 jobs", target_seconds=2.0, runs=3, prepare=_prepare_100)
def auto_450_jobs() -> None:
    """One decision; published path relinking: 0.9 s median, 2.5 s at most."""
    policies()["auto"].decide(crowded(100))


@benchmark("auto, 1,000 nodes, 4,500 jobs", target_seconds=20.0, runs=2, prepare=_prepare_1000)
def auto_4500_jobs() -> None:
    """One decision with ten times as many."""
    policies()["auto"].decide(crowded(1000))


def decision_seconds(policy: str, nodes: int) -> float:
    """One decision, timed once after the state is ready."""
    state = crowded(nodes)
    start = time.perf_counter()
    policies()[policy].decide(state)
    return time.perf_counter() - start


def draw(path: Path = PLOT) -> None:
    """Decision times by size, on logarithmic axes."""
    from foretrain.serving.rendering.charts import save_spec
    from foretrain.serving.views.vega import PALETTE, ChartLine, ChartQuantity, axis_over, figure, line_layers

    lines = []
    for place, policy in enumerate(("auto", "price", "milp", "greedy", "path-relinking", "edf-packed")):
        sizes = [nodes for nodes in _SIZES if nodes < _SLOW_FROM.get(policy, 10_000)]
        decision_seconds(policy, sizes[0])  # imports
        seconds = [decision_seconds(policy, nodes) for nodes in sizes]
        lines.append(ChartLine(policy, sizes, seconds, PALETTE[place], has_marks=True))
        print(
            policy,
            ", ".join(f"{nodes} nodes: {each:.3g} s" for nodes, each in zip(sizes, seconds, strict=True)),
        )
    x = axis_over(_SIZES, "nodes (4.5 waiting jobs each)", ChartQuantity.NUMBER, 560, is_log=True)
    values = [value for line in lines for value in line.y]
    y = axis_over(values, "time of one decision", ChartQuantity.TIME, 340, is_log=True, is_vertical=True)
    content = {"width": 560, "height": 340, "layer": line_layers(lines, x, y)}
    path.parent.mkdir(parents=True, exist_ok=True)
    save_spec(figure("Decision times", "Decision times of policies by number of nodes.", content), path)


if __name__ == "__main__":
    draw()
