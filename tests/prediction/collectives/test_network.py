"""Which network hardware is assumed to have, and how that is reported."""

import json
from dataclasses import replace

import numpy as np
import pytest

from foretrain.errors import ForetrainError, InvalidRequest, MissingData, UnknownName
from foretrain.facts.hardware import hardware, nodes
from foretrain.facts.links import topologies
from foretrain.facts.sheets import Sheet, data_root
from foretrain.prediction.collectives.costs import (
    Collective,
    Group,
    Verb,
    collective_seconds,
    price_collective,
)
from foretrain.prediction.collectives.network import Network, Tier, calibration, network_of, with_factor


def tiers(text: str, intra: str | None = None, inter: str | None = None) -> tuple[Network, Tier, Tier]:
    network = network_of(hardware(text), intra, inter)
    assert network.intra is not None
    assert network.inter is not None
    return network, network.intra, network.inter


def test_an_sxm_device_is_assumed_to_sit_on_its_vendors_switch_with_a_note() -> None:
    network, intra, inter = tiers("h100-sxm:8x4")
    assert (intra.link, intra.topology, intra.assumed) == ("nvswitch3", "nvswitch", True)
    assert (inter.link, inter.cards) == ("infiniband-ndr", 8)
    assert len(network.notes) == 2
    assert intra.peer_access


def test_a_known_machine_needs_no_assumption() -> None:
    network = network_of(hardware("dgx-h100"))
    assert network.intra is not None
    assert not network.intra.assumed
    assert network.notes == ()
    assert network.inter is None


def test_one_device_exchanges_nothing() -> None:
    assert network_of(hardware("h100-sxm")) == Network(1, 1, None, None)


def test_a_card_that_no_known_machine_holds_is_joined_by_its_own_lanes_through_host_memory() -> None:
    network = network_of(hardware("rtx4090:2"))
    assert network.intra is not None
    assert (network.intra.link, network.intra.topology) == ("pcie4-x16", "host-memory")
    assert not network.intra.peer_access
    assert "through host memory" in network.notes[0]
    assert "pcie4-x16@pcie-switch" in network.notes[0], "what else can be asked for"


def bus_bytes_per_second(on: str, links: str | None, message_bytes: float = 2.0**30) -> float:
    """Bus bandwidth of an all-reduce as nccl-tests counts it: 2(p-1)/p bytes / seconds."""
    of = hardware(on)
    group = Group(of.devices, of.devices)
    network = network_of(of, links)
    (seconds,) = collective_seconds(Verb.ALL_REDUCE, np.array([message_bytes]), group, network, of.device)
    return 2 * (of.devices - 1) / of.devices * message_bytes / float(seconds)


def test_one_bad_host_is_not_all_hosts() -> None:
    """Eight RTX 4090 were given the 1.4 GB/s of one machine with eight L40S."""
    assert 5e9 < bus_bytes_per_second("rtx4090:8", None, 97.5 * 2**20) < 8e9
    assert bus_bytes_per_second("l40s:8", None) > 10e9


@pytest.mark.parametrize(
    ("on", "links", "published"),
    [
        ("rtx5090:8", "two-bridges", 28e9),  # NCCL issue 1639, two Xeon 8480+
        ("rtx5090:4", "two-bridges", 35e9),
        ("rtx5090:8", None, 28e9),
        ("rtxpro6000:8", "pcie-switch", 41.1e9),  # rtx6kpro, three switches
        ("rtxpro6000:8", "two-bridges", 22.2e9),  # two EPYC Turin, NCCL's defaults
    ],
)
def test_published_all_reduces_over_pcie_are_in_the_interval(
    on: str, links: str | None, published: float
) -> None:
    intra = network_of(hardware(on), links).intra
    assert intra is not None
    spread = calibration().spread(intra.kind, intra.link, intra.topology)
    predicted = bus_bytes_per_second(on, links)
    assert predicted / spread.p90 <= published <= predicted / spread.p10


def test_topologies_are_chosen_by_name_from_the_best_to_the_worst() -> None:
    names = ("pcie-switch", "two-bridges", "host-memory", "host-bridge")
    rates = [bus_bytes_per_second("rtx4090:8", f"pcie4-x16@{name}") for name in names]
    assert rates == sorted(rates, reverse=True)
    assert rates == [bus_bytes_per_second("rtx4090:8", name) for name in names]
    pairs = {round(bus_bytes_per_second("rtx4090:2", name)) for name in names}
    assert len(pairs) == 1, "a pair has the path to itself"


@pytest.mark.parametrize(
    ("links", "message"),
    [
        ("pcie4-x16@switches", "no topology 'switches'; did you mean pcie-switch"),
        ("nvlink2@host-bridge", "only PCI Express has a topology"),
        ("pcie4-x61", "no link 'pcie4-x61'; did you mean pcie4-x16"),
        ("ethernet-10g", "connects nodes, not devices of a node"),
    ],
)
def test_links_that_cannot_be_are_refused_with_what_works(links: str, message: str) -> None:
    with pytest.raises(ForetrainError, match=message):
        network_of(hardware("rtx4090:8"), links)


def test_exponents_of_machines_in_the_calibration_are_those_of_the_topologies() -> None:
    content = json.loads((data_root() / "calibrations" / "collectives.json").read_text(encoding="utf-8"))
    machines = content["host_bridges"]
    known = {name: topology.exponents for name, topology in topologies().items()}
    assert known["host-bridge"] == (machines["aws"], machines["l40s"])
    assert set(machines.values()) <= set(known["host-memory"])
    assert known["pcie-switch"] == (content["technologies"]["pcie"]["contention"]["pcie-switch"],)
    assert nodes()["g4dn.12xlarge"].sheet.number("sharing_exponent") == machines["aws"]
    assert nodes()["pcie-8x2080ti"].sheet.number("sharing_exponent") == machines["rtx"]


