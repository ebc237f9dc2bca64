"""Learn what jobs have in common and write it: python -m foretrain.learning.scaling --data DIR."""

from __future__ import annotations

import argparse
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from foretrain.learning.kernels import calibration_files
from foretrain.learning.measurements import gavel_steps, sia_steps
from foretrain.learning.scaling import prior as priors
from foretrain.learning.scaling.fitting import Prior
from foretrain.learning.scaling.forms._base import LEVEL, Form
from foretrain.learning.scaling.forms.catalogue import form
from foretrain.learning.scaling.jobs import Job, gavel_jobs, sia_jobs
from foretrain.learning.scaling.population import learn

LEARNED = ("physical",)
"""Forms with a prior of their own; the others are the literature's, and fitted as they are."""


def calibrate(data: Path) -> Mapping[str, Any]:
    """The content of the calibration file."""
    jobs = [*sia_jobs(sia_steps.read(data)), *gavel_jobs(gavel_steps.read(data))]
    learned = {name: _content(form(name), jobs) for name in LEARNED}
    noise = next(iter(learned.values()))["noise"]
    return {"noise": noise, "forms": learned, "data": _data(jobs)}


def _content(of: Form, jobs: Sequence[Job]) -> dict[str, Any]:
    found = learn(of, jobs)
    by_cluster = {name: _distribution(of, prior) for name, prior in found.by_cluster.items()}
    return {**_distribution(of, found.prior), **_timings(found.prior), "clusters": by_cluster}


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


def main() -> None:
    """Write the calibration."""
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder of public measurements")
    file = calibration_files.write(priors.FILE, calibrate(parser.parse_args().data))
    logging.info("%s: %d bytes", file.name, file.stat().st_size)


if __name__ == "__main__":
    main()
