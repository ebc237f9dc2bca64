"""Frameworks as facts."""

from __future__ import annotations

import pytest

from foretrain.errors import UnknownName
from foretrain.facts.frameworks import PLAIN, attention_in, frameworks
from foretrain.facts.sheets import data_root, read_toml
from foretrain.workloads.options import ATTENTIONS, WorkloadRequest
from foretrain.workloads.workload import workload_of


def test_every_framework_names_a_source() -> None:
    raw = read_toml(data_root() / "frameworks" / "frameworks.toml")
    assert {each.source for each in frameworks().values()} <= set(raw["sources"])


def test_plain_pytorch_fuses_nothing_and_stops_recomputation_early() -> None:
    plain = frameworks()[PLAIN]
    assert not plain.fused and not plain.recomputes_whole_blocks and not plain.timed_host
    assert plain.host_factor == 1.0 and not plain.timed_host


def test_aliases_lead_to_the_framework_and_others_to_near_names() -> None:
    assert frameworks()["Megatron-LM"].name == "megatron"
    with pytest.raises(UnknownName, match="did you mean megatron"):
        frameworks()["megaton"]


@pytest.mark.parametrize(
    ("framework", "given", "attention"),
    [
        (None, None, "sdpa"),
        ("megatron", None, "sdpa"),  # Transformer Engine picks by the GPU, too
        ("megatron-deepspeed", None, "eager"),
        ("megatron-deepspeed", "flash2", "flash2"),
    ],
)
def test_a_named_framework_brings_its_attention_unless_that_is_given(
    framework: str | None, given: str | None, attention: str
) -> None:
    workload = workload_of(WorkloadRequest("gpt2", framework=framework, attention=given))
    assert workload.options.attention == workload.sizes.attention == attention


@pytest.mark.parametrize(
    ("library", "by_year"),
    [
        (
            "pytorch",
            {2022: "eager", 2023: "flash1", 2024: "flash2", 2025: "flash2", 2026: "sdpa"},
        ),
        ("transformer-engine", {2023: "eager", 2024: "sdpa"}),
        ("flash-attn", {2021: "eager", 2022: "flash1", 2023: "flash2", 2026: "flash2"}),
    ],
)
def test_attention_of_a_year_is_that_of_its_last_release(library: str, by_year: dict[int, str]) -> None:
    """PyTorch 2.0 of March 2023, 2.2 of January 2024, 2.11 of March 2026; 2.5's cuDNN was opt-in at once."""
    assert {year: attention_in(library, year) for year in by_year} == by_year


def test_every_release_that_changed_attention_names_where_that_is_written() -> None:
    raw = read_toml(data_root() / "frameworks" / "attention.toml")
    libraries = {name: rows for name, rows in raw.items() if name != "version"}
    assert {each.attention_library for each in frameworks().values()} <= set(libraries)
    for rows in libraries.values():
        years = [row["from"] for row in rows]
        assert years == sorted(set(years))
        assert all(row["kernel"] in ATTENTIONS and row["release"] and row["locator"] for row in rows)
