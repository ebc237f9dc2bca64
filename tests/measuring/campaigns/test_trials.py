"""Trials: grids by hand, samples, repeats, order, keys, commands."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from foretrain.errors import InvalidRequest
from foretrain.measuring.campaigns.campaign import Campaign, ModelEntry
from foretrain.measuring.campaigns.trials import Trial, remaining, trials_of

CNN, VOICE = ModelEntry(model="mnist-cnn"), ModelEntry(model="voice-conv", batch=(2,))


def settings(trials: tuple[Trial, ...]) -> list[dict[str, object]]:
    return [trial.setting for trial in trials]


def test_a_grid_by_hand() -> None:
    campaign = Campaign(name="a", models=(CNN, VOICE), batch=(8, 16), workers=(1, 2), order="grid",
                        strategy=("ddp", "ps-sync"), network=("1Gbit/s",))  # fmt: skip
    two = {"on": "here:1x2", "network": "1Gbit/s"}
    assert settings(trials_of(campaign)) == [
        {"model": "mnist-cnn", "batch": 8, "on": "here"},
        {"model": "mnist-cnn", "batch": 8, "strategy": "ddp", **two},
        {"model": "mnist-cnn", "batch": 8, "strategy": "ps-sync", **two},
        {"model": "mnist-cnn", "batch": 16, "on": "here"},
        {"model": "mnist-cnn", "batch": 16, "strategy": "ddp", **two},
        {"model": "mnist-cnn", "batch": 16, "strategy": "ps-sync", **two},
        {"model": "voice-conv", "batch": 2, "on": "here"},
        {"model": "voice-conv", "batch": 2, "strategy": "ddp", **two},
        {"model": "voice-conv", "batch": 2, "strategy": "ps-sync", **two},
    ]


def test_no_limit_of_the_network_is_no_network_in_the_setting() -> None:
    (trial,) = trials_of(Campaign(name="a", models=(CNN,), workers=(2,), network=("none",)))
    assert trial.setting == {"model": "mnist-cnn", "on": "here:1x2"}
    assert (trial.workers, trial.strategy, trial.network) == (2, "ddp", None)


def test_a_sample_is_part_of_the_grid_and_does_not_depend_on_other_models() -> None:
    grid = Campaign(name="a", models=(CNN,), batch=tuple(range(1, 41)))
    sample = Campaign(name="a", models=(CNN,), batch=tuple(range(1, 41)), sample=10, seed=3)
    chosen = {trial.key for trial in trials_of(sample)}
    assert len(chosen) == 10
    assert chosen < {trial.key for trial in trials_of(grid)}
    assert chosen == {trial.key for trial in trials_of(sample)}
    other = Campaign(name="a", models=(CNN,), batch=tuple(range(1, 41)), sample=10, seed=4)
    assert chosen != {trial.key for trial in trials_of(other)}
    with pytest.raises(InvalidRequest, match="`sample` is 50, but the grid has 40 trials"):
        trials_of(Campaign(name="a", models=(CNN,), batch=tuple(range(1, 41)), sample=50))


def test_order_is_random_by_seed_and_stable_when_a_model_is_added() -> None:
    def keys(*models: ModelEntry, seed: int = 0) -> list[str]:
        campaign = Campaign(name="a", models=models, batch=tuple(range(1, 21)), seed=seed)
        return [trial.key for trial in trials_of(campaign)]

    alone = keys(CNN)
    assert alone != sorted(alone, key=keys(CNN, seed=1).index)
    more = keys(CNN, ModelEntry(model="voice-linear"))
    assert [key for key in more if key in alone] == alone
    in_order = trials_of(Campaign(name="a", models=(CNN,), batch=tuple(range(1, 21)), order="grid"))
    assert [trial.point["batch"] for trial in in_order] == list(range(1, 21))
    assert [trial.key for trial in in_order] != alone


def test_repeats_have_keys_of_their_own() -> None:
    trials = trials_of(Campaign(name="a", models=(CNN,), batch=(8, 16), repeats=3))
    assert len({trial.key for trial in trials}) == 6
    assert Counter(trial.repeat for trial in trials) == {0: 2, 1: 2, 2: 2}


def test_keys_follow_what_is_measured_and_nothing_else() -> None:
    def key(**changes: Any) -> str:
        given: dict[str, Any] = {"campaign": "a", "point": {"model": "mnist-cnn", "batch": 8}}
        return Trial(**{**given, "device": "here", **changes}).key

    assert key() == key(point={"batch": 8, "model": "mnist-cnn"})
    assert key() == key(timeout=5.0)
    changed: list[dict[str, Any]] = [
        {"campaign": "b"}, {"repeat": 1}, {"steps": 7}, {"seconds": 9.0}, {"memory": 1e9},
        {"point": {"model": "mnist-cnn", "batch": 16}}, {"command": "true"},
    ]  # fmt: skip
    assert len({key(), *(key(**change) for change in changed)}) == 1 + len(changed)


def test_stored_trials_are_left_out() -> None:
    trials = trials_of(Campaign(name="a", models=(CNN,), batch=(8, 16, 32)))
    assert remaining(trials, {trials[1].key}) == (trials[0], trials[2])


def test_commands_are_filled_in_and_split_as_a_shell_does() -> None:
    command = "python 'my train.py' --batch {batch} --model {model} --repeat {repeat} --json '{{}}'"
    campaign = Campaign(name="a", command=command, models=(CNN,), batch=(8,), repeats=2, order="grid")
    first, second = trials_of(campaign)
    assert first.words == (
        "python", "my train.py", "--batch", "8", "--model", "mnist-cnn", "--repeat", "0", "--json", "{}",
    )  # fmt: skip
    assert second.words[7] == "1"
    assert first.setting == {"model": "mnist-cnn", "batch": 8, "on": "here"}
