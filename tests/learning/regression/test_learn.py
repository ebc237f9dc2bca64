"""Splits, selection and the whole verb: what is left out is never seen, and the best is kept."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pytest
from tests.support.timing_tables import jobs, per_batch, sample

from foretrain.errors import InvalidRequest, MissingData, UnknownName
from foretrain.learning.regression.columns import Schema
from foretrain.learning.regression.learn import learn
from foretrain.learning.regression.selection import (
    EXTRAPOLATIONS,
    conformal_factors,
    folds,
    inner_folds,
    judge,
    possible_splits,
)
from foretrain.learning.regression.table import Sample, sample_of, table_of_runs
from foretrain.learning.regression.techniques._base import Parameters, Predictor, Technique, techniques
from foretrain.store.runs import Environment, PredictionMade, Run, Status, StepSummary


def test_every_row_is_left_out_once() -> None:
    made = folds(sample(per_batch()), "random")
    assert sorted(np.concatenate([fold.test for fold in made]).tolist()) == list(range(6))
    assert all(not set(fold.train) & set(fold.test) for fold in made)


def test_the_largest_third_of_a_number_is_left_out() -> None:
    known = sample(per_batch())
    (fold,) = folds(known, "batch-size")
    assert known.column("batch")[fold.test].tolist() == [48, 64]
    assert fold.left_out == "batch above 32"


def test_each_device_is_left_out_in_turn() -> None:
    known = sample(jobs(), "model", "device", "batch")
    made = folds(known, "compute-power")
    assert [fold.left_out for fold in made] == ["device p100-pcie", "device t4", "device v100-sxm2-16gb"]


def test_any_column_can_be_left_out_by() -> None:
    known = sample(jobs(), "model", "batch")
    assert [fold.left_out for fold in folds(known, "column=model")] == ["model large", "model small"]
    assert folds(known, "column=batch")[0].left_out == "batch above 32"
    with pytest.raises(UnknownName, match="colour"):
        folds(known, "column=colour")


def test_a_split_that_the_table_does_not_allow() -> None:
    known = sample(per_batch())
    assert possible_splits(known) == ("random", "batch-size")
    assert possible_splits(sample(jobs())) == ("random", "batch-size", "gpu-count", "compute-power")
    with pytest.raises(
        InvalidRequest, match="split gpu-count needs a column 'gpus' that varies; these do: batch"
    ):
        folds(known, "gpu-count")
    with pytest.raises(UnknownName, match="Splits: random, batch-size"):
        folds(known, "sideways")
    assert set(EXTRAPOLATIONS) == {"batch-size", "gpu-count", "compute-power", "inner-modules"}


def test_deeper_networks_are_left_out_by_depth() -> None:
    rows = [{"inner_modules": depth, "seconds": 0.1 * depth + 0.2} for depth in (4, 5, 6, 8, 10)]
    answer = learn(sample(rows), ["inner-modules"], ["linear"])
    assert answer.left_out["inner-modules"] == "inner_modules above 6"
    assert answer.best.errors["inner-modules"].mean < 1e-6


def test_few_rows_choose_at_random() -> None:
    known = sample([{"batch": batch, "seconds": batch} for batch in (1, 2, 4)])
    inside = inner_folds(known.take([0, 1]), "batch-size")
    assert all(len(fold.train) for fold in inside)


class Spy(Technique):
    """Remembers the largest target it was shown, and predicts it."""

    name = "spy"
    about = "tests"
    largest: float = 0.0

    def fit(self, sample: Sample, parameters: Parameters) -> Predictor:
        self.largest = max(self.largest, float(sample.measured.max()))
        return techniques()["nnls"].fit(sample, {"device": "named"})

    def read(self, plain: Mapping[str, Any], schema: Schema) -> Predictor:
        raise NotImplementedError


def test_what_is_left_out_is_never_seen() -> None:
    """Of batches up to 64, an extrapolation shows no technique a target of more than batch 32."""
    spy = Spy()
    judge(sample(per_batch()), "batch-size", [spy])
    assert spy.largest == pytest.approx(0.01 + 0.002 * 32)


def test_features_are_learned_inside_the_fold() -> None:
    """A category of the rows left out has no term in the fit: its indicator would leak what it is."""
    known = sample(jobs(), "model", "batch")
    (fold, _) = folds(known, "column=model")
    model: Any = techniques()["nnls"].fit(known.take(fold.train), {"device": "named"})
    assert "large" not in model.formula()


def test_conformal_factors_by_hand() -> None:
    """Of nineteen ratios 0.91 ... 1.09, the 2nd smallest and the 2nd largest."""
    ratios = np.array([0.9 + 0.01 * step for step in range(1, 20)])
    assert conformal_factors(ratios, np.ones(19)) == pytest.approx((0.92, 1.08))
    assert conformal_factors(np.array([0.8, 1.3]), np.ones(2)) == pytest.approx((0.8, 1.3))
    assert conformal_factors(np.array([1.1, 1.2]), np.ones(2)) == pytest.approx((1.0, 1.2))
    assert conformal_factors(np.array([1.0]), np.array([np.nan])) == (1.0, 1.0)


def test_conformal_intervals_cover_eighty_percent() -> None:
    random = np.random.default_rng(11)
    known, new = np.exp(0.2 * random.normal(size=(2, 400)))
    low, high = conformal_factors(known, np.ones(400))
    assert 0.74 <= float(np.mean((new >= low) & (new <= high))) <= 0.86


def test_the_gray_box_wins_where_the_prediction_has_the_shape() -> None:
    known = sample(jobs(), "model", "device", "batch", "gpus", "predicted_seconds")
    answer = learn(known, ["compute-power", "batch-size"], ["gray-box", "ridge", "nnls"])
    assert answer.best.technique == "gray-box"
    assert answer.best.errors["compute-power"].mean < 0.02
    assert answer.best.errors["batch-size"].mean < 0.02
    assert answer.model.predict([answer.held_out[0].row])[0].p50 > 0


def test_the_answer_as_data_and_as_a_summary() -> None:
    answer = learn(sample(per_batch()), names=["linear", "gray-box"])
    content = answer.to_dict()
    assert content["model"]["formula"] == "seconds = 0.01 + 0.002 · (batch)"
    assert content["ranking"][0]["errors"]["random"]["rows"] == 6
    assert content["skipped"]["gray-box"].startswith("a column 'predicted_seconds'")
    assert dict(answer.summary())["technique"] == "linear"
    assert answer.coverage == 1.0


def test_all_splits_that_are_possible() -> None:
    answer = learn(sample(per_batch()), ["all"], ["linear"])
    assert answer.splits == ("random", "batch-size")


def test_too_few_rows_to_judge() -> None:
    known = sample(per_batch()[:4])
    with pytest.raises(InvalidRequest, match="4 configurations are too few to judge"):
        learn(known)


def test_no_technique_for_the_table() -> None:
    with pytest.raises(InvalidRequest, match="ernest needs a number of GPUs"):
        learn(sample(per_batch()), names=["ernest"])
    with pytest.raises(UnknownName, match="did you mean forest"):
        learn(sample(per_batch()), names=["forrest"])


def run(batch: int, **changes: Any) -> Run:
    """A stored run of 10 ms and 2 ms a sample."""
    seconds = 0.01 + 0.002 * batch
    made = Run(
        id=f"{batch:016d}",
        started_at=datetime(2026, 11, 16, tzinfo=UTC),
        seconds=100 * seconds,
        status=Status.COMPLETED,
        exit_code=0,
        command=(),
        setting={"model": "mnist-cnn", "batch": batch, "on": "t4", "nested": {"a": 1}},
        environment=Environment(device="t4", device_name="T4"),
        provenance="test",
        summary=StepSummary(
            seconds=seconds,
            p10_seconds=seconds,
            p90_seconds=seconds,
            steps=100,
            warm_up_steps=5,
            variation=0.0,
        ),
        prediction=PredictionMade(
            made_at=datetime(2026, 11, 16, tzinfo=UTC), version="0", knowledge="calibrated",
            p10_seconds=0.0, p50_seconds=seconds / 2, p90_seconds=1.0,
        ),
    )  # fmt: skip
    return replace(made, **changes)


def test_stored_runs_are_a_table() -> None:
    runs = [run(batch) for batch in (8, 16, 24, 32, 48, 64)]
    table = table_of_runs([*runs, run(128, status=Status.FAILED)], "runs")
    assert set(table.columns) == {
        "model", "batch", "device", "gpus", "nodes", "predicted_seconds", "step_seconds",
    }  # fmt: skip
    answer = learn(sample_of(table, "step_seconds"), names=["linear", "gray-box"])
    assert answer.best.errors["random"].mean < 0.01


def test_settings_that_only_some_runs_have_are_left_out() -> None:
    runs = [run(batch) for batch in (8, 16, 24)]
    other = run(32, setting={"model": "mnist-cnn", "batch": 32, "precision": "fp16"}, prediction=None)
    table = table_of_runs([*runs, other], "runs")
    assert "precision" not in table.columns
    assert "predicted_seconds" not in table.columns


def test_no_completed_runs() -> None:
    with pytest.raises(MissingData, match="none of the 1 runs is completed"):
        table_of_runs([run(8, status=Status.FAILED)], "runs")
