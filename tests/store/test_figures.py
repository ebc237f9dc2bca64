"""Figures of runs, checked by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from tests.support.runs import HERE, plain_run, summary_of

from foretrain.store.runs import NODE, Resource, ResourceSeries, resource_use, side_by_side


def cpu(values: list[float], worker: int = 0) -> ResourceSeries:
    return ResourceSeries(
        resource=Resource.CPU, worker=worker, seconds=np.arange(float(len(values))), values=np.array(values)
    )


def test_the_use_of_a_resource() -> None:
    (use,) = resource_use(plain_run(series=(cpu([1.0, 4.0, 2.0, np.nan]), cpu([]), cpu([np.nan], NODE))))
    assert (use.minimum, use.median, use.maximum, use.samples, use.unit) == (1.0, 2.0, 4.0, 3, "cores")


def test_ratios_are_to_the_first_run() -> None:
    first = plain_run(summary=summary_of(0.2), series=(cpu([1.0]), cpu([0.5], 1)))
    second = plain_run(summary=summary_of(0.1), environment=replace(HERE, nodes=2))
    third = plain_run(summary=None, setting={})
    figures = {figure.name: figure for figure in side_by_side([first, second, third])}
    assert figures["step"].values == (0.2, 0.1, None)
    assert figures["step"].ratios == (1.0, 0.5, None)
    assert figures["throughput"].values == (160.0, 640.0, None)
    assert figures["cpu (median)"].values == (1.5, None, None)
    assert "power (median)" not in figures
