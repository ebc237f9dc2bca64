"""Sia's placements: predicted from six timings of a job on one GPU, one full node, four (or all) nodes.

Of each model on each cluster the smallest and the largest batch that ran in these three placements are fitted
to; judged are all other rows. What the physical form knows beforehand was learned without the judged model,
on any cluster (Gavel's runs of the same network left out, too).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from calibration.datasets.sia import PLACEMENTS, SCALABILITY, SiaStep
from calibration.scaling import gavel_jobs, sia_jobs, sia_timing

from calibration.datasets import gavel, sia
from foretrain.learning.scaling.configurations import Timing
from validation.report import Case, Metrics, SuiteReport
from validation.scaling_cases import Priors, Question, answered, by_method
from validation.splitting import by_group

_FITTED = {
    "aws-4xt4": ((1,), (4,), (4, 4, 4, 4)),
    "8xrtx2080ti": ((1,), (8,), (8, 8)),
    "azure-8xv100": ((1,), (8,), (8, 8)),
}
"""One GPU, one node, four nodes or all."""
_NOTES = (
    "The judged model is in no prior, on no cluster. 'Other models of the cluster known': the five others "
    "on the same cluster give what they have in common, such as the 1.4 to 1.7 times that two nodes take "
    "on AWS, which timings of one, four and sixteen GPUs do not show. 'Cluster not named': the same jobs, "
    "without the information that these five are of the same cluster. 'Cluster never seen': jobs of the "
    "other clusters only.",
    "Compared on these jobs, each with its model left out, so that the figures are optimistic by the "
    "effect of these choices: priors with all covariances (1 to 3 points worse: 30 jobs do not determine "
    "45 of them); means and deviations that are not clipped (1 point); a growth of the ring inside a node "
    "(0.3 points worse); rings between nodes that also pay for the inside, a smooth maximum of fixed and "
    "per-sample time, tails of the prior heavier than normal (all within 0.3 points, left out); waiting "
    "and contention without bounds (Gavel on eight machines 17 % in place of 10 %).",
    "Choosing the form by the error on the six timings, each left out in turn, is worse than always taking "
    "the physical one: three placements do not determine a fourth.",
    "Batches that are no multiple of four take YOLOv3 up to 1.6 times as long, which timings at 4 and 8 do "
    "not show.",
    "Azure: Pollux, Optimus and the plain regression are better than the physical form there. Eight "
    "workers on a node take up to three times as long as one, and two full nodes of NCF twice that again, "
    "while 1+1 costs nothing: time grows with the number of GPUs, as in no other cluster, and not as "
    "rings do.",
    "One timing: all placements and batches, up to 32 times as large (NCF) or 1/32, are predicted from the "
    "middle batch on one full node. Compare medians: one timing does not determine how a step grows with "
    "the batch.",
)


def run(data: Path) -> SuiteReport:
    """Fit to six, predict the rest."""
    steps = sia.read(data)
    priors = Priors([*sia_jobs(steps), *gavel_jobs(gavel.read(data))])
    cases = [case for context in _questions(steps, _six) for case in answered(context, priors)]
    by_set: dict[str, dict[str, Metrics]] = {}
    placed = [case for case in cases if case.name.endswith(PLACEMENTS)]
    for cluster, group in by_group(placed).items():
        by_set[cluster] = by_method(group)
    for cluster, group in by_group(placed).items():
        for model in sorted({case.name.split(" ")[0] for case in group}):
            by_set[f"{cluster}, {model}"] = by_method(_of(group, model))
    for cluster, group in by_group([case for case in cases if case.name.endswith(SCALABILITY)]).items():
        by_set[f"{cluster}, more nodes than fitted to"] = by_method(group)
    for count, chosen in ((1, _one), (3, _three)):
        few = [case for context in _questions(steps, chosen) for case in answered(context, priors)]
        few = [case for case in few if case.name.endswith(PLACEMENTS)]
        for cluster, group in by_group(few).items():
            by_set[f"{cluster}, {count} timing{'s' if count > 1 else ''}"] = by_method(group)
    return SuiteReport("sia", tuple(cases), by_set, notes=_NOTES)


def _of(cases: Sequence[Case], model: str) -> list[Case]:
    return [case for case in cases if case.name.startswith(f"{model} ")]


Choice = Callable[[Sequence[SiaStep]], list[SiaStep]]


def _questions(steps: Sequence[SiaStep], chosen: Choice) -> list[Question]:
    by_job: dict[tuple[str, str], list[SiaStep]] = {}
    for step in steps:
        by_job.setdefault((step.model, step.cluster), []).append(step)
    contexts = []
    for (model, cluster), of_job in by_job.items():
        known = chosen(of_job)
        rest = [step for step in of_job if step not in known]
        wanted: tuple[Timing, ...] = tuple(map(sia_timing, rest))
        labels = tuple(step.table for step in rest)
        contexts.append(Question(model, cluster, tuple(map(sia_timing, known)), wanted, labels))
    return contexts


def _six(of_job: Sequence[SiaStep]) -> list[SiaStep]:
    """The smallest and the largest batch of each of the three placements."""
    chosen = []
    for place in _FITTED[of_job[0].cluster]:
        of_place = sorted(
            (step for step in of_job if step.devices_per_node == place), key=lambda step: step.batch
        )
        chosen += [of_place[0], of_place[-1]]
    return chosen


def _three(of_job: Sequence[SiaStep]) -> list[SiaStep]:
    """The largest batch on one GPU, the smallest on one node and on four."""
    six = _six(of_job)
    return [six[1], six[2], six[4]]


def _one(of_job: Sequence[SiaStep]) -> list[SiaStep]:
    """The middle batch on one node."""
    place = _FITTED[of_job[0].cluster][1]
    of_place = sorted(
        (step for step in of_job if step.devices_per_node == place), key=lambda step: step.batch
    )
    return [of_place[len(of_place) // 2]]
