"""A tiny Inspector trained for real: it beats the mean on models it has not seen, and survives the disk."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from foretrain.errors import InvalidData, InvalidRequest, MissingData
from foretrain.learning.resources.artefact import SHIPPED, Inspector, load, save
from foretrain.learning.resources.inputs import table_of
from foretrain.learning.resources.learn import Learned, learn
from foretrain.learning.resources.options import (
    GROUPINGS,
    NETWORKS,
    READOUTS,
    InspectorOptions,
    InspectorTraining,
)
from foretrain.learning.resources.samples import RESOURCES, TARGETS, ResourceSample
from foretrain.learning.resources.training import folds_of, predict_targets, train_member
from foretrain.store.runs import Floats, Resource

INTERVAL = 0.025
TINY = InspectorOptions(hidden=8, nodes=8, grouping="uniform")
QUICK = InspectorTraining(epochs=60, patience=20, members=2, folds=3)
Samples = tuple[ResourceSample, ...]
_LEARNED: dict[int, Learned] = {}


def tiny(samples: Samples) -> Learned:
    """Trained once for all tests of a process."""
    if id(samples) not in _LEARNED:
        _LEARNED[id(samples)] = learn(samples, INTERVAL, TINY, QUICK)
    return _LEARNED[id(samples)]


def figures(inspector: Inspector, samples: Samples) -> Floats:
    scenes = [each.scene for each in samples]
    return predict_targets(
        inspector.members,
        table_of(scenes, inspector.options, inspector.constants, inspector.interval_seconds),
    )


def test_it_beats_the_mean_on_models_left_out(samples: Samples) -> None:
    """Memory of such small models is mostly the interpreter's, of which the mean says enough."""
    left_out = tiny(samples).left_out
    inspector, mean = (
        [left_out.error(predicted, place) for place in range(len(RESOURCES))]
        for predicted in (left_out.inspector, left_out.mean)
    )
    for place, resource in enumerate(RESOURCES):
        assert inspector[place] < mean[place] or resource is Resource.MEMORY, resource
    assert sum(inspector) < 0.7 * sum(mean)


def test_intervals_contain_the_prediction_and_strategies_are_judged(
    samples: Samples,
) -> None:
    inspector = tiny(samples).inspector
    assert (inspector.low <= 1).all()
    assert (inspector.high >= 1).all()
    assert set(inspector.by_strategy) == {"ddp", "server"}
    assert inspector.most_workers == 2


def test_the_same_seed_gives_the_same_member(samples: Samples) -> None:
    inspector = tiny(samples).inspector
    table = table_of([each.scene for each in samples], TINY, inspector.constants, INTERVAL)
    targets, models = np.array([each.targets for each in samples]), [each.model for each in samples]
    quick = InspectorTraining(epochs=5)
    first, second = (train_member(table, targets, models, TINY, quick, seed=4) for _ in range(2))
    assert (predict_targets([first], table) == predict_targets([second], table)).all()


def test_what_is_saved_predicts_the_same(samples: Samples, tmp_path: Path) -> None:
    inspector = tiny(samples).inspector
    save(inspector, tmp_path / "mine.json")
    again = load(tmp_path / "mine.json")
    assert figures(again, samples) == pytest.approx(figures(inspector, samples))
    assert again.by_strategy == inspector.by_strategy
    assert again.constants == inspector.constants


def test_mismatched_files_are_refused(samples: Samples, tmp_path: Path) -> None:
    file, weights = save(tiny(samples).inspector, tmp_path / "mine.json")
    text = file.read_text(encoding="utf-8")
    raw = json.loads(text)
    for change, message in (
        ({"format": 99}, "has format 99; this version reads 1"),
        ({"targets": raw["targets"][1:]}, "other targets"),
        ({"setting": ["gpus"]}, "other setting"),
        ({"sha256": "0" * 64}, "digests differ"),
        ({"options": {**raw["options"], "hidden": 16}}, "mismatched content"),
        ({"low": [1.0]}, "12 finite figures"),
    ):
        file.write_text(json.dumps({**raw, **change}), encoding="utf-8")
        with pytest.raises(InvalidData, match=message):
            load(file)
    file.write_text("{", encoding="utf-8")
    with pytest.raises(InvalidData, match="is not an Inspector"):
        load(file)
    file.write_text(text, encoding="utf-8")
    weights.unlink()
    with pytest.raises(MissingData, match="no Inspector"):
        load(file)


