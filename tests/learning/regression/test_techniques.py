"""Each technique recovers a law it can express, by hand where that is possible."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.timing_tables import BATCHES, jobs, per_batch, sample

from foretrain.learning.regression.columns import Feature, Schema
from foretrain.learning.regression.table import Sample
from foretrain.learning.regression.techniques import trees
from foretrain.learning.regression.techniques._base import LinearPredictor, techniques
from foretrain.learning.regression.terms import Term, candidates, matrix, powers_of


def fitted(name: str, known: Sample, **parameters: Any) -> Any:
    """A technique fitted with its first parameters, or others."""
    technique = techniques()[name]
    return technique.fit(known, {**technique.grid()[0], **parameters})


def at(known: Sample, predictor: Any, **row: Any) -> float:
    """The prediction of one row."""
    return float(predictor.predict(known.schema.encode([row]))[0])


SCHEMA = Schema((Feature("batch", (), 1, 8), Feature("gpus", (), 1, 8), Feature("device", ("k80", "t4"))))


def test_terms_by_hand() -> None:
    rows = np.array([[6.0, 4.0, 1.0], [8.0, 2.0, 0.0]])
    per_gpu = Term((("batch", 1), ("gpus", -1)))
    on_t4 = Term((("batch", 1),), (), (("device", "t4"),))
    assert str(per_gpu) == "batch / gpus"
    assert str(on_t4) == "batch · [device = t4]"
    assert matrix((per_gpu, on_t4, Term(logs=("gpus",))), SCHEMA, rows).tolist() == [
        [1.5, 6.0, np.log(4.0)],
        [4.0, 0.0, np.log(2.0)],
    ]


def test_all_products_of_two_features_and_their_inverses() -> None:
    rows = [{"batch": b, "gpus": g, "seconds": b + g} for b in (1, 2, 3, 4) for g in (1, 2, 3)]
    assert {str(term) for term in candidates(sample(rows))} == {
        "batch", "1 / batch", "gpus", "batch · gpus", "gpus / batch",
    }  # fmt: skip


def test_few_values_get_one_power_and_a_delay_of_zero_no_inverse() -> None:
    assert powers_of(Feature("batch"), np.array([1.0, 2, 4, 8])) == (1, -1)
    assert powers_of(Feature("batch"), np.array([1.0, 2, 4])) == (1,)
    assert powers_of(Feature("gflops"), np.array([1.0, 2, 4, 4])) == (-1,)
    assert powers_of(Feature("disk_delay_seconds"), np.array([0.0, 1, 2, 3, 4])) == (1,)


@pytest.mark.parametrize("name", ["linear", "nnls"])
def test_a_line_in_the_batch_is_found_and_written(name: str) -> None:
    known = sample(per_batch())
    model = fitted(name, known)
    assert model.formula() == "0.01 + 0.002 · (batch)"
    assert at(known, model, batch=256) == pytest.approx(0.522)


def test_iterations_threads_and_delays_are_found() -> None:
    rows = [
        {"iterations": i, "threads": t, "disk_delay_seconds": d, "seconds": 3 + i * (0.1 / t + d)}
        for t in (1, 2, 4, 8) for d in (0, 0.05) for i in (100, 200, 400)
    ]  # fmt: skip
    known = sample(rows)
    model = fitted("linear", known)
    longer = {"iterations": 1000, "threads": 16, "disk_delay_seconds": 0.1}
    assert at(known, model, **longer) == pytest.approx(3 + 1000 * (0.1 / 16 + 0.1), rel=0.01)


def test_ridge_finds_a_power_law() -> None:
    rows = [{"batch": b, "width": w, "seconds": 0.01 * b**0.8 * w**1.5} for b in BATCHES for w in (1, 2, 4)]
    known = sample(rows)
    model = fitted("ridge", known, alpha=0.001)
    assert at(known, model, batch=128, width=8) == pytest.approx(0.01 * 128**0.8 * 8**1.5, rel=0.01)
    assert model.formula().startswith("exp(-4.6")


def test_devices_known_by_their_figures_reach_one_that_was_never_timed() -> None:
    """seconds = 5 ms + 10 · batch / GFLOP/s: a device's own offset would say nothing of another."""
    rows = [row for row in jobs() if row["model"] == "small" and row["gpus"] == 1]
    known = sample(rows, "device", "batch")
    model = fitted("nnls", known, device="figures")
    assert "[device" not in model.formula()
    assert at(known, model, device="rtx3090", batch=64) == pytest.approx(0.005 + 640 / 35580, rel=0.1)


def test_sequential_selection_drops_what_does_not_help() -> None:
    random = np.random.default_rng(5)
    rows = [
        {"batch": b, "colour": float(random.integers(1, 100)), "seconds": 0.01 * b}
        for b in (*BATCHES, *(2 * b for b in BATCHES), *(3 * b for b in BATCHES))
    ]
    model = fitted("ridge", sample(rows), features="sequential")
    assert [str(term) for term in model.terms] == ["log(batch)"]


