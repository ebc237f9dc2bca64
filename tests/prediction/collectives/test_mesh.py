"""Rings through the hybrid cube mesh of a DGX-1, whose all-reduce rates vTrain measured."""

import pytest

from foretrain.facts.hardware import node
from foretrain.prediction.collectives.network import rings_by_size


def test_the_cube_mesh_has_as_many_rings_as_its_measured_rates_are_links() -> None:
    """22.6 GB/s a link: 2 devices 23 GB/s, then 45, 85, 37, 46, 87 and 135 GB/s."""
    mesh = node("dgx-1v").sheet.text("mesh_links")
    assert rings_by_size(mesh) == pytest.approx((0, 1, 2, 4, 1.6, 2, 4, 6))


def test_each_device_of_the_mesh_has_six_links() -> None:
    mesh = node("dgx-1v").sheet.text("mesh_links")
    count = dict.fromkeys(range(8), 0)
    for item in mesh.split():
        ends, _, links = item.partition(":")
        for end in ends.split("-"):
            count[int(end)] += int(links)
    assert set(count.values()) == {6}


def test_a_square_has_one_bidirectional_cycle_and_a_line_only_a_tree() -> None:
    assert rings_by_size("0-1:1 1-2:1 2-3:1 0-3:1")[3] == 2
    assert rings_by_size("0-1:1 1-2:1")[2] == pytest.approx(4 / 3)


def test_a_full_mesh_uses_every_second_link_in_both_directions() -> None:
    """Eight devices with a link to each other: three disjoint cycles, one matching left over."""
    mesh = " ".join(f"{first}-{second}:1" for first in range(8) for second in range(first + 1, 8))
    assert rings_by_size(mesh) == (0, 1, 2, 2, 4, 4, 6, 6)
