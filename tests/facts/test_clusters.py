"""Clusters from files: what their entries mean, equal nodes as plain hardware, errors that teach."""

from __future__ import annotations

from pathlib import Path

import pytest

from foretrain.errors import InvalidData, InvalidRequest, MissingData
from foretrain.facts.hardware import Cluster, cluster, hardware, with_power_limit


def written(folder: Path, text: str) -> str:
    file = folder / "cluster.yaml"
    file.write_text(text)
    return str(file)


def test_every_kind_of_entry(tmp_path: Path) -> None:
    file = written(
        tmp_path,
        """
        nodes:
          - {device: RTX 2080 Ti, devices: 4, count: 2, links: pcie3-x16}
          - {node: dgx-h100}
          - {instance: "aws:p4d.24xlarge", count: 2}
        network: infiniband-ndr:8
        """,
    )
    lab = cluster(file)
    assert isinstance(lab, Cluster)
    assert [group.name for group in lab.groups] == ["rtx2080ti:4x2", "dgx-h100", "aws:p4d.24xlarge:2"]
    assert [group.devices for group in lab.groups] == [8, 8, 16]
    assert (lab.devices, lab.nodes) == (32, 5)
    assert [group.links for group in lab.groups] == ["pcie3-x16", None, None]
    assert {group.network for group in lab.groups} == {"infiniband-ndr:8"}
    assert lab.groups[1].node is not None
    assert lab.groups[2].offer is not None


@pytest.mark.parametrize(
    ("entries", "same"),
    [
        ("[{device: t4, devices: 4, count: 2}]", "t4:4x2"),
        ("[{device: t4, devices: 4}, {device: t4, devices: 4}]", "t4:4x2"),
        ("[{device: Tesla T4}]", "t4"),
        ("[{device: t4, devices: 4}]", "t4:4"),
        ("[{device: t4, count: 3}]", "t4:1x3"),
        ("[{node: dgx-h100}]", "dgx-h100"),
        ("[{instance: 'aws:p4d.24xlarge', count: 2}]", "aws:p4d.24xlarge:2"),
    ],
)
def test_equal_nodes_are_plain_hardware(tmp_path: Path, entries: str, same: str) -> None:
    file = written(tmp_path, f"nodes: {entries}")
    assert hardware(file) == hardware(same)
    assert cluster(file) == cluster(same) == Cluster(same, (hardware(same),))


def test_nodes_with_other_links_are_not_equal(tmp_path: Path) -> None:
    file = written(tmp_path, "nodes: [{device: t4, devices: 4}, {device: t4, devices: 4, links: pcie3-x8}]")
    assert len(cluster(file).groups) == 2
    with pytest.raises(InvalidRequest, match=r"heterogeneous cluster \(t4:4, t4:4\)"):
        hardware(file)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nodes: [", "is not YAML"),
        ("resnet50", "key: value"),
        ("network: ethernet-10g", "`nodes` is required: The nodes, e.g. `nodes: "),
        ("nodes: []", r"`nodes` is \[\]; it must be a list of at least one entry"),
        ("nodes: [t4]", "entry 1: 't4' is not of the form"),
        ("nodez: [{device: t4}]", "no field 'nodez'; did you mean nodes"),
        ("nodes: [{device: t4}, {device: t4, device_count: 2}]", "entry 2: no field 'device_count'"),
        ("nodes: [{count: 2}]", "none of device, node, instance"),
        ("nodes: [{device: t4, node: dgx-h100}]", "both device and node"),
        ("nodes: [{device: 4}]", "entry 1: `device` is 4; it must be text"),
        ("nodes: [{device: t4, count: 0}]", "entry 1: `count` is 0; it must be a whole number"),
        ("nodes: [{device: t4, devices: true}]", "entry 1: `devices` is True"),
        ("nodes: [{node: dgx-h100, devices: 4}]", "devices is known of a node"),
        ("nodes: [{device: rtx2080to}]", "entry 1: no device 'rtx2080to'; did you mean"),
        ("nodes: [{device: a100}]", "entry 1: 'a100' is a family"),
        ("nodes: [{node: dgx-h10}]", "entry 1: no node 'dgx-h10'; did you mean dgx-h100"),
        ("nodes: [{instance: 'aws:p4d.24xlarge:2'}]", "how many as count"),
        ("nodes: [{instance: t4}]", "PROVIDER:INSTANCE"),
        ("nodes: [{device: t4, links: pcie33-x16}]", "entry 1: `links`: no link 'pcie33-x16'; did"),
        ("nodes: [{device: t4}]\nnetwork: ethernet-11g", "`network`: no link 'ethernet-11g'; did you mean"),
        ("nodes: [{device: t4}]\nnetwork: 10", "`network` is 10; it must be LINK or LINK:COUNT"),
    ],
)  # fmt: skip
def test_malformed_files_are_explained(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InvalidData, match=message):
        cluster(written(tmp_path, text))


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(MissingData, match=r"the cluster file .* does not exist"):
        hardware(str(tmp_path / "none.yaml"))


def test_a_power_limit_is_that_of_every_device() -> None:
    limited = with_power_limit(cluster("h100-sxm:8x2"), 500.0)
    assert [group.device.tdp_watts for group in limited.groups] == [500.0]
    assert (limited.name, limited.devices) == ("h100-sxm:8x2 at 500 W", 16)
    assert with_power_limit(cluster("h100-sxm"), None) == cluster("h100-sxm")


@pytest.mark.parametrize("watts", [0.0, 701.0])
def test_a_power_limit_is_within_the_data_sheet(watts: float) -> None:
    with pytest.raises(InvalidRequest, match="at most its 700 W"):
        with_power_limit(cluster("h100-sxm"), watts)
