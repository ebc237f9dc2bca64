"""Learns the prior of scaling forms from public jobs and makes `calibrations/scaling.json`.

A job is one model on one cluster, over placements and batch sizes. Each job is fitted under the prior of the
round before; the next prior is the mean and spread of the fitted values, three rounds (empirical Bayes). Jobs
on a broken cluster would widen everything, so values beyond 2.5 robust deviations from the median are clipped
there. The declared wide prior counts as three more jobs at half its deviation, since jobs are few. Jobs of
one cluster share more than jobs of any two: a cluster's own mean is shrunk to that of all jobs by how much
clusters differ.

Reference: B. Efron, Large-scale inference, 2010, chapter 1 (shrinkage); P. J. Huber, 1964 (clipped values).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from calibration.datasets import gavel, sia
from calibration.datasets.gavel import GavelStep
from calibration.datasets.sia import SiaStep
from foretrain.learning.scaling.configurations import (
    Columns,
    Placement,
    ScalingConfiguration,
    Timing,
    columns,
    reference_batch,
    spread,
)
from foretrain.learning.scaling.fitting import FILE as FILE
from foretrain.learning.scaling.fitting import Prior, fit, wide_prior
from foretrain.learning.scaling.forms import LEVEL, LEVEL_DEVIATION, Form, form
from foretrain.prediction.operators.pricing import Floats

LEARNED = ("physical",)
"""Forms with a prior of their own; the others are the literature's, and fitted as they are."""
NOISE = 0.08
"""In logarithms, before any was learned."""
_ROUNDS = 3
_TOLERANCE = 1e-8
"""Of a search: jobs have thousands of timings, and the prior is far wider than what this leaves open."""
_FAR = 2.5
_TO_DEVIATION = 1.4826
_WORTH, _NARROWER = 3.0, 0.5


@dataclass(frozen=True, eq=False)
class Job:
    """One model on one cluster, timed in many configurations. `model` names the network, whoever ran it."""

    model: str
    cluster: str
    timings: tuple[Timing, ...]
    source: str

    @property
    def columns(self) -> Columns:
        """Its configurations."""
        places = [item.configuration for item in self.timings]
        return columns(places, self.reference_batch)

    @property
    def reference_batch(self) -> float:
        """Of all its configurations."""
        return reference_batch([item.configuration for item in self.timings])

    @property
    def log_seconds(self) -> Floats:
        """What was timed."""
        log_seconds: Floats = np.log([item.step_seconds for item in self.timings])
        return log_seconds


def sia_timing(step: SiaStep) -> Timing:
    """As a timing; devices are taken as evenly distributed where the placement is unknown."""
    placed = step.devices_per_node
    place = Placement(placed) if placed else spread(step.nodes, step.devices)
    return Timing(ScalingConfiguration(place, step.batch), step.step_seconds)


def sia_jobs(steps: Sequence[SiaStep]) -> list[Job]:
    """The steps of each model on each cluster, of both tables."""
    timings_of_job: dict[tuple[str, str], list[Timing]] = {}
    for step in steps:
        timings_of_job.setdefault((step.model, step.cluster), []).append(sia_timing(step))
    return [Job(*key, tuple(timings), sia.SOURCE) for key, timings in timings_of_job.items()]


def gavel_timing(step: GavelStep) -> Timing:
    """As a timing."""
    return Timing(ScalingConfiguration(spread(step.nodes, step.devices), step.batch), step.step_seconds)


def gavel_jobs(steps: Sequence[GavelStep]) -> list[Job]:
    """The steps of each network on each device; a single GPU is listed twice in the file, and taken once."""
    timings_of_job: dict[tuple[str, str], dict[ScalingConfiguration, Timing]] = {}
    for step in steps:
        timing = gavel_timing(step)
        timings_of_job.setdefault((step.model, step.cluster), {}).setdefault(timing.configuration, timing)
    return [Job(*key, tuple(timings.values()), gavel.SOURCE) for key, timings in timings_of_job.items()]


@dataclass(frozen=True, eq=False)
class Population:
    """Priors of jobs on an unknown cluster, and on each known one."""

    prior: Prior
    by_cluster: Mapping[str, Prior]


def learn_population(form: Form, jobs: Sequence[Job]) -> Population:
    """What the jobs have in common."""
    prior = wide_prior(form, NOISE)
    tables = [(job.columns, job.log_seconds) for job in jobs]
    starts: list[Floats | None] = [None] * len(jobs)
    level = form.names.index(LEVEL)
    own = np.array([item.deviation * _NARROWER for item in form.parameters]) ** 2
    values: Floats = np.zeros((len(jobs), len(own)))
    for _ in range(_ROUNDS):
        for row, (at, seconds) in enumerate(tables):
            fitted = fit(form, at, seconds, prior, starts[row], _TOLERANCE)
            starts[row] = fitted.values
            values[row] = fitted.values
        values[:, level] = 0.0
        values = _clipped(values)
        means = values.mean(axis=0)
        squares = ((values - means) ** 2).sum(axis=0)
        prior = _prior(means, (squares + _WORTH * own) / (len(jobs) + _WORTH), level)
    misses = [
        float(np.sqrt(np.mean((form.log_seconds(_given(start), at) - seconds) ** 2)))
        for start, (at, seconds) in zip(starts, tables, strict=True)
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
    priors = {}
    for name, middle, size in zip(names, middles, sizes.tolist(), strict=True):
        trust = between / (between + within / size)
        means = prior.means + trust * (middle - prior.means)
        priors[name] = _prior(means, within + between * (1 - trust), level, prior.noise, prior.one_batch)
    return priors


def calibrate(data: Path) -> Mapping[str, Any]:
    """The content of the calibration file."""
    jobs = [*sia_jobs(sia.read(data)), *gavel_jobs(gavel.read(data))]
    learned = {name: _content(form(name), jobs) for name in LEARNED}
    noise = next(iter(learned.values()))["noise"]
    return {"noise": noise, "forms": learned, "data": _data(jobs)}


def _content(of: Form, jobs: Sequence[Job]) -> dict[str, Any]:
    population = learn_population(of, jobs)
    by_cluster = {name: _distribution(of, prior) for name, prior in population.by_cluster.items()}
    return {**_distribution(of, population.prior), **_timings(population.prior), "clusters": by_cluster}


def _timings(prior: Prior) -> dict[str, float]:
    return {"noise": prior.noise, "one_batch": prior.one_batch}


def _distribution(of: Form, prior: Prior) -> dict[str, dict[str, float]]:
    deviations = np.sqrt(np.diag(prior.covariance))
    known = [row for row, name in enumerate(of.names) if name != LEVEL]
    return {
        "means": {of.names[row]: float(prior.means[row]) for row in known},
        "deviations": {of.names[row]: float(deviations[row]) for row in known},
    }


def _data(jobs: Sequence[Job]) -> list[dict[str, Any]]:
    return [
        {"source": job.source, "model": job.model, "cluster": job.cluster, "timings": len(job.timings)}
        for job in jobs
    ]
