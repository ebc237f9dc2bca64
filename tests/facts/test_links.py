from __future__ import annotations

import math

import pytest

from foretrain.errors import UnknownName
from foretrain.facts.links import Link, link, links
from foretrain.facts.sheets import FactKind, data_root, quantities, read_toml

KINDS = {"pcie", "nvlink", "nvswitch", "infiniband", "ethernet", "efa"}
ALL = list(links().values())
ids = [item.id for item in ALL]


def known_sources() -> set[str]:
    return {
        source
        for file in data_root().iterdir()
        if file.name.startswith("sources") and file.name.endswith(".toml")
        for source in read_toml(file)
    }


def test_pcie_rates_follow_from_lanes_and_line_coding() -> None:
    # 8 GT/s x 16 lanes x 128/130 / 8 bits = 15.754 GB/s; 5 GT/s with 8b/10b: 5 x 16 x 0.8 / 8 = 8 GB/s
    assert link("pcie3-x16").nominal_bytes_per_second_per_direction == pytest.approx(15.754e9)
    assert link("pcie2-x16").nominal_bytes_per_second_per_direction == 8e9
    assert link("pcie3-x8").nominal_bytes_per_second_per_direction == pytest.approx(7.877e9, rel=1e-4)


def test_each_pcie_generation_from_the_third_doubles_the_rate() -> None:
    rates = [link(f"pcie{gen}-x16").nominal_bytes_per_second_per_direction for gen in (3, 4, 5)]
    assert rates[1] / rates[0] == pytest.approx(2, rel=1e-4)
    assert rates[2] / rates[1] == pytest.approx(2, rel=1e-4)


def test_nvswitch_is_all_nvlinks_of_a_device() -> None:
    # V100: 6 links of generation 2; A100: 12 of 3; H100: 18 of 4; B200: 18 of 5
    for switch, generation, count in ((1, 2, 6), (2, 3, 12), (3, 4, 18), (4, 5, 18)):
        one = link(f"nvlink{generation}").nominal_bytes_per_second_per_direction
        assert link(f"nvswitch{switch}").nominal_bytes_per_second_per_direction == count * one


def test_ethernet_carries_the_payload_of_full_frames() -> None:
    # 1538 bytes on the wire per 1500-byte packet, of which 1448 are payload: 25 Gbit/s -> 2.942 GB/s
    link_25g = link("ethernet-25g")
    assert link_25g.nominal_bytes_per_second_per_direction == 25e9 / 8
    assert link_25g.achievable_bytes_per_second_per_direction == pytest.approx(2.942e9, rel=1e-3)


def test_nvlink2_fit_agrees_with_the_rings_of_eight_v100() -> None:
    # The same data gives 136.1 GB/s of bus bandwidth over all 6 links of a V100 in a cube mesh.
    assert link("nvlink2").achievable_bytes_per_second_per_direction == pytest.approx(136.1e9 / 6, rel=0.01)


def test_small_allreduce_of_eight_a100_is_startup_and_fourteen_steps() -> None:
    # Measured: 21.8 us over 8 A100 (medians of messages up to 2 KiB); 2(p - 1) = 14 steps of a ring.
    switch = link("nvswitch2")
    startup = switch.sheet.number("collective_startup_seconds")
    assert startup + 14 * switch.latency_seconds == pytest.approx(21.8e-6, rel=0.02)


def test_aliases_and_near_names() -> None:
    assert link("PCIe 4.0 x16").id == "pcie4-x16"
    assert link("HDR InfiniBand").id == "infiniband-hdr"
    with pytest.raises(UnknownName, match="pcie3-x16"):
        link("pcie3")


@pytest.mark.parametrize("item", ALL, ids=ids)
def test_every_link_has_what_links_must_have_within_bounds(item: Link) -> None:
    assert item.kind in KINDS
    for quantity in quantities().values():
        if "link" in quantity.required:
            assert item.sheet.has(quantity.name), f"{item.id} lacks {quantity.name}"
    for fact in item.sheet:
        bounds = quantities()[fact.quantity].bounds
        assert bounds is not None
        assert isinstance(fact.value, int | float)
        assert bounds[0] <= fact.value <= bounds[1], f"{item.id}: {fact}"


@pytest.mark.parametrize("item", ALL, ids=ids)
def test_no_source_claims_more_than_the_nominal_rate(item: Link) -> None:
    for fact in item.sheet:
        if fact.quantity == "achievable_bytes_per_second_per_direction":
            assert isinstance(fact.value, int | float)
            ratio = fact.value / item.nominal_bytes_per_second_per_direction
            assert 0.5 < ratio <= 1, f"{item.id}: {fact}"


@pytest.mark.parametrize("item", ALL, ids=ids)
def test_every_source_resolves_and_whatever_is_derived_says_how(item: Link) -> None:
    for fact in item.sheet:
        assert fact.source in known_sources(), f"{item.id}: {fact.source}"
        if fact.kind is not FactKind.SPEC:
            assert fact.note, f"{item.id}: {fact}"


def test_faster_generations_are_faster() -> None:
    for family in (
        ["ethernet-1g", "ethernet-10g", "ethernet-25g", "ethernet-50g", "ethernet-100g", "ethernet-400g"],
        ["infiniband-fdr", "infiniband-edr", "infiniband-hdr", "infiniband-ndr", "infiniband-xdr"],
        ["nvswitch1", "nvswitch2", "nvswitch3", "nvswitch4"],
        ["pcie2-x16", "pcie3-x16", "pcie4-x16", "pcie5-x16", "pcie6-x16"],
    ):
        rates = [link(name).achievable_bytes_per_second_per_direction for name in family]
        assert rates == sorted(rates)
        assert all(math.isfinite(rate) for rate in rates)


def test_a_rate_is_an_ethernet_link_of_that_rate() -> None:
    capped, known = link("200Mbit/s"), link("ethernet-1g")
    assert capped.kind == "ethernet"
    assert capped.nominal_bytes_per_second_per_direction == pytest.approx(25e6)
    share = known.achievable_bytes_per_second_per_direction / known.nominal_bytes_per_second_per_direction
    assert capped.achievable_bytes_per_second_per_direction == pytest.approx(25e6 * share)
    assert capped.latency_seconds == known.latency_seconds
    assert {fact.kind for fact in capped.sheet if "bytes" in fact.quantity} == {FactKind.ASSUMED}
    assert link("40Gbit/s").latency_seconds == link("ethernet-40g").latency_seconds
    for wrong in ("200", "fast", "0Mbit/s"):
        with pytest.raises(UnknownName):
            link(wrong)
