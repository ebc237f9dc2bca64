"""The suite of the campaign, on a few of its models."""

from __future__ import annotations

from pathlib import Path

import pytest
from validation.campaign_suite import AFTER, BEFORE, FOLDER

from foretrain.store.exchange.parquet_files import read_parquet
from validation import campaign_suite


def test_calibrating_on_half_of_a_few_models_helps_the_other_half(monkeypatch: pytest.MonkeyPatch) -> None:
    models = ("mnist-cnn", "voice-conv", "voice-linear", "cifar-resnet20")
    runs = [
        run
        for run in read_parquet(FOLDER / "runs.parquet")
        if run.setting["model"] in models and run.setting.get("strategy") != "fsdp"
    ]
    monkeypatch.setattr(campaign_suite, "read_parquet", lambda _: runs)
    report = campaign_suite.run(Path())
    both = report.metrics["all models"]
    assert both[AFTER].mean < both[BEFORE].mean
    assert both[AFTER].cases == len(report.cases)
    assert both[AFTER].coverage is not None
    assert {case.group for case in report.cases} == set(models)
    assert any("DataParallel" in note for note in report.notes)
