"""Samples of the committed campaign: small models only, so that they are ready in seconds."""

from __future__ import annotations

from functools import cache

import pytest
from validation.campaign_suite import FOLDER, machine_of_the_campaign

from foretrain.learning.resources.samples import ResourceSample, resource_samples
from foretrain.store.exchange.parquet_files import read_parquet
from foretrain.store.runs import Run

MODELS = ("mnist-cnn", "voice-conv", "cifar-resnet20", "bert-tiny", "voice-linear", "mobilenet-v2")
STRATEGIES = ("ddp", "ps-sync")


@cache
def campaign_runs() -> tuple[Run, ...]:
    """Runs of small models with two strategies, two workers."""
    return tuple(
        run
        for run in read_parquet(FOLDER / "runs.parquet")
        if run.setting["model"] in MODELS
        and run.setting.get("strategy") in STRATEGIES
        and run.environment.nodes == 2
    )


@cache
def campaign_samples() -> tuple[ResourceSample, ...]:
    """The same as samples."""
    with machine_of_the_campaign():
        samples, unused = resource_samples(campaign_runs())
        for sample in samples:
            _ = sample.scene.pace.memory  # simulated once, while the machine is known
    assert not unused
    return tuple(samples)


@pytest.fixture
def runs() -> tuple[Run, ...]:
    return campaign_runs()


@pytest.fixture
def samples() -> tuple[ResourceSample, ...]:
    return campaign_samples()