def test_a_transfer_changes_only_the_second_half_and_the_head(samples: Samples) -> None:
    start = tiny(samples).inspector
    moved = learn(samples, INTERVAL, training=InspectorTraining(epochs=5, members=1, folds=2), start=start)
    before, after = start.members[0].network, moved.inspector.members[0].network
    assert after.late is not None
    for name in ("first", "shared", "gate", "readout"):
        pairs = zip(getattr(before, name).parameters(), getattr(after, name).parameters(), strict=True)
        assert all((old == new).all() for old, new in pairs), name
    assert any(
        (old != new).any() for old, new in zip(before.head.parameters(), after.head.parameters(), strict=True)
    )


def test_a_transferred_inspector_is_saved_too(samples: Samples, tmp_path: Path) -> None:
    start = tiny(samples).inspector
    moved = learn(
        samples, INTERVAL, training=InspectorTraining(epochs=5, members=1, folds=2), start=start
    ).inspector
    save(moved, tmp_path / "moved.json")
    assert figures(load(tmp_path / "moved.json"), samples) == pytest.approx(figures(moved, samples))


@cache
def _designs() -> tuple[InspectorOptions, ...]:
    return (
        *(InspectorOptions(hidden=4, nodes=6, grouping="uniform", network=each) for each in NETWORKS),
        *(InspectorOptions(hidden=4, nodes=6, grouping="uniform", readout=each) for each in READOUTS),
        *(InspectorOptions(hidden=4, nodes=6, grouping=each) for each in GROUPINGS if each != "none"),
        InspectorOptions(hidden=4, nodes=6, grouping="uniform", uses_timeline=False),
    )


@pytest.mark.parametrize("options", _designs(), ids=str)
def test_every_design_trains_and_predicts(options: InspectorOptions, samples: Samples) -> None:
    table = table_of([each.scene for each in samples], options, tiny(samples).inspector.constants, INTERVAL)
    targets = np.array([each.targets for each in samples])
    member = train_member(
        table, targets, [each.model for each in samples], options, InspectorTraining(epochs=2), 0
    )
    found = predict_targets([member], table)
    assert found.shape == (len(samples), len(TARGETS))
    assert (found > 0).all()


def test_before_it_is_trained_an_inspector_repeats_the_timeline(samples: Samples) -> None:
    table = table_of([each.scene for each in samples], TINY, tiny(samples).inspector.constants, INTERVAL)
    targets = np.array([each.targets for each in samples])
    still = InspectorTraining(epochs=1)
    member = train_member(table, targets, [each.model for each in samples], TINY, still, 0)
    assert predict_targets([member], table) == pytest.approx(table.figures)


def test_too_few_runs_or_models_are_errors(samples: Samples) -> None:
    with pytest.raises(InvalidRequest, match="3 runs are too few"):
        learn(samples[:3], INTERVAL, TINY, QUICK)
    with pytest.raises(InvalidRequest, match="runs of 1 models are too few"):
        [*folds_of(["mnist-cnn"] * 30, 5)]


@pytest.mark.parametrize(
    "change", [{"network": "rnn"}, {"readout": "last"}, {"hidden": 0}, {"grouping": "some"}]
)
def test_unknown_designs_are_refused(change: dict[str, object]) -> None:
    with pytest.raises(InvalidRequest):
        InspectorOptions(**change)  # type: ignore[arg-type]


def test_the_shipped_inspector_is_small_and_loads() -> None:
    size = SHIPPED.stat().st_size + SHIPPED.with_suffix(".safetensors").stat().st_size
    assert size < 500_000
    inspector = load(SHIPPED)
    assert {"ddp", "fsdp", "server", "server, async", "single"} <= set(inspector.by_strategy)
    assert inspector.provenance["runs"] > 200
