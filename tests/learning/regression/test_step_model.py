"""Steps predicted by a regression on timings."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.small_models import graph

from foretrain.errors import InvalidRequest, UnknownName
from foretrain.facts.devices import device
from foretrain.learning.regression.cost_model import end_to_end_steps
from foretrain.prediction.operators._base import Knowledge
from foretrain.workloads.graph import Phase

T4 = device("t4")
MLP = graph("mlp", optimizer="sgd")


def timings(folder: Path, header: str, *lines: str) -> Path:
    """A file of timings."""
    file = folder / "timings.csv"
    file.write_text("\n".join((header, *lines)) + "\n", encoding="utf-8")
    return file


def per_batch(folder: Path) -> Path:
    """100 iterations of 10 ms and 2 ms a sample each."""
    rows = [f"t4,{batch},100,{100 * (0.01 + 0.002 * batch)}" for batch in (1, 2, 4, 8, 16, 32)]
    return timings(folder, "device,batch,iterations,seconds", *rows)


def test_a_step_is_one_of_the_iterations_timed(tmp_path: Path) -> None:
    step = end_to_end_steps(per_batch(tmp_path)).estimate(MLP, T4)
    assert step.seconds == pytest.approx(0.01 + 0.002 * MLP.batch)
    assert step.knowledge is Knowledge.MEASURED
    assert step.estimate.sources == ("end-to-end regression on timings.csv",)


def test_phases_share_the_whole_step(tmp_path: Path) -> None:
    step = end_to_end_steps(per_batch(tmp_path)).estimate(MLP, T4)
    assert set(step.phases) == set(Phase)
    assert sum(step.phases.values()) == pytest.approx(step.seconds)


def test_a_gpu_that_was_not_timed_is_refused_if_only_one_was(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="gflop_per_second"):
        end_to_end_steps(per_batch(tmp_path)).estimate(MLP, device("v100-sxm2-16gb"))


def test_threads_that_differ_must_be_given(tmp_path: Path) -> None:
    rows = [f"t4,{batch},{threads},{batch + 1 / threads}" for batch in (1, 2, 4) for threads in (1, 2, 4)]
    file = timings(tmp_path, "device,batch,threads,seconds", *rows)
    with pytest.raises(InvalidRequest, match=r"differ in threads \(1 to 4\)"):
        end_to_end_steps(file).estimate(MLP, T4)
    step = end_to_end_steps(file, threads=2).estimate(MLP, T4)
    assert step.seconds == pytest.approx(MLP.batch + 0.5, rel=0.05)


def test_of_several_networks_one_is_meant(tmp_path: Path) -> None:
    rows = [
        f"{name},t4,{batch},{batch * factor}"
        for name, factor in (("a", 1), ("b", 2))
        for batch in (1, 2, 4, 8)
    ]
    file = timings(tmp_path, "model,device,batch,seconds", *rows)
    assert end_to_end_steps(file, "b").estimate(MLP, T4).seconds == pytest.approx(2 * MLP.batch)
    with pytest.raises(UnknownName, match="Timed: a, b"):
        end_to_end_steps(file, "resnet50")
