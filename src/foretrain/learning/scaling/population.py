"""The prior of a form, learned from many jobs: what their parameters have in common.

Each job is fitted under the prior of the round before; the next prior is the middle and spread of what was
found, three rounds (empirical Bayes). Jobs on a broken cluster would widen everything, so that values farther
than 2.5 robust deviations from the median count as if they lay there. The declared wide prior is worth three
more jobs at half its deviation, since jobs are few. Jobs of one cluster share more than jobs of any two: a
cluster's own middle is shrunk to that of all by how much clusters differ.

Reference: B. Efron, Large-scale inference, 2010, chapter 1 (shrinkage); P. J. Huber, 1964 (clipped values).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from foretrain.learning.scaling.fitting import Prior, fit
from foretrain.learning.scaling.forms._base import LEVEL, LEVEL_DEVIATION, Form
from foretrain.learning.scaling.jobs import Job
from foretrain.learning.scaling.prior import wide_prior
from foretrain.prediction.operators.listing import Floats

NOISE = 0.08
"""In logarithms, before any was learned."""
_ROUNDS = 3
_FAR = 2.5
_TO_DEVIATION = 1.4826
_WORTH, _NARROWER = 3.0, 0.5


@dataclass(frozen=True, eq=False)
class Population:
    """Priors of jobs on an unknown cluster, and on each known one."""

    prior: Prior
    by_cluster: Mapping[str, Prior]


def learn(form: Form, jobs: Sequence[Job]) -> Population:
    """What the jobs have in common."""
    prior = wide_prior(form, NOISE)
    tables = [(job.columns, job.log_seconds) for job in jobs]
    found: list[Floats | None] = [None] * len(jobs)
    level = form.names.index(LEVEL)
    own = np.array([item.deviation * _NARROWER for item in form.parameters]) ** 2
    values: Floats = np.zeros((len(jobs), len(own)))
    for _ in range(_ROUNDS):
        for row, (at, seconds) in enumerate(tables):
            fitted = fit(form, at, seconds, prior, start=found[row])
            found[row] = fitted.values
            values[row] = fitted.values
        values[:, level] = 0.0
        values = _clipped(values)
        means = values.mean(axis=0)
        squares = ((values - means) ** 2).sum(axis=0)
        prior = _prior(means, (squares + _WORTH * own) / (len(jobs) + _WORTH), level)
    misses = [
        float(np.sqrt(np.mean((form.log_seconds(_given(start), at) - seconds) ** 2)))
        for start, (at, seconds) in zip(found, tables, strict=True)
    ]
    prior = Prior(prior.means, prior.covariance, float(np.median(misses)), _one_batch(jobs))
    return Population(prior, _by_cluster(values, [job.cluster for job in jobs], prior, own, level))


def _one_batch(jobs: Sequence[Job]) -> float:
    """Deviation of one batch from the middle of a job's, all ratios being equally likely: range / √12."""
    batches = [[item.configuration.batch for item in job.timings] for job in jobs]
    return float(np.sqrt(np.mean([np.log(max(each) / min(each)) ** 2 / 12 for each in batches])))


def _given(values: Floats | None) -> Floats:
    assert values is not None
    return values


def _clipped(values: Floats) -> Floats:
    middle = np.median(values, axis=0)
    far = _FAR * _TO_DEVIATION * np.median(np.abs(values - middle), axis=0)
    result: Floats = np.clip(values, middle - far, middle + far)
    return result


def _prior(
    means: Floats, variances: Floats, level: int, noise: float = NOISE, one_batch: float = 0.0
) -> Prior:
    means, variances = means.copy(), variances.copy()
    means[level], variances[level] = 0.0, LEVEL_DEVIATION**2
    return Prior(means, np.diag(variances), noise, one_batch)


def _by_cluster(
    values: Floats, clusters: Sequence[str], prior: Prior, own: Floats, level: int
) -> dict[str, Prior]:
    """Cluster means shrunk to the population's, with the variance of jobs within a cluster."""
    names = sorted(set(clusters))
    if len(names) < 2:
        return {}
    labels = np.array(clusters)
    groups = {name: values[labels == name] for name in names}
    middles = np.array([groups[name].mean(axis=0) for name in names])
    sizes = np.array([len(groups[name]) for name in names], float)
    off = np.concatenate([groups[name] - groups[name].mean(axis=0) for name in names])
    within = ((off**2).sum(axis=0) + _WORTH * own) / (len(off) - len(names) + _WORTH)
    between = np.maximum(middles.var(axis=0, ddof=1) - within * np.mean(1 / sizes), 0.0)
    found = {}
    for name, middle, size in zip(names, middles, sizes.tolist(), strict=True):
        trust = between / (between + within / size)
        means = prior.means + trust * (middle - prior.means)
        found[name] = _prior(means, within + between * (1 - trust), level, prior.noise, prior.one_batch)
    return found
