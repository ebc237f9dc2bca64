"""Data sets and storage: every fact resolves, lies within bounds and says how it is known."""

from __future__ import annotations

import pytest

from foretrain.errors import UnknownName
from foretrain.facts.datasets import Dataset, Storage, datasets, storages
from foretrain.facts.explanation import explain
from foretrain.facts.sheets import FactKind, Sheet, data_root, quantities, read_toml, sources

ALL: list[Dataset | Storage] = [*datasets().values(), *storages().values()]


@pytest.mark.parametrize("item", ALL, ids=[item.id for item in ALL])
def test_every_fact_is_within_bounds_and_its_source_resolves(item: Dataset | Storage) -> None:
    for fact in item.sheet:
        bounds = quantities()[fact.quantity].bounds
        assert bounds is not None
        assert isinstance(fact.value, int | float)
        assert bounds[0] <= fact.value <= bounds[1]
        assert fact.source in sources()
        assert fact.note


def _states(sheet: Sheet, what: str) -> bool:
    return sheet.has(f"{what}_per_sample") or sheet.has(f"{what}_per_token")


@pytest.mark.parametrize("name", [name for name, item in datasets().items() if item.is_read])
def test_what_is_read_says_how_much_and_what_decoding_takes(name: str) -> None:
    sheet = datasets()[name].sheet
    assert sheet.has("reads_per_sample")
    assert _states(sheet, "bytes")
    assert _states(sheet, "decode_seconds")
    for fact in sheet:
        if fact.quantity.startswith("decode"):
            assert fact.kind is FactKind.MEASURED


@pytest.mark.parametrize("name", list(storages()))
def test_storage_says_what_storage_must(name: str) -> None:
    for quantity in quantities().values():
        if "storage" in quantity.required:
            assert storages()[name].sheet.has(quantity.name)


def test_storage_in_order_of_speed() -> None:
    rates = [
        storages()[name].sheet.number("random_reads_per_second")
        for name in ("hdd", "network-disk", "sata-ssd", "nvme")
    ]
    assert rates == sorted(rates)


def test_imagenet_is_its_archive_over_its_images() -> None:
    sheet = datasets()["imagenet"].sheet
    stored = sheet.number("bytes_per_sample") * sheet.number("training_samples")
    assert stored == pytest.approx(147_897_477_120, rel=1e-4)


def test_what_is_assumed_of_the_spread_says_so() -> None:
    for entry in read_toml(data_root() / "input" / "spread.toml").values():
        assert entry["p10"] <= 1 <= entry["p90"]
        assert FactKind(entry["kind"]) is FactKind.ASSUMED
        assert entry["source"] in sources()
        assert entry["note"]


def test_unknown_names_are_answered_with_the_known() -> None:
    with pytest.raises(UnknownName, match="no data set 'imagenett'; did you mean imagenet-jpeg"):
        datasets()["imagenett"]
    with pytest.raises(UnknownName, match="Known: hdd, network-disk, nvme, sata-ssd"):
        storages()["tape"]


def test_they_can_be_explained() -> None:
    found = explain("imagenet")
    assert (found.kind, found.name) == ("data set", "imagenet-jpeg")
    assert {statement.quantity for statement in found.statements} >= {"decode_seconds_per_sample"}
    assert explain("hdd").kind == "storage"
