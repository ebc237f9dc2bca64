"""Steps and jobs priced by learned models."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.small_models import graph
from tests.support.timing_tables import jobs, sample

from foretrain.errors import InvalidRequest, MissingData, UnknownName
from foretrain.facts.devices import device
from foretrain.learning.regression.cost_model import LearnedSteps, learned_steps, price_jobs, timed_steps
from foretrain.learning.regression.learn import learn
from foretrain.learning.regression.model import save
from foretrain.prediction.operators.pricing import Knowledge
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
    step = timed_steps(per_batch(tmp_path)).estimate(MLP, T4)
    assert step.seconds == pytest.approx(0.01 + 0.002 * MLP.batch)
    assert step.knowledge is Knowledge.MEASURED
    assert step.estimate.sources == ("end-to-end regression on timings.csv",)


def test_phases_share_the_whole_step(tmp_path: Path) -> None:
    step = timed_steps(per_batch(tmp_path)).estimate(MLP, T4)
    assert set(step.phases) == set(Phase)
    assert sum(step.phases.values()) == pytest.approx(step.seconds)


def test_a_batch_beyond_the_timings_is_extrapolated(tmp_path: Path) -> None:
    rows = [f"t4,{batch},{0.01 + 0.002 * batch}" for batch in (64, 128, 192, 256, 512, 1024)]
    step = timed_steps(timings(tmp_path, "device,batch,seconds", *rows)).estimate(MLP, T4)
    assert step.knowledge is Knowledge.EXTRAPOLATED


def test_a_gpu_that_was_not_timed_is_refused_if_only_one_was(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match=r"device v100-sxm2-16gb \(all timings: t4\)"):
        timed_steps(per_batch(tmp_path)).estimate(MLP, device("v100-sxm2-16gb"))


def test_columns_that_differ_and_are_no_part_of_a_step_must_be_given(tmp_path: Path) -> None:
    rows = [f"t4,{batch},{threads},{batch + 1 / threads}" for batch in (1, 2, 4) for threads in (1, 2, 4)]
    file = timings(tmp_path, "device,batch,threads,seconds", *rows)
    with pytest.raises(InvalidRequest, match=r"differ in threads \(1 to 4\)"):
        timed_steps(file).estimate(MLP, T4)
    step = timed_steps(file, given={"threads": 2.0}).estimate(MLP, T4)
    assert step.seconds == pytest.approx(MLP.batch + 0.5, rel=0.05)


def test_of_several_networks_one_is_meant(tmp_path: Path) -> None:
    rows = [
        f"{name},t4,{batch},{batch * factor}"
        for name, factor in (("a", 1), ("b", 2))
        for batch in (1, 2, 4, 8)
    ]
    file = timings(tmp_path, "model,device,batch,seconds", *rows)
    assert timed_steps(file, "b").estimate(MLP, T4).seconds == pytest.approx(2 * MLP.batch)
    with pytest.raises(UnknownName, match="Timed: a, b"):
        timed_steps(file, "resnet50")


def test_three_timings_are_enough_and_two_are_not(tmp_path: Path) -> None:
    lines = [f"t4,{batch},{0.002 * batch}" for batch in (2, 4, 8)]
    assert timed_steps(timings(tmp_path, "device,batch,seconds", *lines)).estimate(MLP, T4).seconds > 0
    with pytest.raises(MissingData, match="2 rows of 2 different configurations are too few"):
        timed_steps(timings(tmp_path, "device,batch,seconds", *lines[:2]))


def test_a_saved_gray_box_prices_steps_from_their_prediction(tmp_path: Path) -> None:
    file = tmp_path / "model.json"
    answer = learn(sample(jobs(), "model", "device", "batch", "predicted_seconds"), names=["gray-box"])
    save(answer.model, file)
    steps = learned_steps(file, "small")
    assert isinstance(steps, LearnedSteps)
    assert steps.estimate(MLP, T4).seconds > 0
    with pytest.raises(UnknownName, match="Timed: large, small"):
        learned_steps(file, "resnet50").estimate(MLP, T4)


def test_jobs_are_priced_for_a_scheduler() -> None:
    rows = [{key: value for key, value in row.items() if key != "predicted_seconds"} for row in jobs()]
    model = learn(sample(rows), names=["nnls"]).model
    two, four = price_jobs(
        model,
        [{"model": "large", "device": "t4", "batch": 32, "gpus": gpus} for gpus in (2, 4)],
    )
    truth = 0.005 + 40 * 32 / 8141
    assert two.p50 == pytest.approx(truth * 1.05, rel=0.15)
    assert four.p50 == pytest.approx(truth * 1.10, rel=0.15)
    assert two.p10 <= two.p50 <= two.p90


def test_a_job_needs_the_columns_that_were_learned_from() -> None:
    model = learn(sample(jobs(), "model", "batch"), names=["nnls"]).model
    with pytest.raises(MissingData, match="the model needs 'batch'; given are 'model'"):
        price_jobs(model, [{"model": "large"}])
