from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretrain.errors import InvalidData, InvalidRequest, MissingData, UnknownName
from foretrain.facts.devices import device, devices
from foretrain.facts.hardware import hardware
from foretrain.facts.topology import (
    Connection,
    PathKind,
    Topology,
    explain_topology,
    links_among,
    parse_topology,
)
from foretrain.prediction.collectives.network import network_of

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"
DGX_A100 = (EXAMPLES / "dgx-a100-topology.txt").read_text()
NVLINK_PAIRS = (EXAMPLES / "nvlink-pairs-topology.txt").read_text()
"""Four RTX 3090 of a workstation, a bridge on each two."""

FOUR_BEHIND_ONE_BRIDGE = """\
ubuntu@host:~$ nvidia-smi topo -m

\tGPU0\tGPU1\tGPU2\tGPU3\tCPU Affinity
GPU0\t X \tPHB\tPHB\tPHB\t0-7
GPU1\tPHB\t X \tPHB\tPHB\t0-7
GPU2\tPHB\tPHB\t X \tPHB\t0-7
GPU3\tPHB\tPHB\tPHB\t X \t0-7

Legend:

  X   = Self
  SOC = Connection traversing PCIe as well as the SMP link between CPU sockets(e.g. QPI)
  PHB = Connection traversing PCIe as well as a PCIe Host Bridge (typically the CPU)
"""

# DGX-1V: hybrid cube mesh, four NICs, the driver underlines the header.
CUBE_MESH = """\
\x1b[4m\tGPU0\tGPU1\tGPU2\tGPU3\tGPU4\tGPU5\tGPU6\tGPU7\tmlx5_0\tmlx5_2\tmlx5_1\tmlx5_3\tCPU Affinity\x1b[0m
GPU0\t X \tNV1\tNV1\tNV2\tNV2\tSYS\tSYS\tSYS\tPIX\tSYS\tPHB\tSYS\t0-19,40-59
GPU1\tNV1\t X \tNV2\tNV1\tSYS\tNV2\tSYS\tSYS\tPIX\tSYS\tPHB\tSYS\t0-19,40-59
GPU2\tNV1\tNV2\t X \tNV2\tSYS\tSYS\tNV1\tSYS\tPHB\tSYS\tPIX\tSYS\t0-19,40-59
GPU3\tNV2\tNV1\tNV2\t X \tSYS\tSYS\tSYS\tNV1\tPHB\tSYS\tPIX\tSYS\t0-19,40-59
GPU4\tNV2\tSYS\tSYS\tSYS\t X \tNV1\tNV1\tNV2\tSYS\tPIX\tSYS\tPHB\t20-39,60-79
GPU5\tSYS\tNV2\tSYS\tSYS\tNV1\t X \tNV2\tNV1\tSYS\tPIX\tSYS\tPHB\t20-39,60-79
GPU6\tSYS\tSYS\tNV1\tSYS\tNV1\tNV2\t X \tNV2\tSYS\tPHB\tSYS\tPIX\t20-39,60-79
GPU7\tSYS\tSYS\tSYS\tNV1\tNV2\tNV1\tNV2\t X \tSYS\tPHB\tSYS\tPIX\t20-39,60-79
mlx5_0\tPIX\tPIX\tPHB\tPHB\tSYS\tSYS\tSYS\tSYS\t X \tSYS\tPHB\tSYS\t
mlx5_2\tSYS\tSYS\tSYS\tSYS\tPIX\tPIX\tPHB\tPHB\tSYS\t X \tSYS\tPHB\t
mlx5_1\tPHB\tPHB\tPIX\tPIX\tSYS\tSYS\tSYS\tSYS\tPHB\tSYS\t X \tSYS\t
mlx5_3\tSYS\tSYS\tSYS\tSYS\tPHB\tPHB\tPIX\tPIX\tSYS\tPHB\tSYS\t X \t
"""

# DGX A100 as a recent driver prints it: spaces, NIC names in a legend of their own, three affinity columns.
SWITCHED = """\
        GPU0    GPU1    GPU2    GPU3    NIC0    NIC1    CPU Affinity    NUMA Affinity   GPU NUMA ID
GPU0     X      NV12    NV12    NV12    PXB     SYS     48-63,176-191   3               N/A
GPU1    NV12     X      NV12    NV12    PXB     SYS     48-63,176-191   3               N/A
GPU2    NV12    NV12     X      NV12    SYS     PXB     16-31,144-159   1               N/A
GPU3    NV12    NV12    NV12     X      SYS     PXB     16-31,144-159   1               N/A
NIC0    PXB     PXB     SYS     SYS      X      SYS
NIC1    SYS     SYS     PXB     PXB     SYS      X

Legend:
  X    = Self
  NV#  = Connection traversing a bonded set of # NVLinks

NIC Legend:
  NIC0: mlx5_0
  NIC1: mlx5_1
"""

