from __future__ import annotations

import pytest

from foretrain.errors import MissingData, UnknownName
from foretrain.facts.devices import devices
from foretrain.facts.hardware import TOPOLOGIES, Node, node, nodes
from foretrain.facts.sheets import data_root, quantities, read_toml
from foretrain.units import GBIT

ALL = list(nodes().values())
ids = [item.id for item in ALL]


def test_p4d_has_eight_a100_behind_switches_and_400_gbit_of_network() -> None:
    p4d = node("aws:p4d.24xlarge")
    assert (p4d.devices, p4d.device) == (8, "a100-sxm-40gb")
    assert (p4d.intra.id, p4d.intra_topology) == ("nvswitch2", "nvswitch")
    assert p4d.inter is not None
    assert p4d.inter.id == "efa-100g"
    assert p4d.sheet.number("network_bytes_per_second_per_direction_per_node") == 400 * GBIT
    assert p4d.intra_bytes_per_second_per_device == p4d.intra.achievable_bytes_per_second_per_direction


def test_cube_mesh_gives_each_v100_six_links() -> None:
    dgx = node("dgx-1v")
    one = dgx.intra.achievable_bytes_per_second_per_direction
    assert dgx.intra_bytes_per_second_per_device == 6 * one
    assert dgx.inter_bytes_per_second == 4 * 12e9  # four EDR cards at the 12 GB/s NCCL plans with


def test_a_node_whose_network_is_not_known_says_so() -> None:
    quad = node("lambda-4x1080ti")
    assert quad.inter is None
    with pytest.raises(MissingData, match="lambda-4x1080ti"):
        _ = quad.inter_bytes_per_second
    with pytest.raises(MissingData, match="nics_per_node"):
        _ = quad.nics


def test_cloud_names_are_aliases_and_unknown_ones_suggest_near_ones() -> None:
    assert node("Standard_ND96asr_v4").id == "nd96asr-v4"
    with pytest.raises(UnknownName, match=r"p4d\.24xlarge"):
        node("p4d")


@pytest.mark.parametrize("item", ALL, ids=ids)
def test_every_node_is_complete_and_within_bounds(item: Node) -> None:
    for quantity in quantities().values():
        if "node" in quantity.required:
            assert item.sheet.has(quantity.name), f"{item.id} lacks {quantity.name}"
    assert item.intra_topology in TOPOLOGIES
    for fact in item.sheet:
        bounds = quantities()[fact.quantity].bounds
        if bounds is not None:
            assert isinstance(fact.value, int | float)
            assert bounds[0] <= fact.value <= bounds[1], f"{item.id}: {fact}"


@pytest.mark.parametrize("item", ALL, ids=ids)
def test_the_network_of_a_node_is_the_sum_of_its_cards(item: Node) -> None:
    if item.inter is not None:
        cards = item.nics * item.inter.nominal_bytes_per_second_per_direction
        assert item.sheet.number("network_bytes_per_second_per_direction_per_node") == cards


@pytest.mark.parametrize("item", ALL, ids=ids)
def test_link_and_topology_of_a_node_agree(item: Node) -> None:
    topology_by_kind = {
        "nvswitch": {"nvswitch"},
        "nvlink": {"nvlink-mesh"},
        "pcie": {"pcie-switch", "two-bridges", "host-memory", "host-bridge"},
    }
    assert item.intra_topology in topology_by_kind[item.intra.kind]


@pytest.mark.parametrize("item", ALL, ids=ids)
def test_every_node_holds_a_known_device_that_has_its_links(item: Node) -> None:
    device = devices()[item.device]
    assert device.id == item.device
    if item.intra.kind in {"nvlink", "nvswitch"}:
        total = (
            item.sheet.number("intra_links_per_device") * item.intra.nominal_bytes_per_second_per_direction
        )
        assert device.sheet.number("nvlink_bytes_per_second_per_direction") == total


@pytest.mark.parametrize("item", ALL, ids=ids)
def test_every_source_resolves(item: Node) -> None:
    known = set(read_toml(data_root() / "sources.toml"))
    assert {fact.source for fact in item.sheet} <= known
