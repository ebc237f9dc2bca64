"""Cluster files: rented and owned nodes, offers, caps, price changes, and what is refused."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from foretrain.errors import InvalidData, MissingData
from foretrain.facts.offers import offer_named
from foretrain.scheduling.fleet_files import FleetFile, read_fleet
from foretrain.scheduling.problem import Market, NodeGroup
from foretrain.scheduling.simulation import PriceChange


def fleet(folder: Path, text: str) -> FleetFile:
    file = folder / "cluster.yaml"
    file.write_text(text, encoding="utf-8")
    return read_fleet(file)


NC6 = "NC6: {gpu: k80, gpus: 1, usd_per_hour: 0.56}"
SERVER = "server: {gpu: gtx1080ti, gpus: 8, usd_per_hour: 1.13}"


def test_rented_nodes_take_any_type(tmp_path: Path) -> None:
    known = fleet(
        tmp_path, f"max_nodes: 5\nnode_types: {{{NC6}, NV6: {{gpu: m60, gpus: 1, usd_per_hour: 0.62}}}}"
    )
    assert known.fleet.groups == (NodeGroup(5, ("NC6", "NV6")),)
    assert known.fleet.types["NC6"].usd_per_hour == 0.56
    assert known.fleet.types["NC6"].market is Market.ON_DEMAND
    assert known.caps.month_usd == math.inf


def test_owned_and_rented_nodes_together(tmp_path: Path) -> None:
    nodes = "[{type: server, count: 3}, {type: server}]"
    text = f"max_nodes: 2\nnode_types: {{{NC6}, {SERVER}}}\nnodes: {nodes}"
    known = fleet(tmp_path, text)
    assert known.fleet.groups == (NodeGroup(2, ("NC6",)), NodeGroup(4, ("server",)))
    assert known.fleet.types["server"].market is Market.OWNED


def test_an_owned_node_may_cost_nothing(tmp_path: Path) -> None:
    known = fleet(tmp_path, "node_types: {s: {gpu: k80, gpus: 2}}\nnodes: [{type: s}]")
    assert known.fleet.types["s"].usd_per_hour == 0


def test_an_offer_brings_price_gpus_billing_and_start_up(tmp_path: Path) -> None:
    known = fleet(tmp_path, "max_nodes: 1\nnode_types: {p4d: {offer: 'aws:p4d.24xlarge'}}")
    node = known.fleet.types["p4d"]
    assert (node.gpu, node.gpus) == ("a100-sxm-40gb", 8)
    assert node.usd_per_hour == offer_named("aws:p4d.24xlarge").usd_per_hour
    assert node.startup_seconds > 0
    assert node.minimum_seconds == 60  # AWS bills at least a minute
    assert "start-up of p4d" in known.notes[0]
    assert known.node("p4d").node is not None


def test_a_spot_offer_is_cheaper_and_interrupted(tmp_path: Path) -> None:
    text = "max_nodes: 1\nnode_types: {{p4d: {{offer: 'aws:p4d.24xlarge', startup: 60s{}}}}}"
    on_demand = fleet(tmp_path, text.format("")).fleet.types["p4d"]
    spot = fleet(tmp_path, text.format(", market: spot")).fleet.types["p4d"]
    assert spot.usd_per_hour < on_demand.usd_per_hour
    assert spot.interruptions_per_hour > 0 == on_demand.interruptions_per_hour
    assert spot.startup_seconds == 60


def test_caps_and_price_changes(tmp_path: Path) -> None:
    more = (
        "\ncaps: {month: 500usd, users: {alice: 20}}\nprice_changes: [{at: 6h, type: NC6, usd_per_hour: 0.3}]"
    )
    known = fleet(tmp_path, f"max_nodes: 1\nnode_types: {{{NC6}}}" + more)
    assert (known.caps.month_usd, known.caps.user_usd) == (500, {"alice": 20})
    assert known.price_changes == (PriceChange(6 * 3600, "NC6", 0.3),)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("max_nodes: 0\nnode_types: {a: {gpu: k80, gpus: 1, usd_per_hour: 1}}", "`max_nodes` is 0"),
        ("max_nodes: 2", "`node_types` is required"),
        ("max_nodes: 2\nnode_types: {}", "`node_types` is {}"),
        ("max_nodes: 2\nnode_types: {a: 3}", "a: 3 is not of the form"),
        ("max_nodes: 2\nnode_types: {a: {gpu: k80, gpus: 1}}", "node type a: give `usd_per_hour`"),
        ("max_nodes: 2\nnode_types: {a: {gpu: k80, usd_per_hour: 1}}", "give `gpu` and `gpus`"),
        ("max_nodes: 2\nnode_types: {a: {gpu: k80, gpus: -1, usd_per_hour: 1}}", "`gpus` is -1"),
        ("max_nodes: 2\nnode_types: {a: {gpu: k80, gpus: 1, usd_per_hour: .nan}}", "usd_per_hour"),
        ("max_nodes: 2\nnode_types: {a: {gpu: k80, gpus: 1, usd_per_hour: 1, sport: 2}}", "no field 'sport'"),
        ("max_nodes: 2\nnode_types: {a: {offer: 'aws:p5d.nano'}}", "node type a: no instance of aws"),
        ("max_nodes: 2\nnode_types: {a: {offer: 'aws:p4d.24xlarge', gpus: 1}}", "not both"),
        (
            "node_types: {a: {gpu: k80, gpus: 1, usd_per_hour: 1}}",
            "node type a is not owned: give `max_nodes`",
        ),
        (f"node_types: {{{SERVER}}}\nnodes: [{{type: serve}}]", "did you mean server"),
        (f"node_types: {{{SERVER}}}\nnodes: [{{type: server, count: 0}}]", "entry 1: `count` is 0"),
        (
            f"max_nodes: 1\nnode_types: {{{NC6}}}\nprice_changes: [{{at: 1h, type: X, usd_per_hour: 1}}]",
            "'X'",
        ),
        (f"max_nodes: 1\nnode_types: {{{NC6}}}\ncaps: {{year: 3}}", "`caps`: no field 'year'"),
        ("nodes: [{device: k80}]", "describes hardware to train on"),
        ("- a\n", "is not a list of `key: value` lines"),
    ],
)
def test_malformed_files_are_refused(tmp_path: Path, text: str, complaint: str) -> None:
    with pytest.raises(InvalidData, match=r"cluster\.yaml: ") as refused:
        fleet(tmp_path, text)
    assert complaint in str(refused.value)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(MissingData, match="does not exist"):
        read_fleet(tmp_path / "none.yaml")