TWO_SOCKETS = """\
     GPU0 GPU1 GPU2 GPU3
GPU0 X    PIX  SOC  SOC
GPU1 PIX  X    SOC  SOC
GPU2 SOC  SOC  X    PHB
GPU3 SOC  SOC  PHB  X
"""


def test_four_gpus_behind_one_host_bridge() -> None:
    machine = parse_topology(FOUR_BEHIND_ONE_BRIDGE)
    assert machine.gpus == ("GPU0", "GPU1", "GPU2", "GPU3")
    assert machine.nics == ()
    assert machine.connection("GPU0", "GPU3") == Connection(PathKind.PHB)
    assert machine.worst_path() == Connection(PathKind.PHB)
    assert machine.groups(PathKind.PHB) == (machine.gpus,)
    assert machine.groups(PathKind.PXB) == (("GPU0",), ("GPU1",), ("GPU2",), ("GPU3",))
    assert not machine.is_fully_nvlinked
    assert machine.nearest_nic("GPU0") is None


def test_hybrid_cube_mesh_is_one_island_but_not_fully_linked() -> None:
    machine = parse_topology(CUBE_MESH)
    assert len(machine.gpus) == 8
    assert machine.nics == ("mlx5_0", "mlx5_2", "mlx5_1", "mlx5_3")
    assert machine.connection("GPU0", "GPU3") == Connection(PathKind.NVLINK, 2)
    assert machine.groups() == (machine.gpus,)
    assert not machine.is_fully_nvlinked
    assert machine.worst_path().kind == PathKind.SYS
    assert machine.worst_path(["GPU0", "GPU1", "GPU2", "GPU3"]) == Connection(PathKind.NVLINK, 1)
    assert [machine.nearest_nic(gpu) for gpu in ("GPU1", "GPU2", "GPU5", "GPU7")] == [
        "mlx5_0",
        "mlx5_1",
        "mlx5_2",
        "mlx5_3",
    ]


def test_each_gpu_of_the_cube_mesh_has_six_links() -> None:
    machine = parse_topology(CUBE_MESH)
    for gpu in machine.gpus:
        assert sum(machine.connection(gpu, other).nvlinks for other in machine.gpus) == 6


def test_switched_machine_is_fully_linked() -> None:
    machine = parse_topology(SWITCHED)
    assert machine.gpus == ("GPU0", "GPU1", "GPU2", "GPU3")
    assert machine.nics == ("NIC0", "NIC1")
    assert machine.is_fully_nvlinked
    assert machine.worst_path() == Connection(PathKind.NVLINK, 12)
    assert machine.nearest_nic("GPU3") == "NIC1"


def test_groups_by_what_they_share() -> None:
    machine = parse_topology(TWO_SOCKETS)
    assert machine.groups(PathKind.NVLINK) == (("GPU0",), ("GPU1",), ("GPU2",), ("GPU3",))
    assert machine.groups(PathKind.PXB) == (("GPU0", "GPU1"), ("GPU2",), ("GPU3",))
    assert machine.groups(PathKind.PHB) == (("GPU0", "GPU1"), ("GPU2", "GPU3"))
    assert machine.groups(PathKind.SYS) == (machine.gpus,)
    assert machine.connection("GPU0", "GPU2").kind == PathKind.SYS  # SOC is the old name


def test_a_single_gpu_is_its_own_worst_path() -> None:
    machine = parse_topology("\tGPU0\tCPU Affinity\tNUMA Affinity\nGPU0\t X \t0-7\t\tN/A\n")
    assert machine.worst_path() == Connection(PathKind.SELF)
    assert not machine.is_fully_nvlinked


def test_what_the_terminal_prints_after_the_matrix_does_not_matter() -> None:
    assert parse_topology(TWO_SOCKETS + "user@host:~$ exit\n") == parse_topology(TWO_SOCKETS)


def test_paths_are_ordered_from_best_to_worst() -> None:
    assert sorted(PathKind) == list(PathKind)
    assert PathKind.NVLINK < PathKind.PIX < PathKind.PXB < PathKind.PHB < PathKind.NODE < PathKind.SYS


def test_unknown_device_suggests_near_ones() -> None:
    with pytest.raises(UnknownName, match="GPU3"):
        parse_topology(TWO_SOCKETS).connection("GPU0", "GPU33")