def test_ernest_finds_its_own_terms() -> None:
    rows = [{"gpus": g, "batch": b, "seconds": 0.2 + 0.01 * b + 0.05 * np.log(g) + 0.003 * g}
            for g in (1, 2, 4, 8) for b in (8, 16, 32)]  # fmt: skip
    known = sample(rows)
    expected = 0.2 + 0.01 * 64 + 0.05 * np.log(32) + 0.003 * 32
    assert at(known, fitted("ernest", known), gpus=32, batch=64) == pytest.approx(expected, rel=1e-6)


def test_ernest_needs_gpus() -> None:
    assert "column gpus" in techniques()["ernest"].lacks(sample(per_batch()).schema)


@pytest.mark.parametrize("name", ["svr", "forest", "boosting"])
def test_rows_that_were_fitted_are_met(name: str) -> None:
    known = sample(jobs(), "model", "device", "batch", "gpus")
    errors = np.abs(fitted(name, known).predict(known.rows) / known.measured - 1)
    assert float(np.median(errors)) < 0.12


def test_the_gray_box_learns_a_constant_factor() -> None:
    """The prediction is 1 / 1.25 of the truth everywhere, so also on a device and a batch never timed."""
    known = sample(jobs(), "model", "device", "batch", "gpus", "predicted_seconds")
    model = fitted("gray-box", known)
    row = {"model": "large", "device": "rtx3090", "batch": 512, "gpus": 16, "predicted_seconds": 1.0}
    assert at(known, model, **row) == pytest.approx(1.25, rel=0.02)


def test_the_gray_box_learns_the_offset_of_each_category() -> None:
    rows = [
        {**row, "seconds": row["predicted_seconds"] * (2.0 if row["model"] == "large" else 1.0)}
        for row in jobs()
    ]
    known = sample(rows, "model", "device", "batch", "gpus", "predicted_seconds")
    model = fitted("gray-box", known)
    row = {"device": "t4", "batch": 128, "gpus": 1, "predicted_seconds": 1.0}
    assert at(known, model, model="large", **row) == pytest.approx(2.0, rel=0.03)
    assert at(known, model, model="small", **row) == pytest.approx(1.0, rel=0.03)


def test_the_gray_box_puts_a_prediction_on_a_line() -> None:
    """Another framework's 10 ms a step: seconds = 0.01 + 3 · predicted."""
    rows = [{"batch": b, "predicted_seconds": 0.001 * b, "seconds": 0.01 + 0.003 * b} for b in BATCHES]
    known = sample(rows)
    model = fitted("gray-box", known, base="line")
    assert at(known, model, batch=1000, predicted_seconds=1.0) == pytest.approx(3.01, rel=0.01)


def test_without_a_prediction_there_is_no_gray_box() -> None:
    assert "predicted_seconds" in techniques()["gray-box"].lacks(sample(per_batch()).schema)


@settings(max_examples=25)
@given(
    constant=st.floats(0.0, 1.0),
    slope=st.floats(0.001, 1.0),
    batches=st.lists(st.integers(1, 512), min_size=4, max_size=8, unique=True),
)
def test_non_negative_lines_are_recovered_and_never_fall(
    constant: float, slope: float, batches: list[int]
) -> None:
    """Whatever the line: it is found, and a larger batch is never faster."""
    known = sample([{"batch": b, "seconds": constant + slope * b} for b in batches])
    model = fitted("nnls", known)
    sizes = np.array([[1.0], [64.0], [1024.0], [4096.0]])
    predicted = model.predict(sizes)
    assert (np.diff(predicted) >= 0).all()
    assert predicted == pytest.approx(constant + slope * sizes[:, 0], rel=1e-3, abs=1e-6)


def test_coefficients_must_fit_the_terms() -> None:
    with pytest.raises(ValueError, match="1 coefficients of 1 terms"):
        LinearPredictor(SCHEMA, (Term((("batch", 1),)),), (1.0,))


@pytest.mark.parametrize("brings_openmp", [True, False])
def test_a_machine_without_openmp(monkeypatch: pytest.MonkeyPatch, brings_openmp: bool) -> None:
    """The first import fails as where libgomp is not installed; the second once PyTorch's is loaded."""
    attempts = []

    def importing(name: str) -> ModuleType:
        attempts.append(name)
        if len(attempts) == 1 or not brings_openmp:
            raise OSError("libgomp.so.1: cannot open shared object file")
        return ModuleType(name)

    monkeypatch.setattr(trees, "import_module", importing)
    lacking = trees.Boosting().lacks(Schema(()))
    assert attempts == ["lightgbm", "lightgbm"]
    assert lacking == "" if brings_openmp else "apt-get install libgomp1" in lacking