def test_peer_access_is_a_fact_of_the_device_not_of_its_name() -> None:
    of = hardware("rtx4090:2")
    facts = tuple(
        replace(fact, value="yes") if fact.quantity == "pcie_peer_access" else fact
        for fact in of.device.sheet
    )
    reaching = replace(of, device=replace(of.device, sheet=Sheet(of.device.sheet.subject, facts)))
    network = network_of(reaching)
    assert network.intra is not None
    assert network.intra.topology == "pcie-switch"


def test_an_unknown_network_between_nodes_is_refused_with_what_to_give() -> None:
    with pytest.raises(MissingData, match=r"give `network` as LINK\[:COUNT\]"):
        network_of(hardware("rtx4090:2x2"))


def test_links_by_name_override() -> None:
    _, intra, inter = tiers("rtx4090:2x2", intra="nvlink3:4", inter="infiniband-hdr:2")
    assert (intra.link, intra.topology) == ("nvlink3", "nvlink-mesh")
    assert intra.nominal_bytes_per_second == 4 * 25e9
    assert inter.bytes_per_second_per_node == pytest.approx(2 * 24e9)
    assert inter.bytes_per_second_per_device == pytest.approx(24e9)


@pytest.mark.parametrize(("intra", "inter"), [("infiniband-hdr", None), (None, "nvswitch3")])
def test_a_link_in_the_wrong_place_is_refused(intra: str | None, inter: str | None) -> None:
    with pytest.raises(InvalidRequest, match="connects"):
        network_of(hardware("h100-sxm:8x2"), intra=intra, inter=inter)


def test_unknown_links_are_refused() -> None:
    with pytest.raises(UnknownName):
        network_of(hardware("h100-sxm:8x2"), inter="carrier-pigeon:2")
    with pytest.raises(InvalidRequest, match="LINK"):
        network_of(hardware("h100-sxm:8x2"), inter="infiniband-ndr:2:3")


def test_devices_under_one_bridge_share_it_and_on_a_switch_do_not() -> None:
    bridge = network_of(hardware("l40s:8"), "host-bridge").intra
    switch = network_of(hardware("h100-sxm:8")).intra
    assert bridge is not None
    assert switch is not None
    rates = [bridge.bytes_per_second_among(members, members) for members in (2, 4, 8)]
    assert rates == sorted(rates, reverse=True)
    assert rates[2] < rates[0] / 4
    assert switch.bytes_per_second_among(2, 8) == switch.bytes_per_second_among(8, 8)


def test_one_device_cannot_fill_eight_network_cards() -> None:
    _, _, inter = tiers("h100-sxm:8x4")
    assert inter.bytes_per_second_per_node is not None
    assert inter.bytes_per_second_among(1, 1) < inter.bytes_per_second_per_node / 4
    assert 8 * inter.bytes_per_second_among(1, 8) == pytest.approx(inter.bytes_per_second_per_node)


def test_rates_never_exceed_the_data_sheet() -> None:
    for text in (
        "dgx-1v",
        "a100-sxm-80gb:8",
        "h200-sxm:8",
        "b200:8",
        "mi300x:8",
        "l40s:8",
        "v100-sxm2-16gb:8",
    ):
        tier = network_of(hardware(text)).intra
        assert tier is not None
        assert tier.bytes_per_second_per_device <= tier.nominal_bytes_per_second


def test_a_factor_scales_rates_and_leaves_latency() -> None:
    network, intra, inter = tiers("h100-sxm:8x4")
    twice = with_factor(network, inter=2.0)
    assert twice.intra == intra
    assert twice.inter is not None
    assert twice.inter.bytes_per_second_per_device == 2 * inter.bytes_per_second_per_device
    assert twice.inter.latency_seconds == inter.latency_seconds
    with pytest.raises(InvalidRequest):
        with_factor(network, intra=0.0)


def test_a_cloud_that_limits_one_flow_limits_the_ring_between_its_nodes() -> None:
    """EC2 gives a flow 5 Gbit/s; Sia's BERT (438 MB) waited 0.62 to 0.83 s for its gradients on two nodes."""
    machine = hardware("aws:g4dn.12xlarge:2")
    network = network_of(machine)
    assert "5 Gbit/s" in network.notes[0]
    cost = price_collective(Collective(Verb.ALL_REDUCE, 438e6, Group(2, 1)), network, machine.device)
    assert 0.62 < cost.seconds < 0.83
    assert with_factor(network, inter=2.0).inter != network.inter


def test_flows_to_several_nodes_are_limited_one_by_one() -> None:
    _, _, inter = tiers("aws:g4dn.12xlarge:4")
    one, three = (inter.bytes_per_second_among(1, 1, flows=flows) for flows in (1, 3))
    assert three == pytest.approx(3 * one)
    assert inter.bytes_per_second_per_node is not None
    assert inter.bytes_per_second_among(1, 1, flows=100) == inter.bytes_per_second_per_node


@pytest.mark.parametrize(
    ("name", "topology"), [("rtx3090", "host-memory"), ("rtxa6000", "pcie-switch"), ("l40s", "pcie-switch")]
)
def test_cards_that_reach_their_peers_keep_their_rate(name: str, topology: str) -> None:
    """A machine is not named: by the line of cards."""
    two, eight = (network_of(hardware(f"{name}:{count}")).intra for count in (2, 8))
    assert two is not None
    assert eight is not None
    assert eight.topology == topology
    share = eight.bytes_per_second_among(8, 8) / two.bytes_per_second_among(2, 2)
    assert (share > 0.5) == (topology == "pcie-switch")
