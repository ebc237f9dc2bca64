"""The table of published throughputs, and how its figures become requests and a page."""

from __future__ import annotations

import pytest
from validation.published_suite import FIGURES, Figure, _case, page, read, settings_of

from foretrain.estimates import Quantiles
from foretrain.facts.devices import device
from foretrain.serving.requests import request_from
from foretrain.serving.requests.predicting import PredictRequest

ROW = {
    "what": "GPT pre-training", "area": "LLM", "model": "gpt2", "device": "h100-sxm", "devices": "8",
    "nodes": "4", "strategy": "fsdp", "batch": "6", "micro_batches": "3", "sequence": "1024",
    "precision": "bf16", "options": "attention=flash;checkpoint_activations=true", "figure": "1000",
    "unit": "tokens/s/GPU", "source": "A benchmark", "url": "https://example.org", "year": "2024",
    "in_fit": "no", "assumed": "AdamW",
}  # fmt: skip


def test_a_row_as_a_request() -> None:
    assert settings_of(ROW) == {
        "model": "gpt2", "on": "h100-sxm:8x4", "strategy": "fsdp", "batch": 6, "micro_batches": 3,
        "seq_len": 1024, "precision": "bf16", "attention": "flash", "checkpoint_activations": True,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("unit", "units"),
    [("tokens/s/GPU", 6 * 1024), ("tokens/s", 32 * 6 * 1024), ("sequences/s", 32 * 6)],
)
def test_what_a_step_counts(unit: str, units: float) -> None:
    assert Figure({**ROW, "unit": unit}, {}).units_of_a_step == units


def test_a_slow_step_is_a_low_throughput() -> None:
    figure = Figure(ROW, settings_of(ROW))
    case = _case(figure, Quantiles(4.0, 6.144, 8.0))
    assert case.interval is not None
    assert case.predicted["foretrain"] == pytest.approx(1000)
    assert (case.interval.p10, case.interval.p90) == (6144 / 8, 6144 / 4)
    text = page([figure], [case])
    assert "| GPT pre-training | 32 h100-sxm | 6 in 3 parts | 1024 | bf16 |" in text
    assert "The median error is 0.0%" in text


def test_every_figure_has_a_source_and_a_request_that_can_be_decoded() -> None:
    figures = list(read(FIGURES))
    assert len(figures) >= 40
    assert sum(figure.row["nodes"] == "1" for figure in figures) >= 25
    assert len({figure.name + figure.row["options"] for figure in figures}) == len(figures)
    for figure in figures:
        assert figure.row["url"].startswith("https://")
        assert all(figure.row[key] for key in ("source", "year", "in_fit", "assumed"))
        assert device(figure.row["device"]).id == figure.row["device"]
        assert figure.published > 0
        request_from(PredictRequest, figure.settings)
