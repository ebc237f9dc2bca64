"""Stored graphs come back the same; damaged ones are never trusted."""

import threading
from pathlib import Path

import pytest
from tests.support.small_models import MODELS, graph

from foretrain.workloads import cache
from foretrain.workloads.cache import Corrupt, dump, load
from foretrain.workloads.family import Family, RecordedAxis, derive_family
from foretrain.workloads.rules import operators


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FORETRAIN_HOME", str(tmp_path))
    return tmp_path


@pytest.mark.parametrize("name", MODELS)
def test_a_graph_comes_back_the_same(name: str) -> None:
    traced = graph(name, precision="bf16")
    again = load(dump(traced))
    assert again == traced
    assert operators(again) == operators(traced)


def test_a_family_comes_back_the_same() -> None:
    recorded = derive_family([RecordedAxis("batch", 2, 4)], [graph("conv", 2), graph("conv", 4)])
    again = load(dump(recorded))
    assert isinstance(again, Family)
    assert again.at({"batch": 9}) == recorded.at({"batch": 9})


@pytest.mark.parametrize("damage", ["cut", "flip", "foreign", "empty"])
def test_damage_is_noticed(damage: str) -> None:
    stored = dump(graph("mlp"))
    damaged = {
        "cut": stored[:-5],
        "flip": stored[:40] + bytes([stored[40] ^ 1]) + stored[41:],
        "foreign": b"PK\x03\x04 something else",
        "empty": b"",
    }[damage]
    with pytest.raises(Corrupt):
        load(damaged)


def test_the_cache_finds_what_it_kept(home: Path) -> None:
    traced = graph("mlp")
    entry = cache.key(source="mlp", batch=4)
    assert cache.find(entry) is None
    cache.keep(entry, traced)
    assert cache.find(entry) == traced
    assert [file for file in home.rglob("*") if file.name.startswith(".")] == []


def test_a_damaged_entry_counts_as_absent_and_is_replaced(home: Path) -> None:
    entry = cache.key(source="mlp")
    cache.keep(entry, graph("mlp"))
    (file,) = home.rglob("*.graph")
    file.write_bytes(file.read_bytes()[:100])
    assert cache.find(entry) is None
    cache.keep(entry, graph("mlp"))
    assert cache.find(entry) == graph("mlp")


def test_keys_depend_on_everything() -> None:
    assert cache.key(a=1, b=2) == cache.key(b=2, a=1)
    assert cache.key(a=1) != cache.key(a=2)


def test_concurrent_writers_and_readers_never_see_half_an_entry() -> None:
    traced, entry = graph("mlp"), cache.key(source="busy")
    cache.keep(entry, traced)
    seen: list[object] = []

    def write() -> None:
        for _ in range(20):
            cache.keep(entry, traced)

    def read() -> None:
        seen.extend(cache.find(entry) for _ in range(20))

    threads = [threading.Thread(target=work) for work in (write, read, write, read)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == [traced] * 40


def test_a_cache_that_cannot_be_written_costs_nothing_but_speed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("FORETRAIN_HOME", str(tmp_path / "file"))
    cache.keep(cache.key(a=1), graph("mlp"))
    assert cache.find(cache.key(a=1)) is None
