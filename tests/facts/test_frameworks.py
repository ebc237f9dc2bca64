"""Frameworks as facts."""

from __future__ import annotations

import pytest

from foretrain.errors import UnknownName
from foretrain.facts.frameworks import PLAIN, frameworks
from foretrain.facts.sheets import data_root, read_toml
from foretrain.workloads.requests import WorkloadRequest, workload_of


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