@pytest.mark.parametrize(
    ("text", "row", "problem"),
    [
        ("", None, "no matrix"),
        ("bash: nvidia-smi: command not found", None, "no matrix"),
        (TWO_SOCKETS.replace("GPU1 PIX  X    SOC  SOC", "GPU1 PIX  X    SOC"), 3, "3 connections"),
        (TWO_SOCKETS.replace("GPU1 PIX  X    SOC  SOC", "GPU1 PIX  X    SOC  SOC SOC"), 3, "5 connections"),
        (TWO_SOCKETS.replace("GPU2 SOC  SOC  X    PHB", "GPU2 SOC  SOC  X    PXB"), 4, "not the same"),
        (TWO_SOCKETS.replace("PIX", "FOO"), 2, "unknown connection 'FOO'"),
        (TWO_SOCKETS.replace("PIX", "NV0"), 2, "unknown connection 'NV0'"),
        (TWO_SOCKETS.replace("PIX", "X"), 2, "diagonal"),
        (TWO_SOCKETS.replace("GPU2 SOC  SOC  X ", "GPU2 SOC  SOC  PIX "), 4, "diagonal"),
        (TWO_SOCKETS.split("\n", 1)[1], 1, "header"),
        (TWO_SOCKETS.replace("GPU0 GPU1 GPU2 GPU3", "GPU0 GPU1 GPU2 GPU2"), 1, "twice"),
        (TWO_SOCKETS.replace("GPU3 SOC", "GPU9 SOC"), 5, "expected the row of GPU3"),
        (TWO_SOCKETS + "GPU4 SOC  SOC  PHB  X\n", 6, "a row of GPU4"),
        ("\n".join(TWO_SOCKETS.splitlines()[:-1]), None, "only 3 rows"),
    ],
)
def test_malformed_matrix_names_the_row(text: str, row: int | None, problem: str) -> None:
    with pytest.raises(InvalidData, match=problem) as caught:
        parse_topology(text, file="topo.txt")
    assert caught.value.file == "topo.txt"
    assert caught.value.row == row


def _render(machine: Topology, gap: str, affinity: bool) -> str:
    """The matrix as nvidia-smi prints it."""

    def code(connection: Connection) -> str:
        special = {PathKind.SELF: "X", PathKind.NVLINK: f"NV{connection.nvlinks}"}
        return special.get(connection.kind, connection.kind.name)

    header = [*machine.names, *(["CPU Affinity", "NUMA Affinity"] if affinity else [])]
    rows = [
        [name, *map(code, row), *(["0-7,16-23", "N/A"] if affinity and name in machine.gpus else [])]
        for name, row in zip(machine.names, machine.matrix, strict=True)
    ]
    return "\n".join(gap.join(row) for row in [["", *header], *rows])


@st.composite
def _topologies(draw: st.DrawFn) -> Topology:
    gpus = tuple(f"GPU{i}" for i in range(draw(st.integers(1, 8))))
    nics = tuple(f"mlx5_{i}" for i in range(draw(st.integers(0, 3))))
    names = gpus + nics
    nvlink = st.integers(1, 18).map(lambda count: Connection(PathKind.NVLINK, count))
    wired = st.sampled_from([PathKind.PIX, PathKind.PXB, PathKind.PHB, PathKind.NODE, PathKind.SYS])
    pair = st.one_of(nvlink, wired.map(Connection))
    upper = {(i, j): draw(pair) for i in range(len(names)) for j in range(i + 1, len(names))}
    matrix = tuple(
        tuple(Connection(PathKind.SELF) if i == j else upper[min(i, j), max(i, j)] for j in range(len(names)))
        for i in range(len(names))
    )
    return Topology(gpus, nics, names, matrix)


@given(_topologies(), st.sampled_from(["\t", "   ", " \t "]), st.booleans())
def test_parsing_undoes_printing(machine: Topology, gap: str, affinity: bool) -> None:
    assert parse_topology(_render(machine, gap, affinity)) == machine


@given(_topologies(), st.sampled_from(list(PathKind)))
def test_groups_partition_the_gpus_and_merge_as_the_path_gets_worse(
    machine: Topology, within: PathKind
) -> None:
    groups = machine.groups(within)
    assert sorted(gpu for group in groups for gpu in group) == sorted(machine.gpus)
    assert len(machine.groups(PathKind.SYS)) == 1
    assert len(groups) <= len(machine.groups(PathKind.SELF)) == len(machine.gpus)


@given(_topologies())
def test_worst_path_is_no_better_than_any_pair(machine: Topology) -> None:
    worst = machine.worst_path().badness
    assert all(machine.connection(a, b).badness <= worst for a in machine.gpus for b in machine.gpus)


