"""Frameworks as facts."""

from __future__ import annotations

import pytest

from foretrain.errors import UnknownName
from foretrain.facts.frameworks import PLAIN, frameworks
from foretrain.facts.sheets import data_root, read_toml


def test_every_framework_names_a_source() -> None:
    raw = read_toml(data_root() / "frameworks" / "frameworks.toml")
    assert {each.source for each in frameworks().values()} <= set(raw["sources"])


def test_plain_pytorch_fuses_nothing_and_stops_recomputation_early() -> None:
    plain = frameworks()[PLAIN]
    assert not plain.fused and not plain.recomputes_whole_blocks and not plain.timed_host


def test_aliases_lead_to_the_framework_and_others_to_near_names() -> None:
    assert frameworks()["Megatron-LM"].name == "megatron"
    with pytest.raises(UnknownName, match="did you mean megatron"):
        frameworks()["megaton"]
