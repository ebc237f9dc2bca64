"""Campaign files: what they may say, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from foretrain.errors import InvalidData, MissingData
from foretrain.measuring.campaigns.campaign import Campaign, network_bytes_per_second, read_campaign
from foretrain.measuring.campaigns.trials import trials_of

COMMITTED = sorted((Path(__file__).parents[3] / "campaigns").glob("*.yaml"))


def read(tmp_path: Path, text: str) -> Campaign:
    file = tmp_path / "campaign.yaml"
    file.write_text(text, encoding="utf-8")
    return read_campaign(file)


def test_axes_of_a_model_replace_those_of_the_campaign(tmp_path: Path) -> None:
    campaign = read(
        tmp_path,
        "name: first\nmodels:\n  - mnist-cnn\n  - {model: resnet18, image_size: 64, batch: 4}\n"
        "batch: 32..128\nnetwork: [none, 200Mbit/s]\ntimeout: 2m\nmemory: 2GB\n",
    )
    assert campaign.batch == (32, 64, 128)
    assert campaign.models[1].batch == (4,)
    assert campaign.models[1].image_size == (64,)
    assert campaign.timeout == 120.0
    assert campaign.memory == 2e9
    assert [network_bytes_per_second(name) for name in campaign.network or ()] == [None, 25e6]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("name: a\nmodels: mnist-cnn\nbatches: 32", "no field 'batches'; did you mean batch?"),
        ("name: a\nmodels: [{model: mnist-cnn, bacth: 4}]", "no field 'bacth'; did you mean batch?"),
        ("models: mnist-cnn", "`name` is required"),
        ("name: a", "names no models and no command"),
        ("name: a\nmodels: mnist-cn", "did you mean mnist-cnn or"),
        ("name: a\nmodels: mnist-cnn\nstrategy: tp=2", "trials of models run ddp, dp, fsdp"),
        ("name: a\nmodels: mnist-cnn\nprecision: fp8", "'fp8' is unknown"),
        ("name: a\nmodels: mnist-cnn\nnetwork: fast", "`network`"),
        ("name: a\nmodels: mnist-cnn\nsteps: 1", "`steps` is 1; it must be a whole number of at least 3"),
        ("name: a\nmodels: mnist-cnn\norder: alphabetical", "one of random, grid"),
        ("name: a\ncommand: python t.py {batch}", "`command` has {batch}, but `batch` is not given"),
        ("name: a\ncommand: python t.py {lr}", "`command` has {lr}; known are model, batch"),
        ("name: a\ncommand: 'python t.py {'", "write {{ and }}"),
        ("name: ' '\nmodels: mnist-cnn", "`name`: is empty"),
        ("- a\n- b", "key: value"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InvalidData) as error:
        read(tmp_path, text)
    assert message in str(error.value)
    assert "campaign.yaml" in str(error.value)


def test_a_missing_file_is_missing_data(tmp_path: Path) -> None:
    with pytest.raises(MissingData, match="does not exist"):
        read_campaign(tmp_path / "none.yaml")


@pytest.mark.parametrize("file", COMMITTED, ids=lambda file: file.stem)
def test_committed_campaigns_are_valid(file: Path) -> None:
    campaign = read_campaign(file)
    trials = trials_of(campaign)
    assert campaign.name == file.stem
    assert len({trial.key for trial in trials}) == len(trials)


def test_the_campaign_of_resources_is_large_and_varied() -> None:
    trials = trials_of(read_campaign(next(file for file in COMMITTED if file.stem == "resources")))
    assert len(trials) >= 300
    assert len({trial.point["model"] for trial in trials}) >= 12
    assert {trial.strategy for trial in trials} == {"single", "ddp", "dp", "fsdp", "ps-sync", "ps-async"}
    assert {trial.workers for trial in trials} == {1, 2, 3}
    assert len({trial.network for trial in trials}) >= 4