@pytest.mark.parametrize(
    ("text", "name", "devices", "links"),
    [
        (DGX_A100, "a100-sxm-80gb", 8, "nvswitch2"),
        (DGX_A100, "a100-sxm-80gb", 4, "nvswitch2"),
        (NVLINK_PAIRS, "rtx3090", 2, "nvlink3:4"),
        (NVLINK_PAIRS, "rtx3090", 4, "two-bridges"),  # a ring crosses the sockets
        (FOUR_BEHIND_ONE_BRIDGE, "gtx1080ti", 4, "host-bridge"),
        (TWO_SOCKETS, "p100-pcie", 2, "pcie-switch"),
        (TWO_SOCKETS, "rtx4090", 2, "host-memory"),  # under a switch, but no peers
        (TWO_SOCKETS, "p100-pcie", 4, "two-bridges"),
        (CUBE_MESH, "v100-sxm2-16gb", 3, "nvlink2@0-1:1,0-2:1,1-2:2"),
    ],
)
def test_links_between_the_first_gpus(text: str, name: str, devices: int, links: str) -> None:
    assert links_among(parse_topology(text), device(name), devices) == links


def test_the_matrix_of_a_known_machine_gives_its_known_links() -> None:
    for text, machine in ((DGX_A100, "dgx-a100"), (CUBE_MESH, "dgx-1v")):
        known = hardware(machine)
        links = links_among(parse_topology(text), known.device, known.devices_per_node)
        by_matrix, by_facts = network_of(known, links).intra, network_of(known).intra
        assert by_matrix is not None
        assert by_facts is not None
        assert by_matrix.bytes_per_second_per_device == by_facts.bytes_per_second_per_device
        assert (by_matrix.link, by_matrix.rings) == (by_facts.link, by_facts.rings)


def test_a_matrix_of_another_machine_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="by 12 NVLinks, and l40s has none"):
        links_among(parse_topology(DGX_A100), device("l40s"))
    with pytest.raises(InvalidRequest, match="by 12 NVLinks, and v100-sxm2-16gb has 6"):
        links_among(parse_topology(DGX_A100), device("v100-sxm2-16gb"))
    with pytest.raises(InvalidRequest, match=r"has 4 GPUs; it cannot say how 8"):
        links_among(parse_topology(NVLINK_PAIRS), device("rtx3090"), 8)


def test_tiers_from_the_best_path_to_the_worst() -> None:
    answer = explain_topology(parse_topology(NVLINK_PAIRS), device("rtx3090"))
    assert [(tier.path, tier.groups) for tier in answer.tiers] == [
        ("NV4", (("GPU0", "GPU1"), ("GPU2", "GPU3"))),
        ("SYS", (("GPU0", "GPU1", "GPU2", "GPU3"),)),
    ]
    assert answer.links == "two-bridges"
    assert explain_topology(parse_topology(DGX_A100)).nearest_nics["GPU4"] == "mlx5_4"


def test_a_cluster_file_names_the_matrix_beside_it(tmp_path: Path) -> None:
    (tmp_path / "node.txt").write_text(NVLINK_PAIRS)
    file = tmp_path / "cluster.yaml"
    file.write_text("nodes: [{device: rtx3090, devices: 4, topology: node.txt}]")
    assert hardware(str(file)).links == "two-bridges"
    file.write_text("nodes: [{device: rtx3090, devices: 4, links: pcie4-x16, topology: node.txt}]")
    with pytest.raises(InvalidData, match="both links and topology"):
        hardware(str(file))
    file.write_text("nodes: [{device: rtx3090, devices: 4, topology: other.txt}]")
    with pytest.raises(InvalidData, match="no topology file"):
        hardware(str(file))


def _driver(folder: Path, names: str, matrix: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An `nvidia-smi` that answers as a driver would."""
    (folder / "names").write_text(names)
    (folder / "matrix").write_text(matrix)
    tool = folder / "nvidia-smi"
    tool.write_text(f'#!/bin/sh\n[ "$1" = topo ] && exec cat {folder}/matrix\nexec cat {folder}/names\n')
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    monkeypatch.setenv("FORETRAIN_HOME", str(folder / "home"))
    devices.cache_clear()


def test_here_is_what_the_driver_reports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _driver(tmp_path, "NVIDIA GeForce RTX 3090\n" * 4, NVLINK_PAIRS, monkeypatch)
    here = hardware("here")
    assert (here.device.id, here.devices_per_node, here.links) == ("rtx3090", 4, "two-bridges")
    pair = hardware("here:2")
    assert (pair.devices_per_node, pair.links) == (2, "nvlink3:4")
    with pytest.raises(InvalidRequest, match="reports 4"):
        hardware("here:8")


def test_here_needs_equal_gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _driver(tmp_path, "NVIDIA GeForce RTX 3090\nTesla T4\n", TWO_SOCKETS, monkeypatch)
    with pytest.raises(InvalidRequest, match=r"differ \(NVIDIA GeForce RTX 3090, Tesla T4\)"):
        hardware("here")


def test_here_without_a_driver_is_the_cpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _driver(tmp_path, "", "", monkeypatch)
    with pytest.raises(MissingData, match="calibrate --here"):
        hardware("here")
