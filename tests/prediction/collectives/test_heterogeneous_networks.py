"""Networks of heterogeneous clusters: the slowest node counts, and homogeneous clusters are unchanged."""

from __future__ import annotations

from dataclasses import replace

import pytest

from foretrain.facts.hardware import Hardware, hardware
from foretrain.prediction.collectives.costs import Collective, Group, Verb, price_collective
from foretrain.prediction.collectives.network import network_among, network_of


def named(text: str, network: str = "ethernet-10g", links: str | None = None) -> Hardware:
    return replace(hardware(text), network=network, links=links)


def test_one_group_is_its_own_network() -> None:
    one = named("t4:4x2")
    assert network_among([one]) == network_of(one, None, "ethernet-10g")
    assert network_among([one], inter="ethernet-25g") == network_of(one, None, "ethernet-25g")


def test_groups_that_differ_in_nothing_the_network_sees_are_as_one() -> None:
    whole, part = network_of(named("t4:4x4"), None, "ethernet-10g"), named("t4:4x2")
    assert network_among([part, part]) == whole


def test_the_slowest_of_each_tier_counts() -> None:
    fast, slow = named("v100-sxm2-16gb:4"), named("t4:4", links="pcie3-x8")
    network = network_among([fast, slow])
    alone = network_of(slow, "pcie3-x8").intra
    assert network.intra is not None
    assert alone is not None
    assert network.intra.bytes_per_second_per_device == alone.bytes_per_second_per_device
    assert network.intra.bytes_per_second_among(4, 4) == alone.bytes_per_second_among(4, 4)
    both = [network_of(replace(group, nodes=2), group.links, group.network).intra for group in (fast, slow)]
    assert network.intra.latency_seconds == max(tier.latency_seconds for tier in both if tier is not None)
    assert (network.devices_per_node, network.nodes) == (4, 2)


@pytest.mark.parametrize(
    ("groups", "per_node", "nodes"),
    [
        (("t4:4x2", "v100-sxm2-16gb:8"), 6, 3),
        (("t4:1x7", "t4:2"), 1, 9),
        (("t4", "v100-sxm2-16gb:8"), 5, 2),
        (("t4", "k80"), 1, 2),
    ],
)
def test_nodes_of_other_sizes_are_taken_as_about_as_many_equal_ones(
    groups: tuple[str, ...], per_node: int, nodes: int
) -> None:
    network = network_among([named(text) for text in groups])
    assert (network.devices_per_node, network.nodes) == (per_node, nodes)
    assert (network.intra is None) == (per_node == 1)


def test_a_large_reduction_takes_what_the_slowest_network_takes() -> None:
    """2 (m-1)/m n bytes pass the network of every node, however its devices share it."""
    one_gigabyte = Collective(Verb.ALL_REDUCE, 1e9, Group(12, 6))
    groups = [named("t4:4", "ethernet-1g"), named("v100-sxm2-16gb:8", "ethernet-1g")]
    network = network_among(groups)
    seconds = price_collective(one_gigabyte, network, groups[0].device).seconds
    assert network.inter is not None
    assert network.inter.bytes_per_second_per_node is not None
    assert seconds == pytest.approx(1e9 / network.inter.bytes_per_second_per_node, rel=0.25)
